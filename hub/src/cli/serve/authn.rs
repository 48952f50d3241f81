//! Who is known to the embedded API, by the arguments and the keys of the data directory.

use std::{path::Path, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use karmada_apiserver::{
    authn::{
        Authenticator,
        accounts::{ServiceAccounts, Settings},
        oidc::{self, IssuerClient, Oidc},
    },
    pki::Pki,
};
use karmada_cli::Failure;
use karmada_client::fetch::Fetcher;
use karmada_env::{Env, Secret};
use tokio_util::sync::CancellationToken;

use super::{ServeArgs, pki_failure, tokens};
use crate::page::Issuer;

/// How long an issuer may take for a document.
const PATIENCE: Duration = Duration::from_secs(10);
/// The largest document of an issuer that is read.
const LARGEST: usize = 512 * 1024;

/// Asks an issuer over the network.
#[derive(Debug)]
struct Network(Fetcher);

impl IssuerClient for Network {
    fn get<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<Vec<u8>, String>> {
        Box::pin(self.0.get(url))
    }

    fn post<'a>(
        &'a self,
        url: &'a str,
        form: String,
        as_whom: Option<(&'a str, &'a Secret)>,
    ) -> BoxFuture<'a, Result<Vec<u8>, String>> {
        let as_whom = as_whom.map(|(name, secret)| (name, secret.expose()));
        Box::pin(self.0.post_form(url, form, as_whom))
    }
}

/// The issuer that the arguments name.
pub(super) fn issuer(args: &ServeArgs) -> Result<Option<Issuer>, Failure> {
    let authn = &args.authn;
    let Some(issuer) = &authn.oidc_issuer_url else { return Ok(None) };
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let oidc = Oidc::new(oidc::Settings {
        issuer: issuer.clone(),
        client_id: text(&authn.oidc_client_id),
        username_claim: authn.oidc_username_claim.clone(),
        username_prefix: text(&authn.oidc_username_prefix),
        groups_claim: text(&authn.oidc_groups_claim),
        groups_prefix: text(&authn.oidc_groups_prefix),
        required: authn.oidc_required_claim.iter().cloned().collect(),
        algorithms: authn.oidc_signing_algs.clone(),
        client_secret: authn.oidc_client_secret_file.as_deref().map(secret).transpose()?.map(Arc::new),
        scopes: authn.oidc_login_scopes.clone(),
    });
    let oidc = Arc::new(oidc.map_err(Failure::usage)?);
    let wrong = |why: String| Failure::usage(format!("--oidc-ca-file: {why}"));
    let authorities = authn.oidc_ca_file.as_ref().map(std::fs::read).transpose();
    let authorities = authorities.map_err(|error| wrong(error.to_string()))?;
    let fetcher = Fetcher::new(authorities.as_deref(), PATIENCE, LARGEST).map_err(wrong)?;
    Ok(Some(Issuer { oidc, client: Arc::new(Network(fetcher)) }))
}

/// The secret in a file.
fn secret(file: &Path) -> Result<Secret, Failure> {
    let wrong = |why: &str| Failure::usage(format!("--oidc-client-secret-file {}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(&error.to_string()))?;
    match text.trim() {
        "" => Err(wrong("it is empty")),
        text => Ok(Secret::known(text)),
    }
}

/// How tokens of service accounts are issued. `url` is where the server is reached.
pub(super) fn settings(args: &ServeArgs, pki: &Pki, url: &str) -> Settings {
    let authn = &args.authn;
    let longest = authn.service_account_max_token_expiration;
    Settings {
        issuers: authn.service_account_issuer.clone(),
        audiences: authn.api_audiences.clone(),
        longest: (!longest.is_zero()).then_some(longest),
        jwks_uri: authn.service_account_jwks_uri.clone().unwrap_or_else(|| format!("{url}/openid/v1/jwks")),
        ca_pem: pki.ca_pem(),
        ends: Arc::default(),
    }
}

/// Who is who. The keys of issuers are kept current until `stop`.
pub(super) fn authenticator(
    args: &ServeArgs,
    pki: &Pki,
    settings: Settings,
    issuer: Option<&Issuer>,
    env: &Env,
    stop: &CancellationToken,
) -> Result<Authenticator, Failure> {
    let accounts = ServiceAccounts::new(settings, pki.service_account_keys().map_err(pki_failure)?);
    let known = Authenticator::new(tokens(args)?, env.clone())
        .with_service_accounts(Arc::new(accounts))
        .with_grace(args.authn.agent_certificate_grace);
    Ok(match issuer {
        None => known,
        Some(Issuer { oidc, client }) => {
            tokio::spawn(oidc.clone().follow(client.clone(), env.clone(), stop.clone()));
            known.with_oidc(oidc.clone())
        }
    })
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use clap::Parser;
    use http::Request;
    use karmada_apiserver::{
        authz::{Attributes, Authorizer, Decision},
        front::{Front, PathService},
        limits::Limits,
        listener::{self, Tls},
        paths::{Paths, READ, text},
    };
    use tokio::net::TcpListener;

    use super::*;
    use crate::cli::args::{Args, Command};

    fn serve(flags: &[String]) -> Result<Box<ServeArgs>, String> {
        let words = ["karmada-hub", "serve", "--data-dir=d"].map(str::to_owned);
        match Args::try_parse_from(words.iter().chain(flags)).map(|args| args.command) {
            Ok(Command::Serve(args)) => Ok(args),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[derive(Debug)]
    struct Everyone;

    impl Authorizer for Everyone {
        fn authorize(&self, _: &Attributes<'_>) -> Decision {
            Decision::Allow
        }
    }

    #[tokio::test]
    async fn an_issuer_is_asked_over_tls_and_within_bounds() {
        let (dir, env, stop) = (tempfile::TempDir::new().unwrap(), Env::system(), CancellationToken::new());
        let pki = Pki::open_or_create(dir.path(), &[], &env).unwrap();
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", socket.local_addr().unwrap());
        let front = Arc::new(Front::new(Arc::new(Everyone), Limits::default(), env.clone()));
        let say = |answer: &str| {
            let answer = answer.to_owned();
            move |_: Request<Body>| {
                let answer = answer.clone();
                async move { Ok(text(http::StatusCode::OK, "application/json", answer)) }
            }
        };
        let paths = Paths::default().with("/small", READ, say("{}")).with(
            "/large",
            READ,
            say(&" ".repeat(LARGEST + 1)),
        );
        let service = PathService::new(front, paths);
        let listening =
            tokio::spawn(listener::serve(socket, Tls::new(&pki, &env).unwrap(), service, stop.clone()));
        let authority = format!("--oidc-ca-file={}", dir.path().join("pki/ca.crt").display());
        let flags = [format!("--oidc-issuer-url={url}"), "--oidc-client-id=hub".to_owned()];
        let asks = |flags: &[String]| issuer(&serve(flags).unwrap()).unwrap().expect("an issuer").client;
        let (known, strange) = (asks(&[flags.to_vec(), vec![authority]].concat()), asks(&flags));
        assert_eq!(known.get(&format!("{url}/small")).await, Ok(b"{}".to_vec()));
        let rows = [
            (&known, format!("{url}/large"), "larger than"),
            (&known, format!("{url}/none"), "404"),
            (&known, url.replace("https", "http"), "https://"),
            (&known, "nonsense".to_owned(), "not a URL"),
            (&strange, format!("{url}/small"), ""),
        ];
        for (client, url, part) in rows {
            let why = client.get(&url).await.expect_err(&url);
            assert!(why.contains(part), "{url}: {why}");
        }
        stop.cancel();
        listening.await.unwrap();
    }

    #[test]
    fn flags_that_do_not_go_together_are_refused() {
        let read = |flags: &str| {
            let flags: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
            let args = serve(&flags)?;
            match issuer(&args) {
                Ok(issuer) => Ok(issuer.is_some()),
                Err(Failure::Usage(why)) => Err(why),
                Err(other) => panic!("{other:?}"),
            }
        };
        let issuer = "--oidc-issuer-url=https://i.example --oidc-client-id=hub";
        let rows = [
            (String::new(), Ok(false)),
            (issuer.to_owned(), Ok(true)),
            (format!("{issuer} --oidc-required-claim=a=b,c=d --oidc-signing-algs=ES256,RS256"), Ok(true)),
            ("--oidc-issuer-url=https://i.example".to_owned(), Err("--oidc-client-id")),
            ("--oidc-client-id=hub".to_owned(), Err("--oidc-issuer-url")),
            ("--oidc-issuer-url=http://i.example --oidc-client-id=hub".to_owned(), Err("--oidc-issuer-url")),
            (format!("{issuer} --oidc-signing-algs=HS256"), Err("--oidc-signing-algs")),
            (format!("{issuer} --oidc-required-claim=a"), Err("KEY=VALUE")),
            (format!("{issuer} --oidc-ca-file=/nowhere"), Err("--oidc-ca-file")),
            ("--service-account-max-token-expiration=59m".to_owned(), Err("at least 1h")),
            ("--service-account-max-token-expiration=1h".to_owned(), Ok(false)),
        ];
        for (flags, want) in rows {
            match (read(&flags), want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "{flags}"),
                (Err(why), Err(part)) => assert!(why.contains(part), "{flags}: {why}"),
                (got, _) => panic!("{flags}: {got:?}"),
            }
        }
    }
}
