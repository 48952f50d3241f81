//! What providers have collected, on its way to consumers.

use std::{
    collections::BTreeSet,
    ops::Bound::{Excluded, Unbounded},
    sync::Arc,
    time::Duration,
};

use karmada_api::consts::{component, event, finalizer};
use karmada_client::Error;
use karmada_core::{
    names,
    services::{ServiceName, multi, slices},
};
use karmada_meta::object;
use karmada_objects::{Part, key::Key, kinds::WORKS};
use serde_json::Value;
use tokio::task::yield_now;

use super::{
    super::{super::Next, paces, silence::Standing},
    Multi, PATIENCE, key_of,
};
use crate::{
    known::heads::{Carries, MultiHead, SliceHead, WorkHead},
    write::works::{self, Made, Maker},
};

/// So many Works are written at one go: those of other clusters have their turn then.
const PIECE: usize = 250;
/// So many are looked at at one go.
const AT_ONE_GO: usize = 64;

/// Where a slice goes on a consumer.
struct Place {
    /// Its Work.
    at: Key,
    /// Its name on the member.
    name: String,
}

/// How far a pass over the consumers of a collected Work has come, when it is another one's turn.
#[derive(Debug)]
pub(super) struct Pass {
    /// The last consumer that was seen to.
    behind: String,
    /// What these get has no endpoint that takes requests.
    withdrawn: BTreeSet<String>,
}

/// What a collected Work brings to consumers.
struct Dispatch {
    provider: String,
    service: ServiceName,
    slices: Vec<Value>,
    consumers: BTreeSet<String>,
    /// Those of them where its endpoints take no requests, because their provider is silent.
    withdrawn: BTreeSet<String>,
    again: Option<Duration>,
}

/// Why a collected Work brings nothing to anybody.
struct Refusal {
    why: String,
    /// The MultiClusterService that says so, too.
    service: Option<Key>,
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self { why, service: None }
    }
}

/// Whether consumers have endpoints by a Work that take requests.
fn takes(head: &WorkHead) -> bool {
    !head.deleting && head.slice.as_ref().is_some_and(|slice| slice.ready > 0)
}

impl Multi {
    /// What a collected Work is to bring to consumers, or why nothing.
    fn wanted(&self, source: &Key, live: &Value) -> Result<Option<Dispatch>, Refusal> {
        let Some(provider) = names::cluster_of_namespace(&source.namespace) else { return Ok(None) };
        let Some(service) = slices::multi(live).filter(|_| object::deletion_timestamp(live).is_none()) else {
            return Ok(None);
        };
        if !slices::asked(live).multi_cluster {
            return Ok(None);
        }
        let head = self.context.known.multi.get(&key_of(&service));
        if head.as_ref().is_some_and(|head| head.deleting) {
            // Its agent is about to hear of it.
            return Ok(None);
        }
        let Some((head, spec)) = head.as_ref().and_then(|head| Some((head, head.spec.as_ref()?))) else {
            return Err(format!("there is no MultiClusterService {service}").into());
        };
        if !spec.is_cross_cluster() || !spec.is_provided_by(provider) {
            return Err(format!("cluster {provider} is no provider of MultiClusterService {service}").into());
        }
        let told = self
            .rooms
            .counts(&self.context, source, (provider, &service))
            .and_then(|()| slices::told(live, &service))
            .map_err(|why| Refusal { why, service: Some(key_of(&service)) })?;
        let mut consumers = self.clusters(multi::Spec::named(&spec.consumer_clusters));
        consumers.remove(provider);
        let (withdrawn, again) = self.withdrawn((provider, source), &service, head, &consumers);
        let slices = told.into_iter().cloned().collect();
        Ok(Some(Dispatch { provider: provider.to_owned(), service, slices, consumers, withdrawn, again }))
    }

    /// On which consumers the endpoints of a provider are withdrawn, and when to ask again. Never the last ones, nor while so many
    /// clusters are silent that the hub may be the one that is cut off.
    fn withdrawn(
        &self,
        (provider, source): (&str, &Key),
        service: &ServiceName,
        head: &MultiHead,
        consumers: &BTreeSet<String>,
    ) -> (BTreeSet<String>, Option<Duration>) {
        match self.silence.standing(provider, head.withdraw_after) {
            Standing::InUse(again) => (BTreeSet::new(), again),
            Standing::AsItIs(wait) => (self.withdrawn_on(source), Some(wait)),
            Standing::Due(wait) => {
                let already = self.withdrawn_on(source);
                (self.served_by_others(provider, service, head, (consumers, &already)), Some(wait))
            }
        }
    }

    /// The consumers that have endpoints of a provider's Service which are not this one's. Where its own are withdrawn already, those
    /// count of all that are not known to be silent; else of such as have just been heard.
    fn served_by_others(
        &self,
        provider: &str,
        service: &ServiceName,
        head: &MultiHead,
        (consumers, already): (&BTreeSet<String>, &BTreeSet<String>),
    ) -> BTreeSet<String> {
        let works = &self.context.known.works;
        let provides = |cluster: &str| head.spec.as_ref().is_some_and(|spec| spec.is_provided_by(cluster));
        let mut served = BTreeSet::new();
        for (work, told) in works.group(&SliceHead::of_multi(service)) {
            let cluster = names::cluster_of_namespace(&work.namespace).unwrap_or_default();
            let is_collected = told.slice.as_ref().is_some_and(|slice| slice.carries == Carries::Collected);
            if !is_collected || !takes(&told) || cluster == provider || !provides(cluster) {
                continue;
            }
            if self.silence.since(cluster).is_some() {
                continue;
            }
            let is_certain = self.silence.was_just_heard(cluster);
            let mut serves = |consumer: &str| {
                if consumers.contains(consumer) && (is_certain || already.contains(consumer)) {
                    served.insert(consumer.to_owned());
                }
            };
            // What a Work tells may be nothing that counts: consumers have it, or it is their own.
            serves(cluster);
            for (at, brought) in works.group(&SliceHead::of_source(&work)) {
                if takes(&brought) {
                    serves(names::cluster_of_namespace(&at.namespace).unwrap_or_default());
                }
            }
            if served.len() == consumers.len() {
                break;
            }
        }
        served
    }

    /// The consumers that have what a Work tells with no endpoint that takes requests.
    fn withdrawn_on(&self, source: &Key) -> BTreeSet<String> {
        let known = &self.context.known.works;
        if known.get(source).is_none_or(|head| !takes(&head)) {
            return BTreeSet::new();
        }
        let brought = known.group(&SliceHead::of_source(source)).into_iter();
        let without = brought.filter(|(_, head)| !head.deleting && !takes(head));
        without.filter_map(|(at, _)| names::cluster_of_namespace(&at.namespace).map(str::to_owned)).collect()
    }

    /// Where a slice goes on a consumer, and its name there: Karmada's, unless that is another provider's. One that has the
    /// other name keeps it. Beside that the other place, if Karmada's turns out to be taken.
    fn place(
        &self,
        (wanted, source): (&Dispatch, &Key),
        consumer: &str,
        slice: &str,
    ) -> (Place, Option<Place>) {
        let of = |name: String| {
            let work = multi::dispatched_work(&wanted.service.namespace, &name);
            let at = Key::new(names::execution_namespace(consumer), work);
            let known = self.context.known.works.get(&at);
            let ours = known.map(|head| {
                let slice = head.slice.as_ref();
                slice.is_some_and(|slice| slice.brings(source, &wanted.service))
            });
            (Place { at, name }, ours)
        };
        let (usual, is_usual) = of(multi::dispatched_name(&wanted.provider, slice));
        let (other, is_other) = of(multi::other_name(&wanted.provider, slice));
        match (is_other, is_usual) {
            (Some(true), _) | (_, Some(false)) => (other, None),
            _ => (usual, Some(other)),
        }
    }

    /// How long what a Work tells is to wait: an agent may tell of something else without end, and each time there is one write for
    /// each consumer. What takes endpoints back, because their provider is silent, does not wait.
    async fn held(
        &self,
        source: &Key,
        content: u64,
        wanted: &Dispatch,
        made: &[(Key, Arc<WorkHead>)],
    ) -> Result<Option<Duration>, Error> {
        let wait = |lost| self.paces.wait(source, content, wanted.consumers.len(), lost);
        let waits = wait(false);
        if waits.is_zero() {
            return Ok(None);
        }
        let is_withdrawn = |at: &Key| {
            names::cluster_of_namespace(&at.namespace).is_some_and(|at| wanted.withdrawn.contains(at))
        };
        if made.iter().any(|(at, head)| takes(head) && is_withdrawn(at)) {
            return Ok(None);
        }
        let lost = wait(true);
        if lost < waits
            && let Some((brought, _)) = made.iter().find(|(_, head)| takes(head))
            && let Some(brought) = self.context.writer.objects.get(&WORKS, brought).await?
            && paces::is_lost(&wanted.slices, brought.pointer("/spec/workload/manifests/0"))
        {
            return Ok(Some(lost).filter(|lost| !lost.is_zero()));
        }
        Ok(Some(waits))
    }

    pub(super) async fn dispatch(&self, source: Key) -> Result<Next, Error> {
        let objects = &self.context.writer.objects;
        let live = objects.get(&WORKS, &source).await?;
        let made = self.context.known.works.group(&SliceHead::of_source(&source));
        let mut kept: BTreeSet<Key> = BTreeSet::new();
        let wanted = match live.as_ref().map(|live| self.wanted(&source, live)) {
            None => {
                self.said.forget(&source);
                None
            }
            Some(Ok(wanted)) => {
                self.said.forget(&source);
                wanted
            }
            Some(Err(Refusal { why, service })) => {
                if let Some(service) = service {
                    self.note(&service, &source, &source, &Made::Refused(why.clone()));
                    kept.insert(source.clone());
                }
                let nothing = made.is_empty();
                if let Some(work) = live.as_ref().filter(|_| nothing && self.said.is_new(&source, &why)) {
                    tracing::info!(work = %source, why, "what an agent tells of a Service does not count");
                    self.context.writer.warning(
                        component::ENDPOINT_SLICE,
                        work,
                        event::ENDPOINT_SLICE_REFUSED,
                        why,
                    );
                }
                None
            }
        };
        let mut next = Next::Done;
        let mut written = 0;
        if wanted.is_none() {
            self.paces.take_back(&source);
            self.passes.lock().remove(&source);
        }
        // Works of consumers that nobody has seen to this time stay as they are.
        let mut seen: Box<dyn Fn(&str) -> bool + Send + Sync> = Box::new(|_| true);
        if let (Some(wanted), Some(live)) = (&wanted, &live) {
            let service = key_of(&wanted.service);
            let maker = Maker::Slice(&wanted.service, &source);
            let (content, count) = (paces::content(live), wanted.consumers.len());
            let pass = self.passes.lock().remove(&source);
            let pass = pass.filter(|pass| pass.withdrawn == wanted.withdrawn);
            let held = match &pass {
                Some(_) => None,
                None => self.held(&source, content, wanted, &made).await?,
            };
            let from = pass.as_ref().map_or(Unbounded, |pass| Excluded(pass.behind.as_str()));
            let mut left = wanted.consumers.range::<str, _>((from, Unbounded)).take(match held {
                Some(_) => 0,
                None => usize::MAX,
            });
            let mut last = None;
            for (n, consumer) in left.by_ref().enumerate() {
                for slice in &wanted.slices {
                    let (mut place, other) = self.place((wanted, &source), consumer, object::name(slice));
                    let at = &place.at;
                    if self
                        .context
                        .known
                        .namespaces
                        .get(&Key::cluster_scoped(at.namespace.as_str()))
                        .is_none()
                    {
                        kept.insert(place.at);
                        next = next.sooner(PATIENCE);
                        continue;
                    }
                    let between = (wanted.provider.as_str(), consumer.as_str());
                    let withdrawn = wanted.withdrawn.contains(consumer);
                    let mut other = other;
                    let made = loop {
                        let build = |existing: Option<&Value>, id: &str| {
                            let slice = (slice, place.name.as_str());
                            multi::dispatched(slice, &wanted.service, between, withdrawn, existing, id)
                        };
                        let made = works::ensure(&self.context.writer, &place.at, &maker, build).await?;
                        match (&made, other.take()) {
                            // Another source was faster, of which the index does not know yet.
                            (Made::Taken(_), Some(other)) => {
                                self.note(&service, &source, &place.at, &Made::Unchanged);
                                place = other;
                            }
                            _ => break made,
                        }
                    };
                    if made == Made::Written {
                        written += 1;
                        if pass.is_none() {
                            self.paces.begin(&source, content, count);
                        }
                    }
                    self.note(&service, &source, &place.at, &made);
                    next = self.heed(next, &place.at, made);
                    kept.insert(place.at);
                }
                last = Some(consumer);
                if written >= PIECE {
                    break;
                }
                if n % AT_ONE_GO == AT_ONE_GO - 1 {
                    yield_now().await;
                }
            }
            let goes_on = left.next().is_some();
            if let Some(last) = last.filter(|_| goes_on) {
                let pass = Pass { behind: last.clone(), withdrawn: wanted.withdrawn.clone() };
                self.passes.lock().insert(source.clone(), pass);
            }
            if goes_on || pass.is_some() {
                // When all have been seen to once, what has changed in the meantime is looked for.
                next = Next::After(Duration::ZERO);
            }
            if let Some(wait) = held {
                next = next.sooner(wait);
            }
            if let Some(again) = wanted.again {
                next = next.sooner(again);
            }
            let (after, until) = (pass.map(|pass| pass.behind), last.cloned());
            let (consumers, held) = (&wanted.consumers, held.is_some());
            seen = Box::new(move |consumer| {
                let is_one = consumers.contains(consumer);
                let was_seen = after.as_deref().is_none_or(|after| consumer > after)
                    && until.as_deref().is_none_or(|until| consumer <= until || !goes_on);
                !is_one || !held && was_seen
            });
        }
        let was_seen = |work: &Key| names::cluster_of_namespace(&work.namespace).is_none_or(&seen);
        // What could not be brought where nothing is to be brought any more is wrong no more.
        let mended = self.faults.lock().keep(&source, |work| kept.contains(work) || !was_seen(work));
        mended.into_iter().for_each(|service| self.told.add(service));
        let mut gone = 0;
        for (work, head) in made.iter().filter(|(work, _)| !kept.contains(work)) {
            if !was_seen(work) {
                continue;
            }
            if !head.deleting && self.delete(work).await? {
                gone += 1;
            }
            if gone >= PIECE {
                return Ok(Next::After(Duration::ZERO));
            }
        }
        let Some(live) = live else {
            self.left.lock().remove(&source);
            return Ok(next);
        };
        if let Some(again) = self.take_back(&source, &live).await? {
            next = next.sooner(again);
        }
        let finalizer = finalizer::MCS_ENDPOINT_SLICE_DISPATCH;
        let ended =
            |work: &Value| object::deletion_timestamp(work).is_some() || !slices::asked(work).multi_cluster;
        if wanted.is_none() && ended(&live) && object::finalizers(&live).contains(&finalizer) {
            let uid = object::uid(&live).to_owned();
            let release = |live: &mut Value| {
                object::uid(live) == uid && ended(live) && object::remove_finalizer(live, finalizer)
            };
            objects.modify(&WORKS, &source, Part::Main, release).await?;
        }
        Ok(next)
    }

    /// Notes how making a Work of a collected one went.
    fn note(&self, service: &Key, source: &Key, work: &Key, made: &Made) {
        let why = match made {
            Made::Taken(why) | Made::TooLarge(why) | Made::Refused(why) => Some(why.as_str()),
            Made::Unchanged | Made::Written | Made::Going | Made::Withheld(_) => None,
        };
        let news = self.faults.lock().note(service, source, work, why);
        news.into_iter().for_each(|service| self.told.add(service));
    }
}
