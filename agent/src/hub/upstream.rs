//! What the member half asks and tells, as requests to the hub.

use std::sync::Arc;

use karmada_api::{conditions::Condition, consts::extension, work::WorkStatus};
use karmada_client::{EventKind, ObjectRef, Patch, Recorder, Rest, latest, rest::query_value};
use karmada_member::{
    DesiredWork,
    upstream::{Answer, Live, Upstream},
};
use karmada_meta::object;
use serde_json::{Value, json};

use super::{
    cluster::Kept,
    outbox::{Outbox, works},
};

/// See the module.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) hub: Rest,
    /// The execution namespace.
    pub(crate) namespace: String,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) recorder: Recorder,
    /// The Cluster, as far as it is known.
    pub(crate) cluster: latest::Receiver<Option<Arc<Kept>>>,
}

impl Upstream for Line {
    /// Asked as a list, which tells the hub's revision, too: whether this is the hub that it was is known afterwards.
    fn work<'a>(&'a self, name: &'a str) -> Answer<'a, Live> {
        Box::pin(async move {
            let selector = query_value(&format!("metadata.name={name}"));
            let collection = works().collection(Some(&self.namespace));
            let mut list = self.hub.get(&format!("{collection}?fieldSelector={selector}&limit=1")).await?;
            let revision = object::resource_version(&list).parse().ok();
            Ok(Live { revision, work: list.pointer_mut("/items/0").map(Value::take) })
        })
    }

    fn wants<'a>(&'a self, name: &'a str) -> Answer<'a, bool> {
        Box::pin(async move {
            match self.hub.get(&works().object(Some(&self.namespace), name)).await {
                Ok(live) => Ok(object::deletion_timestamp(&live).is_none()
                    && object::annotation(&live, extension::UNWANTED_SINCE).is_none()),
                Err(error) if error.is_absence_of(name) => Ok(false),
                Err(error) => Err(error.into()),
            }
        })
    }

    /// A hub that does not let us ask does not delete the namespace behind our back either.
    fn namespace_is_going(&self) -> Answer<'_, bool> {
        Box::pin(async move {
            match self.hub.get(&format!("/api/v1/namespaces/{}", self.namespace)).await {
                Ok(namespace) => Ok(object::deletion_timestamp(&namespace).is_some()),
                Err(error) if error.is_forbidden() || error.is_absence_of(&self.namespace) => Ok(false),
                Err(error) => Err(error.into()),
            }
        })
    }

    fn cluster_is_going(&self) -> bool {
        self.cluster.borrow().as_deref().is_some_and(|cluster| object::deletion_timestamp(cluster).is_some())
    }

    fn confirmed_removals(&self) -> Option<String> {
        let cluster = self.cluster.borrow();
        cluster
            .as_deref()
            .and_then(|cluster| object::annotation(cluster, extension::CONFIRM_REMOVALS))
            .map(str::to_owned)
    }

    fn shows(&self, condition: &str) -> bool {
        let cluster = self.cluster.borrow();
        let conditions = cluster.as_deref().and_then(|cluster| cluster.pointer("/status/conditions"));
        let all = conditions.and_then(Value::as_array).into_iter().flatten();
        all.into_iter().any(|one| one["type"] == condition && one["status"] == "True")
    }

    fn report(&self, work: &DesiredWork, old: &WorkStatus, status: WorkStatus) {
        self.outbox.status(&work.name, &work.uid, old, status);
    }

    fn finished(&self, work: &DesiredWork) {
        self.outbox.finished(work);
    }

    fn last_words<'a>(&'a self, work: &'a DesiredWork, conditions: &'a [Condition]) -> Answer<'a, ()> {
        Box::pin(async move {
            let path = works().subresource(Some(&self.namespace), &work.name, "status");
            let lists = json!({"status": {"conditions": conditions}});
            self.hub.patch(&path, Patch::Merge, &lists).await?;
            Ok(())
        })
    }

    fn event(&self, about: &ObjectRef, kind: EventKind, reason: &str, message: String) {
        self.recorder.event(about, kind, reason, message);
    }
}
