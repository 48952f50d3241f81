//! Why a request came to nothing, by what the server or the transport said.

use std::time::Duration;

use http::{Method, StatusCode};
use kube::core::{Status, response::StatusDetails};

/// No server is left alone for longer, whatever it asks for.
const LONGEST_PAUSE: Duration = Duration::from_secs(10 * 60);

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server answered with a failure.
    #[error("{}", .0.message)]
    Api(Box<Status>),
    /// The server could not be reached, or the answer broke off.
    #[error("{method} {path}: {cause}")]
    Transport {
        /// The request's method.
        method: Method,
        /// The request's path.
        path: String,
        /// What the transport said.
        cause: String,
    },
    /// No complete answer within the deadline.
    #[error("{method} {path}: no answer within {}s", .after.as_secs())]
    Timeout {
        /// The request's method.
        method: Method,
        /// The request's path.
        path: String,
        /// How long was waited.
        after: Duration,
    },
    /// The answer has more bytes than are read.
    #[error("{method} {path}: the answer is larger than {limit} bytes")]
    TooLarge {
        /// The request's method.
        method: Method,
        /// The request's path.
        path: String,
        /// How many are.
        limit: usize,
    },
    /// The answer is longer than there is room for beside the answers of others ([`Room`](crate::Room)).
    #[error(
        "{method} {path}: the answer has more than {bytes} bytes, and long answers of others take the memory for that"
    )]
    NoRoom {
        /// The request's method.
        method: Method,
        /// The request's path.
        path: String,
        /// How many were read.
        bytes: usize,
    },
    /// The answer was not what the API promises.
    #[error("{method} {path}: cannot read the answer: {cause}")]
    Answer {
        /// The request's method.
        method: Method,
        /// The request's path.
        path: String,
        /// What is wrong with it.
        cause: String,
    },
}

impl Error {
    /// The server's answer, if there was one.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Api(status) => Some(status),
            _ => None,
        }
    }

    /// The HTTP status code, if there was an answer.
    pub fn code(&self) -> Option<u16> {
        self.status().map(|s| s.code)
    }

    /// Kubernetes' machine-readable reason, empty without an answer.
    pub fn reason(&self) -> &str {
        self.status().map_or("", |s| s.reason.as_str())
    }

    /// 404: the object, or its kind, is not there.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// 404, by a server that has looked for the object of this name: not by one that does not serve its kind (yet), and not
    /// by whatever else is on the way.
    pub fn is_absence_of(&self, name: &str) -> bool {
        let details = self.status().and_then(|status| status.details.as_ref());
        self.is_not_found()
            && self.reason() == "NotFound"
            && details.is_some_and(|details| details.name == name && !details.kind.is_empty())
    }

    /// 409 because the object has changed or an apply met another owner.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409) && self.reason() != "AlreadyExists"
    }

    /// 409 because the object is there already.
    pub fn is_already_exists(&self) -> bool {
        self.code() == Some(409) && self.reason() == "AlreadyExists"
    }

    /// 403.
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// 403 because the namespace is on its way out: another of its name may come.
    pub fn is_for_ending_namespace(&self) -> bool {
        let causes = self.status().and_then(|status| status.details.as_ref()).map(|details| &details.causes);
        self.is_forbidden()
            && causes.is_some_and(|causes| causes.iter().any(|cause| cause.reason == "NamespaceTerminating"))
    }

    /// 422: the server understood and will not have it.
    pub fn is_invalid(&self) -> bool {
        self.code() == Some(422)
    }

    /// 410: the revision is too old.
    pub fn is_gone(&self) -> bool {
        self.code() == Some(410)
    }

    /// No answer was had: the server is away or the link is.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Transport { .. } | Self::Timeout { .. })
    }

    /// Less of it would be taken.
    pub fn is_too_much(&self) -> bool {
        matches!(self, Self::TooLarge { .. } | Self::NoRoom { .. })
    }

    /// Trying the very same request again may help.
    pub fn is_transient(&self) -> bool {
        self.is_unreachable()
            || matches!(self, Self::NoRoom { .. })
            || self.code().is_some_and(|code| code == 429 || code >= 500)
    }

    /// How long the server asks to be left alone, in its Status or in the header of whatever it answered with.
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.status()?.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)).min(LONGEST_PAUSE))
    }
}

/// The Status of a failure answer; one is made up when the answer is something else (a proxy's page, a plain text). `pause`
/// is the seconds that its header asks for.
pub(super) fn failure(code: StatusCode, pause: Option<u32>, body: &[u8]) -> Status {
    let parsed =
        serde_json::from_slice::<Status>(body).ok().filter(|s| !s.message.is_empty() || !s.reason.is_empty());
    let mut status = parsed.unwrap_or_else(|| {
        let text: String = String::from_utf8_lossy(body).trim().chars().take(200).collect();
        let name = code.canonical_reason().unwrap_or("unknown status");
        let message = if text.is_empty() { format!("{} {name}", code.as_u16()) } else { text };
        Status { status: None, code: 0, message, metadata: None, reason: String::new(), details: None }
    });
    status.code = code.as_u16();
    let details = status.details.get_or_insert_with(|| StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    });
    if details.retry_after_seconds == 0 {
        details.retry_after_seconds = pause.unwrap_or_default();
    }
    status
}

/// An error with all of its causes, on one line: the outermost alone is usually "error sending request".
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_without_a_status_is_still_told() {
        let rows = [
            (503, &b"upstream connect error"[..], "upstream connect error"),
            (502, b"", "502 Bad Gateway"),
            (
                404,
                br#"{"kind":"Status","message":"pods \"x\" not found","reason":"NotFound","code":404}"#,
                "pods \"x\" not found",
            ),
            (500, br#"{"some":"json"}"#, r#"{"some":"json"}"#),
        ];
        for (code, body, message) in rows {
            let status = failure(StatusCode::from_u16(code).unwrap(), None, body);
            assert_eq!((status.code, status.message.as_str()), (code, message));
        }
    }

    #[test]
    fn only_a_server_that_has_looked_says_that_an_object_is_absent() {
        let absent = |code, body: &str| {
            let status = failure(StatusCode::from_u16(code).unwrap(), None, body.as_bytes());
            Error::Api(Box::new(status)).is_absence_of("x")
        };
        let said = r#"{"kind":"Status","status":"Failure","message":"pods \"x\" not found","reason":"NotFound","code":404,
            "details":{"name":"x","kind":"pods"}}"#;
        assert!(absent(404, said));
        assert!(!absent(404, &said.replace("\"name\":\"x\"", "\"name\":\"y\"")));
        assert!(!absent(403, said));
        for text in [
            "404 page not found\n",
            r#"{"kind":"Status","message":"the server could not find the requested resource","reason":"NotFound","code":404,"details":{}}"#,
            "<html>nginx</html>",
        ] {
            assert!(!absent(404, text), "{text}");
        }
    }

    #[test]
    fn a_namespace_is_ending_where_the_server_gives_that_as_the_cause() {
        let refused = |causes: &str| {
            format!(
                r#"{{"kind":"Status","status":"Failure","reason":"Forbidden","message":"configmaps \"a\" is forbidden: unable to create new content in namespace x because it is being terminated","details":{{"name":"a","kind":"configmaps"{causes}}},"code":403}}"#
            )
        };
        let ends = r#","causes":[{"reason":"NamespaceTerminating","message":"namespace x is being terminated","field":"metadata.namespace"}]"#;
        let another = r#","causes":[{"reason":"FieldValueInvalid","message":"m","field":"f"}]"#;
        let both = r#","causes":[{"message":"m"},{"reason":"NamespaceTerminating"}]"#;
        for (code, body, ending) in [
            (403, refused(ends), true),
            (403, refused(both), true),
            // Words alone are for people.
            (403, refused(""), false),
            (403, refused(another), false),
            (409, refused(ends), false),
            (404, refused(ends), false),
            (403, "Forbidden".to_owned(), false),
            (403, r#"{"kind":"Status","reason":"Forbidden","message":"m","code":403}"#.to_owned(), false),
        ] {
            let status = failure(StatusCode::from_u16(code).unwrap(), None, body.as_bytes());
            assert_eq!(Error::Api(Box::new(status)).is_for_ending_namespace(), ending, "{code} {body}");
        }
        let away = Error::Timeout { method: Method::GET, path: "/".into(), after: Duration::ZERO };
        assert!(!away.is_for_ending_namespace());
    }

    #[test]
    fn a_pause_is_heard_from_the_header_and_from_the_status() {
        let status = br#"{"kind":"Status","reason":"TooManyRequests","message":"m","details":{"retryAfterSeconds":3},"code":429}"#;
        let bare = br#"{"kind":"Status","reason":"TooManyRequests","message":"m","code":429}"#;
        // (header, body, pause in seconds)
        let rows: [(Option<u32>, &[u8], Option<u64>); 6] = [
            (Some(7), b"Too many requests, please try again later.\n", Some(7)),
            (Some(7), status, Some(3)),
            (Some(7), bare, Some(7)),
            (None, bare, None),
            (None, b"", None),
            (Some(u32::MAX), b"", Some(600)),
        ];
        for (header, body, want) in rows {
            let error = Error::Api(Box::new(failure(StatusCode::TOO_MANY_REQUESTS, header, body)));
            let got = error.retry_after().map(|pause| pause.as_secs());
            assert_eq!(got, want, "{header:?} {}", String::from_utf8_lossy(body));
        }
    }
}
