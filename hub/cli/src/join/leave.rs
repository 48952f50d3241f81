//! What `unjoin` takes away from a member: what join has made there, and nothing of anybody else's.

use std::{collections::BTreeSet, time::Duration};

use karmada_api::consts::{label, namespace};
use karmada_client::{Resource, Rest};
use karmada_meta::object;
use karmada_objects::{discovery, kinds::NAMESPACES};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{GROUP, IMPERSONATOR, Member, ROLE, account};
use crate::{Failure, ask::Server};

/// Names on a token in a Secret the account that it is of.
const TOKEN_OF: &str = "kubernetes.io/service-account.name";
/// How long the look into the namespace may take.
const LOOKED: Duration = Duration::from_secs(60);
/// More kinds than any member has. If one has more, nobody looks through them.
const KINDS: usize = 2000;
/// Objects of a kind that are looked at: what join and Kubernetes make in the namespace is far less.
const OBJECTS: usize = 50;

/// A cluster that leaves, and what there is to be said of that beside that it has left.
#[derive(Debug)]
pub(super) struct Leaving<'a> {
    name: &'a str,
    /// What cannot be deleted on the member holds nothing up.
    force: bool,
    notes: Vec<String>,
}

impl<'a> Leaving<'a> {
    pub(super) fn new(name: &'a str, force: bool) -> Self {
        Self { name, force, notes: Vec::new() }
    }

    /// What somebody should know.
    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The uid of the Namespace kube-system of a cluster that is the member by it; by force, there may be none. The Cluster says
    /// which uid that is, and where it is gone or does not say so, whoever lets go of it: `given`.
    ///
    /// # Errors
    /// When it is not, or cannot be told, without force.
    pub(super) async fn proven(
        &mut self,
        member: &Member,
        cluster: Option<&Value>,
        given: Option<&str>,
    ) -> Result<Option<String>, Failure> {
        let system = member.rest.get(&NAMESPACES.object(None, "kube-system")).await;
        let why = match system {
            Ok(system) => match another(cluster, given, object::uid(&system)) {
                None => return Ok(Some(object::uid(&system).to_owned())),
                Some(why) => why,
            },
            Err(error) => format!("cannot read its Namespace kube-system: {error}"),
        };
        let at = &member.server;
        if self.force {
            self.notes.push(format!(
                "nothing has been deleted on {at}, to which --cluster-kubeconfig leads: {why}"
            ));
            return Ok(None);
        }
        let way_out = match cluster {
            Some(_) => {
                "Name the member's kubeconfig; or, to delete the Cluster alone, leave --cluster-kubeconfig out or add --force"
            }
            None => {
                "Name the member's kubeconfig, and with --cluster-id the uid of its Namespace kube-system: kubectl get namespace \
                 kube-system -o jsonpath={.metadata.uid}"
            }
        };
        Err(Failure::failed(format!(
            "--cluster-kubeconfig leads to {at}, which is not known to be the member of Cluster {}: {why}. Nothing has been \
             deleted. {way_out}",
            self.name
        )))
    }

    /// Takes away what join has made on the member, which has turned out to be the one.
    ///
    /// # Errors
    /// When something cannot be deleted, without force.
    pub(super) async fn tidy(&mut self, member: &Member, hub: &Server) -> Result<(), Failure> {
        let own = account(self.name);
        for plural in ["clusterrolebindings", "clusterroles"] {
            let done = member.remove(&format!("/apis/{GROUP}/v1/{plural}/{ROLE}{own}")).await;
            self.unless_forced(done)?;
        }
        let done = remove_account(member, &own).await;
        self.unless_forced(done)?;
        let done = self.common(member, hub, &own).await;
        self.unless_forced(done)
    }

    /// What several clusters may have there: the account that acts for users, and the namespace.
    async fn common(&mut self, member: &Member, hub: &Server, own: &str) -> Result<(), Failure> {
        let path = format!("/api/v1/namespaces/{}/serviceaccounts?limit={OBJECTS}", namespace::CLUSTER);
        let accounts = member.rest.get(&path).await;
        let accounts = accounts.map_err(|error| member.failed(&format!("cannot read {path}"), &error))?;
        if let Some(other) = also_joined(&accounts, own) {
            self.notes.push(format!(
                "Namespace {} and ServiceAccount {IMPERSONATOR} in it stay at {}: {other} is there, too, \
                 by which another hub works on it, or this one under another name",
                namespace::CLUSTER,
                member.server
            ));
            return Ok(());
        }
        remove_account(member, IMPERSONATOR).await?;

        let path = NAMESPACES.object(None, namespace::CLUSTER);
        let there = match member.rest.get(&path).await {
            Ok(there) if object::deletion_timestamp(&there).is_some() => return Ok(()),
            Ok(there) => there,
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(member.failed(&format!("cannot read {path}"), &error)),
        };
        let of_hub = match hub.objects.rest().get(&path).await {
            Ok(own) => is_one(&there, &own),
            Err(error) if error.is_not_found() => false,
            Err(error) => return Err(hub.failure(&error)),
        };
        let stays = match stays(&there, of_hub) {
            Some(why) => Some(why.to_owned()),
            None => match timeout(LOOKED, Box::pin(foreign(&member.rest, own))).await {
                Ok(Ok(found)) => found.map(|what| format!("{what} is in it, which join has not made")),
                Ok(Err(why)) => Some(format!("cannot tell what is in it: {why}")),
                Err(_) => {
                    Some(format!("cannot tell what is in it: the look took more than {} s", LOOKED.as_secs()))
                }
            },
        };
        if let Some(why) = stays {
            let way_out = match of_hub {
                true => "",
                false => ". To delete it with all that is in it: kubectl delete namespace karmada-cluster",
            };
            self.notes.push(format!(
                "Namespace {} stays at {}: {why}{way_out}",
                namespace::CLUSTER,
                member.server
            ));
            return Ok(());
        }
        // The one that was looked into, and no other of its name.
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": object::uid(&there)},
        });
        match member.rest.delete(&path, &options).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(member.failed(&format!("cannot delete {path}"), &error)),
        }
    }

    fn unless_forced(&mut self, done: Result<(), Failure>) -> Result<(), Failure> {
        match done {
            Err(why) if self.force => {
                self.notes.push(why.to_string());
                Ok(())
            }
            done => done,
        }
    }
}

/// Why a cluster is not the member of a Cluster, by the uid of its Namespace kube-system; none if it is. `given`: the uid that
/// somebody says is the member's. It does not make up for another one in the Cluster.
fn another(cluster: Option<&Value>, given: Option<&str>, uid: &str) -> Option<String> {
    let told = cluster.map(|cluster| cluster["spec"]["id"].as_str().unwrap_or_default());
    let given = given.filter(|id| !id.is_empty());
    let (id, whose) = match (told, given) {
        (Some(""), None) => {
            return Some(
                "the Cluster's spec.id is empty and does not say which one that is; --cluster-id can"
                    .to_owned(),
            );
        }
        (None, None) => {
            return Some("the Cluster is gone already, so nothing says which one that is".to_owned());
        }
        (Some("") | None, Some(given)) => (given, "--cluster-id"),
        (Some(id), Some(given)) if id != given => {
            return Some(format!("--cluster-id is {given:?}, and the Cluster's spec.id is {id:?}"));
        }
        (Some(id), _) => (id, "the Cluster's spec.id"),
    };
    (id != uid).then(|| {
        format!(
            "the uid of its Namespace kube-system is {uid:?}, and {whose} is {id:?}, so it is another cluster"
        )
    })
}

/// Another account by which somebody works on this member, if there is one.
fn also_joined(accounts: &Value, own: &str) -> Option<String> {
    let others = items(accounts).filter(|one| object::deletion_timestamp(one).is_none()).map(object::name);
    let mut others =
        others.filter(|name| name.starts_with("karmada-") && ![own, IMPERSONATOR].contains(name));
    let other = others.next().map(|name| format!("ServiceAccount {name}"));
    other.or_else(|| goes_on(accounts).then(|| format!("one of more than {OBJECTS} ServiceAccounts")))
}

/// Why the namespace stays, whatever is in it.
fn stays(there: &Value, of_hub: bool) -> Option<&'static str> {
    if of_hub {
        return Some("it is the hub's own, with the Secrets of all clusters");
    }
    let made = object::label(there, label::SYSTEM) == Some(label::SYSTEM_VALUE);
    (!made).then_some("join has not made it: it does not have the label karmada.io/system=true")
}

/// Whether two servers are one, as far as a namespace of both says it.
fn is_one(namespace: &Value, other: &Value) -> bool {
    let uid = object::uid(namespace);
    !uid.is_empty() && uid == object::uid(other)
}

/// Something in the namespace that neither join nor Kubernetes itself has made.
async fn foreign(member: &Rest, own: &str) -> Result<Option<String>, String> {
    let all = discovery::everything(member).await.map_err(|error| error.to_string())?;
    if all.len() > KINDS {
        return Err(format!("the member serves more than {KINDS} kinds"));
    }
    let mut seen = BTreeSet::new();
    for served in &all {
        let resource = &served.resource;
        // What cannot be deleted is made of something else.
        if !resource.namespaced
            || !served.supports(&["list", "delete"])
            || !seen.insert((resource.group.as_str(), resource.plural.as_str()))
        {
            continue;
        }
        let path = format!("{}?limit={OBJECTS}", resource.collection(Some(namespace::CLUSTER)));
        match member.get(&path).await {
            Ok(list) => {
                if let Some(what) = stranger(resource, &list, own) {
                    return Ok(Some(what));
                }
            }
            // Not served any more.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(None)
}

/// The first of some objects that neither join nor Kubernetes itself has made. What is being deleted does not count.
fn stranger(resource: &Resource, list: &Value, own: &str) -> Option<String> {
    let accounts = ["default", own, IMPERSONATOR];
    let of = (resource.group.as_str(), resource.plural.as_str());
    if matches!(of, ("" | "events.k8s.io", "events")) {
        return None;
    }
    let known = |one: &Value| match of {
        ("", "configmaps") => object::name(one) == "kube-root-ca.crt",
        ("", "serviceaccounts") => accounts.contains(&object::name(one)),
        ("", "secrets") => accounts.iter().any(|account| is_token_of(one, account)),
        _ => false,
    };
    let found = items(list).find(|one| object::deletion_timestamp(one).is_none() && !known(one));
    let found = found.map(|one| format!("{} {}", resource.kind, object::name(one)));
    found.or_else(|| {
        goes_on(list).then(|| format!("more than {OBJECTS} objects of the kind {}", resource.kind))
    })
}

/// Whether a Secret has a token of an account, and is nobody else's that is called so.
fn is_token_of(secret: &Value, account: &str) -> bool {
    secret["type"] == "kubernetes.io/service-account-token"
        && object::annotation(secret, TOKEN_OF) == Some(account)
}

/// Takes an account away, and the token that join has made of it. Where hub and member are one, the Secret of a Cluster may
/// have the same name.
async fn remove_account(member: &Member, account: &str) -> Result<(), Failure> {
    let within = format!("/api/v1/namespaces/{}", namespace::CLUSTER);
    let path = format!("{within}/secrets/{account}");
    match member.rest.get(&path).await {
        Ok(secret) if is_token_of(&secret, account) => member.remove(&path).await?,
        Ok(_) => {}
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(member.failed(&format!("cannot read {path}"), &error)),
    }
    member.remove(&format!("{within}/serviceaccounts/{account}")).await
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

/// Whether there is more than the page that was asked for.
fn goes_on(list: &Value) -> bool {
    list["metadata"]["continue"].as_str().is_some_and(|more| !more.is_empty())
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, sync::Arc};

    use http::{Request, Response};
    use karmada_env::Env;
    use karmada_objects::Objects;
    use kube::client::Body;
    use parking_lot::Mutex;

    use super::*;

    const WITHIN: &str = "/api/v1/namespaces/karmada-cluster";

    /// A server that has this at these paths, and the paths of what it is told to delete.
    fn server(has: &Value) -> (Rest, Arc<Mutex<Vec<String>>>) {
        let (has, deleted) = (has.clone(), Arc::<Mutex<Vec<String>>>::default());
        let kept = deleted.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().path();
            let found = match request.method() == http::Method::DELETE {
                true => {
                    kept.lock().push(path.to_owned());
                    Some(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}))
                }
                false => has.get(path).cloned(),
            };
            let none = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": "none"});
            let (code, answer) = found.map_or((404, none), |found| (200, found));
            let body = Body::from(answer.to_string().into_bytes());
            async move { Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap()) }
        });
        (Rest::new(kube::Client::new(service, "default")), deleted)
    }

    /// A member as join leaves it, with one object more.
    fn joined(kind: &str, further: &[Value]) -> Value {
        let made = |plural: &str, kind: &str| json!({"name": plural, "kind": kind, "namespaced": true, "verbs": ["get", "list", "delete"]});
        let mut member = json!({
            "/apis": {"groups": []},
            "/api/v1": {"resources": [
                made("configmaps", "ConfigMap"), made("secrets", "Secret"), made("serviceaccounts", "ServiceAccount"),
            ]},
            (WITHIN): {"metadata": {"name": "karmada-cluster", "uid": "1", "labels": {(label::SYSTEM): label::SYSTEM_VALUE}}},
        });
        for (plural, items) in [
            ("configmaps", vec![named("kube-root-ca.crt")]),
            ("secrets", vec![]),
            ("serviceaccounts", vec![named("default")]),
        ] {
            let further: &[Value] = if plural == kind { further } else { &[] };
            member[format!("{WITHIN}/{plural}")] = list(&[&items[..], further].concat());
        }
        for account in ["karmada-m", IMPERSONATOR] {
            member[format!("{WITHIN}/secrets/{account}")] = token(account);
        }
        member
    }

    #[tokio::test]
    async fn what_join_has_made_goes_and_nothing_else() {
        let shared = ["clusterrolebindings", "clusterroles"];
        let mut own: Vec<_> = shared
            .iter()
            .map(|plural| format!("/apis/{GROUP}/v1/{plural}/karmada-controller-manager:karmada-m"))
            .collect();
        let account =
            |name: &str| ["secrets", "serviceaccounts"].map(|plural| format!("{WITHIN}/{plural}/{name}"));
        own.extend(account("karmada-m"));
        let both = [&own[..], &account(IMPERSONATOR)].concat();
        let whole = [&both[..], &[WITHIN.to_owned()]].concat();
        let mut of_cluster = joined("", &[]);
        of_cluster[format!("{WITHIN}/secrets/karmada-m")] = named("karmada-m");
        let but_secret: Vec<_> =
            both.iter().filter(|path| !path.ends_with("secrets/karmada-m")).cloned().collect();
        for (what, member, of_hub, gone, note) in [
            ("as join leaves it", joined("", &[]), "2", &whole, None),
            ("with a user's", joined("configmaps", &[named("c")]), "2", &both, Some("ConfigMap c is in it")),
            ("joined twice", joined("serviceaccounts", &[named("karmada-n")]), "2", &own, Some("karmada-n")),
            ("the hub's own", joined("", &[]), "1", &both, Some("it is the hub's own")),
            ("the hub's, with a cluster named so", of_cluster, "1", &but_secret, Some("it is the hub's own")),
        ] {
            let (rest, deleted) = server(&member);
            let there =
                Member { rest, server: "https://m".to_owned(), insecure: false, proxy: String::new() };
            let (hub, kept) =
                server(&json!({(WITHIN): {"metadata": {"name": "karmada-cluster", "uid": of_hub}}}));
            let hub = Server::within(Objects::new(hub), "", &Env::system());
            let mut leaving = Leaving::new("m", false);
            leaving.tidy(&there, &hub).await.unwrap();
            assert_eq!(*deleted.lock(), *gone, "{what}");
            let notes = leaving.notes();
            assert_eq!(notes.len(), usize::from(note.is_some()), "{what}: {notes:?}");
            assert!(notes.iter().all(|said| said.contains(note.unwrap_or_default())), "{what}: {notes:?}");
            assert!(kept.lock().is_empty(), "{what}: nothing is deleted on the hub");
        }
    }

    #[tokio::test]
    async fn another_cluster_is_refused_or_by_force_left_alone() {
        let (rest, deleted) = server(&json!({"/api/v1/namespaces/kube-system": {"metadata": {"uid": "1"}}}));
        let there = Member { rest, server: "https://m".to_owned(), insecure: false, proxy: String::new() };
        let cluster = |id: &str| json!({"metadata": {"name": "m"}, "spec": {"id": id}});
        let mut leaving = Leaving::new("m", false);
        for (cluster, given) in [(Some(cluster("1")), None), (None, Some("1"))] {
            let uid = leaving.proven(&there, cluster.as_ref(), given).await.unwrap();
            assert_eq!(uid.as_deref(), Some("1"), "{cluster:?}");
        }
        for (cluster, given, way_out) in [
            (Some(cluster("2")), None, "add --force"),
            // It is gone, and the kubeconfig may lead anywhere.
            (None, None, "with --cluster-id the uid"),
            (None, Some("2"), "with --cluster-id the uid"),
        ] {
            let why = leaving.proven(&there, cluster.as_ref(), given).await.unwrap_err().to_string();
            for word in ["https://m", "Nothing has been deleted", way_out] {
                assert!(why.contains(word), "{cluster:?} {given:?}: {why}");
            }
            assert!(leaving.notes().is_empty());
            let mut forced = Leaving::new("m", true);
            assert_eq!(forced.proven(&there, cluster.as_ref(), given).await.unwrap(), None);
            let notes = forced.notes();
            assert!(notes[0].contains("nothing has been deleted on https://m"), "{notes:?}");
        }
        assert!(deleted.lock().is_empty());
    }

    fn list(items: &[Value]) -> Value {
        json!({"metadata": {"resourceVersion": "1"}, "items": items})
    }

    fn named(name: &str) -> Value {
        json!({"metadata": {"name": name}})
    }

    fn going(name: &str) -> Value {
        json!({"metadata": {"name": name, "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    }

    fn token(of: &str) -> Value {
        json!({
            "type": "kubernetes.io/service-account-token",
            "metadata": {"name": format!("{of}-token-x"), "annotations": {(TOKEN_OF): of}},
        })
    }

    #[test]
    fn only_the_uid_of_kube_system_says_that_it_is_the_member() {
        let cluster = |id: Value| Some(json!({"metadata": {"name": "m"}, "spec": {"id": id}}));
        for (cluster, given) in [
            (cluster(json!("1")), None),
            (cluster(json!("1")), Some("1")),
            (cluster(json!("1")), Some("")),
            (cluster(json!("")), Some("1")),
            (None, Some("1")),
        ] {
            assert_eq!(another(cluster.as_ref(), given, "1"), None, "{cluster:?} {given:?}");
        }
        for (cluster, given, uid, says) in [
            (cluster(json!("1")), None, "2", "is \"2\", and the Cluster's spec.id is \"1\""),
            (cluster(json!("1")), None, "", "is \"\""),
            (
                cluster(json!("1")),
                Some("2"),
                "2",
                "--cluster-id is \"2\", and the Cluster's spec.id is \"1\"",
            ),
            (cluster(json!("")), None, "", "spec.id is empty"),
            (cluster(Value::Null), None, "1", "spec.id is empty"),
            (cluster(json!("")), Some("1"), "2", "and --cluster-id is \"1\""),
            (None, None, "1", "gone already"),
            (None, Some(""), "", "gone already"),
            (None, Some("1"), "2", "and --cluster-id is \"1\""),
            (None, Some("1"), "", "is \"\""),
        ] {
            let why = another(cluster.as_ref(), given, uid).unwrap_or_default();
            assert!(why.contains(says), "{cluster:?} {given:?} {uid:?}: {why:?}");
        }
    }

    #[test]
    fn the_namespace_stays_where_it_is_not_joins() {
        let made = json!({"metadata": {"labels": {(label::SYSTEM): label::SYSTEM_VALUE}}});
        for (there, of_hub, says) in [
            (&made, false, None),
            (&made, true, Some("hub's own")),
            (&json!({"metadata": {}}), false, Some("has not made it")),
            (&json!({"metadata": {"labels": {(label::SYSTEM): "false"}}}), false, Some("has not made it")),
        ] {
            let why = stays(there, of_hub);
            assert_eq!(why.is_some(), says.is_some(), "{there} {of_hub}: {why:?}");
            assert!(why.unwrap_or_default().contains(says.unwrap_or_default()), "{why:?}");
        }
    }

    #[test]
    fn the_hub_is_not_taken_for_the_member() {
        let namespace = |uid: Option<&str>| json!({"metadata": {"name": "karmada-cluster", "uid": uid}});
        let (one, other, none) = (namespace(Some("1")), namespace(Some("2")), namespace(None));
        assert!(is_one(&one, &one));
        assert!(!is_one(&one, &other));
        assert!(!is_one(&none, &none), "that says nothing");
    }

    #[test]
    fn who_has_joined_the_member_as_well_keeps_what_it_needs() {
        let own = "karmada-m";
        let usual = [named("default"), named(own), named(IMPERSONATOR)];
        assert_eq!(also_joined(&list(&usual), own), None);
        assert_eq!(also_joined(&list(&[going("karmada-n"), named("builder")]), own), None);
        let other = [&usual[..], &[named("karmada-n")]].concat();
        assert_eq!(also_joined(&list(&other), own).as_deref(), Some("ServiceAccount karmada-n"));
        let mut page = list(&usual);
        page["metadata"]["continue"] = "x".into();
        assert!(also_joined(&page, own).is_some_and(|what| what.contains("more than 50")));
    }

    #[test]
    fn whatever_join_has_not_made_keeps_the_namespace() {
        let kind = |group: &str, plural: &str, kind: &str| Resource::new(group, "v1", plural, kind, true);
        let secrets = kind("", "secrets", "Secret");
        let user = json!({"type": "Opaque", "metadata": {"name": "karmada-m", "annotations": {(TOKEN_OF): "karmada-m"}}});
        for (resource, items, found) in [
            (&secrets, vec![token("default"), token("karmada-m"), token(IMPERSONATOR)], None),
            (&secrets, vec![token("default"), token("karmada-n")], Some("Secret karmada-n-token-x")),
            (&secrets, vec![user], Some("Secret karmada-m")),
            (&secrets, vec![going("s")], None),
            (&kind("", "configmaps", "ConfigMap"), vec![named("kube-root-ca.crt")], None),
            (
                &kind("", "configmaps", "ConfigMap"),
                vec![named("kube-root-ca.crt"), named("c")],
                Some("ConfigMap c"),
            ),
            (
                &kind("a.io", "configmaps", "ConfigMap"),
                vec![named("kube-root-ca.crt")],
                Some("ConfigMap kube-root-ca.crt"),
            ),
            (
                &kind("", "serviceaccounts", "ServiceAccount"),
                vec![named("default"), named("karmada-m"), named(IMPERSONATOR)],
                None,
            ),
            (&kind("", "serviceaccounts", "ServiceAccount"), vec![named("s")], Some("ServiceAccount s")),
            (&kind("", "events", "Event"), vec![named("e")], None),
            (&kind("events.k8s.io", "events", "Event"), vec![named("e")], None),
            (&kind("a.io", "events", "Event"), vec![named("e")], Some("Event e")),
            (&kind("apps", "deployments", "Deployment"), vec![named("web")], Some("Deployment web")),
            (&kind("apps", "deployments", "Deployment"), vec![], None),
        ] {
            let what = stranger(resource, &list(&items), "karmada-m");
            assert_eq!(what.as_deref(), found, "{} {items:?}", resource.plural);
        }
        let mut page = list(&[token("default")]);
        page["metadata"]["continue"] = "x".into();
        let what = stranger(&secrets, &page, "karmada-m").unwrap_or_default();
        assert!(what.contains("more than 50 objects of the kind Secret"), "{what}");
    }

    #[test]
    fn a_secret_that_is_called_like_an_account_is_not_its_token() {
        let of_cluster = json!({"metadata": {"name": "karmada-m", "ownerReferences": [{"kind": "Cluster", "name": "karmada-m"}]}});
        assert!(!is_token_of(&of_cluster, "karmada-m"));
        assert!(is_token_of(&token("karmada-m"), "karmada-m"));
        assert!(!is_token_of(&token("karmada-m"), "karmada-n"));
    }
}
