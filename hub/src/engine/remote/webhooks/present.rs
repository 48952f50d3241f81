//! What is judged by what else there is on the server: the ids of other clusters, the quotas of a namespace, and whether
//! a policy selects anything. If it cannot be had, it is not held against the user: controllers look again.

use karmada_api::{
    KarmadaKind,
    cluster::Cluster,
    policy::{
        ClusterPropagationPolicy, FederatedResourceQuotaSpec, PropagationPolicy, PropagationSpec,
        ResourceSelector,
    },
    work::{ResourceBinding, ResourceBindingSpec},
};
use karmada_client::{
    Resource, Rest,
    rest::{METADATA_LIST, query_value},
};
use karmada_core::{
    admit::{self, Found},
    quota,
    select::{self, Subject},
};
use karmada_meta::{gvk::GroupVersionKind, object};
use karmada_objects::kinds::{CLUSTERS, FEDERATED_RESOURCE_QUOTAS, RESOURCE_BINDINGS};
use serde::Deserialize;
use serde_json::Value;

/// Of objects that may be many, no more are looked at: the server waits for the answer.
const LOOK: usize = 500;

/// A write, and where to look what there is beside it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside<'a> {
    pub(super) rest: &'a Rest,
    /// The review's request.
    pub(super) request: &'a Value,
    /// The object as it is to be.
    pub(super) object: &'a Value,
}

impl Beside<'_> {
    fn is<K: KarmadaKind>(&self) -> bool {
        let kind = &self.request["kind"];
        kind["group"] == K::GROUP && kind["kind"] == K::KIND
    }

    fn old(&self) -> Option<&Value> {
        (self.request["operation"] == "UPDATE").then(|| &self.request["oldObject"])
    }

    /// Code, reason and message of a refusal.
    pub(super) async fn refusal(&self) -> Option<(u16, &'static str, String)> {
        if object::deletion_timestamp(self.object).is_some() {
            None
        } else if self.is::<Cluster>() {
            Some((409, "Conflict", self.duplicate_id().await?))
        } else if self.is::<ResourceBinding>() {
            Some((403, "Forbidden", self.over_quota().await?))
        } else {
            None
        }
    }

    /// All objects of a collection; nothing if they cannot be had.
    async fn all(&self, resource: &Resource, namespace: Option<&str>) -> Vec<Value> {
        match self.rest.get(&resource.collection(namespace)).await {
            Ok(mut list) => match list["items"].take() {
                Value::Array(items) => items,
                _ => Vec::new(),
            },
            Err(error) => {
                tracing::debug!(%error, "what there is beside a new object cannot be read");
                Vec::new()
            }
        }
    }

    async fn duplicate_id(&self) -> Option<String> {
        let id = |object: &Value| object.pointer("/spec/id").and_then(Value::as_str).map(str::to_owned);
        let new = id(self.object).filter(|new| !new.is_empty())?;
        if self.old().and_then(id).as_ref() == Some(&new) {
            return None;
        }
        let others = self.all(&CLUSTERS, None).await;
        let others: Vec<_> =
            others.iter().filter_map(|other| Some((object::name(other).to_owned(), id(other)?))).collect();
        let others = others.iter().map(|(name, id)| (name.as_str(), id.as_str()));
        let name = object::name(self.object);
        let why = admit::duplicate_id(name, &new, others)?;
        if super::agent_of(self.request).is_none() {
            return Some(why);
        }
        tracing::warn!(cluster = name, why, "an agent is refused: one member has one name");
        Some(admit::duplicate_id_for_agent(&new))
    }

    async fn over_quota(&self) -> Option<String> {
        let usage = |binding: &Value| {
            let spec = ResourceBindingSpec::deserialize(&binding["spec"]);
            spec.map(|spec| quota::usage(&spec)).unwrap_or_default()
        };
        let (before, wanted) = (self.old().map(usage).unwrap_or_default(), usage(self.object));
        if before == wanted {
            return None;
        }
        let (namespace, name) = (object::namespace(self.object), object::name(self.object));
        let quotas = self.all(&FEDERATED_RESOURCE_QUOTAS, Some(namespace)).await;
        let quotas: Vec<_> = quotas
            .iter()
            .filter(|quota| object::deletion_timestamp(quota).is_none())
            .filter_map(|quota| {
                let spec = FederatedResourceQuotaSpec::deserialize(&quota["spec"]).ok()?;
                Some((object::key(quota), spec))
            })
            .collect();
        if quotas.is_empty() {
            return None;
        }
        let bindings = self.all(&RESOURCE_BINDINGS, Some(namespace)).await;
        let others = bindings
            .iter()
            .filter(|other| object::name(other) != name && object::deletion_timestamp(other).is_none());
        let others: Vec<_> = others.map(usage).collect();
        let others: Vec<_> = others.iter().collect();
        let specs = quotas.iter().map(|(name, spec)| (name.as_str(), spec));
        quota::refusal(specs, &others, &before, &wanted)
    }

    /// What to tell the author of a policy that selects nothing at present.
    pub(super) async fn idle_policy(&self) -> Vec<String> {
        let namespaced = self.is::<PropagationPolicy>();
        let selectors = |policy: &Value| policy.pointer("/spec/resourceSelectors").cloned();
        if !(namespaced || self.is::<ClusterPropagationPolicy>())
            || self.old().is_some_and(|old| selectors(old) == selectors(self.object))
            || object::deletion_timestamp(self.object).is_some()
        {
            return Vec::new();
        }
        let Ok(spec) = PropagationSpec::deserialize(&self.object["spec"]) else { return Vec::new() };
        let namespace = namespaced.then(|| object::namespace(self.object));
        let mut found = Vec::with_capacity(spec.resource_selectors.len());
        for selector in &spec.resource_selectors {
            found.push(self.found(selector, namespace).await);
        }
        admit::idle(spec.resource_selectors.iter().zip(found))
    }

    async fn found(&self, selector: &ResourceSelector, namespace: Option<&str>) -> Found {
        let Some(gvk) = GroupVersionKind::from_api_version(&selector.api_version, selector.kind.as_str())
        else {
            return Found::NoKind;
        };
        let root = if gvk.group.is_empty() { "/api" } else { "/apis" };
        let served = match self.rest.get(&format!("{root}/{}", selector.api_version)).await {
            Ok(served) => served,
            Err(error) if error.is_not_found() => return Found::NoKind,
            Err(_) => return Found::Something,
        };
        let mut resources = served["resources"].as_array().into_iter().flatten();
        let resource = resources.find(|resource| {
            let name = resource["name"].as_str().unwrap_or_default();
            resource["kind"] == selector.kind && !name.contains('/')
        });
        let Some(resource) = resource else { return Found::NoKind };
        let plural = resource["name"].as_str().unwrap_or_default();
        let in_namespaces = resource["namespaced"] == true;
        let resource = Resource::new(&gvk.group, &gvk.version, plural, &gvk.kind, in_namespaces);
        let named = Some(selector.namespace.as_str()).filter(|name| !name.is_empty());
        let collection = resource.collection(namespace.or(named).filter(|_| in_namespaces));
        let one = match selector.name.as_str() {
            "" => String::new(),
            name => format!("&fieldSelector={}", query_value(&format!("metadata.name={name}"))),
        };
        let listed = self.rest.get_bytes(&format!("{collection}?limit={LOOK}{one}"), METADATA_LIST).await;
        let Some(list) = listed.ok().and_then(|list| serde_json::from_slice::<Value>(&list).ok()) else {
            return Found::Something;
        };
        let more = list["metadata"]["continue"].as_str().is_some_and(|next| !next.is_empty());
        let means = |object: &Value| {
            let subject = Subject {
                api_version: selector.api_version.clone(),
                kind: selector.kind.clone(),
                ..Subject::of(object)
            };
            object::deletion_timestamp(object).is_none() && select::selects(selector, &subject).is_some()
        };
        let any = list["items"].as_array().into_iter().flatten().any(means);
        if any || more { Found::Something } else { Found::Nothing }
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use serde_json::json;

    use super::*;

    /// A server that has what is listed for each path.
    fn server(has: &Value) -> Rest {
        let has = has.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let found = has.get(request.uri().path()).cloned();
            let none = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": "none"});
            let (code, answer) = found.map_or((404, none), |found| (200, found));
            let body = kube::client::Body::from(answer.to_string().into_bytes());
            async move { Ok::<_, std::convert::Infallible>(Response::builder().status(code).body(body).unwrap()) }
        });
        Rest::new(kube::Client::new(service, "default"))
    }

    fn request(group: &str, kind: &str, old: Option<&Value>) -> Value {
        let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
        json!({"operation": operation, "kind": {"group": group, "kind": kind}, "oldObject": old})
    }

    #[tokio::test]
    async fn one_member_has_one_name() {
        let cluster = |name: &str, id: &str| json!({"metadata": {"name": name}, "spec": {"id": id}});
        let clusters = json!({"/apis/cluster.karmada.io/v1alpha1/clusters": {"items": [cluster("a", "1"), cluster("b", "2")]}});
        let rest = server(&clusters);
        let (old, same) = (cluster("c", "3"), cluster("c", "1"));
        let table = [
            ("new", cluster("c", "3"), None, false),
            ("another's id", cluster("c", "1"), None, true),
            ("its own", cluster("a", "1"), None, false),
            ("without", cluster("c", ""), None, false),
            ("changed to another's", cluster("c", "1"), Some(&old), true),
            ("not changed", cluster("c", "1"), Some(&same), false),
        ];
        for (message, object, old, refused) in table {
            let request = request("cluster.karmada.io", "Cluster", old);
            let beside = Beside { rest: &rest, request: &request, object: &object };
            assert_eq!(beside.refusal().await.map(|(code, ..)| code), refused.then_some(409), "{message}");
        }
        let nothing = server(&json!({}));
        let request = request("cluster.karmada.io", "Cluster", None);
        let beside = Beside { rest: &nothing, request: &request, object: &cluster("c", "1") };
        assert_eq!(beside.refusal().await, None, "what cannot be had is not held against anybody");
    }

    #[tokio::test]
    async fn a_namespace_uses_no_more_than_its_quota() {
        let binding = |name: &str, replicas: i64| {
            json!({"metadata": {"name": name, "namespace": "shop"}, "spec": {
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "replicas": replicas, "replicaRequirements": {"resourceRequest": {"cpu": "1"}},
                "clusters": [{"name": "a", "replicas": replicas}],
            }})
        };
        let quota =
            json!({"metadata": {"name": "q", "namespace": "shop"}, "spec": {"overall": {"cpu": "5"}}});
        let rest = server(&json!({
            "/apis/policy.karmada.io/v1alpha1/namespaces/shop/federatedresourcequotas": {"items": [quota]},
            "/apis/work.karmada.io/v1alpha2/namespaces/shop/resourcebindings": {"items": [binding("a", 3), binding("b", 1)]},
        }));
        let one = binding("b", 1);
        let table = [
            ("what is left", binding("b", 2), Some(&one), false),
            ("more than is left", binding("b", 3), Some(&one), true),
            ("not changed", binding("b", 1), Some(&one), false),
            ("a new one", binding("c", 2), None, true),
        ];
        for (message, object, old, refused) in table {
            let request = request("work.karmada.io", "ResourceBinding", old);
            let beside = Beside { rest: &rest, request: &request, object: &object };
            assert_eq!(beside.refusal().await.map(|(code, ..)| code), refused.then_some(403), "{message}");
        }
    }

    #[tokio::test]
    async fn a_policy_that_selects_nothing_is_warned_of() {
        let web = json!({"metadata": {"name": "web", "namespace": "shop", "labels": {"tier": "edge"}}});
        let rest = server(&json!({
            "/api/v1": {"resources": [{"name": "configmaps", "kind": "ConfigMap", "namespaced": true},
                                      {"name": "configmaps/status", "kind": "ConfigMap", "namespaced": true}]},
            "/api/v1/namespaces/shop/configmaps": {"items": [web]},
            "/api/v1/namespaces/empty/configmaps": {"items": []},
        }));
        let policy = |namespace: &str, selector: Value| json!({"metadata": {"name": "p", "namespace": namespace}, "spec": {"resourceSelectors": [selector]}});
        let config = |extra: Value| {
            let mut selector = json!({"apiVersion": "v1", "kind": "ConfigMap"});
            for (field, value) in extra.as_object().unwrap() {
                selector[field] = value.clone();
            }
            selector
        };
        let named = policy("shop", config(json!({"name": "other"})));
        let table = [
            ("all of a kind", policy("shop", config(json!({}))), None, ""),
            ("by name", policy("shop", config(json!({"name": "web"}))), None, ""),
            ("by another name", named.clone(), None, "no resource matches"),
            ("the same, not changed", named.clone(), Some(&named), ""),
            (
                "by label",
                policy("shop", config(json!({"labelSelector": {"matchLabels": {"tier": "edge"}}}))),
                None,
                "",
            ),
            (
                "by another label",
                policy("shop", config(json!({"labelSelector": {"matchLabels": {"tier": "x"}}}))),
                None,
                "no resource matches",
            ),
            ("an empty namespace", policy("empty", config(json!({}))), None, "no resource matches"),
            (
                "no such kind",
                policy("shop", json!({"apiVersion": "v1", "kind": "Widget"})),
                None,
                "no kind Widget in v1",
            ),
            (
                "no such group",
                policy("shop", json!({"apiVersion": "example.com/v1", "kind": "Widget"})),
                None,
                "no kind Widget",
            ),
        ];
        for (message, object, old, want) in table {
            let request = request("policy.karmada.io", "PropagationPolicy", old);
            let beside = Beside { rest: &rest, request: &request, object: &object };
            let warnings = beside.idle_policy().await;
            assert_eq!(warnings.is_empty(), want.is_empty(), "{message}: {warnings:?}");
            assert!(warnings.concat().contains(want), "{message}: {warnings:?}");
        }
    }
}
