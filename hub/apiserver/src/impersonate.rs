//! Acting as somebody else: the `Impersonate-…` headers.
//!
//! ```text
//!   identity ──► Impersonate-User, -Group, -Uid, -Extra-… ──► may they? ──► the identity of the rest of the request
//! ```
//!
//! Either way that Kubernetes 1.36 knows is enough: the verb `impersonate` on everything that is asked to be, or the
//! constrained way, `impersonate-on:MODE:VERB` on what the request is about together with `impersonate:MODE` on the
//! identity. Both are put to the [`Authorizer`] like any other right.

use std::{collections::BTreeMap, fmt::Write as _};

use http::HeaderMap;
use karmada_meta::status::Status;

use crate::{
    authn::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, UserInfo},
    authz::{self, Attributes, Authorizer, Decision, ResourceTarget, Target},
    request::percent_decode,
};

const PREFIX: &str = "impersonate-";
const EXTRA: &str = "impersonate-extra-";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
const NODE: &str = "system:node:";
/// Group of the resources that stand for parts of an identity.
const AUTHENTICATION: &str = "authentication.k8s.io";

/// What the headers ask to be.
#[derive(Debug, Default)]
struct Wanted {
    name: String,
    groups: Vec<String>,
    uid: String,
    extra: BTreeMap<String, Vec<String>>,
}

impl Wanted {
    /// Reads the headers; `None` when there are none of them.
    fn of(headers: &HeaderMap) -> Option<Self> {
        let mut wanted: Option<Self> = None;
        for (name, value) in headers {
            let Some(what) = name.as_str().strip_prefix(PREFIX) else { continue };
            // Header values that are no text cannot name anybody that the authoriser knows.
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            match what {
                "user" => wanted.get_or_insert_default().name = value,
                "group" => wanted.get_or_insert_default().groups.push(value),
                "uid" => wanted.get_or_insert_default().uid = value,
                _ => {
                    let Some(key) = name.as_str().strip_prefix(EXTRA) else { continue };
                    let key = percent_decode(key, false).to_ascii_lowercase();
                    wanted.get_or_insert_default().extra.entry(key).or_default().push(value);
                }
            }
        }
        wanted
    }

    /// As Go prints it with `%#v`.
    fn go_syntax(&self) -> String {
        let list = |items: &[String]| {
            let items: Vec<String> = items.iter().map(|item| format!("{item:?}")).collect();
            format!("[]string{{{}}}", items.join(", "))
        };
        let groups = if self.groups.is_empty() { "[]string(nil)".to_owned() } else { list(&self.groups) };
        let mut extra = "map[string][]string".to_owned();
        if self.extra.is_empty() {
            extra.push_str("(nil)");
        } else {
            let pairs: Vec<String> = self.extra.iter().map(|(k, v)| format!("{k:?}:{}", list(v))).collect();
            let _ = write!(extra, "{{{}}}", pairs.join(", "));
        }
        format!(
            "&user.DefaultInfo{{Name:{:?}, UID:{:?}, Groups:{groups}, Extra:{extra}}}",
            self.name, self.uid
        )
    }

    /// Namespace and name of the service account that the user is.
    fn service_account(&self) -> Option<(&str, &str)> {
        self.name.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')
    }

    /// The constrained mode by which such a user may be acted as.
    fn mode(&self) -> &'static str {
        if self.service_account().is_some() {
            "serviceaccount"
        } else if self.name.starts_with(NODE) {
            "arbitrary-node"
        } else {
            "user-info"
        }
    }

    /// The parts of the identity, each as a resource that is named by it.
    fn parts(&self, legacy: bool) -> Vec<ResourceTarget<'_>> {
        let people = if legacy { "" } else { AUTHENTICATION };
        let named = |group, resource, name| ResourceTarget { group, resource, name, ..Default::default() };
        let node = self.name.strip_prefix(NODE).filter(|_| !legacy);
        let mut parts = vec![match (self.service_account(), node) {
            (Some((namespace, name)), _) => {
                ResourceTarget { namespace, ..named(people, "serviceaccounts", name) }
            }
            (None, Some(node)) => named(people, "nodes", node),
            (None, None) => named(people, "users", self.name.as_str()),
        }];
        parts.extend(self.groups.iter().map(|group| named(people, "groups", group.as_str())));
        for (key, values) in &self.extra {
            parts.extend(values.iter().map(|value| ResourceTarget {
                subresource: key,
                ..named(AUTHENTICATION, "userextras", value.as_str())
            }));
        }
        if !self.uid.is_empty() {
            parts.push(named(AUTHENTICATION, "uids", self.uid.as_str()));
        }
        parts
    }

    /// The user that it makes.
    fn into_user(self) -> UserInfo {
        let mut groups = self.groups.clone();
        if let Some((namespace, _)) = self.service_account().filter(|_| groups.is_empty()) {
            groups = vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        }
        let own = if self.name == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
        if !groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED) {
            groups.push(own.to_owned());
        }
        UserInfo { name: self.name, groups, uid: self.uid, extra: self.extra }
    }
}

/// Who the rest of a request is made by, if its headers ask for somebody else. `request` is what the caller asks for, as
/// themselves.
///
/// # Errors
/// 400 without a user name, 403 when the caller may not.
pub(crate) fn impersonated(
    authorizer: &dyn Authorizer,
    headers: &HeaderMap,
    request: &Attributes<'_>,
) -> Result<Option<UserInfo>, Status> {
    let Some(wanted) = Wanted::of(headers) else { return Ok(None) };
    if wanted.name.is_empty() {
        return Err(Status::bad_request(format!(
            "requested {} without impersonating a user name",
            wanted.go_syntax()
        )));
    }
    let user = request.user;
    let may =
        |verb: &str, target| authorizer.authorize(&Attributes { user, verb, target }) == Decision::Allow;
    let as_before = wanted.parts(true).into_iter().all(|part| may("impersonate", Target::Resource(part)));
    if !as_before {
        let mode = wanted.mode();
        let verb = format!("impersonate-on:{mode}:{}", request.verb);
        authz::check(authorizer, &Attributes { verb: &verb, ..*request })?;
        let verb = format!("impersonate:{mode}");
        for part in wanted.parts(false) {
            authz::check(authorizer, &Attributes { user, verb: &verb, target: Target::Resource(part) })?;
        }
    }
    Ok(Some(wanted.into_user()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authz::Coarse;

    /// Allows what is listed, as `verb group/resource namespace/name`.
    #[derive(Debug)]
    struct Listed(&'static [&'static str]);

    impl Authorizer for Listed {
        fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
            let Target::Resource(target) = attributes.target else { return Decision::NoOpinion };
            let ResourceTarget { group, resource, namespace, name, .. } = target;
            let text = format!("{} {group}/{resource} {namespace}/{name}", attributes.verb);
            if self.0.contains(&text.as_str()) { Decision::Allow } else { Decision::NoOpinion }
        }
    }

    fn ask(
        authorizer: &dyn Authorizer,
        user: &UserInfo,
        headers: &[(&'static str, &str)],
    ) -> Result<Option<UserInfo>, String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let target = ResourceTarget { resource: "configmaps", namespace: "n", ..ResourceTarget::default() };
        let request = Attributes { user, verb: "list", target: Target::Resource(target) };
        impersonated(authorizer, &map, &request).map_err(|status| format!("{} {status}", status.code()))
    }

    #[test]
    fn an_administrator_becomes_whoever_is_named() {
        let admin = UserInfo::new("admin", ["system:masters"]);
        let user = |headers: &[(&'static str, &str)]| ask(&Coarse, &admin, headers).unwrap();
        assert_eq!(user(&[("accept", "*/*")]), None);
        let got = user(&[("impersonate-user", "u"), ("impersonate-group", "g"), ("impersonate-group", "h")]);
        assert_eq!(got.unwrap(), UserInfo::new("u", ["g", "h"]));
        let got = user(&[("impersonate-user", "system:serviceaccount:n:a")]).unwrap();
        assert_eq!(got.groups, ["system:serviceaccounts", "system:serviceaccounts:n", AUTHENTICATED]);
        assert_eq!(user(&[("impersonate-user", ANONYMOUS)]).unwrap(), UserInfo::anonymous());
        let got = user(&[
            ("impersonate-user", "u"),
            ("impersonate-uid", "1"),
            ("impersonate-extra-a%2Fb", "x"),
            ("impersonate-extra-a%2fb", "y"),
        ]);
        let extra = BTreeMap::from([("a/b".to_owned(), vec!["x".to_owned(), "y".to_owned()])]);
        assert_eq!(got.unwrap(), UserInfo { uid: "1".to_owned(), extra, ..UserInfo::new("u", [""; 0]) });
    }

    #[test]
    fn nobody_is_asked_for_without_a_name() {
        let admin = UserInfo::new("admin", ["system:masters"]);
        let error = ask(&Coarse, &admin, &[("impersonate-extra-x", "y")]).unwrap_err();
        assert_eq!(
            error,
            r#"400 requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string(nil), Extra:map[string][]string{"x":[]string{"y"}}} without impersonating a user name"#
        );
    }

    #[test]
    fn rights_are_asked_for_by_either_way() {
        let user = UserInfo::new("a", [""; 0]);
        let on = "cannot impersonate-on:user-info:list resource \"configmaps\"";
        let identity =
            "cannot impersonate:user-info resource \"groups\" in API group \"authentication.k8s.io\"";
        let plain: &[(&'static str, &str)] = &[("impersonate-user", "b")];
        let grouped: &[(&'static str, &str)] = &[("impersonate-user", "b"), ("impersonate-group", "g")];
        let table: [(&'static [&'static str], _, Result<(), &str>); 6] = [
            (&[], plain, Err(on)),
            (&["impersonate /users /b"], plain, Ok(())),
            (&["impersonate /users /b"], grouped, Err(on)),
            (&["impersonate /users /b", "impersonate /groups /g"], grouped, Ok(())),
            (
                &[
                    "impersonate-on:user-info:list /configmaps n/",
                    "impersonate:user-info authentication.k8s.io/users /b",
                ],
                plain,
                Ok(()),
            ),
            (
                &[
                    "impersonate-on:user-info:list /configmaps n/",
                    "impersonate:user-info authentication.k8s.io/users /b",
                ],
                grouped,
                Err(identity),
            ),
        ];
        for (rights, headers, want) in table {
            match (ask(&Listed(rights), &user, headers), want) {
                (Ok(Some(_)), Ok(())) => {}
                (Err(error), Err(want)) => assert!(error.contains(want), "{rights:?}: {error}"),
                (got, _) => panic!("{rights:?}: {got:?}"),
            }
        }
        let account = &[("impersonate-user", "system:serviceaccount:n:a")];
        let error = ask(&Listed(&[]), &user, account).unwrap_err();
        assert!(error.contains("impersonate-on:serviceaccount:list"), "{error}");
    }
}
