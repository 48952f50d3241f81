//! Members in push mode: the hub itself works on them, with what an agent does.
//!
//! ```text
//!   Clusters ── watch ─▶ Pusher ─▶ Instance per cluster ─▶ karmada_agent::Agent, in this process
//!                          │          │   ▲                    │ the hub: a client in process   │ the member: spec.apiEndpoint,
//!                       Roster        │   └ its Secret         └ Works, status, Lease           └ by the token of spec.secretRef
//!                                     └ told: Ready=False while nothing works on it
//! ```
//!
//! Nothing is done here that an agent does not do. An instance ends with its Cluster, and is started anew, alone, when it
//! fails or when what its member is reached by changes; while there is none its Cluster says why. It renews a Lease as
//! Karmada's controller manager does for such clusters, by which the lease monitor sees one that hangs. What an instance has
//! to say goes to the hub's own API.
//!
//! On an API server that is not the hub's own nothing works on such members, and their Clusters say that.

mod instance;
mod roster;
mod told;

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures::FutureExt as _;
use karmada_client::{Backoff, Event, WatchConfig, Watcher};
use karmada_meta::object;
use karmada_objects::kinds::CLUSTERS;
use kube::Client;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::{
    instance::{AGAIN, Instance},
    roster::{Next, Roster, Running},
};
use crate::write::Writer;

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

/// Runs an instance for each cluster in push mode.
pub(crate) struct Pusher {
    client: Client,
    writer: Arc<Writer>,
    works: bool,
}

/// What is seen of a Cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Head {
    name: String,
    is_pushed: bool,
}

fn head(text: &str) -> Result<Head, String> {
    let cluster: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    Ok(Head { name: object::name(&cluster).to_owned(), is_pushed: cluster["spec"]["syncMode"] == "Push" })
}

impl Pusher {
    pub(crate) fn new(client: &Client, writer: &Arc<Writer>, works: bool) -> Self {
        Self { client: client.clone(), writer: writer.clone(), works }
    }

    /// Runs until `stop`, and until all instances have ended.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let config = WatchConfig::new(CLUSTERS.collection(None));
        let mut clusters = Watcher::new(self.client.clone(), config, self.writer.env.clone(), head);
        let (mut roster, mut instances) = (Roster::default(), JoinSet::new());
        loop {
            let event = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                event = clusters.next() => event,
                Some(ended) = instances.join_next() => {
                    // What panics is caught within.
                    let Ok(name): Result<String, _> = ended else { continue };
                    match roster.ended(&name) {
                        Next::Rest => {}
                        Next::Begin => self.begin(name, false, &mut roster, &mut instances, &stop),
                        Next::Again => self.begin(name, true, &mut roster, &mut instances, &stop),
                    }
                    continue;
                }
            };
            match event {
                Event::Init => roster.lists(),
                Event::Synced => roster.listed(),
                Event::Upsert(Head { name, is_pushed: true }) => {
                    if roster.wants(&name) {
                        self.begin(name, false, &mut roster, &mut instances, &stop);
                    }
                }
                Event::Upsert(Head { name, .. }) | Event::Delete(Head { name, .. }) => roster.unwants(&name),
            }
        }
        while instances.join_next().await.is_some() {}
    }

    /// Begins an instance; after a while, if one has ended by itself.
    fn begin(
        &self,
        name: String,
        again: bool,
        roster: &mut Roster,
        instances: &mut JoinSet<String>,
        stop: &CancellationToken,
    ) {
        let one = Running { stop: stop.child_token(), look: Arc::default() };
        let (look, stop, writer, works) =
            (one.look.clone(), one.stop.clone(), self.writer.clone(), self.works);
        let instance = Instance::new(&name, (&self.writer, &self.client), &look, &stop);
        roster.begins(&name, one);
        instances.spawn(async move {
            if again {
                let pause = Backoff::new(AGAIN).next(&writer.env);
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return name,
                    () = tokio::time::sleep(pause) => {}
                }
            }
            let keeping = async {
                match works {
                    true => instance.keep().await,
                    false => tell(&writer, &name, &look, &stop).await,
                }
            };
            if AssertUnwindSafe(keeping).catch_unwind().await.is_err() {
                tracing::error!(
                    cluster = name,
                    "what works on a cluster in push mode has panicked, and begins anew"
                );
            }
            name
        });
    }
}

/// Says that nothing works on a cluster, whenever it has changed.
async fn tell(writer: &Writer, cluster: &str, look: &tokio::sync::Notify, stop: &CancellationToken) {
    loop {
        told::tell(writer, cluster, NOT_HERE).await;
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = look.notified() => {}
        }
    }
}
