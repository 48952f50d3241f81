//! Asks agents for what is searched on their members, in an annotation of their Clusters.
//!
//! Asked are those that say that they tell, and no Cluster is written that asks for the right kinds already. What is expected of an
//! agent is known here before it is asked.
//!
//! What an agent says of itself stays when another is installed in its place that knows nothing of it. So one that is heard and does
//! not come for hours ([`Reported::mute`]) is taken for such, and what its predecessor said goes. One that tells says it again. What
//! is kept of the member goes when that is seen in the index, and not before: until then all of this may have to be done again.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use karmada_api::consts::extension;
use karmada_client::{Error, WorkQueue};
use karmada_core::{links::Link, search::told, ways::Wanted};
use karmada_meta::object;
use karmada_objects::{Part, key::Key, kinds::CLUSTERS};
use serde_json::Value;
use tokio::{
    task::{spawn_blocking, yield_now},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use super::{Expected, Reported};
use crate::{
    controllers::{Context, Next, work},
    known::heads::ClusterHead,
    write::Writer,
};

/// Clusters that are worked on at a time.
const WORKERS: usize = 4;
/// Registries that change together are looked at once.
const TOGETHER: Duration = Duration::from_secs(1);
/// They mean all Clusters, which are written one after another, and whose agents all begin: no more than these in a second.
const A_SECOND: u32 = 50;
/// How often it is looked whether agents tell at all, and whether what they announced has come.
const LOOK: Duration = Duration::from_secs(3600);
const EXPIRE: Duration = Duration::from_secs(60);

/// See the module.
pub(crate) struct Asking {
    writer: Arc<Writer>,
    queue: WorkQueue<String>,
    reported: Arc<Reported>,
}

/// Whether its agent can be asked.
fn tells(head: &ClusterHead) -> bool {
    !head.is_pushed()
        && !head.deleting
        && head.annotation(extension::SEARCH_COPIES) == Some("true")
        && Wanted::of(head.annotation(extension::TUNNEL_WANTED)) != Wanted::No
}

/// Whether its agent can say little in an hour.
fn is_paid(head: &ClusterHead) -> bool {
    let link = head.annotation(extension::LINK).and_then(|link| link.parse::<Link>().ok());
    link.is_some_and(|link| link.terms().reports.is_some())
}

/// Whether nothing has changed of what it is asked for.
fn is_same(old: Option<&Arc<ClusterHead>>, new: Option<&Arc<ClusterHead>>) -> bool {
    fn looked_at(head: &ClusterHead) -> impl PartialEq + '_ {
        let meta = &head.cluster.metadata;
        (
            (&meta.uid, &meta.labels, &head.cluster.spec),
            [extension::SEARCHED, extension::SEARCH_COPIES, extension::TUNNEL_WANTED, extension::LINK]
                .map(|key| head.annotation(key)),
            (head.deleting, head.reporting()),
        )
    }
    match (old, new) {
        (Some(old), Some(new)) => looked_at(old) == looked_at(new),
        (old, new) => old.is_none() && new.is_none(),
    }
}

impl Asking {
    /// One that hears of the context's Clusters from now on.
    pub(crate) fn new(context: &Context, reported: &Arc<Reported>) -> Self {
        let writer = context.writer.clone();
        let queue: WorkQueue<String> = WorkQueue::new(writer.env.clone());
        let clusters = queue.clone();
        writer.known.clusters.listen(move |change| {
            let is_asked =
                |head: &Arc<ClusterHead>| head.annotation(extension::SEARCHED).is_some() || tells(head);
            if (change.old.is_some_and(is_asked) || change.new.is_some_and(is_asked))
                && !is_same(change.old, change.new)
            {
                clusters.add(change.key.name.clone());
            }
        });
        context.figures.queue("searched", &queue);
        Self { writer, queue, reported: reported.clone() }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = self.writer.known.clusters.synced() => {}
        }
        tokio::select! {
            biased;
            () = work("searched", &self.queue, WORKERS, &stop, |name: String| self.reconcile(name)) => {}
            () = self.follow() => {}
            () = self.watch_mute() => {}
            () = self.expire() => {}
        }
        self.reported.clear();
    }

    /// Looks at all that can be asked when other kinds are searched.
    async fn follow(&self) {
        let mut changed = self.reported.searched.changes();
        while changed.changed().await.is_ok() {
            sleep(TOGETHER).await;
            drop(changed.borrow_and_update());
            for page in self.writer.known.clusters.pages(None) {
                for (key, _) in page.iter().filter(|(_, head)| tells(head)) {
                    self.queue.add(key.name.clone());
                    sleep(Duration::from_secs(1) / A_SECOND).await;
                }
                yield_now().await;
            }
        }
        std::future::pending().await
    }

    /// Looks now and then whether agents tell at all.
    async fn watch_mute(&self) {
        loop {
            sleep(LOOK).await;
            for name in self.reported.mute() {
                self.queue.add(name);
                sleep(Duration::from_secs(1) / A_SECOND).await;
            }
        }
    }

    /// Looks now and then whether what was announced has come.
    async fn expire(&self) {
        loop {
            sleep(EXPIRE).await;
            self.reported.expire();
        }
    }

    async fn reconcile(&self, name: String) -> Result<Next, Error> {
        let Some(head) = self.writer.known.clusters.get(&Key::cluster_scoped(name.as_str())) else {
            self.expect(&name, Expected::default());
            return Ok(Next::Done);
        };
        let is_mute = tells(&head) && head.reporting() && self.reported.is_mute(&name);
        let wanted = match tells(&head) && !is_mute {
            true => self.reported.searched.followed_on(&head.cluster),
            false => BTreeSet::new(),
        };
        let question = told::question(&wanted);
        if is_mute {
            tracing::info!(
                cluster = name,
                "its agent tells nothing of what is searched on its member, and is asked no more"
            );
        } else {
            let uid = head.cluster.metadata.uid.clone().unwrap_or_default();
            let (heard, paid) = (head.reporting(), is_paid(&head));
            self.expect(&name, Expected { uid, wanted, heard, paid });
        }
        if head.annotation(extension::SEARCHED) == question.as_deref() && !is_mute {
            return Ok(Next::Done);
        }
        let change = |live: &mut Value| ask(live, question.as_deref(), is_mute);
        self.writer.objects.modify(&CLUSTERS, &Key::cluster_scoped(name), Part::Main, change).await?;
        Ok(Next::Done)
    }

    /// See [`Reported::expect`].
    fn expect(&self, name: &str, expected: Expected) {
        let dropped = self.reported.expect(name, expected);
        if !dropped.is_empty() {
            drop(spawn_blocking(move || drop(dropped)));
        }
    }
}

/// Writes a question, or that nothing is asked; of a mute agent also that it does not tell. Whether that is something else than what
/// stood there.
fn ask(live: &mut Value, question: Option<&str>, is_mute: bool) -> bool {
    let says_too_much = is_mute && object::annotation(live, extension::SEARCH_COPIES).is_some();
    if object::annotation(live, extension::SEARCHED) == question && !says_too_much {
        return false;
    }
    if says_too_much {
        drop(object::remove_annotation(live, extension::SEARCH_COPIES));
    }
    match question {
        Some(question) => object::set_annotation(live, extension::SEARCHED, question),
        None => drop(object::remove_annotation(live, extension::SEARCHED)),
    }
    true
}

#[cfg(test)]
mod tests;
