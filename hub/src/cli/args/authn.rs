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
    /// Whom tokens have to be for to be taken here. Without it: the issuers.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub api_audiences: Vec<String>,
    /// The longest life of a service account's token; whoever asks for more gets this. 0: what is asked for. An hour at least.
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = longest)]
    pub service_account_max_token_expiration: Duration,
    /// Where others find the keys of service accounts' tokens. Without it: under the first --advertise.
    #[arg(long, value_name = "URL")]
    pub service_account_jwks_uri: Option<String>,
}

fn longest(text: &str) -> Result<Duration, String> {
    let longest = if text == "0" { Duration::ZERO } else { duration::parse(text)? };
    match longest.is_zero() || longest >= LEAST {
        true => Ok(longest),
        false => Err(format!("{text} is too short; it must be 0 or at least 1h")),
    }
}
