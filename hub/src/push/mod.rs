//! Members in push mode: the hub itself works on them, with what an agent does.
//!
//! ```text
//!   Index of Clusters ─▶ Pusher ─▶ Instance per cluster ─▶ karmada_agent::Agent, in this process
//!                          │          │   ▲                    │ the hub: a client in process     │ the member: spec.apiEndpoint,
//!                       Roster        │   └ its Secret         ├ writes: status, Works'           └ by the token of spec.secretRef,
//!                                     │                        └ hears: Shares of the hub's watches   at a pace of its own
//!                                     └ told: Ready=False while nothing works on it
//! ```
//!
//! Nothing is done here that an agent does not do, but for two things. An instance opens no watch on the hub: it lists its
//! Works once, and hears what changes from the watches that the hub has anyway. And it renews no Lease: how its member is
//! stands in the Cluster's condition Ready, as Karmada's cluster-status-controller writes it, and an instance that does not
//! look any more is ended. One ends with its Cluster, and is started anew, alone, when it fails or when what its member is
//! reached by changes; while there is none, or it may not speak for its cluster, its Cluster says why. The Lease of an agent of
//! before is deleted, as often as one makes it: while there is none it is known that nobody on the member stops what is fenced there. What all members' answers take is bounded together.
//!
//! On an API server that is not the hub's own nothing works on such members, and their Clusters say that.

mod copies;
mod instance;
mod instances;
mod roster;
mod starts;
mod told;

use std::{collections::HashSet, sync::Arc, time::Duration};

use karmada_agent::{Alike, Feed, Packer};
use karmada_api::consts::component;
use karmada_apiserver::packed;
use karmada_client::{
    Event, Recorder, Rest, Room, WatchConfig, Watcher, WorkQueue,
    events::RecorderTask,
    paced::Pace,
    watch::share::{News, Share},
};
use karmada_objects::{key::Key, kinds::SECRETS};
use kube::Client;
use serde_json::Value;
use tokio::{sync::Notify, task::JoinSet};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

pub(crate) use self::copies::Copies;
use self::{
    instance::Instance,
    instances::Instances,
    roster::{Next, Running},
    starts::{By, Starts},
};
use crate::{
    accounts::Accounts,
    controllers::Context,
    known::{Known, heads::ClusterHead, index::Change},
    write::Writer,
};

/// What the Clusters say of which no hub takes care.
const NOT_HERE: &str = "this hub works on clusters in push mode with the embedded API alone (karmada-hub serve --data-dir): have its agent join it in \
     pull mode, or serve it by such a hub";

/// What is done for clusters in push mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pushing {
    /// Nothing: somebody else speaks for them.
    #[default]
    No,
    /// It is told that nothing is.
    Told,
    /// The hub works on them.
    Works,
}

/// How the hub works on clusters in push mode. The first four are Karmada's.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How often it is looked how a member is.
    pub look: Duration,
    /// How long a member must be well before Ready turns True.
    pub success: Duration,
    /// How long it must be unwell before Ready turns False.
    pub failure: Duration,
    /// How often each member is asked something, and for how much at a time.
    pub pace: Pace,
    /// What long answers of all members may take of the memory together, in bytes.
    pub answers: usize,
    /// What is kept of the objects on all members may take so much of it together, in bytes; one has an eighth of that at
    /// most, and no more than a few times its share. Beyond that each member has its share of it: of collections for which
    /// there is no room nothing is known. A quarter of it is for copies for searches.
    pub kept: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            look: Duration::from_secs(10),
            success: Duration::from_secs(30),
            failure: Duration::from_secs(30),
            pace: Pace { per_second: 40.0, burst: 60, at_once: 16 },
            answers: 128 << 20,
            kept: 1 << 30,
        }
    }
}

/// What is wanted of all members is much the same, in the words of the Works that it comes by.
const PACKER: Packer = Packer { pack: packed::pack_work, unpack: packed::unpack_work };

/// Events of all instances that are remembered, so that they are counted when they come again.
const EVENTS: usize = 16 << 10;

/// Of what is kept this part is for copies for searches.
const COPIED: usize = 4;

/// What all instances have of the hub.
struct Common {
    client: Client,
    writer: Arc<Writer>,
    settings: Settings,
    feed: Feed,
    secrets: Share,
    room: Room,
    /// For copies for searches, so that they do not take from what works on members.
    copied: Room,
    starts: Starts,
    copies: Arc<Copies>,
    accounts: Arc<Accounts>,
    known: Arc<Known>,
    /// The API, for a watch of its own.
    watching: Rest,
}

impl Common {
    /// Whether there is such a Lease, or that is not known yet.
    fn has_lease(&self, lease: &Key) -> bool {
        self.known.leases.get(lease).is_some() || !self.known.leases.is_synced()
    }

    /// Whether a cluster is in push mode at present.
    fn is_pushed(&self, cluster: &str) -> bool {
        self.known.clusters.get(&Key::cluster_scoped(cluster)).is_some_and(|head| head.is_pushed())
    }
}

/// Runs an instance for each cluster in push mode.
pub(crate) struct Pusher {
    common: Arc<Common>,
    known: Arc<Known>,
    changed: WorkQueue<String>,
    works: bool,
    /// Tells the events of all instances.
    recorder: Option<RecorderTask>,
}

impl Pusher {
    /// One that hears the context's Clusters from now on.
    pub(crate) fn new(context: &Context, settings: Settings, works: bool, copies: Arc<Copies>) -> Self {
        let changed = WorkQueue::new(context.env.clone());
        let queue = changed.clone();
        context.known.clusters.listen(move |change| {
            if concerns(change, works) {
                queue.add(change.key.name.clone());
            }
        });
        context.figures.queue("push", &changed);
        if works {
            context.accounts.judgement.looks_at_pushed();
        }
        let counts = context.figures.pushing();
        let shares = &context.known.shares;
        let (recorder, recorder_task) =
            Recorder::with_room(context.client(), component::EXECUTION, context.env.clone(), EVENTS);
        let feed = Feed {
            works: shares.works.clone(),
            clusters: shares.clusters.clone(),
            scripts: shares.customizations.clone(),
            services: shares.webhooks.clone(),
            packer: Some(PACKER),
            alike: Alike::default(),
            recorder: Some(recorder),
            failures: counts.failures.clone(),
        };
        let copied = settings.kept / COPIED;
        let room = Room::new(settings.answers, settings.kept - copied).counting(&counts.spared);
        let common = Common {
            client: context.client(),
            writer: context.writer.clone(),
            copied: room.beside(copied),
            room,
            settings,
            feed,
            secrets: Share::new(),
            starts: Starts::new(&context.env, &counts.starts),
            copies,
            accounts: context.accounts.clone(),
            known: context.known.clone(),
            watching: context.watching(),
        };
        Self {
            common: Arc::new(common),
            known: context.known.clone(),
            changed,
            works,
            recorder: Some(recorder_task),
        }
    }

    /// Runs until `stop`, and until all instances have ended.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let synced = async {
            self.known.clusters.synced().await;
            self.known.works.synced().await;
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = synced => {}
        }
        let said = CancellationToken::new();
        let telling = self.recorder.take().filter(|_| self.works);
        let telling = telling.map(|task| AbortOnDropHandle::new(tokio::spawn(task.run(said.clone()))));
        let (mut instances, mut secrets) = (Instances::default(), JoinSet::new());
        // Those that have not just joined.
        let mut of_before: HashSet<String> = self.pushed().collect();
        let handing = self.common.starts.hand_out();
        tokio::pin!(handing);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                never = &mut handing => match never {},
                Some(changed) = self.changed.next() => {
                    let name = String::clone(&changed);
                    changed.done();
                    match self.known.clusters.get(&Key::cluster_scoped(name.as_str())) {
                        Some(head) if head.is_pushed() => {
                            if secrets.is_empty() && self.works {
                                secrets.spawn(follow_secrets(self.common.clone()));
                            }
                            if instances.roster.wants(&name, uid(&head)) {
                                let by = if of_before.remove(&name) { By::Being } else { By::Joining };
                                self.begin(&name, by, false, &mut instances, &stop);
                            }
                        }
                        _ => instances.roster.unwants(&name),
                    }
                }
                Some((name, next)) = instances.ended() => match next {
                    Next::Rest => {}
                    Next::Begin => self.begin(&name, By::Being, false, &mut instances, &stop),
                    Next::Again => self.begin(&name, By::Being, true, &mut instances, &stop),
                },
                Some(ended) = secrets.join_next() => {
                    tracing::error!(?ended, "the watch of Secrets has ended, and begins anew");
                    secrets.spawn(follow_secrets(self.common.clone()));
                }
            }
        }
        while instances.ended().await.is_some() {}
        // Their last words, too.
        said.cancel();
        if let Some(telling) = telling {
            let _ = telling.await;
        }
    }

    /// The clusters that are in push mode.
    fn pushed(&self) -> impl Iterator<Item = String> {
        let clusters = self.known.clusters.all();
        clusters.into_iter().filter(|(_, head)| head.is_pushed()).map(|(key, _)| key.name)
    }

    /// Begins an instance; after a while, if one has ended by itself.
    fn begin(&self, name: &str, by: By, again: bool, instances: &mut Instances, stop: &CancellationToken) {
        let head = self.known.clusters.get(&Key::cluster_scoped(name));
        let uid = head.as_deref().map(uid).unwrap_or_default().to_owned();
        let one = Running { uid, stop: stop.child_token(), look: Arc::default() };
        let (look, stop, works) = (one.look.clone(), one.stop.clone(), self.works);
        let (common, cluster) = (self.common.clone(), name.to_owned());
        instances.begin(name, one, again, &self.common.writer.env, move || async move {
            match works {
                true => Instance::new(&cluster, &common, &look, &stop).keep(by).await,
                false => tell(&common.writer, &cluster, &look, &stop).await,
            }
        });
    }
}

/// Whether a change of a Cluster may be one for its instance. Of what an instance itself says it need not hear; whoever tells
/// that there is none looks whether that stands.
fn concerns(change: &Change<'_, ClusterHead>, works: bool) -> bool {
    change.differs(|head| &head.cluster.spec)
        || change.differs(|head| &head.cluster.metadata.uid)
        || (!works && change.last().is_pushed())
}

/// Which Cluster of its name one is.
fn uid(head: &ClusterHead) -> &str {
    head.cluster.metadata.uid.as_deref().unwrap_or_default()
}

/// Tells instances of the Secrets that they have an ear for: one watch for all of them, of metadata.
async fn follow_secrets(common: Arc<Common>) {
    let config = WatchConfig::new(SECRETS.collection(None)).metadata_only();
    let secrets = common.secrets.clone();
    let heard = secrets.clone();
    let read = move |text: &str| {
        let secret: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let key = Key::of(&secret);
        Ok(heard.is_heard(&key.namespace, &key.name).then_some(key))
    };
    let mut watcher = Watcher::over(common.watching.clone(), config, common.writer.env.clone(), read);
    loop {
        match watcher.next().await {
            Event::Upsert(Some(key)) | Event::Delete(Some(key)) => {
                let news = News { there: true, text: "".into(), revision: None };
                secrets.tell(&key.namespace, &key.name, &news);
            }
            Event::Synced => secrets.anew(),
            Event::Upsert(None) | Event::Delete(None) | Event::Init => {}
        }
    }
}

/// Says that nothing works on a cluster, whenever it has changed.
async fn tell(writer: &Writer, cluster: &str, look: &Notify, stop: &CancellationToken) {
    loop {
        told::tell(writer, cluster, NOT_HERE).await;
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = look.notified() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_what_is_said_of_a_member_its_instance_need_not_hear() {
        let cluster = |mode: &str| {
            json!({
                "metadata": {"name": "m", "uid": "1"},
                "spec": {"syncMode": mode, "apiEndpoint": "https://10.0.0.1:6443"},
            })
        };
        let key = Key::cluster_scoped("m");
        let ready = json!({
            "type": "Ready", "status": "False", "reason": "r", "message": "m", "lastTransitionTime": "2026-01-02T03:04:05Z",
        });
        for (of, field, value, works, tells) in [
            ("/metadata", "labels", json!({"a": "b"}), false, true),
            ("", "status", json!({"conditions": [ready]}), false, true),
            ("/metadata", "uid", json!("2"), true, true),
            ("/spec", "apiEndpoint", json!("https://10.0.0.2:6443"), true, true),
            ("/spec", "proxyURL", json!("http://squid:3128"), true, true),
        ] {
            for mode in ["Push", "Pull"] {
                let before = cluster(mode);
                let mut after = before.clone();
                let said = format!("{mode} {of}/{field}: {value}");
                after.pointer_mut(of).expect("it is there")[field] = value.clone();
                let [old, new] = [&before, &after].map(|cluster| Arc::new(ClusterHead::project(cluster)));
                let change = Change { key: &key, old: Some(&old), new: Some(&new) };
                assert_eq!(concerns(&change, true), works, "{said}");
                assert_eq!(concerns(&change, false), tells && (works || mode == "Push"), "{said}");
            }
        }
        let one = Arc::new(ClusterHead::project(&cluster("Push")));
        assert!(concerns(&Change { key: &key, old: None, new: Some(&one) }, true));
        assert!(concerns(&Change { key: &key, old: Some(&one), new: None }, true));
    }
}
