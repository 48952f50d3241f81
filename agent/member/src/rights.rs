//! What an agent may do now: each right for itself, published, and waited for by the loops that need it.
//!
//! | right | needs |
//! |---|---|
//! | apply: keep what is known to be wanted as it is wanted | the member's Lease, and that the member is the one that it was |
//! | report: speak for the cluster on the hub, and hear what is wanted | the hub's Lease, and a Cluster that is ours |
//! | delete: take away what is wanted no more | both, and a hub that does not know less than this agent |
//!
//! The loops that decide say what they have found, the others look at what follows from it. So a right that is lost takes
//! nothing else along: without a Cluster what is known to be wanted is kept, and an agent that another has replaced on the
//! hub goes on healing until the other one has the member's Lease, too.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use karmada_client::latest;
use karmada_core::health::Moment;
use karmada_env::Env;
use parking_lot::Mutex;

/// Where an agent is in its life, in a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Looks for the hub, the member, or its Cluster.
    Joining,
    /// May not go on, and why. Tried again now and then: somebody may resolve it.
    Refused(Arc<str>),
    /// Another agent of this name is at work.
    StandingBy,
    /// At work.
    Active,
    /// The Cluster was deleted on the hub. What runs here is kept as it is; whether there is a Cluster again is asked now
    /// and then.
    Removed,
}

/// What [`Phase::Removed`] means, for people.
const REMOVED: &str = "the Cluster was deleted on the hub: from now on this agent applies, deletes and reports nothing; \
    restart the agent to register again";

impl Phase {
    /// Why the agent is not at work, for people, where that is for somebody to resolve.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Refused(why) => Some(why),
            Self::Removed => Some(REMOVED),
            Self::Joining | Self::StandingBy | Self::Active => None,
        }
    }

    /// A word for logs and metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Refused(_) => "refused",
            Self::StandingBy => "standing-by",
            Self::Active => "active",
            Self::Removed => "removed",
        }
    }
}

/// What is known of our Cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Registration {
    /// Nothing yet.
    #[default]
    Unknown,
    /// There is one, and it is ours.
    Ours,
    /// There is one that is another's, and why that is so.
    Refused(Arc<str>),
    /// It was deleted.
    Removed,
    /// Another's was deleted: the name is free, and to be registered.
    Vacant,
}

impl Registration {
    /// Whether it is known that there is no Cluster of ours.
    fn is_withdrawn(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Removed | Self::Vacant)
    }
}

/// Who holds a Lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Claim {
    /// That is not known, or not any more.
    #[default]
    Unknown,
    /// This agent.
    Held,
    /// Another agent of this name.
    Others,
}

/// All that rights follow from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    cluster: Registration,
    /// The Lease on the hub.
    hub: Claim,
    /// The Lease on the member.
    member: Claim,
    /// Another agent holds the member's Lease, and says that it does not hear the hub.
    stands_in: bool,
    /// There is no Lease on the member: the hub's has to do.
    leaseless: bool,
    /// Our Cluster was deleted, and there has been none of ours since.
    left: bool,
    /// The hub knows less than this agent does, and nobody has said that it counts all the same.
    doubted: bool,
    /// Another cluster answers in the member's place, and which.
    stranger: Option<Arc<str>>,
}

impl Standing {
    /// Whether there is no Cluster of this member's: none at all, or another's, or another member.
    pub fn is_withdrawn(&self) -> bool {
        self.cluster.is_withdrawn() || self.is_on_stranger()
    }

    /// Whether another cluster answers in the member's place: nothing is for it.
    pub fn is_on_stranger(&self) -> bool {
        self.stranger.is_some()
    }

    /// Whether what is known to be wanted may be kept so.
    pub fn may_apply(&self) -> bool {
        self.member == Claim::Held && !self.is_replaced() && !self.is_on_stranger()
    }

    /// Whether the hub says that another agent is at work, where nothing else does.
    fn is_replaced(&self) -> bool {
        self.leaseless && self.hub == Claim::Others
    }

    /// Whether this agent speaks for the cluster.
    pub fn may_report(&self) -> bool {
        self.cluster == Registration::Ours && self.hub == Claim::Held && !self.is_on_stranger()
    }

    /// Whether something may be taken away.
    pub fn may_delete(&self) -> bool {
        self.is_active() && !self.doubted
    }

    fn is_active(&self) -> bool {
        self.may_apply() && self.may_report()
    }

    /// Whether the hub's Lease may be asked for: it goes with the member's, unless who holds that does not hear the hub.
    pub fn may_claim_hub(&self) -> bool {
        !self.is_withdrawn() && (self.member != Claim::Others || self.stands_in)
    }

    /// Whether everything is another agent's: then whatever is known gets old.
    pub fn stands_aside(&self) -> bool {
        (self.member == Claim::Others && self.hub != Claim::Held) || self.is_replaced()
    }

    fn phase(&self) -> Phase {
        if let Some(why) = &self.stranger {
            return Phase::Refused(Arc::clone(why));
        }
        match &self.cluster {
            Registration::Refused(why) => Phase::Refused(why.clone()),
            Registration::Removed => Phase::Removed,
            _ if self.is_active() => Phase::Active,
            _ if self.member == Claim::Others || self.hub == Claim::Others => Phase::StandingBy,
            Registration::Unknown | Registration::Ours | Registration::Vacant => Phase::Joining,
        }
    }

    /// Whether the name is free that another had.
    fn is_vacant(&self) -> bool {
        self.cluster == Registration::Vacant
    }

    /// There is no Cluster of that name. Whoever deletes ours wants us to leave; whoever deletes another's gives the name
    /// back to us.
    fn gone(&mut self) {
        let others = matches!(self.cluster, Registration::Refused(_) | Registration::Vacant);
        self.left |= !others;
        self.found(if self.left { Registration::Removed } else { Registration::Vacant });
    }

    /// What answers in the member's place is another cluster, or the member again. What the hub's Lease says holds for the
    /// member alone.
    fn meets(&mut self, stranger: Option<Arc<str>>) {
        if stranger.is_some() {
            self.hub = Claim::Unknown;
        }
        self.stranger = stranger;
    }

    /// A Cluster was found, or not. Without one of ours the hub's Lease counts for nothing: it is asked for anew.
    fn found(&mut self, cluster: Registration) {
        if cluster.is_withdrawn() {
            self.hub = Claim::Unknown;
        }
        if cluster == Registration::Ours {
            self.left = false;
        }
        self.cluster = cluster;
    }

    /// Somebody holds the hub's Lease. Of one that may not be asked for any more an answer says nothing.
    fn hub_is(&mut self, claim: Claim) {
        if self.may_claim_hub() {
            self.hub = claim;
        }
    }

    /// Somebody holds the member's Lease; `stands_in` is for another that does not hear the hub.
    fn member_is(&mut self, claim: Claim, stands_in: bool) {
        self.member = claim;
        self.leaseless = false;
        self.stands_in = claim == Claim::Others && stands_in;
        if !self.may_claim_hub() {
            self.hub = Claim::Unknown;
        }
    }
}

/// The rights, to be set by the loops that decide and awaited by the others.
#[derive(Clone, Debug)]
pub struct Rights {
    env: Env,
    standing: latest::Sender<Standing>,
    phase: latest::Sender<Phase>,
    more: Arc<Mutex<More>>,
    /// How much is being done on the member.
    working: Arc<AtomicUsize>,
    /// The Cluster goes because this process was told to leave.
    leaves: Arc<AtomicBool>,
}

/// Something is being done on the member.
#[derive(Debug)]
pub struct AtWork(Arc<AtomicUsize>);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What nobody waits for.
#[derive(Debug, Default)]
struct More {
    /// Until when the member's Lease is good for, if that is limited: see [`Rights::member_held`].
    held_until: Option<Moment>,
    /// [`Env::now`] when the hub has last taken a renewal.
    heard: Option<Duration>,
    /// Which agent had the member's Lease before this one.
    predecessor: Option<String>,
    /// The uid of the member's Namespace kube-system, as it was first seen.
    member: Option<String>,
}

impl Rights {
    pub fn new(env: Env) -> Self {
        Self {
            env,
            standing: latest::Sender::default(),
            phase: latest::Sender::new(Phase::Joining),
            more: Arc::default(),
            working: Arc::default(),
            leaves: Arc::default(),
        }
    }

    /// This process was told to leave: that the Cluster goes is what is wanted, and nothing to warn of.
    pub fn leave(&self) {
        self.leaves.store(true, Ordering::Relaxed);
    }

    /// Whether it was ([`Self::leave`]).
    pub fn leaves(&self) -> bool {
        self.leaves.load(Ordering::Relaxed)
    }

    pub fn env(&self) -> &Env {
        &self.env
    }

    /// The phase as it changes.
    pub fn phases(&self) -> latest::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// What rights follow from, as it changes.
    pub fn subscribe(&self) -> latest::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// The hub has a Cluster of ours, or one that is not.
    pub fn cluster_is(&self, cluster: Registration) {
        self.change(|standing| standing.found(cluster));
    }

    /// The hub has none.
    pub fn cluster_is_gone(&self) {
        self.change(Standing::gone);
    }

    /// The hub knows less than this agent does, or is believed.
    pub fn hub_is_doubted(&self, doubted: bool) {
        self.change(|standing| standing.doubted = doubted);
    }

    /// Somebody holds the hub's Lease.
    pub fn hub_is(&self, claim: Claim) {
        if claim == Claim::Held {
            let mut more = self.more.lock();
            more.heard = Some(self.env.now());
            more.predecessor = None;
        }
        self.change(|standing| standing.hub_is(claim));
    }

    /// The uid of the Namespace kube-system by which this process knows its member, once that was seen.
    pub fn member_id(&self) -> Option<String> {
        self.more.lock().member.clone()
    }

    /// What answers in the member's place has a Namespace kube-system of this uid. Says so if that is not the member that was
    /// seen first: nothing is applied on another, nor reported of it.
    pub fn meets_member(&self, uid: &str) -> Option<Arc<str>> {
        if uid.is_empty() {
            return None;
        }
        let known = self.more.lock().member.get_or_insert_with(|| uid.to_owned()).clone();
        let stranger = (known != uid).then(|| Arc::<str>::from(another_member(&known, uid)));
        self.change(|standing| standing.meets(stranger.clone()));
        stranger
    }

    /// The member's Lease is ours until then, on either clock; without an end where nobody keeps one.
    pub fn member_held(&self, until: Option<Moment>) {
        self.more.lock().held_until = until;
        self.change(|standing| {
            standing.member_is(Claim::Held, false);
            standing.leaseless = until.is_none();
        });
    }

    /// The member's Lease was taken from this agent, which counts on the hub no more, either.
    pub fn member_taken_from(&self, predecessor: &str) {
        self.more.lock().predecessor = Some(predecessor.to_owned()).filter(|name| !name.is_empty());
    }

    /// Another agent holds the member's Lease; `stands_in` says that it does not hear the hub.
    pub fn member_lost(&self, stands_in: bool) {
        self.more.lock().predecessor = None;
        self.change(|standing| standing.member_is(Claim::Others, stands_in));
    }

    /// Who holds the member's Lease is not known any more.
    pub fn member_unknown(&self) {
        self.change(|standing| {
            if standing.member == Claim::Held {
                standing.member_is(Claim::Unknown, false);
            }
        });
    }

    /// Which agent had the member's Lease before this one, until the hub's is ours.
    pub fn predecessor(&self) -> Option<String> {
        self.more.lock().predecessor.clone()
    }

    /// Whether the hub has taken no renewal for so long.
    pub fn is_unheard_for(&self, time: Duration) -> bool {
        let heard = self.more.lock().heard;
        heard.is_none_or(|heard| self.env.now().saturating_sub(heard) >= time)
    }

    /// [`Env::now`] when the hub has last taken a renewal.
    pub fn heard(&self) -> Option<Duration> {
        self.more.lock().heard
    }

    /// Takes note of a deed on the member for as long as the answer lives.
    pub fn at_work(&self) -> AtWork {
        self.working.fetch_add(1, Ordering::AcqRel);
        AtWork(Arc::clone(&self.working))
    }

    /// Waits until nothing is being done on the member, but no longer than this. Whether that is so.
    pub async fn at_rest(&self, limit: Duration) -> bool {
        let end = self.env.now() + limit;
        while self.working.load(Ordering::Acquire) > 0 {
            if self.env.now() >= end {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        true
    }

    fn change(&self, change: impl FnOnce(&mut Standing)) {
        let mut now = None;
        self.standing.send_if_modified(|standing| {
            let before = standing.clone();
            change(standing);
            now = Some(standing.phase());
            *standing != before
        });
        let Some(now) = now else { return };
        self.phase.send_if_modified(|phase| {
            if *phase == now {
                return false;
            }
            match &now {
                Phase::Refused(why) => tracing::error!(%why, "this agent may not work for this Cluster"),
                Phase::Removed if self.leaves() => {
                    tracing::info!("the Cluster has gone from the hub");
                }
                Phase::Removed => tracing::warn!("{REMOVED}"),
                other => tracing::info!(from = phase.as_str(), to = other.as_str(), "phase"),
            }
            *phase = now;
            true
        });
    }

    /// Whether there is no Cluster of ours.
    pub fn is_withdrawn(&self) -> bool {
        self.standing.borrow().is_withdrawn()
    }

    /// Whether what is known to be wanted may be kept so. A machine that slept finds its right over.
    pub fn may_apply(&self) -> bool {
        let until = self.more.lock().held_until;
        self.standing.borrow().may_apply() && until.is_none_or(|until| !is_over(until, moment(&self.env)))
    }

    /// Whether this agent speaks for the cluster.
    pub fn may_report(&self) -> bool {
        self.standing.borrow().may_report()
    }

    /// Whether something may be taken away.
    pub fn may_delete(&self) -> bool {
        self.may_apply() && self.standing.borrow().may_delete()
    }

    /// Waits until the hub has a Cluster of ours.
    pub async fn registered(&self) {
        self.when(|standing| standing.cluster == Registration::Ours).await;
    }

    /// Waits until there is no Cluster of ours any more.
    pub async fn withdrawn(&self) {
        self.when(Standing::is_withdrawn).await;
    }

    /// Waits until the name is free that another had.
    pub async fn vacant(&self) {
        self.when(Standing::is_vacant).await;
    }

    /// Waits until this agent may keep what is known to be wanted.
    pub async fn applying(&self) {
        self.when(Standing::may_apply).await;
    }

    /// Waits until this agent speaks for the cluster.
    pub async fn reporting(&self) {
        self.when(Standing::may_report).await;
    }

    /// Waits until this is so.
    pub async fn when(&self, is: impl Fn(&Standing) -> bool) {
        let mut standing = self.standing.subscribe();
        if standing.wait_for(is).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// What to say of a cluster that is not the member that was known.
pub fn another_member(known: &str, uid: &str) -> String {
    format!(
        "another cluster answers in the member's place: its id (the uid of its kube-system namespace) is {uid}, and the \
         member's is {known}. Nothing is applied there. Let --kubeconfig lead to the member, or, if that was made anew, \
         delete its Cluster on the hub and restart the agent"
    )
}

/// This moment.
pub fn moment(env: &Env) -> Moment {
    Moment {
        monotonic: env.now(),
        wall: env.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default(),
    }
}

/// Whether a moment has passed, on either clock: one of them may have stood still.
pub fn is_over(until: Moment, now: Moment) -> bool {
    now.monotonic >= until.monotonic || now.wall >= until.wall
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_right_needs_its_own() {
        use Claim::{Held, Others, Unknown};
        let ours = Registration::Ours;
        let refused = Registration::Refused("why".into());
        // (Cluster, hub's Lease, member's Lease, its holder does not hear the hub, rights, phase)
        let rows = [
            (Registration::Unknown, Unknown, Unknown, false, "claim", "joining"),
            // A start without the hub: what is known is kept.
            (Registration::Unknown, Unknown, Held, false, "apply claim", "joining"),
            (ours.clone(), Unknown, Held, false, "apply claim", "joining"),
            (ours.clone(), Held, Held, false, "apply report delete claim", "active"),
            (ours.clone(), Held, Unknown, false, "report claim", "joining"),
            // Another has taken over on the hub, and does not act here yet.
            (ours.clone(), Others, Held, false, "apply claim", "standing-by"),
            (ours.clone(), Unknown, Others, false, "aside", "standing-by"),
            (ours.clone(), Unknown, Others, true, "claim aside", "standing-by"),
            (ours, Held, Others, true, "report claim", "standing-by"),
            (Registration::Removed, Unknown, Held, false, "apply", "removed"),
            (refused, Unknown, Held, false, "apply", "refused"),
            (Registration::Removed, Unknown, Others, true, "aside", "removed"),
        ];
        for (cluster, hub, member, stands_in, rights, phase) in rows {
            let mut standing = Standing::default();
            standing.found(cluster);
            standing.member_is(member, stands_in);
            standing.hub_is(hub);
            let all = [
                ("apply", standing.may_apply()),
                ("report", standing.may_report()),
                ("delete", standing.may_delete()),
                ("claim", standing.may_claim_hub()),
                ("aside", standing.stands_aside()),
            ];
            let got: Vec<_> = all.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect();
            assert_eq!((got.join(" ").as_str(), standing.phase().as_str()), (rights, phase), "{standing:?}");
        }
    }

    #[test]
    fn under_a_hub_that_is_not_believed_nothing_is_taken_away() {
        let rights = Rights::new(Env::system());
        rights.cluster_is(Registration::Ours);
        rights.member_held(None);
        rights.hub_is(Claim::Held);
        for doubted in [false, true, false] {
            rights.hub_is_doubted(doubted);
            assert_eq!((rights.may_apply(), rights.may_report()), (true, true));
            assert_eq!(rights.may_delete(), !doubted);
        }
    }

    #[test]
    fn on_another_member_nothing_may_be_done() {
        let rights = Rights::new(Env::system());
        assert_eq!(rights.meets_member("u"), None);
        rights.cluster_is(Registration::Ours);
        rights.member_held(None);
        rights.hub_is(Claim::Held);
        assert!(rights.may_apply() && rights.may_delete());
        assert!(rights.meets_member("v").is_some());
        assert!(!rights.may_apply() && !rights.may_report() && !rights.may_delete());
        assert!(matches!(&*rights.phases().borrow(), Phase::Refused(why) if why.contains(" v,")));
        // Which one it is cannot be told.
        rights.meets_member("");
        assert!(!rights.may_apply());
        assert_eq!(rights.meets_member("u"), None);
        assert!(rights.may_apply() && !rights.may_report(), "the hub's Lease is asked for anew");
        rights.hub_is(Claim::Held);
        assert_eq!(*rights.phases().borrow(), Phase::Active);
        assert_eq!(rights.member_id().as_deref(), Some("u"));
    }

    #[test]
    fn the_name_is_asked_for_again_when_it_was_anothers() {
        let refused = Registration::Refused("why".into());
        for (cluster, then) in [
            (Registration::Ours, "removed"),
            (Registration::Removed, "removed"),
            (Registration::Unknown, "removed"),
            (refused, "joining"),
            (Registration::Vacant, "joining"),
        ] {
            let mut standing = Standing { cluster: cluster.clone(), ..Standing::default() };
            standing.gone();
            assert_eq!(standing.phase().as_str(), then, "{cluster:?}");
            assert!(standing.is_withdrawn() && !standing.may_report());
        }
        // Who was told to leave does not come back because another, which had the name since, has left, too.
        let mut standing = Standing::default();
        for ours in [false, true] {
            standing.found(Registration::Ours);
            if !ours {
                standing.gone();
            }
            standing.found(Registration::Refused("why".into()));
            standing.gone();
            assert_eq!(standing.phase().as_str(), if ours { "joining" } else { "removed" });
        }
    }

    #[test]
    fn where_there_is_no_lease_on_the_member_the_hubs_has_to_do() {
        let mut standing = Standing::default();
        standing.found(Registration::Ours);
        standing.member_is(Claim::Held, false);
        standing.leaseless = true;
        for (hub, applies) in [(Claim::Unknown, true), (Claim::Held, true), (Claim::Others, false)] {
            standing.hub_is(hub);
            assert_eq!((standing.may_apply(), standing.stands_aside()), (applies, !applies), "{hub:?}");
        }
    }

    #[test]
    fn what_was_held_is_asked_for_anew_after_a_cluster_came_back() {
        let mut standing = Standing::default();
        standing.found(Registration::Ours);
        standing.hub_is(Claim::Held);
        standing.member_is(Claim::Held, false);
        standing.found(Registration::Removed);
        standing.hub_is(Claim::Held);
        standing.found(Registration::Ours);
        assert_eq!(standing.phase(), Phase::Joining);
        standing.hub_is(Claim::Held);
        assert_eq!(standing.phase(), Phase::Active);
        standing.member_is(Claim::Others, false);
        standing.member_is(Claim::Held, false);
        assert_eq!(standing.phase(), Phase::Joining, "whoever loses the member's Lease loses the hub's");
    }

    #[test]
    fn a_lease_is_over_when_either_clock_says_so() {
        let moment = |monotonic, wall| Moment {
            monotonic: Duration::from_secs(monotonic),
            wall: Duration::from_secs(wall),
        };
        let until = moment(20, 120);
        for (now, over) in [
            (moment(10, 110), false),
            (moment(20, 110), true),
            (moment(10, 500), true),
            (moment(10, 10), false),
        ] {
            assert_eq!(is_over(until, now), over, "{now:?}");
        }
    }
}
