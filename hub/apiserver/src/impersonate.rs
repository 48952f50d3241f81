//! Acting as somebody else: the `Impersonate-…` headers.
//!
//! ```text
//!   identity ──► Impersonate-User, -Group, -Uid, -Extra-… ──► may they? ──► the identity of the rest of the request
//! ```
//!
//! Either way that Kubernetes 1.36 knows is enough: the verb `impersonate` on everything that is asked to be, or the
//! constrained way, `impersonate-on:MODE:VERB` on what the request is about together with `impersonate:MODE` on the
//! identity. Both are put to the [`Authorizer`] like any other right.
//!
//! | who is asked for | resource, by `impersonate` | by `impersonate:MODE` | mode |
//! |---|---|---|---|
//! | `system:serviceaccount:NS:NAME` | `serviceaccounts` in NS | the same in `authentication.k8s.io` | `serviceaccount`, for nothing but the name |
//! | `system:node:NAME` | `users` | `nodes` in `authentication.k8s.io` | `arbitrary-node`, for nothing but the name |
//! | any other user | `users` | `users` in `authentication.k8s.io` | `user-info` |
//! | a group | `groups` | `groups` in `authentication.k8s.io`, and never `system:masters` | `user-info` |
//! | a uid, a value of an extra | `uids`, `userextras/KEY` in `authentication.k8s.io` | the same | `user-info` |
//!
//! The mode `associated-node`, by which a service account may act as the node that its Pod is on, is not known: the Pods of
//! a hub run nowhere.

use std::{collections::BTreeMap, fmt::Write as _};

use http::{HeaderMap, HeaderValue};
use karmada_meta::{names, query::percent_decode, status::Status};

use crate::{
    authn::{
        ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, UserInfo,
        accounts::{GROUP as SERVICE_ACCOUNTS, USER_PREFIX as SERVICE_ACCOUNT},
    },
    authz::{self, Attributes, Authorizer, ResourceTarget, Target},
    pki::MASTERS,
};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const NODE: &str = "system:node:";
const NODES: &str = "system:nodes";
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
    /// Reads the headers; `None` when they ask for nobody.
    fn of(headers: &HeaderMap) -> Option<Self> {
        // Header values that are no text cannot name anybody that the authoriser knows.
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        // Of several the first counts, as whatever stands before this server reads them.
        let first = |name: &str| headers.get(name).map(text).unwrap_or_default();
        let mut wanted = Self {
            name: first(USER),
            uid: first(UID),
            groups: headers.get_all(GROUP).iter().map(text).collect(),
            extra: BTreeMap::new(),
        };
        for (name, value) in headers {
            if let Some(key) = name.as_str().strip_prefix(EXTRA) {
                let key = percent_decode(key, false).into_owned();
                wanted.extra.entry(key).or_default().push(text(value));
            }
        }
        (!wanted.name.is_empty() || !wanted.is_only_named()).then_some(wanted)
    }

    /// Whether nothing is asked for beside a name.
    fn is_only_named(&self) -> bool {
        self.uid.is_empty() && self.groups.is_empty() && self.extra.is_empty()
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
        let (namespace, name) = self.name.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
        let valid = names::dns1123_label(namespace).is_ok() && names::dns1123_subdomain(name).is_ok();
        valid.then_some((namespace, name))
    }

    /// The node that the user is.
    fn node(&self) -> Option<&str> {
        self.name.strip_prefix(NODE).filter(|name| names::dns1123_subdomain(name).is_ok())
    }

    /// The constrained mode by which such a user may be acted as, if there is one.
    fn mode(&self) -> Option<&'static str> {
        match (self.service_account(), self.node()) {
            (None, None) => Some("user-info"),
            _ if !self.is_only_named() => None,
            (Some(_), _) => Some("serviceaccount"),
            (None, Some(_)) => Some("arbitrary-node"),
        }
    }

    /// The parts of the identity, each as a resource that is named by it.
    fn parts(&self, constrained: bool) -> Vec<ResourceTarget<'_>> {
        let people = if constrained { AUTHENTICATION } else { "" };
        let named = |group, resource, name| ResourceTarget { group, resource, name, ..Default::default() };
        let node = self.node().filter(|_| constrained);
        let mut parts = vec![match (self.service_account(), node) {
            (Some((namespace, name)), _) => {
                ResourceTarget { namespace, ..named(people, "serviceaccounts", name) }
            }
            (None, Some(node)) => named(people, "nodes", node),
            (None, None) => named(people, "users", self.name.as_str()),
        }];
        if !self.uid.is_empty() {
            parts.push(named(AUTHENTICATION, "uids", self.uid.as_str()));
        }
        parts.extend(self.groups.iter().map(|group| named(people, "groups", group.as_str())));
        for (key, values) in &self.extra {
            parts.extend(values.iter().map(|value| ResourceTarget {
                subresource: key,
                ..named(AUTHENTICATION, "userextras", value.as_str())
            }));
        }
        parts
    }

    /// The user that it makes.
    fn into_user(self, constrained: bool) -> UserInfo {
        let mut groups = self.groups.clone();
        if let Some((namespace, _)) = self.service_account().filter(|_| groups.is_empty()) {
            groups = vec![SERVICE_ACCOUNTS.to_owned(), format!("{SERVICE_ACCOUNTS}:{namespace}")];
        } else if constrained && self.node().is_some() {
            groups = vec![NODES.to_owned()];
        }
        let is_in = |group: &str| groups.iter().any(|one| one == group);
        let own = if self.name == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
        if !is_in(own) && !is_in(UNAUTHENTICATED) {
            groups.push(own.to_owned());
        }
        UserInfo { name: self.name, groups, uid: self.uid, extra: self.extra }
    }
}

/// Why nobody may ask for a part by the constrained way, whatever rights they have.
fn never(part: &ResourceTarget<'_>) -> Option<&'static str> {
    match (part.resource, part.name) {
        ("groups", "") => Some("impersonating the empty string group is not allowed"),
        ("groups", MASTERS) => Some("impersonating the system:masters group is not allowed"),
        ("userextras", "") => Some("impersonating the empty string value in extra is not allowed"),
        ("userextras", _) => is_bad_key(part.subresource)
            .then_some("impersonating an invalid key in extra is not allowed: it must be a domain-prefixed path (such as \"acme.io/foo\") in lower case"),
        _ => None,
    }
}

fn is_bad_key(key: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
    let good = |(domain, path): (&str, &str)| {
        names::dns1123_subdomain(domain).is_ok() && !path.is_empty() && path.bytes().all(allowed)
    };
    !key.split_once('/').is_some_and(good) || key.bytes().any(|b| b.is_ascii_uppercase())
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
    let may = |verb: &str, part| {
        let attributes = Attributes { user: request.user, verb, target: Target::Resource(part) };
        authz::check(authorizer, &attributes)
    };
    let constrained = wanted.mode().map(|mode| {
        let verb = format!("impersonate-on:{mode}:{}", request.verb);
        authz::check(authorizer, &Attributes { verb: &verb, ..*request })?;
        let verb = format!("impersonate:{mode}");
        wanted.parts(true).into_iter().try_for_each(|part| match never(&part) {
            None => may(&verb, part),
            Some(why) => {
                let target = Target::Resource(part);
                Err(authz::forbidden(&Attributes { user: request.user, verb: &verb, target }, why))
            }
        })
    });
    if let Some(Ok(())) = constrained {
        return Ok(Some(wanted.into_user(true)));
    }
    let as_before = wanted.parts(false).into_iter().try_for_each(|part| may("impersonate", part));
    match (as_before, constrained) {
        (Ok(()), _) => Ok(Some(wanted.into_user(false))),
        // What was tried first is told.
        (Err(_), Some(Err(why))) | (Err(why), _) => Err(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authz::{Coarse, Decision};

    /// Allows what is listed, as `verb group/resource namespace/name`.
    #[derive(Debug)]
    struct Listed(&'static [&'static str]);

    impl Authorizer for Listed {
        fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
            let Target::Resource(target) = attributes.target else { return Decision::NoOpinion };
            let ResourceTarget { group, resource, subresource, namespace, name, .. } = target;
            let slash = if subresource.is_empty() { "" } else { "/" };
            let text =
                format!("{} {group}/{resource}{slash}{subresource} {namespace}/{name}", attributes.verb);
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

    const ON: &str = "impersonate-on:user-info:list /configmaps n/";
    const BE: &str = "impersonate:user-info authentication.k8s.io/users /b";

    /// A right for each part, and what nobody gets by the constrained way.
    #[test]
    fn each_part_takes_a_right_of_its_own() {
        let user = UserInfo::new("a", [""; 0]);
        let b = ("impersonate-user", "b");
        let uid = ("impersonate-uid", "7");
        let extra = ("impersonate-extra-acme.io%2Fteam", "x");
        let short = ("impersonate-extra-team", "x");
        let masters = ("impersonate-group", MASTERS);
        let account = ("impersonate-user", "system:serviceaccount:n:a");
        let node = ("impersonate-user", "system:node:o");
        type Row = (&'static [&'static str], Vec<(&'static str, &'static str)>, Result<(), &'static str>);
        let rows: Vec<Row> = vec![
            (&["impersonate /users /b"], vec![b, uid], Err("impersonate-on")),
            (&["impersonate /users /b", "impersonate authentication.k8s.io/uids /7"], vec![b, uid], Ok(())),
            (&[ON, BE], vec![b, uid], Err("\"uids\"")),
            (&[ON, BE, "impersonate:user-info authentication.k8s.io/uids /7"], vec![b, uid], Ok(())),
            (&["impersonate /users /b"], vec![b, extra], Err("impersonate-on")),
            (
                &["impersonate /users /b", "impersonate authentication.k8s.io/userextras/acme.io/team /x"],
                vec![b, extra],
                Ok(()),
            ),
            // Another value of the same key.
            (
                &["impersonate /users /b", "impersonate authentication.k8s.io/userextras/acme.io/team /y"],
                vec![b, extra],
                Err("impersonate-on"),
            ),
            (
                &[ON, BE, "impersonate:user-info authentication.k8s.io/userextras/acme.io/team /x"],
                vec![b, extra],
                Ok(()),
            ),
            (
                &[ON, BE, "impersonate:user-info authentication.k8s.io/userextras/team /x"],
                vec![b, short],
                Err("domain-prefixed"),
            ),
            (
                &["impersonate /users /b", "impersonate authentication.k8s.io/userextras/team /x"],
                vec![b, short],
                Ok(()),
            ),
            (
                &[ON, BE, "impersonate:user-info authentication.k8s.io/groups /system:masters"],
                vec![b, masters],
                Err("system:masters group is not allowed"),
            ),
            (&["impersonate /users /b", "impersonate /groups /system:masters"], vec![b, masters], Ok(())),
            // An account is no user, and a node none by the constrained way.
            (&["impersonate /users /system:serviceaccount:n:a"], vec![account], Err("serviceaccount")),
            (&["impersonate /serviceaccounts n/a"], vec![account], Ok(())),
            (&["impersonate /serviceaccounts m/a"], vec![account], Err("serviceaccount")),
            (
                &[
                    "impersonate-on:serviceaccount:list /configmaps n/",
                    "impersonate:serviceaccount authentication.k8s.io/serviceaccounts n/a",
                ],
                vec![account],
                Ok(()),
            ),
            // With groups there is no constrained way to be an account.
            (
                &[
                    "impersonate-on:serviceaccount:list /configmaps n/",
                    "impersonate:serviceaccount authentication.k8s.io/serviceaccounts n/a",
                    "impersonate:serviceaccount authentication.k8s.io/groups /system:nodes",
                ],
                vec![account, ("impersonate-group", "system:nodes")],
                Err("cannot impersonate resource \"serviceaccounts\""),
            ),
            // What only looks like an account is a user.
            (
                &["impersonate /serviceaccounts n/a:b"],
                vec![("impersonate-user", "system:serviceaccount:n:a:b")],
                Err("user-info"),
            ),
            (
                &["impersonate /users /system:serviceaccount:n:a:b"],
                vec![("impersonate-user", "system:serviceaccount:n:a:b")],
                Ok(()),
            ),
            (
                &[
                    "impersonate-on:arbitrary-node:list /configmaps n/",
                    "impersonate:arbitrary-node authentication.k8s.io/nodes /o",
                ],
                vec![node],
                Ok(()),
            ),
            (
                &[ON, "impersonate:user-info authentication.k8s.io/users /system:node:o"],
                vec![node],
                Err("arbitrary-node"),
            ),
            // Of two names the first counts.
            (&["impersonate /users /c"], vec![b, ("impersonate-user", "c")], Err("impersonate-on")),
        ];
        for (rights, headers, want) in rows {
            match (ask(&Listed(rights), &user, &headers), want) {
                (Ok(Some(_)), Ok(())) => {}
                (Err(error), Err(part)) => assert!(error.contains(part), "{rights:?} {headers:?}: {error}"),
                (got, _) => panic!("{rights:?} {headers:?}: {got:?}"),
            }
        }
    }

    #[test]
    fn groups_come_with_names() {
        let admin = UserInfo::new("admin", ["system:masters"]);
        type Row = (&'static [(&'static str, &'static str)], &'static [&'static str]);
        let rows: [Row; 5] = [
            (&[("impersonate-user", "system:node:o")], &["system:nodes", AUTHENTICATED]),
            (&[("impersonate-user", "u"), ("impersonate-group", UNAUTHENTICATED)], &[UNAUTHENTICATED]),
            (
                &[("impersonate-user", ANONYMOUS), ("impersonate-group", AUTHENTICATED)],
                &[AUTHENTICATED, UNAUTHENTICATED],
            ),
            (&[("impersonate-user", "u"), ("impersonate-group", MASTERS)], &[MASTERS, AUTHENTICATED]),
            (
                &[("impersonate-user", "system:serviceaccount:n:a"), ("impersonate-group", "g")],
                &["g", AUTHENTICATED],
            ),
        ];
        for (headers, groups) in rows {
            assert_eq!(ask(&Coarse, &admin, headers).unwrap().unwrap().groups, groups, "{headers:?}");
        }
        assert_eq!(ask(&Coarse, &admin, &[("impersonate-user", "")]), Ok(None), "nobody is asked for");
    }
}
