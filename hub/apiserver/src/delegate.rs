//! Users of another API server: who they are and what they may is that one's to say.
//!
//! ```text
//!   request to be carried ─┬ certificate of the server's authority ─► the user that it names
//!                          └ bearer token ─► [`Delegate::whose`]
//!   what it takes (impersonate, clusters/proxy) ─► questions, one by one ─► [`Delegate::judge`] ─► allowed, or not
//! ```
//!
//! A listener without an API of its own has it for what it carries on. What is decided by the answers is decided by the same
//! functions as anywhere, which ask nobody and wait for nothing: [`settled`] runs them by the answers that there are, has the
//! first question answered that they could not, and begins again. What is not answered is not allowed, and a server that
//! does not answer is an error.

use std::{fmt, net::IpAddr};

use futures::future::BoxFuture;
use karmada_meta::status::Status;
use parking_lot::Mutex;

use crate::{
    authn::UserInfo,
    authz::{Attributes, Authorizer, Decision, Target},
};

/// So much is asked for one request: an identity that is asked for has no more parts.
const MOST: usize = 64;

/// Asks the other server.
pub trait Delegate: Send + Sync + 'static {
    /// Whose this token is that was shown from there; nobody's, where it does not hold.
    fn whose<'a>(
        &'a self,
        token: &'a str,
        from: Option<IpAddr>,
    ) -> BoxFuture<'a, Result<Option<UserInfo>, Status>>;

    /// Whether somebody may do something, and why, if there is something to say.
    fn judge<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Result<(Decision, String), Status>>;
}

/// What may be asked of [`Delegate::judge`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Who wants it.
    pub user: UserInfo,
    /// As RBAC names it.
    pub verb: String,
    /// What it is about.
    pub about: About,
}

/// See [`Target`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// A resource; what is not there is empty.
    Resource {
        /// API group.
        group: String,
        /// Plural.
        resource: String,
        /// What of it.
        subresource: String,
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
    },
    /// Any other path.
    Path(String),
}

impl Question {
    fn of(attributes: &Attributes<'_>) -> Self {
        let about = match attributes.target {
            Target::Path(path) => About::Path(path.to_owned()),
            Target::Resource(target) => About::Resource {
                group: target.group.to_owned(),
                resource: target.resource.to_owned(),
                subresource: target.subresource.to_owned(),
                namespace: target.namespace.to_owned(),
                name: target.name.to_owned(),
            },
        };
        Self { user: attributes.user.clone(), verb: attributes.verb.to_owned(), about }
    }
}

type Answered = (Question, (Decision, String));

/// Decides by answers, and remembers the first question to which there is none.
struct Asking<'a> {
    answers: &'a [Answered],
    open: Mutex<Option<Question>>,
}

impl fmt::Debug for Asking<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").field("answers", &self.answers.len()).finish_non_exhaustive()
    }
}

impl Authorizer for Asking<'_> {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        self.explain(attributes).0
    }

    fn explain(&self, attributes: &Attributes<'_>) -> (Decision, String) {
        let question = Question::of(attributes);
        if let Some((_, answer)) = self.answers.iter().find(|(asked, _)| *asked == question) {
            return answer.clone();
        }
        self.open.lock().get_or_insert(question);
        (Decision::NoOpinion, String::new())
    }
}

/// What is decided when everything is answered that it takes.
///
/// # Errors
/// Why the server has not answered; 400 where too much would have to be asked.
pub(crate) async fn settled<T: Send>(
    delegate: &dyn Delegate,
    decide: impl Fn(&dyn Authorizer) -> T + Send + Sync,
) -> Result<T, Status> {
    let mut answers: Vec<Answered> = Vec::new();
    loop {
        let question = {
            let asking = Asking { answers: &answers, open: Mutex::default() };
            let decided = decide(&asking);
            match asking.open.into_inner() {
                None => return Ok(decided),
                Some(question) => question,
            }
        };
        if answers.len() >= MOST {
            return Err(Status::bad_request(format!(
                "the request asks to act as somebody of more than {MOST} parts: name fewer groups and extras"
            )));
        }
        let answer = delegate.judge(&question).await?;
        answers.push((question, answer));
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;
    use crate::{authz::ResourceTarget, impersonate};

    /// Allows what is listed; counts what it is asked.
    struct Listed(&'static [&'static str], Mutex<Vec<String>>);

    impl Delegate for Listed {
        fn whose<'a>(
            &'a self,
            _: &'a str,
            _: Option<IpAddr>,
        ) -> BoxFuture<'a, Result<Option<UserInfo>, Status>> {
            Box::pin(std::future::ready(Ok(None)))
        }

        fn judge<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Result<(Decision, String), Status>> {
            let text = match &question.about {
                About::Path(path) => format!("{} {path}", question.verb),
                About::Resource { resource, name, .. } => format!("{} {resource} {name}", question.verb),
            };
            let answer = match self.0.iter().find(|one| one.trim_start_matches("error: ") == text) {
                Some(one) if one.starts_with("error") => Err(Status::service_unavailable("no answer")),
                Some(_) => Ok((Decision::Allow, String::new())),
                None => Ok((Decision::NoOpinion, "no role says so".to_owned())),
            };
            self.1.lock().push(text);
            Box::pin(std::future::ready(answer))
        }
    }

    async fn ask(
        rights: &'static [&'static str],
        headers: &[(&'static str, &str)],
    ) -> (Result<String, u16>, usize) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let user = UserInfo::new("jane", [""; 0]);
        let target = ResourceTarget { resource: "clusters", name: "m", ..ResourceTarget::default() };
        let attributes = Attributes { user: &user, verb: "get", target: Target::Resource(target) };
        let server = Listed(rights, Mutex::default());
        let acted = settled(&server, |who| impersonate::impersonated(who, &map, &attributes)).await;
        let acted = match acted {
            Ok(Ok(user)) => Ok(user.map_or_else(|| "jane".to_owned(), |user| user.name)),
            Ok(Err(status)) | Err(status) => Err(status.code()),
        };
        let asked = server.1.lock().len();
        (acted, asked)
    }

    #[tokio::test]
    async fn what_is_not_answered_is_not_allowed() {
        let joe: &[(&'static str, &str)] = &[("impersonate-user", "joe")];
        let grouped: &[(&'static str, &str)] = &[("impersonate-user", "joe"), ("impersonate-group", "g")];
        for (rights, headers, want, asked) in [
            (&[][..], &[][..], Ok("jane"), 0),
            (&[], joe, Err(403), 2),
            (&["impersonate users joe"], joe, Ok("joe"), 2),
            (&["impersonate users joe"], grouped, Err(403), 3),
            (&["impersonate users joe", "impersonate groups g"], grouped, Ok("joe"), 3),
            (
                &["impersonate-on:user-info:get clusters m", "impersonate:user-info users joe"],
                joe,
                Ok("joe"),
                2,
            ),
            (&["error: impersonate users joe"], joe, Err(503), 2),
            (&["error: impersonate-on:user-info:get clusters m", "impersonate users joe"], joe, Err(503), 1),
        ] {
            let got = ask(rights, headers).await;
            assert_eq!(got, (want.map(str::to_owned), asked), "{rights:?} {headers:?}");
        }
    }

    #[tokio::test]
    async fn one_request_asks_so_much_and_no_more() {
        let groups: Vec<String> = (0..=MOST).map(|n| format!("g{n}")).collect();
        let mut headers = vec![("impersonate-user", "joe")];
        headers.extend(groups.iter().map(|group| ("impersonate-group", group.as_str())));
        let all: Vec<String> = groups.iter().map(|group| format!("impersonate groups {group}")).collect();
        let mut rights: Vec<&'static str> = all.into_iter().map(|right| &*right.leak()).collect();
        rights.push("impersonate users joe");
        let (acted, asked) = ask(rights.leak(), &headers).await;
        assert_eq!((acted, asked), (Err(400), MOST));
    }
}
