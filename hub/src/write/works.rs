//! Making Works what their makers want, and taking away what nobody wants.
//!
//! All makers of Works come through here: bindings, namespaces, quotas, and what is made for a cluster alone.

use std::{collections::BTreeMap, fmt, time::Duration};

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use karmada_api::consts::{annotation, extension, label};
use karmada_client::Error;
use karmada_core::{
    admit::agent::work::release,
    delete::{self, Orphan, Wishes},
    names,
    services::ServiceName,
    work,
};
use karmada_meta::{
    object,
    path::{FieldError, aggregate},
    time::Time,
};
use karmada_objects::{
    Part,
    key::Key,
    kinds::WORKS,
    scope::{BindingKey, Scope},
};
use parking_lot::Mutex;
use serde_json::Value;

use crate::{
    known::{
        heads::{Carries, WorkHead},
        index::Change,
    },
    write::{Writer, checks},
};

/// How many Works of a binding are taken away at a time.
const AT_ONCE: usize = 16;

/// Whose a Work is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Maker<'a> {
    /// A binding's.
    Binding(&'a BindingKey),
    /// The namespace controller's, for the Namespace of this uid.
    Namespace(&'a str),
    /// The unified-auth controller's, for the Cluster of this uid.
    Cluster(&'a str),
    /// The quota controller's, for this FederatedResourceQuota.
    Quota(&'a Key),
    /// That of this MultiClusterService, which marks a provider.
    Multi(&'a Key),
    /// That of this MultiClusterService, which brings to a consumer what a collected Work tells.
    Slice(&'a ServiceName, &'a Key),
    /// That of this FederatedHPA.
    Hpa(&'a Key),
}

/// What came of making a Work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// It was as it should be.
    Unchanged,
    /// It was created or changed.
    Written,
    /// A Work of this name is somebody else's.
    Taken(String),
    /// It is on its way out, and not this maker's to replace: look again when it is gone.
    Going,
    /// Somebody takes the Works of its cluster away: look again after this time.
    Withheld(Duration),
    /// It does not fit into the engine.
    TooLarge(String),
    /// The engine refuses it for good.
    Refused(String),
}

/// What the hub itself writes into Works, until the watch has brought it back: that is no news.
#[derive(Default)]
pub(crate) struct Written(Mutex<BTreeMap<Key, u64>>);

impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Written").field("works", &self.0.lock().len()).finish()
    }
}

impl Written {
    /// Whether the content of a Work that the watch brings is what was written last.
    pub(crate) fn is_ours(&self, key: &Key, content: u64) -> bool {
        self.0.lock().get(key) == Some(&content)
    }

    /// The watch has brought this; everybody has heard of it.
    pub(crate) fn arrived(&self, change: &Change<'_, WorkHead>) {
        if change.new.is_none_or(|new| self.is_ours(change.key, new.content)) {
            self.forget(change.key);
        }
    }

    /// Whether nothing newer than this content was written: an index that lags shows what was there before.
    fn allows(&self, key: &Key, content: u64) -> bool {
        self.0.lock().get(key).is_none_or(|written| *written == content)
    }

    /// Forgets a Work that is gone, or was not written.
    fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }

    fn note(&self, key: &Key, content: u64) {
        self.0.lock().insert(key.clone(), content);
    }
}

/// Makes the Work at `key` what `build` says: it is given the Work as it is, if it is there, and a permanent id for
/// one that has none.
pub(crate) async fn ensure(
    writer: &Writer,
    key: &Key,
    maker: &Maker<'_>,
    build: impl Fn(Option<&Value>, &str) -> Value,
) -> Result<Made, Error> {
    let known = writer.known.works.get(key);
    if known.as_ref().is_none_or(|head| head.deleting)
        && let Some(wait) = writer.takings.withheld(key)
    {
        return Ok(Made::Withheld(wait));
    }
    match known {
        // Most Works that are not known are not there. If this one is, it is read like any other.
        None => match create(writer, build(None, &writer.env.uuid())).await {
            Err(error) if error.is_already_exists() => {}
            made => return made,
        },
        Some(head) => {
            let untouched = !head.deleting && !head.unwanted && writer.written.allows(key, head.content);
            if untouched && WorkHead::content(&build(None, &head.permanent_id)) == head.content {
                return Ok(Made::Unchanged);
            }
        }
    }
    let Some(live) = writer.objects.get(&WORKS, key).await? else {
        return create(writer, build(None, &writer.env.uuid())).await;
    };
    if let Some(reason) = taken(&live, maker) {
        return Ok(Made::Taken(reason));
    }
    if object::deletion_timestamp(&live).is_some() {
        return make_anew(writer, live, maker, build(None, &writer.env.uuid())).await;
    }
    let mut changed = build(Some(&live), &writer.env.uuid());
    let manifest = changed.pointer("/spec/workload/manifests/0").unwrap_or(&Value::Null);
    if let Some(other) = work::collision(&live, manifest) {
        return Ok(Made::Taken(format!("Work {key} already carries {other}")));
    }
    if changed == live {
        return Ok(Made::Unchanged);
    }
    if let Err(errors) = checks::own(&WORKS, Some(&live), &mut changed, &writer.env) {
        return Ok(refused(&errors));
    }
    write(writer, &changed, writer.objects.replace(&WORKS, &changed)).await
}

async fn create(writer: &Writer, mut work: Value) -> Result<Made, Error> {
    if let Err(errors) = checks::own(&WORKS, None, &mut work, &writer.env) {
        return Ok(refused(&errors));
    }
    write(writer, &work, writer.objects.create(&WORKS, &work)).await
}

/// A Work with a deletion timestamp cannot be called back. An agent that reports is at it: a new Work is made when it has
/// finished, so that it never deletes what that one holds. Of one that is silent, or says that it holds the removal back, what
/// the Work holds can be called back: without its finalizers it is gone at once, and the agent, which finds a new Work of the
/// same name, adopts the object by its annotations.
async fn make_anew(writer: &Writer, mut live: Value, maker: &Maker<'_>, new: Value) -> Result<Made, Error> {
    let manifest = new.pointer("/spec/workload/manifests/0").unwrap_or(&Value::Null);
    let cluster = names::cluster_of_namespace(object::namespace(&live)).map(Key::cluster_scoped);
    let known = cluster.and_then(|cluster| writer.known.clusters.get(&cluster));
    let waits = known.as_ref().is_some_and(|head| head.holds_removals()) || holds_back(&live);
    let silent = known.is_none_or(|head| !head.reporting());
    // A Namespace that is made again is another one, unless the first is still whole.
    let may_be_called_back = waits || silent && !matches!(maker, Maker::Namespace(_));
    if !may_be_called_back || work::collision(&live, manifest).is_some() {
        // Another object would be left behind on the member.
        return Ok(Made::Going);
    }
    if release(&mut live) {
        writer.objects.replace(&WORKS, &live).await?;
    }
    create(writer, new).await
}

/// Whether the agent says of a Work that it does nothing about it for now.
fn holds_back(work: &Value) -> bool {
    let conditions = work.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == extension::CHANGES_HELD && condition["status"] == "True")
}

/// Why a Work is not the maker's.
fn taken(live: &Value, maker: &Maker<'_>) -> Option<String> {
    let head = WorkHead::project(live);
    let key = Key::of(live);
    match (maker, &head.binding) {
        (Maker::Binding(ours), Some(theirs)) if *ours != theirs => {
            Some(format!("Work {key} is already that of {theirs}"))
        }
        (Maker::Binding(_), Some(_)) => None,
        (Maker::Quota(ours), _) if head.quota.as_ref() == Some(*ours) => None,
        (Maker::Cluster(_), Some(theirs)) => Some(format!("Work {key} is that of {theirs}")),
        (Maker::Cluster(uid), None) if head.owner == *uid => None,
        // On a hub that was moved it has no owner any more.
        (Maker::Cluster(_), None) if head.owner.is_empty() && is_the_hubs(live) => None,
        (Maker::Cluster(_), None) => Some(format!("Work {key} was not made for the Cluster")),
        (Maker::Quota(_), _) => Some(format!("Work {key} is not that of the quota")),
        (Maker::Multi(ours), _) if is_of_multi(&head, ours) => None,
        (Maker::Multi(ours), _) => Some(format!("Work {key} is not that of MultiClusterService {ours}")),
        (Maker::Slice(ours, source), _) if head.slice.as_ref().is_some_and(|s| s.brings(source, ours)) => {
            None
        }
        (Maker::Slice(_, source), _) => Some(format!("Work {key} does not bring what Work {source} tells")),
        (Maker::Hpa(ours), _) if head.sample.as_ref().is_some_and(|sample| sample.hpa == **ours) => None,
        (Maker::Hpa(ours), _) => Some(format!("Work {key} is not that of FederatedHPA {ours}")),
        // The binding of a Namespace takes over what the namespace controller made for it.
        (Maker::Binding(_), None) if !head.owner.is_empty() && is_namespace(live) => None,
        (Maker::Binding(_), None) => Some(format!("Work {key} was not made by the hub")),
        (Maker::Namespace(_), Some(theirs)) => Some(format!("Work {key} is that of {theirs}")),
        (Maker::Namespace(uid), None) if head.owner == *uid || is_namespace(live) => None,
        (Maker::Namespace(_), None) => Some(format!("Work {key} was not made by the hub")),
    }
}

fn is_of_multi(head: &WorkHead, service: &Key) -> bool {
    let of = head.slice.as_ref().filter(|slice| slice.carries == Carries::Marker);
    of.and_then(|slice| slice.multi.as_ref())
        .is_some_and(|of| (&of.namespace, &of.name) == (&service.namespace, &service.name))
}

fn is_namespace(work: &Value) -> bool {
    work.pointer("/spec/workload/manifests/0").is_some_and(|m| object::kind(m) == "Namespace")
}

/// Whether a Work carries something of the hub's own.
fn is_the_hubs(work: &Value) -> bool {
    let manifest = work.pointer("/spec/workload/manifests/0");
    manifest.is_some_and(|m| object::label(m, label::SYSTEM) == Some(label::SYSTEM_VALUE))
}

fn refused(errors: &[FieldError]) -> Made {
    Made::Refused(aggregate(errors))
}

/// Writes a Work, and notes it first: the watch may be faster than the answer.
async fn write(
    writer: &Writer,
    work: &Value,
    write: impl Future<Output = Result<Value, Error>>,
) -> Result<Made, Error> {
    let (key, sent) = (Key::of(work), WorkHead::content(work));
    writer.written.note(&key, sent);
    let answer = write.await;
    match &answer {
        Err(_) => writer.written.forget(&key),
        // The server has made something else of it.
        Ok(made) if WorkHead::content(made) != sent => writer.written.note(&key, WorkHead::content(made)),
        Ok(_) => {}
    }
    match answer {
        Ok(_) => Ok(Made::Written),
        Err(error) if is_too_large(&error) => Ok(Made::TooLarge(error.to_string())),
        Err(error) if error.is_invalid() || error.code() == Some(400) => Ok(Made::Refused(error.to_string())),
        Err(error) => Err(error),
    }
}

/// 413 from the embedded engine and from proxies; etcd's own refusal comes as a 500 with a text.
fn is_too_large(error: &Error) -> bool {
    error.code() == Some(413) || error.status().is_some_and(|s| s.message.contains("request is too large"))
}

/// Deals with the Works of a binding on clusters that it does not want, and takes marks off those that it wants
/// again. `reread` gives what the binding wishes by a live read, or nothing if it cannot be understood. What cannot be
/// deleted now is marked; that is as good for the binding, which need not wait for it.
pub(crate) async fn remove_orphans<F>(
    writer: &Writer,
    binding: &BindingKey,
    wishes: &Wishes,
    reread: impl Fn() -> F,
) -> Result<(), Error>
where
    F: Future<Output = Result<Option<Wishes>, Error>>,
{
    // The index only suspects. What is done is decided on a live read of the Works and a live read of the binding, in
    // this order: what the binding wants is never older than the Work that it is held against.
    let suspected = writer.known.works.group(&binding.to_string()).into_iter().filter(|(key, head)| {
        let cluster = names::cluster_of_namespace(&key.namespace);
        !head.deleting && cluster.is_some_and(|c| decide(writer, c, head.unwanted, wishes) != Orphan::Keep)
    });
    let reads: Vec<_> =
        suspected.map(|(key, _)| async move { writer.objects.get(&WORKS, &key).await }.boxed()).collect();
    let ours = |work: &Value| {
        WorkHead::binding_of(work).as_ref() == Some(binding) && object::deletion_timestamp(work).is_none()
    };
    let read: Vec<Option<Value>> = stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
    let read: Vec<_> = read.into_iter().flatten().filter(ours).collect();
    if read.is_empty() {
        return Ok(());
    }
    let Some(wishes) = reread().await? else { return Ok(()) };
    // A Namespace that goes everywhere by itself stays where its binding leaves it.
    let provided = namespace_of(binding).is_some_and(|namespace| writer.known.provides(namespace));
    let carrying: Vec<_> = read
        .iter()
        .filter_map(|live| {
            let cluster = names::cluster_of_namespace(object::namespace(live))?;
            let marked = object::annotation(live, extension::UNWANTED_SINCE).is_some();
            let decision = decide(writer, cluster, marked, &wishes);
            let goes = matches!(decision, Orphan::Delete | Orphan::Mark);
            Some(match goes && provided && is_namespace(live) {
                true => let_go(writer, live).boxed(),
                false => carry_out(writer, live, decision).boxed(),
            })
        })
        .collect();
    // Together, so that one sync makes several of them durable.
    stream::iter(carrying).buffered(AT_ONCE).try_collect().await
}

fn decide(writer: &Writer, cluster: &str, marked: bool, wishes: &Wishes) -> Orphan {
    let reporting =
        writer.known.clusters.get(&Key::cluster_scoped(cluster)).is_some_and(|head| head.reporting());
    delete::orphan(cluster, marked, wishes, reporting)
}

/// The Namespace that a binding is for, if it is for one.
pub(crate) fn namespace_of(binding: &BindingKey) -> Option<&str> {
    let of_cluster = binding.scope == Scope::Cluster;
    binding.key.name.strip_suffix("-namespace").filter(|_| of_cluster)
}

/// Makes a Work no binding's any more, and leaves what it holds where it is.
async fn let_go(writer: &Writer, work: &Value) -> Result<(), Error> {
    let key = Key::of(work);
    tracing::info!(work = %key, "its binding lets go of it, and it is provided from now on");
    let uid = object::uid(work).to_owned();
    let change = |live: &mut Value| {
        if object::uid(live) != uid || object::deletion_timestamp(live).is_some() {
            return false;
        }
        object::remove_label(live, label::CLUSTER_RESOURCE_BINDING_ID);
        object::remove_annotation(live, extension::UNWANTED_SINCE);
        object::remove_annotation(live, annotation::CLUSTER_RESOURCE_BINDING_NAME).is_some()
    };
    writer.objects.modify(&WORKS, &key, Part::Main, change).await.map(drop)
}

async fn carry_out(writer: &Writer, work: &Value, decision: Orphan) -> Result<(), Error> {
    let key = Key::of(work);
    let mark = |on: bool| {
        let since = Time::now(&writer.env).to_string();
        let uid = object::uid(work).to_owned();
        move |live: &mut Value| {
            if object::uid(live) != uid {
                return false;
            }
            if on {
                object::set_annotation(live, extension::UNWANTED_SINCE, since.as_str());
                true
            } else {
                object::remove_annotation(live, extension::UNWANTED_SINCE).is_some()
            }
        }
    };
    match decision {
        Orphan::Keep => {}
        Orphan::Delete => {
            tracing::info!(work = %key, "no longer wanted");
            writer.delete_work(work).await?;
        }
        Orphan::Mark => {
            tracing::info!(work = %key, "no longer wanted, and its cluster cannot be reached");
            writer.objects.modify(&WORKS, &key, Part::Main, mark(true)).await?;
        }
        Orphan::Unmark => {
            writer.objects.modify(&WORKS, &key, Part::Main, mark(false)).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "a table reads better so")]
    fn work(annotations: Value, owner: Value, kind: &str) -> Value {
        json!({
            "metadata": {
                "name": "w", "namespace": "karmada-es-m", "annotations": annotations, "ownerReferences": owner,
                "labels": {"mine": "x"}, "finalizers": [],
            },
            "spec": {"workload": {"manifests": [{"apiVersion": "v1", "kind": kind, "metadata": {"name": "n"}}]}},
        })
    }

    #[test]
    fn what_was_written_is_known_until_it_arrives() {
        let (written, key) = (Written::default(), Key::new("karmada-es-m", "w"));
        let head = |text: &str| {
            std::sync::Arc::new(WorkHead::project(&work(json!({"a": text}), json!([]), "ConfigMap")))
        };
        let (old, new) = (head("old"), head("new"));
        written.note(&key, new.content);
        assert!(!written.allows(&key, old.content), "the index lags");
        assert!(written.is_ours(&key, new.content) && !written.is_ours(&key, old.content));
        written.arrived(&Change { key: &key, old: None, new: Some(&old) });
        assert!(written.is_ours(&key, new.content), "it is still to come");
        written.arrived(&Change { key: &key, old: Some(&old), new: Some(&new) });
        assert!(!written.is_ours(&key, new.content) && written.allows(&key, old.content));
        written.note(&key, new.content);
        written.arrived(&Change { key: &key, old: Some(&old), new: None });
        assert!(!written.is_ours(&key, new.content), "it is gone");
    }

    #[test]
    fn works_of_others_are_left_alone() {
        let ours = BindingKey::of_template("ConfigMap", "shop", "n");
        let of = |name: &str| json!({"resourcebinding.karmada.io/namespace": "shop", "resourcebinding.karmada.io/name": name});
        let owner = json!([{"kind": "Namespace", "uid": "u", "controller": true}]);
        let cluster = json!([{"kind": "Cluster", "uid": "c", "controller": true}]);
        let none = json!([]);
        let mut moved = work(json!({}), none.clone(), "ClusterRole");
        object::set_label(&mut moved["spec"]["workload"]["manifests"][0], label::SYSTEM, "true");
        let binding = Maker::Binding(&ours);
        let table = [
            ("ours", work(of("n-configmap"), none.clone(), "ConfigMap"), binding.clone(), false),
            ("another binding's", work(of("m-configmap"), none.clone(), "ConfigMap"), binding.clone(), true),
            ("a user's", work(json!({}), none.clone(), "ConfigMap"), binding.clone(), true),
            ("a namespace's, taken over", work(json!({}), owner.clone(), "Namespace"), binding, false),
            ("its own", work(json!({}), owner.clone(), "Namespace"), Maker::Namespace("u"), false),
            (
                "of a namespace that was there before",
                work(json!({}), owner, "Namespace"),
                Maker::Namespace("v"),
                false,
            ),
            ("a cluster's", work(json!({}), cluster.clone(), "ClusterRole"), Maker::Cluster("c"), false),
            ("another cluster's", work(json!({}), cluster, "ClusterRole"), Maker::Cluster("d"), true),
            ("one that was moved", moved, Maker::Cluster("c"), false),
            ("a user's role", work(json!({}), none.clone(), "ClusterRole"), Maker::Cluster("c"), true),
            ("bound", work(of("n-namespace"), none.clone(), "Namespace"), Maker::Namespace("u"), true),
            ("a user's, again", work(json!({}), none, "ConfigMap"), Maker::Namespace("u"), true),
        ];
        for (message, live, maker, want) in table {
            assert_eq!(taken(&live, &maker).is_some(), want, "{message}");
        }
    }
}
