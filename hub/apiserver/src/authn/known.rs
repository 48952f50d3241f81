//! Who is known, by what, and for how long; or why not.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::epochs::{End, Hold};
use crate::identity::{RETURNING, UserInfo};

/// What says by which credential somebody has authenticated.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Where certificates are asked for.
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// The end of what has none.
pub(super) fn forever() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 38)
}

/// What somebody is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// By nothing, or by being in this process.
    Nothing,
    /// A client certificate.
    Certificate,
    /// A bearer token.
    Token,
}

impl By {
    /// A word for what ended while it was used, as a label.
    pub(crate) fn ended(self) -> &'static str {
        if self == Self::Token { "token_ended" } else { "certificate_revoked" }
    }
}

/// Who asks, and for how long what they have shown holds.
#[derive(Clone, Debug)]
pub struct Known {
    /// Who.
    pub user: UserInfo,
    /// What they have shown.
    pub by: By,
    /// What else ends what they have begun; nothing for static tokens, and for those who show nothing.
    pub hold: Option<Hold>,
}

/// Why something that was shown does not hold. For the log and the figures: the client is told nothing but 401.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unauthenticated {
    /// The certificate of this user has expired: the user, and when and what that means.
    #[error("the certificate of {0} has expired{1}")]
    Expired(String, String),
    /// The certificate of this user was ended before its time.
    #[error("the certificate of {0} holds no more: {1}")]
    Ended(String, End),
    /// The certificate is not one that our authority signed for a client.
    #[error("client certificate: {0}")]
    Certificate(Arc<str>),
    /// The bearer token does not hold.
    #[error("{0}")]
    Token(RefusedToken),
}

/// Why a bearer token does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct RefusedToken {
    /// Whose it is, if that was proved.
    pub(super) user: Option<String>,
    /// A word for it.
    pub(super) reason: &'static str,
    pub(super) why: String,
}

impl RefusedToken {
    /// It is nobody's.
    pub(crate) fn unknown() -> Self {
        Self { user: None, reason: "token_unknown", why: "the bearer token is not known".to_owned() }
    }

    /// It says that it is somebody's, and does not prove it.
    pub(super) fn strange(why: impl Into<String>) -> Self {
        Self { user: None, reason: "token_unproved", why: why.into() }
    }

    /// It was this user's.
    pub(super) fn ended(user: &str, reason: &'static str, why: impl Into<String>) -> Self {
        Self { user: Some(user.to_owned()), reason, why: why.into() }
    }

    /// For one who may ask about the tokens of others, as kube-apiserver puts it.
    pub(crate) fn for_review(&self) -> String {
        match self.reason {
            "token_unknown" => "invalid bearer token".to_owned(),
            _ => format!("[invalid bearer token, {}]", self.why),
        }
    }
}

impl Unauthenticated {
    /// A word for it, as a label.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Expired(..) => "certificate_expired",
            Self::Ended(..) => "certificate_revoked",
            Self::Certificate(why) if why.contains("UnknownIssuer") => "certificate_unknown_authority",
            Self::Certificate(why) if why.contains("certificate expired") => "certificate_expired",
            Self::Certificate(_) => "certificate_refused",
            Self::Token(refused) => refused.reason,
        }
    }

    /// Whether it was a certificate that the authority signed.
    pub fn is_of_certificate(&self) -> bool {
        matches!(self, Self::Expired(..) | Self::Ended(..))
    }
}

impl Known {
    /// The same, if it is good for what is asked: whoever comes back after the end of a certificate may ask for another, and
    /// for nothing else.
    ///
    /// # Errors
    /// When it is not.
    pub(crate) fn good_for(self, path: &str) -> Result<Self, Unauthenticated> {
        let within = path.strip_prefix(REQUESTS).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if self.user.extra.contains_key(RETURNING) && !within {
            let what = ", and is good for nothing but to ask for another one".to_owned();
            return Err(Unauthenticated::Expired(self.user.name, what));
        }
        Ok(self)
    }
}

impl Unauthenticated {
    /// Whose it was, if that was proved.
    pub fn user(&self) -> Option<&str> {
        match self {
            Self::Expired(user, _) | Self::Ended(user, _) => Some(user),
            Self::Certificate(_) => None,
            Self::Token(refused) => refused.user.as_deref(),
        }
    }
}

/// The audiences that a token is for and that are asked for, if not `own`.
///
/// # Errors
/// When there are none, in kube-apiserver's words.
pub(super) fn common(
    token: &[String],
    asked: Option<&[&str]>,
    own: &[String],
) -> Result<Vec<String>, String> {
    let wanted: Vec<&str> = asked.map_or_else(|| own.iter().map(String::as_str).collect(), <[&str]>::to_vec);
    let both: Vec<String> = token.iter().filter(|one| wanted.contains(&one.as_str())).cloned().collect();
    if !both.is_empty() {
        return Ok(both);
    }
    let list = |names: Vec<&str>| names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" ");
    let (token, wanted) = (list(token.iter().map(String::as_str).collect()), list(wanted));
    Err(format!("token audiences [{token}] is invalid for the target audiences [{wanted}]"))
}
