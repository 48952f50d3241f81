//! This cluster's Works, from the hub's watch to what the member half knows to be wanted.

use std::sync::Arc;

use futures::FutureExt;
use karmada_client::{Event, WatchConfig};
use karmada_env::Env;
use karmada_member::{
    DesiredWork, Member,
    rights::{Rights, Standing},
};

use super::{cluster::ClusterView, outbox::works};
use crate::config::AgentConfig;

/// Changes that come at once are kept and acted on together, so many at most.
const TOGETHER: usize = 512;

/// And so many bytes of manifests, if that is more than one Work.
const BYTES: usize = 4 << 20;

/// Whether an event tells of a list as a whole.
fn is_mark(event: &Event<DesiredWork>) -> bool {
    matches!(event, Event::Init | Event::Synced)
}

fn size(event: &Event<DesiredWork>) -> usize {
    match event {
        Event::Upsert(work) | Event::Delete(work) => work.size(),
        Event::Init | Event::Synced => 0,
    }
}

/// Watches this cluster's Works, for ever. When this agent speaks for the cluster again everything is listed anew.
pub(super) async fn pull(
    config: AgentConfig,
    env: Env,
    rights: Rights,
    view: Arc<ClusterView>,
    member: Arc<Member>,
) {
    let (path, desired) = (works().collection(Some(&config.execution_namespace())), member.desired());
    loop {
        tokio::select! {
            biased;
            () = rights.reporting() => {}
            () = rights.when(Standing::stands_aside) => {
                member.stand_aside();
                rights.when(|standing| !standing.stands_aside()).await;
                continue;
            }
        }
        let config = WatchConfig::new(path.clone()).wake(&config.hub_back);
        let mut watch = view.watch(config, env.clone(), DesiredWork::parse);
        let mut next = None;
        loop {
            let event = match next.take() {
                Some(event) => event,
                None => tokio::select! {
                    biased;
                    () = rights.when(|standing| !standing.may_report()) => break,
                    event = watch.next() => (event, watch.life()),
                },
            };
            let mut bytes = size(&event.0);
            let mut events = vec![event];
            while events.len() < TOGETHER && bytes < BYTES && !is_mark(&events[0].0) {
                let Some(event) = watch.next().now_or_never() else { break };
                if is_mark(&event) {
                    next = Some((event, watch.life()));
                    break;
                }
                bytes += size(&event);
                events.push((event, watch.life()));
            }
            if matches!(events[0].0, Event::Synced) && desired.would_lose() {
                // A hub that has lost them may have lost the Cluster, too. Then they are kept as they are.
                view.doubt();
            }
            if !view.is_ours(&env).await {
                break;
            }
            member.take_in(events).await;
        }
    }
}
