//! Unified authentication: who may reach a cluster through the hub becomes whom the hub may speak for there.
//!
//! ```text
//!   ClusterRoles ─┐                                    ┌▶ Work: ClusterRole karmada-impersonator
//!   their bindings ┴─ whom they let in ─▶ cluster ─────┴▶ Work: ClusterRoleBinding karmada-impersonator
//! ```
//!
//! For clusters that the hub dials: those with an `impersonatorSecretRef`. Whom roles for all clusters let in is added up once
//! for all of them, and they are looked at when that differs; of roles that name clusters, those clusters. Without the
//! reference the Works are taken away.

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
    time::Duration,
};

use karmada_api::consts::{component, event};
use karmada_client::{Error, WorkQueue};
use karmada_core::{
    impersonate::{self, NAME, Reaches, Subjects},
    names, work as core_work,
};
use karmada_meta::object;
use karmada_objects::{
    key::Key,
    kinds::{CLUSTERS, WORKS},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::yield_now;
use tokio_util::sync::CancellationToken;

use super::{Context, Next, work};
use crate::{
    known::{
        gathered::Gathered,
        heads::{ClusterHead, RoleHead, WorkHead},
        index::Change,
    },
    write::{
        Writer,
        works::{self, Made, Maker},
    },
};

/// How many clusters are worked on at a time.
const WORKERS: usize = 4;
/// How long a Work that is somebody else's, or on its way out, is given before it is looked at again.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long after one look at what roles let in the next is taken.
const PACE: Duration = Duration::from_millis(500);

/// The names of the Works of a cluster.
static NAMES: LazyLock<[String; 2]> =
    LazyLock::new(|| ["ClusterRole", "ClusterRoleBinding"].map(|kind| names::work_name(kind, "", NAME)));

/// Gives the hub's account on members its rights.
pub(crate) struct UnifiedAuth {
    writer: Arc<Writer>,
    queue: WorkQueue<String>,
    /// Roles, with what they open and have opened.
    roles: Gathered<Vec<Reaches>>,
    /// Bindings, with the roles that they are and were of.
    bindings: Gathered<BTreeSet<String>>,
    /// Whom roles for all clusters let in.
    everywhere: Mutex<Arc<Subjects>>,
}

impl UnifiedAuth {
    /// A controller that hears of clusters, roles, bindings and Works from now on.
    pub(crate) fn new(context: &Context) -> Self {
        let writer = &context.writer;
        let queue: WorkQueue<String> = WorkQueue::new(writer.env.clone());
        let clusters = queue.clone();
        writer.known.clusters.listen(move |change| {
            let reference = |head: &Arc<ClusterHead>| {
                (head.cluster.spec.impersonator_secret_ref.clone(), head.cluster.metadata.uid.clone())
            };
            if change.old.map(reference) != change.new.map(reference) {
                clusters.add(change.key.name.clone());
            }
        });
        let namespaces = queue.clone();
        writer.known.namespaces.listen(move |change| {
            if let Some(cluster) = names::cluster_of_namespace(&change.key.name)
                && change.differs(|head| &head.uid)
            {
                namespaces.add(cluster.to_owned());
            }
        });
        let (works, shared) = (queue.clone(), Arc::downgrade(writer));
        writer.known.works.listen(move |change: &Change<'_, WorkHead>| {
            if !NAMES.contains(&change.key.name) {
                return;
            }
            let news = change.new.is_none_or(|new| {
                change.differs(|head| &head.content)
                    && shared.upgrade().is_some_and(|writer| !writer.written.is_ours(change.key, new.content))
            });
            if let Some(cluster) = names::cluster_of_namespace(&change.key.namespace).filter(|_| news) {
                works.add(cluster.to_owned());
            }
        });
        let roles = Gathered::of(
            &writer.known.roles,
            PACE,
            |_| true,
            |seen: &mut Vec<Reaches>, change| {
                for head in [change.old, change.new].into_iter().flatten() {
                    if !seen.contains(&head.reaches) {
                        seen.push(head.reaches.clone());
                    }
                }
            },
        );
        let bindings = Gathered::of(
            &writer.known.role_bindings,
            PACE,
            |_| true,
            |seen: &mut BTreeSet<String>, change| {
                seen.extend([change.old, change.new].into_iter().flatten().map(|head| head.role.clone()));
            },
        );
        let again = queue.clone();
        context.resync.tell(&writer.known.clusters, move |cluster, _| again.add(cluster.name.clone()));
        context.figures.queue("unified-auth", &queue);
        Self { writer: writer.clone(), queue, roles, bindings, everywhere: Mutex::default() }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let known = &self.writer.known;
        // With half of the roles known, rights would go and come.
        known.roles.synced().await;
        known.role_bindings.synced().await;
        known.clusters.synced().await;
        known.namespaces.synced().await;
        known.works.synced().await;
        // All clusters are queued by now.
        self.roles.forget();
        self.bindings.forget();
        *self.everywhere.lock() = self.of_all();
        tokio::select! {
            biased;
            () = work("unified-auth", &self.queue, WORKERS, &stop, |name: String| self.reconcile(name)) => {}
            () = self.follow() => {}
        }
    }

    /// Queues the clusters that changes of roles and bindings concern. Runs for ever.
    async fn follow(&self) {
        loop {
            let seen: Vec<Reaches> = tokio::select! {
                roles = self.roles.next() => roles.into_values().flatten().collect(),
                bindings = self.bindings.next() => {
                    let roles: BTreeSet<String> = bindings.into_values().flatten().collect();
                    let roles = roles.into_iter().filter_map(|role| {
                        self.writer.known.roles.get(&Key::cluster_scoped(role))
                    });
                    roles.map(|role| role.reaches.clone()).collect()
                }
            };
            let mut all = false;
            for reaches in seen {
                match reaches {
                    Reaches::All => all = true,
                    Reaches::Named(names) => {
                        for name in names {
                            self.queue.add(name);
                        }
                    }
                }
            }
            if all {
                self.look_everywhere().await;
            }
        }
    }

    /// Queues all clusters that have a reference, if roles for all let in others than before.
    async fn look_everywhere(&self) {
        let now = self.of_all();
        if **self.everywhere.lock() == *now {
            return;
        }
        *self.everywhere.lock() = now;
        for page in self.writer.known.clusters.pages(None) {
            for (key, head) in page {
                if head.cluster.spec.impersonator_secret_ref.is_some() {
                    self.queue.add(key.name.clone());
                }
            }
            yield_now().await;
        }
    }

    /// Whom roles for all clusters let in.
    fn of_all(&self) -> Arc<Subjects> {
        let mut subjects = Subjects::default();
        self.add(RoleHead::ALL, &mut subjects);
        Arc::new(subjects)
    }

    /// Adds whom the roles of a group are bound to.
    fn add(&self, group: &str, subjects: &mut Subjects) {
        let known = &self.writer.known;
        for (role, _) in known.roles.group(group) {
            for (_, binding) in known.role_bindings.group(&role.name) {
                subjects.extend(&binding.subjects);
            }
        }
    }

    async fn reconcile(&self, name: String) -> Result<Next, Error> {
        let known = &self.writer.known;
        let head = known.clusters.get(&Key::cluster_scoped(name.as_str()));
        let Some(head) = head.filter(|head| !head.deleting) else { return Ok(Next::Done) };
        let execution = names::execution_namespace(&name);
        let there = known.namespaces.get(&Key::cluster_scoped(execution.as_str()));
        // It is looked at again when its namespace is there.
        if there.is_none_or(|namespace| namespace.deleting) {
            return Ok(Next::Done);
        }
        let uid = head.cluster.metadata.uid.as_deref().unwrap_or_default();
        let Some(reference) = &head.cluster.spec.impersonator_secret_ref else {
            return self.withdraw(&execution, uid).await.map(|()| Next::Done);
        };
        let mut subjects = Subjects::clone(&self.everywhere.lock());
        self.add(&RoleHead::of_cluster(&name), &mut subjects);
        let manifests = [impersonate::role(&subjects), impersonate::binding(&reference.namespace)];
        let (mut written, mut problems, mut next) = (false, Vec::new(), Next::Done);
        for manifest in &manifests {
            let key = Key::new(execution.as_str(), names::work_name(object::kind(manifest), "", NAME));
            let maker = Maker::Cluster(uid);
            let made = works::ensure(&self.writer, &key, &maker, |existing, id| {
                core_work::build_for_cluster(manifest, &name, uid, existing, || id.to_owned())
            })
            .await?;
            match made {
                Made::Unchanged => {}
                Made::Written => written = true,
                Made::Going => next = next.sooner(PATIENCE),
                Made::Withheld(wait) => next = next.sooner(wait),
                Made::Taken(why) | Made::TooLarge(why) | Made::Refused(why) => problems.push(why),
            }
        }
        let about = about(&name, uid);
        if !problems.is_empty() {
            let reason = event::SYNC_IMPERSONATION_CONFIG_FAILED;
            self.writer.warning(component::UNIFIED_AUTH, &about, reason, problems.join("; "));
        } else if written {
            let reason = event::SYNC_IMPERSONATION_CONFIG_SUCCEED;
            self.writer.normal(component::UNIFIED_AUTH, &about, reason, "Sync impersonation config succeed.");
        }
        Ok(next)
    }

    /// Takes away what was made for a Cluster that has no reference any more.
    async fn withdraw(&self, execution: &str, uid: &str) -> Result<(), Error> {
        for name in NAMES.iter() {
            let key = Key::new(execution, name.as_str());
            let ours = |head: &WorkHead| !head.deleting && head.binding.is_none() && head.owner == uid;
            if uid.is_empty() || !self.writer.known.works.get(&key).is_some_and(|head| ours(&head)) {
                continue;
            }
            let live = self.writer.objects.get(&WORKS, &key).await?;
            if let Some(live) = live.filter(|live| ours(&WorkHead::project(live))) {
                tracing::info!(work = %key, "its Cluster names no impersonatorSecretRef any more");
                self.writer.delete_work(&live).await?;
            }
        }
        Ok(())
    }
}

/// A Cluster, for events.
fn about(name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": CLUSTERS.api_version(), "kind": CLUSTERS.kind.as_str(), "metadata": {"name": name, "uid": uid},
    })
}
