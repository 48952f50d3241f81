//! Who is known, and by what. The names are kube-apiserver's.

use std::{path::PathBuf, time::Duration};

use clap::Args as ClapArgs;
use karmada_meta::duration;

/// The shortest that the longest life of a token may be.
const LEAST: Duration = Duration::from_secs(3600);

/// Whom the embedded API knows.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Authentication")]
pub struct AuthnArgs {
    /// Users who come with a bearer token: Kubernetes' static token file, one token,user,uid,"group,group" a line. Read
    /// at the start.
    #[arg(long, value_name = "FILE")]
    pub token_auth_file: Option<PathBuf>,
    /// Who issues the tokens of service accounts, as a URL. May be given more than once: the first is written into tokens, all
    /// are believed.
    #[arg(long, value_name = "URL", default_value = karmada_apiserver::authn::accounts::ISSUER)]
    pub service_account_issuer: Vec<String>,
    /// The audiences of which a service account's token has to name one. Without it: the issuers.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub api_audiences: Vec<String>,
    /// The longest life of a service account's token; whoever asks for more gets this. 0: what is asked for. An hour at least.
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = longest)]
    pub service_account_max_token_expiration: Duration,
    /// Where others find the keys of service accounts' tokens. Without it: under the first --advertise.
    #[arg(long, value_name = "URL")]
    pub service_account_jwks_uri: Option<String>,
    /// How long certificates of agents last, unless the request asks for another time (a year at most).
    #[arg(long, value_name = "DURATION", default_value = "720h", value_parser = life)]
    pub cluster_signing_duration: Duration,
    /// For how long after its certificate has ended an agent may still come back by itself: it proves the old key, and gets
    /// nothing by it but a new certificate. What was revoked, or whose Cluster was deleted, never comes back so. 0: never.
    #[arg(long, value_name = "DURATION", default_value = "2160h", value_parser = duration::parse)]
    pub agent_certificate_grace: Duration,
    /// The OpenID issuer whose ID tokens let users in, as https://HOST/PATH and as its tokens have it. Its keys are fetched
    /// from there, and go on while it is away.
    #[arg(long, value_name = "URL", requires = "oidc_client_id")]
    pub oidc_issuer_url: Option<String>,
    /// The client id that its ID tokens have to name as their audience.
    #[arg(long, value_name = "ID", requires = "oidc_issuer_url")]
    pub oidc_client_id: Option<String>,
    /// The claim that is the user's name.
    #[arg(long, value_name = "CLAIM", default_value = "sub", requires = "oidc_issuer_url")]
    pub oidc_username_claim: String,
    /// A prefix for the names of its users. Without it: the issuer's URL and #, or nothing if the claim is email. -: nothing.
    /// Names that begin with system: are never taken.
    #[arg(long, value_name = "PREFIX", requires = "oidc_issuer_url")]
    pub oidc_username_prefix: Option<String>,
    /// The claim that lists the user's groups. Without it there are none.
    #[arg(long, value_name = "CLAIM", requires = "oidc_issuer_url")]
    pub oidc_groups_claim: Option<String>,
    /// A prefix for the names of those groups. Groups that begin with system: are left out.
    #[arg(long, value_name = "PREFIX", requires = "oidc_issuer_url")]
    pub oidc_groups_prefix: Option<String>,
    /// A claim that has to have this value; may be given more than once.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = pair, requires = "oidc_issuer_url")]
    pub oidc_required_claim: Vec<(String, String)>,
    /// The authorities for the issuer's certificate, as PEM. Without it: the system's.
    #[arg(long, value_name = "FILE", requires = "oidc_issuer_url")]
    pub oidc_ca_file: Option<PathBuf>,
    /// The algorithms that its signatures may be of: RS256, RS384, RS512, ES256, ES384, PS256, PS384, PS512.
    #[arg(
        long,
        value_name = "ALGS",
        value_delimiter = ',',
        default_value = "RS256",
        requires = "oidc_issuer_url"
    )]
    pub oidc_signing_algs: Vec<String>,
    /// A file with the secret that the issuer gave for the client id. Without it the hub is a public client. For logging in to
    /// the page: its address to come back to is https://HUB/ui/login/done.
    #[arg(long, value_name = "FILE", requires = "oidc_issuer_url")]
    pub oidc_client_secret_file: Option<PathBuf>,
    /// The scopes that are asked for beside openid when somebody logs in to the page, as email and groups are where the
    /// issuer wants that for those claims.
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', requires = "oidc_issuer_url")]
    pub oidc_login_scopes: Vec<String>,
}

fn life(text: &str) -> Result<Duration, String> {
    duration::parse(text)
        .and_then(|life| if life.is_zero() { Err("must be longer than 0".to_owned()) } else { Ok(life) })
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is not KEY=VALUE")),
    }
}

fn longest(text: &str) -> Result<Duration, String> {
    let longest = if text == "0" { Duration::ZERO } else { duration::parse(text)? };
    match longest.is_zero() || longest >= LEAST {
        true => Ok(longest),
        false => Err(format!("{text} is too short; it must be 0 or at least 1h")),
    }
}
