//! One object on the member: bringing it to what a Work says, or taking it away.
//!
//! ```text
//!   manifest the same, object as we left it ──▶ nothing (no request at all)
//!                        else GET
//!          nothing there │ there
//!        apply, unforced │ whose is it?
//!        created?        │  nobody's, another hub's ─▶ refuse (or, told to overwrite, take it)
//!         yes ▼  no: somebody was faster               ours, or another Work's of this cluster:
//!        ours    give our fields up, report            fields written by Update made Apply's; apply, forced, with its uid
//! ```
//!
//! Apply refuses lists with duplicate keys; such a manifest goes by PUT. Every write carries a uid or a
//! resourceVersion, so that an object that was replaced in between is never mistaken for the one that was judged.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use karmada_api::consts::{annotation, extension, manager::AGENT};
use karmada_client::{Error, Patch, Resource, Rest, rest::query_value};
use karmada_core::{
    delete::{Budget, Verdict, WorkFacts, may_delete},
    judge::fence,
    members::{self, Written},
    vacancy::{Ours, Vacancy},
};
use karmada_env::Env;
use karmada_interpreter::Interpreter;
use karmada_meta::{object, time::Time};
use karmada_smd::adoption_patch;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    config::{self, Owner, configuration, has_other_writers, is_namespace, replacement},
    discovery::Discovery,
    drift::writers,
    fights::Fight,
    ground::Need,
    observe::Observer,
    occupants::vacancy,
    scope::{Allowed, Scope},
    served::Served,
    sights::{Sight, sight},
};
use crate::{
    applied::{Applied, Dirty},
    tasks::until,
    works::{
        desired::{Desired, Manifest, ObjectId},
        report::Seen,
    },
};

/// Somebody may change the object between our look at it and our write; then we look again, so often.
const LOOKS: u32 = 4;

/// What was applied before the start is held against the first list of its kind, if that comes so soon.
const FIRST_LIST: Duration = Duration::from_secs(1);

/// What became of an object.
#[derive(Debug)]
pub(crate) struct Done {
    /// Something was written.
    pub(crate) written: bool,
    /// It was written by PUT, for this reason.
    pub(crate) by_put: Option<String>,
    pub(crate) seen: Seen,
    /// Somebody on the member changes it back as often as it is corrected.
    pub(crate) contested: Option<Contested>,
}

/// A fight over an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contested {
    /// Who else writes it, for a sentence.
    pub(crate) by: String,
    /// When to look again: a correction may be made then, or the fight be over.
    pub(crate) later: Duration,
    /// It has just begun.
    pub(crate) is_new: bool,
}

/// Why an object is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    pub(crate) message: String,
    /// What to expect of trying again.
    pub(crate) hope: Hope,
}

/// What to expect of trying again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hope {
    /// Something that is likely under way: a deletion, somebody else's change.
    Soon,
    /// As soon as this is there.
    After(Need),
    /// The member said no, or is away.
    Sometime,
}

impl Failure {
    fn soon(message: impl Into<String>) -> Self {
        Self { message: message.into(), hope: Hope::Soon }
    }

    fn after(need: Need, message: impl Into<String>) -> Self {
        Self { message: message.into(), hope: Hope::After(need) }
    }

    fn sometime(message: impl Into<String>) -> Self {
        Self { message: message.into(), hope: Hope::Sometime }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let soon = error.is_not_found() || error.is_conflict();
        let hope = match need(&error) {
            Some(need) => Hope::After(need),
            None if soon => Hope::Soon,
            None => Hope::Sometime,
        };
        Self { message: error.to_string(), hope }
    }
}

/// What a server misses, by what it says.
fn need(error: &Error) -> Option<Need> {
    let text = error.to_string();
    let between = |before: &str, after: &str| {
        let (_, rest) = text.split_once(before)?;
        Some(rest.split_once(after)?.0.to_owned())
    };
    if error.is_not_found() {
        // The Work that makes it may be on its way.
        return between("namespaces \"", "\" not found").map(Need::Namespace);
    }
    if !error.is_forbidden() {
        return None;
    }
    if text.ends_with("because it is being terminated") {
        return between(" in namespace ", " because").map(Need::Namespace);
    }
    let account = between("error looking up service account ", ":")?;
    let (namespace, name) = account.split_once('/')?;
    Some(Need::ServiceAccount { namespace: namespace.to_owned(), name: name.to_owned() })
}

/// What we remember of an object that we wrote.
#[derive(Debug)]
struct Record {
    work: String,
    manifest: u64,
    uid: String,
    /// Of the member's answer.
    fingerprint: u64,
    by_put: bool,
    /// Of an object that was corrected lately.
    fight: Option<Box<Fight>>,
    /// It is of before the start, and no list of its kind was waited for yet.
    is_recalled: bool,
}

impl Record {
    /// What is kept of it.
    fn applied(&self) -> Applied {
        Applied {
            work: self.work.clone(),
            manifest: self.manifest,
            uid: self.uid.clone(),
            fingerprint: self.fingerprint,
            by_put: self.by_put,
        }
    }
}

/// Everything about a Work that one of its objects needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order<'a> {
    pub(crate) work: &'a str,
    pub(crate) manifest: &'a Manifest,
    /// The hub's record says that the object was put here under this Work.
    pub(crate) recorded: bool,
}

/// For which cluster it is written, and where on it.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) cluster: String,
    pub(crate) execution_namespace: String,
    pub(crate) scope: Scope,
}

/// Writes objects on the member.
#[derive(Debug)]
pub(crate) struct Applier {
    member: Rest,
    env: Env,
    cluster: String,
    execution_namespace: String,
    scope: Scope,
    /// Which Works there are, and what others of them want.
    desired: Arc<Desired>,
    interpreter: Arc<Interpreter>,
    records: Mutex<BTreeMap<Arc<ObjectId>, Record>>,
    /// Objects whose records have changed.
    dirty: Arc<Dirty>,
}

/// The next step after a look at the member.
enum Step {
    Done(Done),
    /// The object changed between look and write.
    Again(Error),
}

impl Applier {
    pub(crate) fn new(
        member: Rest,
        env: Env,
        Site { cluster, execution_namespace, scope }: Site,
        desired: Arc<Desired>,
        interpreter: Arc<Interpreter>,
        dirty: Arc<Dirty>,
    ) -> Self {
        let records = Mutex::default();
        Self { member, env, cluster, execution_namespace, scope, desired, interpreter, records, dirty }
    }

    /// Lets be known what was applied before the start.
    pub(crate) fn recall(&self, applied: Vec<(ObjectId, Applied)>) {
        let mut records = self.records.lock();
        for (id, Applied { work, manifest, uid, fingerprint, by_put }) in applied {
            let record = Record { work, manifest, uid, fingerprint, by_put, fight: None, is_recalled: true };
            records.entry(Arc::new(id)).or_insert(record);
        }
    }

    /// What was applied of an object.
    pub(crate) fn applied(&self, id: &ObjectId) -> Option<Applied> {
        self.records.lock().get(id).map(Record::applied)
    }

    /// What was applied, by object.
    pub(crate) fn all_applied(&self) -> Vec<(ObjectId, Applied)> {
        self.records.lock().iter().map(|(id, record)| (ObjectId::clone(id), record.applied())).collect()
    }

    /// Waits for the first list of an object's kind if it was applied before the start: most likely nothing is to be done,
    /// and one list costs less than asking for each.
    async fn first_list(&self, observer: &Observer, id: &ObjectId) {
        let is_recalled = || self.records.lock().get(id).is_some_and(|record| record.is_recalled);
        if !is_recalled() {
            return;
        }
        until(FIRST_LIST, || observer.synced(&id.group, &id.kind) || !is_recalled()).await;
        // The others do not wait once more for what does not come.
        for (other, record) in self.records.lock().iter_mut() {
            record.is_recalled &= other.group != id.group || other.kind != id.kind;
        }
    }

    /// Watches a manifest's kind, if the member serves it.
    pub(crate) async fn watch(&self, discovery: &Discovery, observer: &Observer, manifest: &Manifest) {
        let (group, version, kind) = (&manifest.id.group, &manifest.version, &manifest.id.kind);
        match discovery.resource(group, version, kind).await {
            Ok(Some(resource)) => observer.watch(&resource),
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, kind, "cannot watch"),
        }
    }

    /// Brings an object to what its manifest says.
    pub(crate) async fn apply(
        &self,
        discovery: &Discovery,
        observer: &Observer,
        order: Order<'_>,
    ) -> Result<Done, Failure> {
        let manifest = order.manifest;
        if let Some(problem) = &manifest.problem {
            return Err(Failure::sometime(problem.clone()));
        }
        let (group, version, kind) = (&manifest.id.group, &manifest.version, &manifest.id.kind);
        let Some(resource) = discovery.resource(group, version, kind).await? else {
            let version = Resource::new(group, version, "", "", false).api_version();
            let need =
                Need::Kind { group: group.clone(), version: manifest.version.clone(), kind: kind.clone() };
            let message = format!("no matches for kind \"{kind}\" in version \"{version}\"");
            return Err(Failure::after(need, message));
        };
        let mut id = Arc::clone(&manifest.id);
        if !resource.namespaced {
            if !id.namespace.is_empty() {
                Arc::make_mut(&mut id).namespace.clear();
            }
        } else if id.namespace.is_empty() {
            return Err(Failure::sometime(format!("{kind} {} has no namespace", id.name)));
        }
        match self.scope.allows(&resource, &id) {
            Allowed::Apply => {}
            Allowed::Look => return self.look(&resource, &id).await,
            Allowed::Nothing(why) => return Err(Failure::sometime(why)),
        }
        observer.watch(&resource);
        self.first_list(observer, &id).await;
        if let Some(sight) = observer.get(&id)
            && self.is_settled(&id, &order, &sight)
        {
            return Ok(Done { written: false, by_put: None, seen: sight.seen, contested: self.rests(&id) });
        }
        let mut last = None;
        for _ in 0..LOOKS {
            match self.bring(observer, &resource, &id, order).await? {
                Step::Done(done) => return Ok(done),
                Step::Again(error) => last = Some(error),
            }
        }
        let why = last.map(|error| error.to_string()).unwrap_or_default();
        Err(Failure::soon(format!("the object changes faster than it can be applied: {why}")))
    }

    /// Looks whether a Namespace is there that is not ours to make.
    async fn look(&self, resource: &Resource, id: &ObjectId) -> Result<Done, Failure> {
        match self.member.get(&resource.object(None, &id.name)).await {
            Ok(live) => {
                let seen = Sight::of(&live, &self.execution_namespace).seen;
                Ok(Done { written: false, by_put: None, seen, contested: None })
            }
            Err(error) if error.is_not_found() => {
                let why = "is not there, and the agent of this cluster may make none (--namespaces)";
                let message = format!("Namespace {} {why}", id.name);
                Err(Failure::after(Need::Namespace(id.name.clone()), message))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether an object may be one that was put here.
    pub(crate) fn reaches(&self, id: &ObjectId) -> bool {
        self.scope.reaches(id)
    }

    /// The manifest is the one that was applied, and the object is as the member left it then.
    fn is_settled(&self, id: &ObjectId, order: &Order<'_>, sight: &Sight) -> bool {
        self.records.lock().get(id).is_some_and(|record| {
            record.work == order.work
                && record.manifest == order.manifest.digest
                && record.uid == sight.uid
                && record.fingerprint == sight.fingerprint
                && !sight.going
        })
    }

    async fn bring(
        &self,
        observer: &Observer,
        resource: &Resource,
        id: &Arc<ObjectId>,
        order: Order<'_>,
    ) -> Result<Step, Failure> {
        let path = resource.object(Some(&id.namespace), &id.name);
        let text = order.manifest.text.get();
        if let Err(why) = self.member.not_too_dense(text.as_bytes()) {
            // The member's answer, and whatever it says of the object from then on, would not be read.
            return Err(Failure::sometime(format!(
                "{} {} is not applied: {why}, so that it would not be read back; divide it into several objects",
                id.kind,
                id.path()
            )));
        }
        let manifest: Value = serde_json::from_str(&text)
            .map_err(|error| Failure::sometime(format!("the manifest is not an object: {error}")))?;
        let known = observer.get(id);
        let live = match self.member.get(&path).await {
            Ok(live) => Some(live),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.into()),
        };
        if let Some(live) = &live {
            let before = observer.get(id).map(|sight| sight.seen);
            let sight = sight(&self.interpreter, live, &self.execution_namespace, before).await;
            observer.doubt(known.as_ref(), &sight);
            if self.is_settled(id, &order, &sight) {
                let (seen, contested) = (observer.note(id, sight).seen, self.rests(id));
                return Ok(Step::Done(Done { written: false, by_put: None, seen, contested }));
            }
            if sight.going {
                return Err(Failure::soon(format!(
                    "{} {} is being deleted on the member",
                    id.kind,
                    id.path()
                )));
            }
        }
        let by = if self.is_known(id, &order) { by(live.as_ref(), &manifest) } else { String::new() };
        if let Some(contested) = self.pause(id, &order, &by) {
            let seen = match &live {
                Some(live) => {
                    let sight = sight(&self.interpreter, live, &self.execution_namespace, None).await;
                    observer.note(id, sight).seen
                }
                None => Seen::default(),
            };
            return Ok(Step::Done(Done { written: false, by_put: None, seen, contested: Some(contested) }));
        }
        let step = match live {
            None => self.create(resource, &path, manifest, id, order).await?,
            Some(live) => self.change(resource, &path, manifest, live, id, order).await?,
        };
        match step {
            Wrote::Again(error) => Ok(Step::Again(error)),
            Wrote::Object { object, by_put } => {
                let before = observer.get(id).map(|sight| sight.seen);
                let sight = sight(&self.interpreter, &object, &self.execution_namespace, before).await;
                let contested = self.remember(id, &order, &sight, by_put.is_some(), by);
                let seen = observer.note(id, sight).seen;
                Ok(Step::Done(Done { written: true, by_put, seen, contested }))
            }
        }
    }

    /// Nothing is there: a first apply, which must not take anything from anybody.
    async fn create(
        &self,
        resource: &Resource,
        path: &str,
        manifest: Value,
        id: &ObjectId,
        order: Order<'_>,
    ) -> Result<Wrote, Failure> {
        let owner = Owner { namespace: &self.execution_namespace, name: order.work };
        let overwrite = overwrites(&manifest);
        if self.goes_by_put(id, &order) {
            let object = replacement(manifest, owner, None, false);
            return self.put(resource, path, object, None, "apply refused it before").await;
        }
        let config = configuration(manifest.clone(), owner, None, false);
        match self.member.apply(path, AGENT, false, &config).await {
            Ok((true, object)) => Ok(Wrote::object(object)),
            Ok((false, object)) if overwrite || !has_other_writers(&object) => Ok(Wrote::object(object)),
            Ok((false, object)) => {
                // Somebody made it just before us and said the same so far. It is theirs.
                let nothing = config::nothing(&object);
                self.member.apply(path, AGENT, false, &nothing).await?;
                Err(self.refusal(&object))
            }
            Err(error) if is_duplicate(&error) => {
                let object = replacement(manifest, owner, None, false);
                self.put(resource, path, object, None, &error.to_string()).await
            }
            Err(error) if error.is_conflict() => Ok(Wrote::Again(error)),
            Err(error) => Err(error.into()),
        }
    }

    /// Something is there: is it ours to write?
    async fn change(
        &self,
        resource: &Resource,
        path: &str,
        manifest: Value,
        mut live: Value,
        id: &ObjectId,
        order: Order<'_>,
    ) -> Result<Wrote, Failure> {
        let owner = members::owner(&live, &self.execution_namespace, order.work);
        let known = self.records.lock().get(id).is_some_and(|record| record.uid == object::uid(&live));
        // Its annotations may have been taken off; that we wrote it stands in the hub's record and in the object's own.
        let recorded =
            order.recorded && owner == members::Owner::Foreign && members::written(&live) != Written::Never;
        let ours = owner == members::Owner::This || known || recorded;
        if let members::Owner::Other { namespace, name } = &owner
            && *namespace == self.execution_namespace
            && self.desired.claims(name, id)
        {
            return Err(Failure::sometime(format!("{} {} is in the Work {name}, too", id.kind, id.path())));
        }
        if !ours && !members::may_adopt(&owner, &self.execution_namespace, overwrites(&manifest)) {
            return Err(self.refusal(&live));
        }
        let adopted = is_namespace(&live)
            && (object::annotation(&live, extension::ADOPTED) == Some("true")
                || (!ours && members::written(&live) == Written::Never));
        let owner = Owner { namespace: &self.execution_namespace, name: order.work };
        let retained = self.interpreter.retained(&manifest, &live).await;
        let retained = retained.map_err(|error| Failure::sometime(error.to_string()))?;
        if self.goes_by_put(id, &order) {
            let object = replacement(retained.unwrap_or(manifest), owner, Some(&live), adopted);
            return self.put(resource, path, object, Some(&live), "apply refused it before").await;
        }
        if let Some(patch) = adoption_patch(&live, AGENT, AGENT) {
            // Written by Karmada's own agent, or by PUT: what the manifest drops would stay for ever otherwise.
            let target = format!("{path}?fieldManager={AGENT}");
            live = match self.member.patch(&target, Patch::Json, &patch).await {
                Ok(object) => object,
                Err(error) if error.is_conflict() || error.is_not_found() => return Ok(Wrote::Again(error)),
                Err(error) => return Err(error.into()),
            };
        }
        let mut config = configuration(manifest.clone(), owner, Some(&live), adopted);
        if let Some(retained) = &retained {
            config::leave_by_rule(&mut config, &manifest, retained, &live);
        }
        match self.member.apply(path, AGENT, true, &config).await {
            Ok((_, object)) => Ok(Wrote::object(object)),
            Err(error) if is_duplicate(&error) => {
                let object = replacement(retained.unwrap_or(manifest), owner, Some(&live), adopted);
                self.put(resource, path, object, Some(&live), &error.to_string()).await
            }
            Err(error) if error.is_conflict() || is_another_uid(&error) => Ok(Wrote::Again(error)),
            Err(error) => Err(error.into()),
        }
    }

    async fn put(
        &self,
        resource: &Resource,
        path: &str,
        object: Value,
        live: Option<&Value>,
        why: &str,
    ) -> Result<Wrote, Failure> {
        let answer = if live.is_some() {
            self.member.put(&format!("{path}?fieldManager={AGENT}"), &object).await
        } else {
            let collection = resource.collection(Some(object::namespace(&object)));
            self.member.post(&format!("{collection}?fieldManager={AGENT}"), &object).await
        };
        match answer {
            Ok(object) => Ok(Wrote::Object { object, by_put: Some(why.to_owned()) }),
            Err(error) if error.is_conflict() || error.is_already_exists() => Ok(Wrote::Again(error)),
            Err(error) => Err(error.into()),
        }
    }

    fn refusal(&self, object: &Value) -> Failure {
        let name = object::name(object);
        let path = match object::namespace(object) {
            "" => name.to_owned(),
            namespace => format!("{namespace}/{name}"),
        };
        // Karmada's words, which people search for.
        Failure::sometime(format!(
            "resource(kind={}, {path}) already exists in the cluster {} and the {} strategy value is empty, Karmada \
             will not manage this resource",
            object::kind(object),
            self.cluster,
            annotation::CONFLICT_RESOLUTION,
        ))
    }

    /// Apply has refused this very manifest before.
    fn goes_by_put(&self, id: &ObjectId, order: &Order<'_>) -> bool {
        let records = self.records.lock();
        records.get(id).is_some_and(|record| record.by_put && record.manifest == order.manifest.digest)
    }

    /// Takes note that somebody has changed an object, and answers for how long its correction has to wait.
    fn pause(&self, id: &ObjectId, order: &Order<'_>, by: &str) -> Option<Contested> {
        let mut records = self.records.lock();
        let record = records.get_mut(id)?;
        if record.work != order.work || record.manifest != order.manifest.digest {
            return None;
        }
        let (fight, now) = (record.fight.as_mut()?, self.env.now());
        fight.changed(now, by.to_owned());
        let later = fight.pause(now)?;
        Some(Contested { by: fight.by().unwrap_or_default().to_owned(), later, is_new: false })
    }

    /// An object is as it was left: the fight over it, as long as that is not known to be over.
    fn rests(&self, id: &ObjectId) -> Option<Contested> {
        let mut records = self.records.lock();
        let record = records.get_mut(id)?;
        let (fight, now) = (record.fight.as_mut()?, self.env.now());
        let later = fight.rests(now);
        let contested =
            later.zip(fight.by()).map(|(later, by)| Contested { by: by.to_owned(), later, is_new: false });
        if fight.is_over(now) {
            record.fight = None;
        }
        contested
    }

    /// Remembers what was written. Answers the fight that this was a part of.
    fn remember(
        &self,
        id: &Arc<ObjectId>,
        order: &Order<'_>,
        sight: &Sight,
        by_put: bool,
        by: String,
    ) -> Option<Contested> {
        let mut records = self.records.lock();
        let mut record = Record {
            work: order.work.to_owned(),
            manifest: order.manifest.digest,
            uid: sight.uid.clone(),
            fingerprint: sight.fingerprint,
            by_put,
            fight: None,
            is_recalled: false,
        };
        let mut contested = None;
        if let Some(old) = records.remove(id)
            && old.work == record.work
            && old.manifest == record.manifest
        {
            tracing::info!(cluster = %self.cluster, kind = %id.kind, namespace = %id.namespace, name = %id.name, "corrected a change that was not the hub's");
            let mut fight = old.fight.unwrap_or_default();
            let is_new = fight.corrected(&self.env, by);
            let by = fight.by().map(str::to_owned);
            let later = fight.rests(self.env.now());
            contested = by.zip(later).map(|(by, later)| Contested { by, later, is_new });
            record.fight = Some(fight);
        }
        records.insert(Arc::clone(id), record);
        drop(records);
        self.dirty.mark(id);
        contested
    }

    /// Whether we have written this object before, under this Work and manifest: writing it again is a correction.
    pub(crate) fn is_known(&self, id: &ObjectId, order: &Order<'_>) -> bool {
        let records = self.records.lock();
        records.get(id).is_some_and(|r| r.work == order.work && r.manifest == order.manifest.digest)
    }

    /// Whether a manifest of a Work was applied as it is. What is somebody else's to make counts as that.
    pub(crate) fn has_applied(&self, work: &str, manifest: &Manifest) -> bool {
        let records = self.records.lock();
        let is =
            |id: &ObjectId| records.get(id).is_some_and(|r| r.work == work && r.manifest == manifest.digest);
        let id = &manifest.id;
        // A manifest of a kind without namespaces may name one all the same.
        let bare = || is(&ObjectId { namespace: String::new(), ..ObjectId::clone(id) });
        is(id) || (!id.namespace.is_empty() && bare()) || self.scope.only_looks(id)
    }

    /// Objects that we wrote under a Work.
    pub(crate) fn of_work(&self, work: &str) -> Vec<ObjectId> {
        let records = self.records.lock();
        records.iter().filter(|(_, record)| record.work == work).map(|(id, _)| ObjectId::clone(id)).collect()
    }

    /// Forgets what was written under a Work: it is gone from the hub. The objects stay.
    pub(crate) fn forget_work(&self, work: &str) {
        let mut records = self.records.lock();
        for id in records.extract_if(.., |_, record| record.work == work).map(|(id, _)| id) {
            self.dirty.mark(&id);
        }
    }

    /// Takes an object away, if that may be.
    pub(crate) async fn remove(
        &self,
        discovery: &Discovery,
        facts: &WorkFacts<'_>,
        id: &ObjectId,
    ) -> Result<Removed, Failure> {
        let resource = match discovery.locate(&id.group, &id.kind).await? {
            Served::At(resource) => resource,
            // A kind that there is not has no objects.
            Served::Absent => return Ok(self.forgotten(id, Removed::Left)),
            Served::Unknown(why) => {
                let (kind, path) = (&id.kind, id.path());
                return Err(Failure::sometime(format!("{kind} {path} may still be there: {why}")));
            }
        };
        let path = resource.object(Some(&id.namespace), &id.name);
        let mut last = None;
        for _ in 0..LOOKS {
            let (live, mut verdict) = match self.judge(facts, &resource, &path).await {
                Ok(judged) => judged,
                Err(error) if error.is_not_found() => {
                    return self.gone(discovery, &resource, id, &error).await;
                }
                Err(error) => return Err(error.into()),
            };
            let mut kept_by = None;
            if matches!(verdict, Verdict::Delete { .. }) && is_namespace(&live) {
                let ours = Ours {
                    execution_namespace: &self.execution_namespace,
                    has_work: &|work| self.desired.get(work).is_some(),
                };
                match vacancy(&self.member, discovery, &id.name, ours).await? {
                    Vacancy::Empty => {}
                    Vacancy::Emptying(what) => return Ok(Removed::Emptying(what)),
                    Vacancy::Occupied(what) => {
                        verdict = Verdict::Release("something else lives in the Namespace");
                        kept_by = Some(what);
                    }
                }
            }
            let answer = match verdict {
                Verdict::Later(why) => {
                    return Err(Failure::sometime(format!("{} {}: {why}", id.kind, id.path())));
                }
                Verdict::Keep(why) => {
                    tracing::info!(cluster = %self.cluster, kind = %id.kind, namespace = %id.namespace, name = %id.name, why, "not deleted");
                    return Ok(self.forgotten(id, Removed::Left));
                }
                Verdict::Ending => return Ok(Removed::Ending),
                Verdict::Spare(why) => match self.still(facts, &path, &live).await? {
                    Still::Yes => return Ok(self.forgotten(id, Removed::Spared(why.to_owned()))),
                    Still::No => return Ok(Removed::Ending),
                    Still::Again(error) => Err(error),
                },
                Verdict::Release(why) => {
                    tracing::info!(cluster = %self.cluster, kind = %id.kind, namespace = %id.namespace, name = %id.name, why, "released");
                    let target = format!("{path}?fieldManager={AGENT}");
                    let released = kept_by.map_or_else(|| why.to_owned(), |what| format!("{why}: {what}"));
                    let patch = config::release(&live);
                    let patched = self.member.patch_for_metadata(&target, Patch::Json, &patch).await;
                    patched.map(|_| Removed::Released(released))
                }
                Verdict::Delete { uid, whole } => {
                    let propagation = if whole { "Foreground" } else { "Background" };
                    let options = json!({
                        "apiVersion": "v1", "kind": "DeleteOptions",
                        "preconditions": {"uid": uid}, "propagationPolicy": propagation,
                    });
                    tracing::info!(cluster = %self.cluster, kind = %id.kind, namespace = %id.namespace, name = %id.name, %uid, "deleted");
                    let deleted = self.member.delete(&path, &options).await;
                    deleted.map(|_| if whole { Removed::Ending } else { Removed::Deleted })
                }
            };
            match answer {
                Ok(removed) => return Ok(self.forgotten(id, removed)),
                Err(error) if error.is_conflict() => last = Some(error),
                Err(error) if error.is_not_found() => {
                    return self.gone(discovery, &resource, id, &error).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        // Nobody has said that it may stay, or that it is not ours.
        let why = last.map(|error| error.to_string()).unwrap_or_default();
        Err(Failure::soon(format!(
            "{} {} changes faster than it can be taken away: {why}",
            id.kind,
            id.path()
        )))
    }

    /// What is done about an object, and what that is judged by: its metadata, since of a member's object all may be more than is
    /// read ([`Bounds::dense`](karmada_client::rest::Bounds::dense)). All of it where something of it may have to be stopped.
    async fn judge(
        &self,
        facts: &WorkFacts<'_>,
        resource: &Resource,
        path: &str,
    ) -> Result<(Value, Verdict), Error> {
        let of = |live: Value| {
            let verdict = may_delete(facts, &live, Budget::UNLIMITED);
            (live, verdict)
        };
        let judged = of(self.member.get_metadata(resource, path).await?);
        match judged.1 {
            Verdict::Spare(_) if facts.is_fenced(&judged.0) => Ok(of(self.member.get(path).await?)),
            _ => Ok(judged),
        }
    }

    /// What holds an object on the member that is on its way out, or is to go when that has: nothing if there is something
    /// to be decided about it.
    pub(crate) async fn waits(
        &self,
        discovery: &Discovery,
        id: &ObjectId,
    ) -> Result<Option<String>, Failure> {
        let Served::At(resource) = discovery.locate(&id.group, &id.kind).await? else { return Ok(None) };
        let path = resource.object(Some(&id.namespace), &id.name);
        let live = match self.member.get_metadata(&resource, &path).await {
            Ok(live) => live,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let going = object::deletion_timestamp(&live).is_some();
        if !is_namespace(&live) || going {
            return Ok((going && !is_namespace(&live)).then(String::new));
        }
        let has_work = |work: &str| self.desired.get(work).is_some();
        let ours = Ours { execution_namespace: &self.execution_namespace, has_work: &has_work };
        match vacancy(&self.member, discovery, &id.name, ours).await? {
            Vacancy::Emptying(what) => Ok(Some(what)),
            Vacancy::Empty | Vacancy::Occupied(_) => Ok(None),
        }
    }

    /// An object was not found: it is gone if that was said by somebody who has looked for it, where it has to be.
    async fn gone(
        &self,
        discovery: &Discovery,
        resource: &Resource,
        id: &ObjectId,
        error: &Error,
    ) -> Result<Removed, Failure> {
        if error.is_absence_of(&id.name) && discovery.confirms(resource).await? {
            return Ok(self.forgotten(id, Removed::Left));
        }
        let (kind, path) = (&id.kind, id.path());
        Err(Failure::sometime(format!(
            "{kind} {path} may still be there: {resource} is not served for now: {error}"
        )))
    }

    /// Stops what may run in one place only, if that is asked for, before it is let go although it stays.
    async fn still(&self, facts: &WorkFacts<'_>, path: &str, live: &Value) -> Result<Still, Error> {
        if !facts.is_fenced(live) {
            return Ok(Still::Yes);
        }
        if let fence::Stop::Patch(patch) = fence::stop(live, &Time::now(&self.env).to_string()) {
            let target = format!("{path}?fieldManager={AGENT}");
            return match self.member.patch(&target, Patch::Merge, &patch).await {
                Ok(_) => Ok(Still::No),
                Err(error) if error.is_conflict() || error.is_not_found() => Ok(Still::Again(error)),
                Err(error) => Err(error),
            };
        }
        if !fence::is_reported_still(live) {
            return Ok(Still::No);
        }
        // A status does not count what is ending.
        let Some(selector) = fence::selector(live) else { return Ok(Still::Yes) };
        let (namespace, selector) = (object::namespace(live), query_value(&selector));
        let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector={selector}&limit=1");
        let pods = self.member.get(&path).await?;
        let none = pods["items"].as_array().is_some_and(Vec::is_empty);
        Ok(if none { Still::Yes } else { Still::No })
    }

    /// An object is none of ours any more.
    fn forgotten(&self, id: &ObjectId, removed: Removed) -> Removed {
        if self.records.lock().remove(id).is_some() {
            self.dirty.mark(id);
        }
        removed
    }
}

/// Who has made an object other than it is wanted, for a sentence.
fn by(live: Option<&Value>, manifest: &Value) -> String {
    let Some(live) = live else { return "somebody who deletes it".to_owned() };
    let names: Vec<String> = writers(live, manifest).iter().map(|name| format!("{name:?}")).collect();
    if names.is_empty() { "somebody who leaves no name".to_owned() } else { names.join(" and ") }
}

/// Whether nothing of an object runs.
enum Still {
    Yes,
    No,
    /// It has changed meanwhile.
    Again(Error),
}

/// What became of an object that was to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Removed {
    /// It was deleted.
    Deleted,
    /// It was not there, or not ours: nothing was done.
    Left,
    /// It stays, without our marks; the text says why.
    Released(String),
    /// It stays as it is, although the hub wants it gone; the text says why.
    Spared(String),
    /// A Namespace whose contents are on their way out; the text names them.
    Emptying(String),
    /// It may run in one place only, and is on its way out: something of it may run yet.
    Ending,
}

/// What a write came to.
enum Wrote {
    Object { object: Value, by_put: Option<String> },
    Again(Error),
}

impl Wrote {
    fn object(object: Value) -> Self {
        Self::Object { object, by_put: None }
    }
}

/// Whether a manifest's conflict resolution allows taking what is there.
fn overwrites(manifest: &Value) -> bool {
    object::annotation(manifest, annotation::CONFLICT_RESOLUTION)
        == Some(annotation::CONFLICT_RESOLUTION_OVERWRITE)
}

/// kube-apiserver's answer to an apply whose lists name a key twice. It has no reason of its own.
fn is_duplicate(error: &Error) -> bool {
    error.code().is_some_and(|code| code == 500 || code == 400)
        && error.to_string().contains("failed to create typed patch object")
        && error.to_string().contains("duplicate entries for key")
}

/// The answer to an apply with the uid of an object that was replaced.
fn is_another_uid(error: &Error) -> bool {
    error.is_invalid() && error.to_string().contains("metadata.uid: Invalid value")
}
