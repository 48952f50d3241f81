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
    /// Users with bearer tokens, in the format of Kubernetes' static token file: one token,user,uid,"group,group" per
    /// line. The hub reads it when it starts.
    #[arg(long, value_name = "FILE")]
    pub token_auth_file: Option<PathBuf>,
    /// The issuer of service account tokens, as a URL. May be given more than once: the hub writes the first into
    /// tokens and accepts all.
    #[arg(long, value_name = "URL", default_value = karmada_apiserver::authn::accounts::ISSUER)]
    pub service_account_issuer: Vec<String>,
    /// Audiences of the API: a service account token must name one of them. Without it: the issuers.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub api_audiences: Vec<String>,
    /// The longest lifetime of a service account token, at least 1h. Requests for more get this. 0: no limit.
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = longest)]
    pub service_account_max_token_expiration: Duration,
    /// The URL at which others find the public keys for service account tokens. Without it: a path under the first
    /// --advertise.
    #[arg(long, value_name = "URL")]
    pub service_account_jwks_uri: Option<String>,
    /// How long agents' certificates are valid, unless the request asks for another time (at most a year).
    #[arg(long, value_name = "DURATION", default_value = "720h", value_parser = life)]
    pub cluster_signing_duration: Duration,
    /// How long after its certificate has expired an agent can still get a new one by itself. It proves that it has the
    /// old key, and can do nothing else with it. Agents whose credentials were revoked, or whose Cluster was deleted,
    /// cannot. 0: never.
    #[arg(long, value_name = "DURATION", default_value = "2160h", value_parser = duration::parse)]
    pub agent_certificate_grace: Duration,
    /// The OpenID Connect issuer whose ID tokens the hub accepts, as https://HOST/PATH, exactly as its tokens name it.
    /// The hub fetches its keys there and keeps using them while it cannot reach the issuer.
    #[arg(long, value_name = "URL", requires = "oidc_client_id")]
    pub oidc_issuer_url: Option<String>,
    /// The client ID. The issuer's ID tokens must name it as their audience.
    #[arg(long, value_name = "ID", requires = "oidc_issuer_url")]
    pub oidc_client_id: Option<String>,
    /// The claim that contains the user's name.
    #[arg(long, value_name = "CLAIM", default_value = "sub", requires = "oidc_issuer_url")]
    pub oidc_username_claim: String,
    /// A prefix for the names of the issuer's users. Without it: the issuer's URL and #, or no prefix if the claim is
    /// email. -: no prefix. Names that begin with system: are never accepted.
    #[arg(long, value_name = "PREFIX", requires = "oidc_issuer_url")]
    pub oidc_username_prefix: Option<String>,
    /// The claim that lists the user's groups. Without it, users have no groups.
    #[arg(long, value_name = "CLAIM", requires = "oidc_issuer_url")]
    pub oidc_groups_claim: Option<String>,
    /// A prefix for the names of these groups. Groups that begin with system: are ignored.
    #[arg(long, value_name = "PREFIX", requires = "oidc_issuer_url")]
    pub oidc_groups_prefix: Option<String>,
    /// A claim that ID tokens must have with this value. May be given more than once.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = pair, requires = "oidc_issuer_url")]
    pub oidc_required_claim: Vec<(String, String)>,
    /// The CA certificates for the issuer's certificate, in PEM. Without it: the system's.
    #[arg(long, value_name = "FILE", requires = "oidc_issuer_url")]
    pub oidc_ca_file: Option<PathBuf>,
    /// The signature algorithms that the hub accepts: RS256, RS384, RS512, ES256, ES384, PS256, PS384, PS512.
    #[arg(
        long,
        value_name = "ALGS",
        value_delimiter = ',',
        default_value = "RS256",
        requires = "oidc_issuer_url"
    )]
    pub oidc_signing_algs: Vec<String>,
    /// A file with the client secret from the issuer, for users who log in to the hub's page. Without it the hub is a
    /// public client. Register https://HUB/ui/login/done as the redirect URI.
    #[arg(long, value_name = "FILE", requires = "oidc_issuer_url")]
    pub oidc_client_secret_file: Option<PathBuf>,
    /// Scopes that the hub requests in addition to openid when somebody logs in to its page. Name email and groups here
    /// if the issuer needs them for these claims.
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
