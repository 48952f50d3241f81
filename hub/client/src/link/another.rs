//! Something answers that is not the server: a captive portal, a proxy that opens TLS, somebody else's machine at its address.
//!
//! It shows a certificate of another authority or name, speaks no TLS, or sends whoever asks to a page of its own. Nothing that
//! it says is an answer. It is there until somebody logs in, for hours maybe, and each attempt costs its certificates: so
//! attempts become rare, and what is the matter is said once.

use std::{io, time::Duration};

use http::{HeaderMap, StatusCode, Uri, header};
use karmada_env::Env;
use rustls::{CertificateError, Error as TlsError};

use crate::backoff::{Backoff, Policy};

/// Between attempts. 3 KB each time are 5 MB a day in the long run.
const RETRY: Policy = Policy::new(Duration::from_secs(2), Duration::from_secs(60));

/// Whether a handshake failed because something else answered. A certificate that has ended, or has not begun, says more
/// of a clock.
pub(super) fn in_handshake(error: &io::Error) -> bool {
    let tls = error.get_ref().and_then(|error| error.downcast_ref::<TlsError>());
    match tls {
        Some(TlsError::InvalidMessage(_)) => true,
        Some(TlsError::InvalidCertificate(error)) => !matches!(
            error,
            CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. }
        ),
        _ => false,
    }
}

/// What is no answer of an API server's, in words, if it is none: these redirect nobody, and answer nothing with a page.
pub(super) fn in_answer(code: StatusCode, headers: &HeaderMap) -> Option<String> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if code == StatusCode::NETWORK_AUTHENTICATION_REQUIRED {
        return Some("it wants somebody to log in (511)".to_owned());
    }
    if code.is_redirection() && code != StatusCode::NOT_MODIFIED {
        let to = text(header::LOCATION).parse::<Uri>().ok();
        let to = to.and_then(|uri| uri.host().map(str::to_owned)).unwrap_or_else(|| "elsewhere".to_owned());
        return Some(format!("it sends us to {to} ({})", code.as_u16()));
    }
    let is_page = text(header::CONTENT_TYPE).trim_start().starts_with("text/html");
    (code.is_success() && is_page).then(|| "it answers with a page of HTML".to_owned())
}

/// What came of meeting something else, time after time.
#[derive(Debug)]
pub(super) struct Another {
    backoff: Backoff,
    told: Option<String>,
}

impl Another {
    pub(super) fn new() -> Self {
        Self { backoff: Backoff::new(RETRY), told: None }
    }

    /// It was met once more; answers how long to leave it alone.
    pub(super) fn met(&mut self, server: &Uri, why: &str, env: &Env) -> Duration {
        if self.told.as_deref() != Some(why) {
            tracing::warn!(%server, "what answers is not the server: {why}. A captive portal, or a proxy that opens TLS, may be in between");
            self.told = Some(why.to_owned());
        }
        self.backoff.next(env)
    }

    /// The server itself has answered.
    pub(super) fn gone(&mut self, server: &Uri) {
        if self.told.take().is_some() {
            tracing::info!(%server, "the server itself answers again");
        }
        self.backoff.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_api_server_answers_is_told_in_words() {
        let rows = [
            (
                302,
                "location",
                "https://login.hotel.example/?from=hub",
                "it sends us to login.hotel.example (302)",
            ),
            (307, "location", "/login", "it sends us to elsewhere (307)"),
            (511, "content-type", "text/html", "it wants somebody to log in (511)"),
            (200, "content-type", "text/html; charset=utf-8", "it answers with a page of HTML"),
            (200, "content-type", "application/json", ""),
            (304, "etag", "x", ""),
            // A gateway's page says what a code says.
            (404, "content-type", "text/html", ""),
            (503, "content-type", "text/html", ""),
        ];
        for (code, name, value, want) in rows {
            let headers = HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]);
            let got = in_answer(StatusCode::from_u16(code).unwrap(), &headers);
            assert_eq!(got.unwrap_or_default(), want, "{code} {value}");
        }
    }

    #[test]
    fn a_handshake_tells_who_answers() {
        let tls = |error: TlsError| in_handshake(&io::Error::new(io::ErrorKind::InvalidData, error));
        assert!(tls(TlsError::InvalidCertificate(CertificateError::UnknownIssuer)));
        assert!(tls(TlsError::InvalidCertificate(CertificateError::NotValidForName)));
        assert!(tls(TlsError::InvalidMessage(rustls::InvalidMessage::InvalidContentType)));
        assert!(!tls(TlsError::InvalidCertificate(CertificateError::Expired)));
        assert!(!tls(TlsError::HandshakeNotComplete));
        assert!(!in_handshake(&io::Error::from(io::ErrorKind::ConnectionReset)));
    }
}
