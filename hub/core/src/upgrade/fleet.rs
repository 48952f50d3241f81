//! How the clusters stand to a version, and what each is offered.

use std::fmt;

use karmada_meta::time::Time;

use super::{Offer, Report, Stands, Version, Way, next_step, request::Request};
use crate::rollout::{Fact, Gets, Phase, Seen, State};

/// What is known of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Known<'a> {
    /// The version that its agent reports.
    pub version: Option<&'a str>,
    /// What its agent says about upgrades.
    pub report: Option<Report>,
    /// What it is offered now.
    pub offer: Option<Offer>,
    /// When its Cluster was made.
    pub born: Option<Time>,
    /// The hub itself works on its member.
    pub pushed: bool,
}

/// Why a version is none for a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Skip {
    /// It has it already.
    Has,
    /// There is no agent.
    Push,
    /// The agent does not say which version it is: it is another project's, or has not reported yet.
    Unknown,
    /// Its owner does not let the hub upgrade it.
    Off,
    /// It is no Pod, and no programs are named.
    NoProgram,
    /// It is newer.
    Newer,
    /// It has joined since, and gets it when all others have it.
    Joined,
    /// It has to take another version first.
    TooFar(String),
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Has => "had the version before",
            Self::Push => "have no agent (push mode)",
            Self::Unknown => "do not say which version their agent is",
            Self::Off => "take no versions from the hub (agent flag --upgrade)",
            Self::NoProgram => "are programs on machines, and the request names none for them (--program)",
            Self::Newer => "are newer",
            Self::Joined => "joined later, and get it when the last wave is done",
            Self::TooFar(why) => return f.write_str(why),
        })
    }
}

/// What is rolled out.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// What a person asks for.
    pub request: &'a Request,
    /// How far it is.
    pub state: &'a State,
}

impl Wanted<'_> {
    /// Since when it goes out; before its first wave there is no offer.
    pub fn begun(&self) -> Option<Time> {
        match self.state.phase {
            Phase::Complete => Some(self.state.began.unwrap_or(self.request.requested)),
            _ => self.state.began,
        }
    }

    /// What there is to say about it from a cluster; why it is none for that, otherwise.
    ///
    /// # Errors
    /// Why the version is none for this cluster.
    pub fn fact(&self, known: &Known<'_>) -> Result<Fact, Skip> {
        let name = &self.state.revision;
        let begun = self.begun();
        let is_it = |text: &str| text.parse::<Version>().ok().as_ref() == Some(&self.request.version);
        let has = known.version.is_some_and(is_it);
        let about = begun.and_then(|begun| known.report.as_ref()?.on(name, begun));
        if let Some(about) = about {
            if self.state.phase == Phase::Returned && about.stands == Stands::Returned {
                return Ok(Fact::Old);
            }
            let is_newer = || {
                let version = known.version.and_then(|text| text.parse::<Version>().ok());
                version.is_some_and(|version| version > self.request.version) && !self.request.downgrade
            };
            return Ok(Fact::New(match about.stands {
                // It is newer than this hub knew when it made the offer, as one that was restored from a backup does.
                Stands::Refused if is_newer() => return Err(Skip::Newer),
                // It is at it, has its place among those that are changing, and its time.
                Stands::Waiting if about.begins => Seen::Unsaid,
                // Of an agent that says no more somebody at the cluster may hold it back.
                Stands::Waiting => Seen::Held,
                Stands::Trying => Seen::Unwell,
                Stands::Committed if has => Seen::Well,
                Stands::Committed => Seen::Unwell,
                Stands::Returned | Stands::Refused => Seen::Failed,
            }));
        }
        let offer = known.offer.as_ref();
        let returned = self.state.phase == Phase::Returned;
        let is_ours = |offer: &Offer| offer.version == *name && Some(offer.begun) == begun;
        if offer.is_some_and(|offer| is_ours(offer) && (returned || !offer.returns)) {
            return Ok(Fact::New(Seen::Unsaid));
        }
        if known.pushed {
            return Err(Skip::Push);
        }
        let version = known.version.and_then(|text| text.parse::<Version>().ok()).ok_or(Skip::Unknown)?;
        if has {
            return Err(Skip::Has);
        }
        match known.report.as_ref().map(|report| report.way) {
            None => return Err(Skip::Off),
            Some(Way::Program) if self.request.programs.is_empty() => return Err(Skip::NoProgram),
            Some(Way::Program | Way::Deployment) => {}
        }
        let done = self.state.phase == Phase::Complete;
        if version > self.request.version && (done || !self.request.downgrade) {
            return Err(Skip::Newer);
        }
        if !done && known.born.is_none_or(|born| born > self.request.requested) {
            return Err(Skip::Joined);
        }
        match next_step(&version, &self.request.version) {
            Some(why) => Err(Skip::TooFar(why)),
            None => Ok(Fact::Old),
        }
    }

    /// What a cluster of a wave is to be offered that stands so, and which that has reached or not.
    pub fn offer(&self, (wave, reached): (usize, bool), fact: Fact, way: Option<Way>) -> Option<Offer> {
        let begun = self.begun()?;
        let began = match fact {
            Fact::Unconcerned => return None,
            Fact::Old => false,
            // It may have begun, and not have said so yet.
            Fact::New(Seen::Unsaid | Seen::Held) => self.state.phase == Phase::Returned,
            Fact::New(Seen::Unwell | Seen::Well | Seen::Failed) => true,
        };
        let revision = self.state.revision.as_str();
        let returns = match self.state.gets((wave, reached), Some(if began { revision } else { "" })) {
            Gets::Revision => false,
            // It goes back by itself, or has.
            _ if fact == Fact::New(Seen::Failed) => return None,
            _ if began => true,
            Gets::Kept(_) | Gets::Base => return None,
        };
        // When the last wave is done all that are left may take it.
        let waves = &self.state.waves;
        let wave = waves.get(wave).filter(|_| self.state.phase != Phase::Complete);
        let together =
            wave.map_or_else(|| waves.iter().map(|wave| wave.clusters).sum(), |wave| wave.clusters);
        let (version, request) = (revision.to_owned(), self.request);
        let (image, programs) = match way {
            Some(Way::Program) => (String::new(), request.programs.clone()),
            Some(Way::Deployment) | None => (request.image.clone(), Vec::new()),
        };
        let (downgrade, spread) = (request.downgrade, Offer::spread_of(together));
        Some(Offer { version, begun, image, programs, returns, downgrade, spread })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upgrade::{
        Mode, Program, Way,
        request::{REQUESTED, VERSION},
        told::About,
    };

    const BEGAN: &str = "2026-11-26T02:00:00Z";

    fn at(text: &str) -> Time {
        text.parse().unwrap()
    }

    fn request(version: &str, downgrade: bool) -> Request {
        let data = |key: &str| match key {
            VERSION => Some(version),
            REQUESTED => Some("2026-11-26T01:00:00Z"),
            _ => None,
        };
        Request { downgrade, ..Request::read(data).unwrap() }
    }

    fn state(phase: Phase, open: usize) -> State {
        State { revision: "0.6.0".to_owned(), phase, open, began: Some(at(BEGAN)), ..State::default() }
    }

    fn report(stands: Option<Stands>) -> Report {
        let about = |stands| About {
            version: "0.6.0".into(),
            begun: at(BEGAN),
            stands,
            why: String::new(),
            begins: false,
        };
        Report { mode: Mode::On, way: Way::Deployment, about: stands.map(about) }
    }

    fn old(version: &str) -> Known<'_> {
        Known {
            version: Some(version),
            report: Some(report(None)),
            born: Some(at("2026-01-01T00:00:00Z")),
            ..Known::default()
        }
    }

    #[test]
    fn what_a_cluster_says_decides_how_it_stands() {
        let says =
            |version: &'static str, stands| Known { report: Some(report(Some(stands))), ..old(version) };
        let offer = |returns| Offer {
            version: "0.6.0".into(),
            begun: at(BEGAN),
            image: String::new(),
            programs: Vec::new(),
            returns,
            downgrade: false,
            spread: 0,
        };
        let about_to = || {
            let mut known = says("0.5.0", Stands::Waiting);
            known.report.as_mut().unwrap().about.as_mut().unwrap().begins = true;
            known
        };
        let later = Known { born: Some(at("2026-11-26T01:00:01Z")), ..old("0.5.0") };
        let other = Known { offer: Some(Offer { begun: at(BEGAN).next(), ..offer(false) }), ..old("0.5.0") };
        let rows = [
            (old("0.5.0"), Ok(Fact::Old)),
            (old("0.4.1"), Ok(Fact::Old)),
            (old("0.6.0"), Err(Skip::Has)),
            (old("v0.6.0+x"), Err(Skip::Has)),
            (old("0.6.1"), Err(Skip::Newer)),
            (
                old("0.3.0"),
                Err(Skip::TooFar(
                    "from 0.3.0 to 0.6.0 are more than two minor versions: first to 0.5".into(),
                )),
            ),
            (Known { report: None, ..old("0.5.0") }, Err(Skip::Off)),
            (Known { version: None, ..old("") }, Err(Skip::Unknown)),
            (Known { pushed: true, ..Known::default() }, Err(Skip::Push)),
            (later, Err(Skip::Joined)),
            // Another attempt at the same version is another offer.
            (other, Ok(Fact::Old)),
            (Known { offer: Some(offer(false)), ..old("0.5.0") }, Ok(Fact::New(Seen::Unsaid))),
            (Known { offer: Some(offer(false)), ..old("0.6.0") }, Ok(Fact::New(Seen::Unsaid))),
            (Known { offer: Some(offer(true)), ..old("0.5.0") }, Ok(Fact::Old)),
            (says("0.5.0", Stands::Waiting), Ok(Fact::New(Seen::Held))),
            (about_to(), Ok(Fact::New(Seen::Unsaid))),
            (says("0.5.0", Stands::Trying), Ok(Fact::New(Seen::Unwell))),
            (says("0.6.0", Stands::Committed), Ok(Fact::New(Seen::Well))),
            (says("0.5.0", Stands::Committed), Ok(Fact::New(Seen::Unwell))),
            (says("0.5.0", Stands::Returned), Ok(Fact::New(Seen::Failed))),
            (says("0.5.0", Stands::Refused), Ok(Fact::New(Seen::Failed))),
            (says("0.6.1", Stands::Refused), Err(Skip::Newer)),
            (says("0.6.1", Stands::Returned), Ok(Fact::New(Seen::Failed))),
        ];
        let (request, state) = (request("0.6.0", false), state(Phase::Running, 1));
        let wanted = Wanted { request: &request, state: &state };
        for (known, want) in rows {
            assert_eq!(wanted.fact(&known), want, "{known:?}");
        }
    }

    #[test]
    fn a_downgrade_is_for_those_that_were_there_and_ends_with_the_last_wave() {
        let request = request("0.6.0", true);
        for (phase, want) in [(Phase::Running, Ok(Fact::Old)), (Phase::Complete, Err(Skip::Newer))] {
            let state = state(phase, 1);
            let wanted = Wanted { request: &request, state: &state };
            assert_eq!(wanted.fact(&old("0.7.0")), want);
        }
        // It is said with the offer that this is meant, and an agent that refuses it has failed.
        let running = state(Phase::Running, 1);
        let wanted = Wanted { request: &request, state: &running };
        assert!(wanted.offer((0, true), Fact::Old, None).unwrap().downgrade);
        let refuses = Known { report: Some(report(Some(Stands::Refused))), ..old("0.7.0") };
        assert_eq!(wanted.fact(&refuses), Ok(Fact::New(Seen::Failed)));
        // What has gone back because a person said so has not failed.
        let back = Known { report: Some(report(Some(Stands::Returned))), ..old("0.5.0") };
        let returned = state(Phase::Returned, 1);
        let wanted = Wanted { request: &request, state: &returned };
        assert_eq!((wanted.fact(&back), wanted.offer((0, true), Fact::Old, None)), (Ok(Fact::Old), None));
        // One that has not answered yet is asked until it does.
        let offered = Offer {
            version: "0.6.0".into(),
            begun: at(BEGAN),
            image: String::new(),
            programs: Vec::new(),
            returns: true,
            downgrade: false,
            spread: 0,
        };
        for version in ["0.5.0", "0.6.0"] {
            let silent = Known { offer: Some(offered.clone()), ..old(version) };
            assert_eq!(wanted.fact(&silent), Ok(Fact::New(Seen::Unsaid)));
        }
        // What has joined since gets it in the end.
        let state = state(Phase::Complete, 1);
        let wanted = Wanted { request: &request, state: &state };
        let later = Known { born: Some(at("2027-01-01T00:00:00Z")), ..old("0.5.0") };
        assert_eq!(wanted.fact(&later), Ok(Fact::Old));
        assert!(wanted.offer((3, true), Fact::Old, None).is_some());
    }

    #[test]
    fn offers_follow_waves_and_are_taken_back_from_those_that_have_not_begun() {
        let (not_yet, waiting) = (Fact::Old, Fact::New(Seen::Held));
        let (trying, well, failed) =
            (Fact::New(Seen::Unwell), Fact::New(Seen::Well), Fact::New(Seen::Failed));
        // How it stands, the cluster's wave and state: is it offered something, and to go back?
        let rows = [
            (Phase::Running, 0, not_yet, Some(false)),
            (Phase::Running, 1, not_yet, None),
            (Phase::AwaitsApproval, 0, not_yet, Some(false)),
            (Phase::Running, 0, waiting, Some(false)),
            (Phase::Paused, 0, not_yet, None),
            (Phase::Paused, 0, waiting, None),
            (Phase::Paused, 0, trying, Some(false)),
            (Phase::Breached, 0, well, Some(false)),
            (Phase::Breached, 0, waiting, None),
            (Phase::Aborted, 0, well, Some(false)),
            (Phase::Aborted, 0, Fact::New(Seen::Unsaid), None),
            (Phase::Returned, 0, well, Some(true)),
            (Phase::Returned, 0, trying, Some(true)),
            (Phase::Returned, 0, failed, None),
            (Phase::Returned, 0, waiting, Some(true)),
            (Phase::Returned, 0, Fact::New(Seen::Unsaid), Some(true)),
            (Phase::Returned, 0, not_yet, None),
            (Phase::Complete, 1, not_yet, Some(false)),
            (Phase::Complete, 1, Fact::Unconcerned, None),
        ];
        let request = request("0.6.0", false);
        for (phase, wave, fact, want) in rows {
            let state = state(phase, 1);
            let wanted = Wanted { request: &request, state: &state };
            let offer = wanted.offer((wave, true), fact, None);
            assert_eq!(offer.as_ref().map(|offer| offer.returns), want, "{phase:?} {wave} {fact:?}");
            assert!(offer.is_none_or(|offer| offer.begun == at(BEGAN) && !offer.downgrade));
        }
        let state = State { began: None, ..state(Phase::Running, 0) };
        assert_eq!(Wanted { request: &request, state: &state }.offer((0, true), Fact::Old, None), None);
    }

    #[test]
    fn a_program_is_offered_to_those_that_are_programs() {
        let state = state(Phase::Running, 1);
        let of = |programs: &str| Request {
            programs: Program::read_all(programs).unwrap(),
            ..request("0.6.0", false)
        };
        let named = format!("x86_64=https://h/a@sha256:{}", "a".repeat(64));
        let (bare, both) = (of(""), of(&named));
        let known = |way| Known { report: Some(Report { way, ..report(None) }), ..old("0.5.0") };
        for (way, request, want) in [
            (Way::Deployment, &bare, Ok(0)),
            (Way::Deployment, &both, Ok(0)),
            (Way::Program, &both, Ok(1)),
            (Way::Program, &bare, Err(Skip::NoProgram)),
        ] {
            let wanted = Wanted { request, state: &state };
            let got = wanted.fact(&known(way)).map(|fact| {
                wanted.offer((0, true), fact, Some(way)).map_or(usize::MAX, |offer| offer.programs.len())
            });
            assert_eq!(got, want, "{way:?}");
        }
    }
}
