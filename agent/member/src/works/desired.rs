//! What the hub wants on this member, as far as it has been told: the seam between the watch of Works and the applier.
//!
//! Manifests are kept as the bytes they came as, or packed ([`Packer`]); everything else is small. Nothing here decides: a
//! Work that is missing is just missing. What is kept beyond the process is [`crate::state`]'s.

mod asked;
mod essence;
mod kept;
mod tally;
mod text;
mod told;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use karmada_api::{
    consts::{extension, finalizer, label},
    work::{ResourceIdentifier, WorkStatus},
};
use karmada_client::{Event, Wake, wake::Listener};
use karmada_core::{
    hold::{Asked, Whose},
    judge::fence,
    rollout,
};
use karmada_meta::{gvk::GroupVersionKind, object, sums::Sum};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::revision::Revision;

pub use asked::Asking;
pub use essence::Essence;
pub use text::{Packer, Text};

use tally::Tally;
use text::Status;

/// Which object, whatever version of its kind it is spoken of in.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    pub group: String,
    pub kind: String,
    /// Empty for objects of the whole cluster.
    pub namespace: String,
    pub name: String,
}

impl ObjectId {
    /// As Karmada names objects in messages: `shop/web`, or `web` without a namespace.
    pub fn path(&self) -> String {
        if self.namespace.is_empty() {
            self.name.clone()
        } else {
            format!("{}/{}", self.namespace, self.name)
        }
    }
}

impl From<&ResourceIdentifier> for ObjectId {
    fn from(id: &ResourceIdentifier) -> Self {
        Self {
            group: id.group.clone(),
            kind: id.kind.clone(),
            namespace: id.namespace.clone(),
            name: id.name.clone(),
        }
    }
}

/// One object that a Work holds.
#[derive(Debug)]
pub struct Manifest {
    /// Shared with all that is known of the object.
    pub id: Arc<ObjectId>,
    pub version: String,
    /// The object's JSON.
    pub text: Text,
    /// Tells whether two manifests are the same text.
    pub digest: u64,
    /// What makes it impossible to apply, known without asking anybody.
    pub problem: Option<String>,
    /// For how long it may run without the hub's confirmation, if it is fenced.
    pub fence: Option<Duration>,
}

impl Manifest {
    /// How the status of its Work names it.
    pub fn identifier(&self, ordinal: usize) -> ResourceIdentifier {
        ResourceIdentifier {
            ordinal: ordinal as i64,
            group: self.id.group.clone(),
            version: self.version.clone(),
            kind: self.id.kind.clone(),
            // Karmada leaves it empty.
            resource: String::new(),
            namespace: self.id.namespace.clone(),
            name: self.id.name.clone(),
        }
    }
}

/// One Work, reduced to what carrying it out takes.
#[derive(Debug)]
pub struct DesiredWork {
    pub name: String,
    pub uid: String,
    /// Its permanent id, which it keeps when it is moved to another hub.
    pub id: String,
    pub generation: i64,
    pub deleting: bool,
    /// Since when, as the hub writes it.
    pub deleted_at: Option<String>,
    /// Our finalizer is on it.
    pub held: bool,
    pub suspended: bool,
    pub preserve: bool,
    /// The hub has given up on it while this cluster was away, and decides about it.
    unwanted: bool,
    pub manifests: Arc<[Manifest]>,
    /// It goes out in waves: the hub waits to hear of each change.
    pub(crate) staged: bool,
    /// What tells it from other states of it, status aside.
    wanted: Sum,
    /// When changes of it may be made, as its policy and it itself ask; none for most.
    pub(crate) asked: Option<Box<(Asked, Asked)>>,
    /// What it was before, under the same uid and in the same life of the hub.
    past: Past,
    /// In which life of the hub it was heard of: see [`Desired::doubt`].
    life: u64,
    /// Of which revision it is, status aside. An answer to a report says nothing of the rest.
    heard: Revision,
    on_hub: Mutex<OnHub>,
}

/// What a Work was before it became what it is.
#[derive(Debug, Default)]
struct Past {
    /// It was there to stay.
    alive: bool,
    /// It listed these, and does not any more.
    left: BTreeSet<ObjectId>,
}

/// What the hub has, as of a revision. Changes with our own reports.
#[derive(Clone, Debug)]
struct OnHub {
    revision: Revision,
    status: Status,
}

#[derive(Deserialize)]
struct WorkIn<'a> {
    #[serde(default)]
    metadata: MetaIn,
    #[serde(borrow, default)]
    spec: SpecIn<'a>,
    #[serde(default)]
    status: Option<serde_json::Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MetaIn {
    name: String,
    namespace: Option<String>,
    uid: String,
    resource_version: String,
    generation: i64,
    deletion_timestamp: Option<String>,
    finalizers: Option<Vec<String>>,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SpecIn<'a> {
    #[serde(borrow)]
    workload: Option<WorkloadIn<'a>>,
    suspend_dispatching: Option<bool>,
    preserve_resources_on_deletion: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WorkloadIn<'a> {
    #[serde(borrow)]
    manifests: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ManifestIn {
    api_version: String,
    kind: String,
    metadata: MetaIn,
}

impl DesiredWork {
    /// In which life of the hub it was heard of.
    pub fn life(&self) -> u64 {
        self.life
    }

    /// The revision in which the hub is known to have it.
    pub fn revision(&self) -> Revision {
        self.on_hub.lock().revision
    }

    /// Reads a Work from its JSON.
    pub fn parse(text: &str) -> Result<Self, String> {
        let work: WorkIn<'_> = serde_json::from_str(text).map_err(|error| format!("not a Work: {error}"))?;
        if work.metadata.name.is_empty() {
            return Err("a Work without a name".into());
        }
        // A status that some other agent wrote in a way we cannot read is written anew.
        let status = work.status.and_then(|status| serde_json::from_value(status).ok()).unwrap_or_default();
        let manifests = work.spec.workload.and_then(|workload| workload.manifests).unwrap_or_default();
        let finalizers = work.metadata.finalizers.unwrap_or_default();
        let revision = Revision::read(&work.metadata.resource_version);
        let id = work.metadata.labels.and_then(|mut labels| labels.remove(label::WORK_ID));
        Ok(Self {
            name: work.metadata.name,
            uid: work.metadata.uid,
            id: id.unwrap_or_default(),
            generation: work.metadata.generation,
            heard: revision,
            on_hub: Mutex::new(OnHub { revision, status: Status::Whole(Arc::new(status)) }),
            deleting: work.metadata.deletion_timestamp.is_some(),
            deleted_at: work.metadata.deletion_timestamp,
            held: finalizers.iter().any(|f| f == finalizer::EXECUTION),
            suspended: work.spec.suspend_dispatching.unwrap_or(false),
            preserve: work.spec.preserve_resources_on_deletion.unwrap_or(false),
            unwanted: annotation(text, extension::UNWANTED_SINCE).is_some(),
            manifests: manifests.into_iter().map(|raw| Manifest::parse(raw.get())).collect(),
            wanted: Sum::wanted(&serde_json::from_str(text).map_err(|error| format!("not a Work: {error}"))?),
            asked: asked(text),
            staged: annotation(text, rollout::REVISION).is_some(),
            past: Past::default(),
            life: 0,
        })
    }

    /// What is long of it is packed from now on.
    fn pack(&mut self, packer: Packer) {
        // Nobody else has it yet.
        if let Some(manifests) = Arc::get_mut(&mut self.manifests) {
            manifests.iter_mut().for_each(|manifest| manifest.text.pack(packer));
        }
        let on_hub = self.on_hub.get_mut();
        on_hub.status = on_hub.status.clone().packed(packer);
    }

    /// Takes over what was known of an earlier state of the same Work.
    fn succeed(&mut self, known: &Self) {
        if known.uid != self.uid || known.life != self.life {
            return;
        }
        self.past.alive = known.past.alive || !known.deleting;
        let listed: BTreeSet<&ObjectId> = self.manifests.iter().map(|m| &*m.id).collect();
        let before = known.past.left.iter().chain(known.manifests.iter().map(|m| &*m.id));
        self.past.left = before.filter(|id| !listed.contains(id)).cloned().collect();
        let on_hub = known.on_hub.lock();
        let own = self.revision();
        let is_told = own.number().is_none() && on_hub.revision.number().is_some();
        if own.is_before(on_hub.revision) || is_told {
            // An answer to a report has overtaken it: of the status more is known.
            *self.on_hub.lock() = on_hub.clone();
        }
    }

    /// The status that the hub has.
    pub fn status(&self) -> Arc<WorkStatus> {
        let status = self.on_hub.lock().status.clone();
        status.get()
    }
}

impl Manifest {
    fn parse(text: &str) -> Self {
        let (object, mut problem) = match serde_json::from_str::<ManifestIn>(text) {
            Ok(object) => (object, None),
            Err(error) => (ManifestIn::default(), Some(format!("the manifest is not an object: {error}"))),
        };
        let parts: Vec<&str> = object.api_version.split('/').collect();
        let (group, version) = match parts.as_slice() {
            [version] => ("", *version),
            [group, version] => (*group, *version),
            _ => ("", ""),
        };
        for (value, field) in [
            (version, "apiVersion"),
            (object.kind.as_str(), "kind"),
            (object.metadata.name.as_str(), "metadata.name"),
        ] {
            if value.is_empty() && problem.is_none() {
                problem = Some(format!("the manifest's {field} is missing"));
            }
        }
        Self {
            id: Arc::new(ObjectId {
                group: group.to_owned(),
                kind: object.kind,
                namespace: object.metadata.namespace.unwrap_or_default(),
                name: object.metadata.name,
            }),
            version: version.to_owned(),
            text: text.into(),
            digest: karmada_core::names::fnv64a(text.as_bytes()),
            problem,
            fence: annotation(text, extension::FENCE_AFTER).and_then(|after| fence::read(&after).ok()),
        }
    }
}

/// What a Work's annotations ask for about changes, if they do. The text is read as a whole only if such a key is in it.
fn asked(text: &str) -> Option<Box<(Asked, Asked)>> {
    if !text.contains("karmada.io/hold") && !text.contains("karmada.io/maintenance-windows") {
        return None;
    }
    let work = serde_json::from_str(text).ok()?;
    let asked = (Asked::of(Whose::Policy, &work), Asked::of(Whose::Work, &work));
    (!asked.0.is_none() || !asked.1.is_none()).then(|| Box::new(asked))
}

/// An annotation that few objects have: the text is read as a whole only if the key is in it.
fn annotation(text: &str, key: &str) -> Option<String> {
    let object: serde_json::Value = text.contains(key).then(|| serde_json::from_str(text).ok()).flatten()?;
    object::annotation(&object, key).map(str::to_owned)
}

/// All Works of this cluster, by name.
#[derive(Debug, Default)]
pub struct Desired {
    inner: Mutex<Inner>,
    packer: Option<Packer>,
    /// Everything on the hub is to be listed anew.
    anew: Wake,
    /// Other Services may be asked for.
    services: Wake,
    /// Other workloads may be to be sampled.
    samples: Wake,
}

#[derive(Debug)]
struct Inner {
    works: BTreeMap<String, Arc<DesiredWork>>,
    tally: Tally,
    /// Which of the hub's lives this is: it begins another when it turns out to be another.
    life: u64,
    /// Names seen in the full list that is under way.
    listing: Option<Vec<String>>,
    synced: bool,
    /// How many full lists there were.
    lists: u64,
    /// See [`Desired::stands`].
    stands: bool,
    /// Works of which the hub has another status than is kept.
    unkept: BTreeSet<String>,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            works: BTreeMap::new(),
            tally: Tally::default(),
            life: kept::RECALLED + 1,
            listing: None,
            synced: false,
            lists: 0,
            stands: false,
            unkept: BTreeSet::new(),
        }
    }
}

/// Whether two uids, if both are known, are of two objects.
pub(crate) fn is_another(one: &str, other: &str) -> bool {
    !one.is_empty() && !other.is_empty() && one != other
}

impl Inner {
    /// Works of which something is brought to the member.
    fn brought(&self) -> impl Iterator<Item = &DesiredWork> {
        self.works.values().map(Arc::as_ref).filter(|work| !work.asks())
    }

    fn insert(&mut self, work: DesiredWork) {
        let before = self.works.get(&work.name).map(Arc::as_ref);
        self.tally.change(before, Some(&work));
        self.works.insert(work.name.clone(), Arc::new(work));
    }

    /// Whether the name of a Work that is gone is another's by now: a list may have told of that one before the watch tells
    /// of the end of the first.
    fn has_another(&self, gone: &DesiredWork) -> bool {
        self.works.get(&gone.name).is_some_and(|known| is_another(&known.uid, &gone.uid))
    }

    fn remove(&mut self, name: &str) {
        self.unkept.remove(name);
        if let Some(work) = self.works.remove(name) {
            self.tally.change(Some(&work), None);
        }
    }
}

impl Desired {
    /// None yet. Those that there will be are packed, if there is somebody who packs.
    pub fn packing(packer: Option<Packer>) -> Self {
        Self { packer, ..Self::default() }
    }

    /// The hub has turned out to be another: what was seen of Works before is nothing that this one has said. Whoever
    /// watches them has to list them anew.
    pub fn doubt(&self) {
        self.inner.lock().life += 1;
        self.anew.wake();
    }

    /// What was seen of the hub holds, but something may be missed: everything is to be listed anew.
    pub fn list_anew(&self) {
        self.anew.wake();
    }

    /// An ear for when everything on the hub is to be listed anew: a doubt is a reason, too.
    pub fn relists(&self) -> Listener {
        self.anew.listen()
    }

    /// The hub's life, to be handed in with what it tells.
    pub fn life(&self) -> u64 {
        self.inner.lock().life
    }

    /// Whether the hub has said in its present life that a Work is there to stay.
    pub fn was_alive(&self, work: &DesiredWork) -> bool {
        work.life == self.life() && (work.past.alive || !work.deleting)
    }

    /// Whether the hub has said in its present life that a Work lists an object.
    pub fn has_listed(&self, work: &DesiredWork, id: &ObjectId) -> bool {
        work.life == self.life() && work.past.left.contains(id)
    }

    /// Whether the name of a Work that is gone is that of another one.
    pub(crate) fn is_anothers(&self, gone: &DesiredWork) -> bool {
        self.inner.lock().has_another(gone)
    }

    /// Takes in what a watch tells that was begun in some life of the hub, and answers which Works there is something to
    /// do about.
    pub fn apply(&self, event: Event<DesiredWork>, life: u64) -> Vec<String> {
        let mut inner = self.inner.lock();
        match event {
            Event::Init => {
                inner.listing = Some(Vec::new());
                Vec::new()
            }
            Event::Upsert(mut work) => {
                let name = work.name.clone();
                work.life = life;
                if let Some(packer) = self.packer {
                    work.pack(packer);
                }
                if let Some(listing) = &mut inner.listing {
                    listing.push(name.clone());
                }
                if let Some(known) = inner.works.get(&name) {
                    if is_older(&work, known, life) {
                        return Vec::new();
                    }
                    work.succeed(known);
                }
                if let Some(known) = inner.works.get(&name) {
                    self.stir(known);
                }
                self.stir(&work);
                inner.insert(work);
                vec![name]
            }
            Event::Delete(work) => {
                if inner.has_another(&work) {
                    return Vec::new();
                }
                if let Some(known) = inner.works.get(&work.name) {
                    self.stir(known);
                }
                inner.remove(&work.name);
                vec![work.name]
            }
            Event::Synced => {
                inner.synced = true;
                inner.lists += 1;
                self.services.wake();
                self.samples.wake();
                let mut listed = inner.listing.take().unwrap_or_default();
                listed.sort_unstable();
                let gone: Vec<String> =
                    inner.works.keys().filter(|name| listed.binary_search(name).is_err()).cloned().collect();
                gone.iter().for_each(|name| inner.remove(name));
                gone
            }
        }
    }

    /// Forgets all Works, and answers which there were.
    pub fn forget(&self) -> Vec<String> {
        let mut inner = self.inner.lock();
        inner.listing = None;
        inner.synced = false;
        inner.tally = Tally::default();
        inner.unkept.clear();
        std::mem::take(&mut inner.works).into_keys().collect()
    }

    /// Whether the list that is under way lacks Works that are known.
    pub fn would_lose(&self) -> bool {
        let inner = self.inner.lock();
        let Some(listing) = &inner.listing else { return false };
        let listed: BTreeSet<&String> = listing.iter().collect();
        inner.works.keys().any(|name| !listed.contains(name))
    }

    /// Whether some Work holds a kind in a version.
    pub fn holds(&self, group: &str, version: &str, kind: &str) -> bool {
        let inner = self.inner.lock();
        let mut held = inner.brought().flat_map(|work| work.manifests.iter());
        held.any(|m| m.id.group == group && m.id.kind == kind && m.version == version)
    }

    /// A full list was had.
    pub fn synced(&self) -> bool {
        self.inner.lock().synced
    }

    pub fn get(&self, name: &str) -> Option<Arc<DesiredWork>> {
        self.inner.lock().works.get(name).cloned()
    }

    /// What was wanted before the start stands until further notice, or not any more: the hub could say otherwise, and is
    /// not believed.
    pub fn stands(&self, stands: bool) {
        self.inner.lock().stands = stands;
    }

    /// Whether a Work is there to stay, as far as the hub has said; what it has said before the start counts while that
    /// [stands](Self::stands).
    pub fn wants(&self, work: &str) -> bool {
        let stands = self.inner.lock().stands;
        self.get(work).is_some_and(|work| !work.deleting && !work.unwanted && (stands || !work.is_recalled()))
    }

    /// Whether a Work is there to stay and holds an object. A manifest may name a namespace although its kind has none: of
    /// an object without one it does not count.
    pub fn claims(&self, work: &str, id: &ObjectId) -> bool {
        let Some(work) = self.get(work) else { return false };
        let same = |m: &Manifest| m.id.group == id.group && m.id.kind == id.kind && m.id.name == id.name;
        let there = |m: &Manifest| id.namespace.is_empty() || m.id.namespace == id.namespace;
        !work.deleting && work.manifests.iter().any(|m| same(m) && there(m))
    }

    /// The names of all Works.
    pub fn names(&self) -> Vec<String> {
        self.inner.lock().works.keys().cloned().collect()
    }

    /// How many Works there are.
    pub fn len(&self) -> usize {
        self.inner.lock().works.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Kinds that some Work holds or held.
    pub fn kinds(&self) -> BTreeSet<(String, String)> {
        let inner = self.inner.lock();
        let held = inner.brought().flat_map(|work| work.manifests.iter().map(|m| &m.id));
        let mut kinds: BTreeSet<_> = held.map(|id| (id.group.clone(), id.kind.clone())).collect();
        for work in inner.brought() {
            let status = work.status();
            let recorded = status.manifest_statuses.iter().map(|status| &status.identifier);
            kinds.extend(recorded.map(|id| (id.group.clone(), id.kind.clone())));
        }
        kinds
    }

    /// Namespaces that some Work makes, or holds an object of.
    pub fn namespaces(&self) -> BTreeSet<String> {
        let inner = self.inner.lock();
        let held = inner.works.values().flat_map(|work| work.manifests.iter().map(|m| &m.id));
        let of = held.map(|id| if id.kind == "Namespace" { &id.name } else { &id.namespace });
        of.filter(|namespace| !namespace.is_empty()).cloned().collect()
    }

    /// Kinds that some Work holds, with the versions that it holds them in.
    pub fn versioned_kinds(&self) -> Vec<GroupVersionKind> {
        let inner = self.inner.lock();
        let held = inner.brought().flat_map(|work| work.manifests.iter());
        let kinds: BTreeSet<_> = held
            .map(|m| GroupVersionKind {
                group: m.id.group.clone(),
                version: m.version.clone(),
                kind: m.id.kind.clone(),
            })
            .collect();
        kinds.into_iter().collect()
    }

    /// The hub has taken this status of a Work as it was known then: what it answered with. The watch may have told of
    /// something newer before, or of another Work of that name, and the hub may be another since.
    pub fn reported(&self, known: &DesiredWork, resource_version: &str, status: &WorkStatus) {
        let same = |work: &Arc<DesiredWork>| work.uid == known.uid && work.life == known.life;
        let Some(work) = self.get(&known.name).filter(same) else { return };
        let revision = Revision::read(resource_version);
        let mut on_hub = work.on_hub.lock();
        if !revision.is_before(on_hub.revision) {
            *on_hub = OnHub { revision, status: Status::of(Arc::new(status.clone()), self.packer) };
            drop(on_hub);
            self.is_unkept(&known.name);
        }
    }
}

/// Whether a Work, of which was heard in this life of the hub, is an older state of one that is known: an answer may
/// overtake the watch. One to a report is none of that: what else has changed before it is yet to be told.
fn is_older(work: &DesiredWork, known: &DesiredWork, life: u64) -> bool {
    work.uid == known.uid && life == known.life && work.heard.is_before(known.heard)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    impl Desired {
        fn hear(&self, event: Event<DesiredWork>) -> Vec<String> {
            self.apply(event, self.life())
        }
    }

    fn work(name: &str, revision: u64) -> DesiredWork {
        let manifest =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}});
        let text = json!({
            "metadata": {"name": name, "uid": "u", "resourceVersion": revision.to_string()},
            "spec": {"workload": {"manifests": [manifest]}},
        });
        let work = DesiredWork::parse(&text.to_string()).unwrap();
        DesiredWork { life: Desired::default().life(), ..work }
    }

    #[test]
    fn a_work_is_read() {
        let text = json!({
            "metadata": {
                "name": "w", "uid": "u", "resourceVersion": "7", "deletionTimestamp": "2026-01-01T00:00:00Z",
                "finalizers": ["karmada.io/execution-controller"], "labels": null,
            },
            "spec": {
                "suspendDispatching": true, "preserveResourcesOnDeletion": true,
                "workload": {"manifests": [
                    {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}},
                    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
                    {"apiVersion": "a/b/c", "kind": "X", "metadata": {"name": "x"}},
                    {"apiVersion": "v1", "kind": "X", "metadata": {}},
                    3,
                ]},
            },
            "status": {"conditions": [{"type": "Applied", "status": "True", "reason": "R", "message": "",
                                       "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        });
        let work = DesiredWork::parse(&text.to_string()).unwrap();
        assert!(work.deleting && work.held && work.suspended && work.preserve);
        assert_eq!(work.status().conditions.len(), 1);
        let ids: Vec<_> = work.manifests.iter().map(|m| m.id.path()).collect();
        assert_eq!(&ids[..2], ["shop/web", "shop"]);
        let problems: Vec<_> = work.manifests.iter().map(|m| m.problem.clone().unwrap_or_default()).collect();
        assert_eq!(
            problems[..4],
            ["", "", "the manifest's apiVersion is missing", "the manifest's metadata.name is missing"]
        );
        assert!(problems[4].starts_with("the manifest is not an object: "));
    }

    #[test]
    fn odd_works_are_read_or_refused_but_never_panic() {
        for text in ["", "{}", "[]", r#"{"metadata":{"name":3}}"#, r#"{"metadata":{"name":"a"},"spec":7}"#] {
            assert!(DesiredWork::parse(text).is_err(), "{text}");
        }
        for text in [
            r#"{"metadata":{"name":"a"}}"#,
            r#"{"metadata":{"name":"a"},"spec":{"workload":null},"status":null}"#,
            r#"{"metadata":{"name":"a"},"spec":{"workload":{"manifests":null}},"status":{"conditions":7}}"#,
        ] {
            assert!(DesiredWork::parse(text).unwrap().manifests.is_empty(), "{text}");
        }
    }

    #[test]
    fn an_answer_that_overtook_the_watch_is_not_undone() {
        let desired = Desired::default();
        assert_eq!(desired.hear(Event::Upsert(work("a", 5))), ["a"]);
        assert!(desired.hear(Event::Upsert(work("a", 4))).is_empty());
        assert_eq!(desired.hear(Event::Upsert(work("a", 6))), ["a"]);
        let status = WorkStatus { conditions: Vec::new(), manifest_statuses: vec![Default::default()] };
        desired.reported(&work("a", 6), "9", &status);
        // What was changed before the report is news all the same, but for the status.
        assert_eq!(desired.hear(Event::Upsert(DesiredWork { deleting: true, ..work("a", 8) })), ["a"]);
        let known = desired.get("a").unwrap();
        assert!(known.deleting && *known.status() == status && known.revision().number() == Some(9));
        assert!(desired.hear(Event::Upsert(work("a", 7))).is_empty());
        assert_eq!(desired.hear(Event::Upsert(work("a", 10))), ["a"]);
        assert!(desired.get("a").unwrap().status().manifest_statuses.is_empty());
    }

    #[test]
    fn the_end_of_one_is_not_that_of_the_next_of_its_name() {
        let desired = Desired::default();
        assert_eq!(desired.hear(Event::Upsert(DesiredWork { uid: "next".into(), ..work("a", 5) })), ["a"]);
        assert!(desired.hear(Event::Delete(work("a", 4))).is_empty());
        assert_eq!(desired.get("a").unwrap().uid, "next");
        // Of one that is told without its uid there is nothing to compare.
        assert_eq!(desired.hear(Event::Delete(DesiredWork { uid: String::new(), ..work("a", 6) })), ["a"]);
        assert!(desired.get("a").is_none());
    }

    #[test]
    fn of_one_that_is_told_again_the_answer_to_a_report_stays() {
        let desired = Desired::default();
        desired.hear(Event::Upsert(work("a", 5)));
        let life = desired.life();
        let first = desired.get("a").unwrap().again("6", life);
        desired.hear(Event::Upsert(first));
        // It is told once more, while a report is answered.
        let second = desired.get("a").unwrap().again("7", life);
        let status = WorkStatus { conditions: Vec::new(), manifest_statuses: vec![Default::default()] };
        desired.reported(&desired.get("a").unwrap(), "9", &status);
        desired.hear(Event::Upsert(second));
        let known = desired.get("a").unwrap();
        assert_eq!((known.revision().number(), &*known.status()), (Some(9), &status));
    }

    #[test]
    fn what_was_said_in_another_life_of_the_hub_was_not_said() {
        let desired = Desired::default();
        let hears = |names: &[&str], deleting: bool, revision: u64| {
            let manifest =
                |name: &&str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
            let manifests: Vec<_> = names.iter().map(manifest).collect();
            let deleted = deleting.then_some("2026-01-01T00:00:00Z");
            let text = json!({
                "metadata": {"name": "w", "uid": "u", "resourceVersion": revision.to_string(), "deletionTimestamp": deleted,
                             "labels": {"work.karmada.io/permanent-id": "id"}},
                "spec": {"workload": {"manifests": manifests}},
            });
            desired.hear(Event::Upsert(DesiredWork::parse(&text.to_string()).unwrap()));
            desired.get("w").unwrap()
        };
        let c = ObjectId { kind: "ConfigMap".into(), name: "c".into(), ..ObjectId::default() };
        let said = |work: &DesiredWork| (desired.was_alive(work), desired.has_listed(work, &c));
        assert_eq!(hears(&["a", "c"], false, 1).id, "id");
        assert_eq!(said(&hears(&["a"], false, 2)), (true, true));
        let gone = hears(&["a"], true, 3);
        assert_eq!(said(&gone), (true, true));
        let mut relists = desired.relists();
        desired.doubt();
        assert!(futures::FutureExt::now_or_never(relists.woken()).is_some());
        assert_eq!(said(&gone), (false, false));
        assert_eq!(
            said(&hears(&["a"], true, 1)),
            (false, false),
            "an older state, by number, of another life"
        );
        assert_eq!(said(&hears(&["a", "c"], false, 4)), (true, false));
        assert_eq!(said(&hears(&["a"], true, 5)), (true, true));
    }

    #[test]
    fn an_answer_to_a_report_does_not_undo_what_is_newer() {
        // (uid of the Work that was reported, revision of the answer, whether it counts)
        let rows =
            [("u", "6", true), ("u", "5", true), ("u", "4", false), ("v", "6", false), ("u", "x", true)];
        let status = WorkStatus { conditions: Vec::new(), manifest_statuses: vec![Default::default()] };
        for (uid, revision, counts) in rows {
            let desired = Desired::default();
            desired.hear(Event::Upsert(work("a", 5)));
            desired.reported(&DesiredWork { uid: uid.to_owned(), ..work("a", 5) }, revision, &status);
            let known = desired.get("a").unwrap().status();
            assert_eq!(*known == status, counts, "{uid} {revision}");
        }
    }

    #[test]
    fn in_another_life_older_revisions_are_news() {
        let desired = Desired::default();
        desired.hear(Event::Upsert(work("a", 90)));
        let before = desired.get("a").unwrap();
        desired.doubt();
        assert_eq!(desired.hear(Event::Upsert(work("a", 4))), ["a"]);
        assert!(desired.hear(Event::Upsert(work("a", 3))).is_empty());
        // An answer of the hub before comes late.
        desired.reported(&before, "91", &WorkStatus::default());
        assert_eq!(desired.hear(Event::Upsert(work("a", 5))), ["a"]);
    }

    #[test]
    fn a_full_list_tells_what_is_gone() {
        let desired = Desired::default();
        for event in [Event::Init, Event::Upsert(work("a", 1)), Event::Upsert(work("b", 2)), Event::Synced] {
            desired.hear(event);
        }
        assert!(desired.synced());
        desired.hear(Event::Init);
        desired.hear(Event::Upsert(work("b", 2)));
        assert_eq!(desired.hear(Event::Synced), ["a"]);
        assert!(desired.get("a").is_none() && desired.get("b").is_some());
        assert_eq!(desired.kinds().len(), 1);
    }
}
