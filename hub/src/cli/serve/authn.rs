//! Who is known to the embedded API, by the arguments and the keys of the data directory.

use std::sync::Arc;

use karmada_apiserver::{
    authn::{
        Authenticator,
        accounts::{ServiceAccounts, Settings},
    },
    pki::Pki,
};
use karmada_cli::Failure;
use karmada_env::Env;

use super::{ServeArgs, pki_failure, tokens};

/// Who is who. `url` is where the server is reached.
pub(super) fn authenticator(
    args: &ServeArgs,
    pki: &Pki,
    url: &str,
    env: &Env,
) -> Result<Authenticator, Failure> {
    let authn = &args.authn;
    let longest = authn.service_account_max_token_expiration;
    let settings = Settings {
        issuers: authn.service_account_issuer.clone(),
        audiences: authn.api_audiences.clone(),
        longest: (!longest.is_zero()).then_some(longest),
        jwks_uri: authn.service_account_jwks_uri.clone().unwrap_or_else(|| format!("{url}/openid/v1/jwks")),
        ca_pem: pki.ca_pem().to_owned(),
    };
    let accounts = ServiceAccounts::new(settings, pki.service_account_keys().map_err(pki_failure)?);
    Ok(Authenticator::new(tokens(args)?, env.clone()).with_service_accounts(Arc::new(accounts)))
}
