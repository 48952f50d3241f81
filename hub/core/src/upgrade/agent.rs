//! What an agent does about an offer.

use std::time::Duration;

use karmada_meta::time::Time;

use super::{
    About, Mode, Offer, Stands, Version, Way, next_step,
    trial::{Ended, Part, Trial},
};

/// Clocks that work do not differ by more.
const AHEAD: Duration = Duration::from_secs(24 * 3600);

/// What an agent knows of itself.
#[derive(Clone, Copy, Debug)]
pub struct Own<'a> {
    /// Its version.
    pub version: &'a Version,
    /// What its owner lets be done.
    pub mode: Mode,
    /// What holds changes back now.
    pub held: Option<&'a str>,
    /// Whether the Cluster has maintenance windows.
    pub windows: bool,
    /// How it is installed.
    pub way: Way,
    /// Its owner wants no version below this one.
    pub floor: Option<&'a Version>,
    /// The time by its clock.
    pub now: Time,
}

/// What it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Nothing is offered.
    Nothing,
    /// It only says how it stands.
    Say(Stands, String),
    /// It begins a trial.
    Begin,
    /// It goes back to what was before the version.
    GoBack,
}

/// Decides by the offer and by what was last tried.
pub fn decide(offer: Option<&Offer>, own: Own<'_>, trial: Option<&Trial>) -> Act {
    let say = |stands, why: &str| Act::Say(stands, why.to_owned());
    let Some(offer) = offer else { return Act::Nothing };
    let tried = trial.filter(|trial| trial.version == offer.version && trial.begun == offer.begun);
    let wanted = match offer.version.parse::<Version>() {
        Ok(wanted) => wanted,
        Err(error) => return say(Stands::Refused, &error.to_string()),
    };
    if let Some(trial) = tried.filter(|trial| trial.gave_way && (offer.returns || wanted != *own.version)) {
        // Neither is that a failure of the version's, nor is anybody at the cluster fought with.
        let stands = match offer.returns {
            // They have left the new version there, and it is not for the hub to take it away.
            true if wanted == *own.version => Stands::Refused,
            true => Stands::Returned,
            false => Stands::Waiting,
        };
        return say(stands, &trial.why);
    }
    if let Some(trial) = tried.filter(|trial| trial.ended == Some(Ended::Returned) && !trial.gave_way) {
        return say(Stands::Returned, &trial.why);
    }
    if let Some(trial) = tried.filter(|trial| trial.is_open()) {
        return match trial.part(own.version) {
            Part::New if trial.taken.is_some() => say(Stands::Trying, "it runs, and has to prove itself"),
            Part::New | Part::Old => say(Stands::Trying, "it is fetched and started"),
            Part::Neither => say(Stands::Refused, "somebody has changed the version of the agent meanwhile"),
        };
    }
    if let Some(open) = trial.filter(|trial| trial.is_open()) {
        // What it remembers of the way back is written over by no other trial.
        return Act::Say(Stands::Waiting, format!("version {} is still on trial", open.version));
    }
    if offer.returns {
        if wanted != *own.version {
            return say(Stands::Returned, "another version runs already");
        }
        let was = tried.and_then(|trial| trial.was.parse::<Version>().ok());
        if let Some(why) = was.and_then(|was| below(&was, own.floor)) {
            return Act::Say(Stands::Refused, why);
        }
        return match (tried, wait(own)) {
            (None, _) => say(Stands::Refused, "what ran before is not known here"),
            (Some(_), Some(why)) => Act::Say(Stands::Waiting, why),
            (Some(_), None) => Act::GoBack,
        };
    }
    if wanted == *own.version {
        return say(Stands::Committed, "");
    }
    if tried.is_some() {
        // Once is enough here too: whoever manages the Deployment is not fought with.
        return say(
            Stands::Refused,
            "it had been taken, and somebody has put back another version since: abort and resume, or a new request, tries again",
        );
    }
    let why = match (own.way, offer.programs.is_empty()) {
        (Way::Deployment, true) | (Way::Program, false) => None,
        (Way::Deployment, false) => Some("this agent is a Pod, and was offered a program"),
        (Way::Program, true) => {
            Some("this agent is a program on a machine, and was offered none (--program)")
        }
    };
    if let Some(why) = why {
        return say(Stands::Refused, why);
    }
    let why = next_step(own.version, &wanted)
        .or_else(|| below(&wanted, own.floor))
        .or_else(|| ahead(offer.begun, own.now))
        .or_else(|| older(offer, &wanted, own, trial));
    if let Some(why) = why {
        return Act::Say(Stands::Refused, why);
    }
    match wait(own) {
        Some(why) => Act::Say(Stands::Waiting, why),
        None => Act::Begin,
    }
}

/// Why a version is not taken that is older than what runs; nothing if a person wants that. The hub leaves newer agents alone, by what
/// it knows of them: one that was restored from a backup knows what they were then, and goes on with what it was asked then.
fn older(offer: &Offer, wanted: &Version, own: Own<'_>, trial: Option<&Trial>) -> Option<String> {
    let Own { version: runs, now, .. } = own;
    if wanted >= runs {
        return None;
    }
    let ask = format!("karmada-hub upgrade agents --to {wanted} --allow-downgrade");
    match trial {
        _ if !offer.downgrade => Some(format!(
            "{wanted} is older than {runs}, which runs, and nobody has asked for an older version: the hub may have been restored \
             from a backup. To go back all the same: {ask}"
        )),
        // A time that has not come yet says nothing of what was asked for before it.
        Some(trial) if trial.begun >= offer.begun && ahead(trial.begun, now).is_none() => Some(format!(
            "{wanted} is older than {runs}, which runs, and was asked for before {}: the hub may have been restored from a backup. \
             To go back all the same, ask again: {ask}",
            trial.version
        )),
        _ => None,
    }
}

/// Why a version is not taken that the owner of the agent has ruled out.
fn below(version: &Version, floor: Option<&Version>) -> Option<String> {
    let floor = floor.filter(|floor| version < *floor)?;
    Some(format!(
        "the agent's owner lets it run no version below {floor} (--upgrade-not-below), and {version} is one"
    ))
}

/// Why an offer is not believed that comes from a time far ahead: after it, any that a person asks for would look like an old one.
fn ahead(begun: Time, now: Time) -> Option<String> {
    (now.elapsed(begun.timestamp().into()) > AHEAD).then(|| {
        format!(
            "it was asked for at {begun}, and here it is {now}: set the clock of the hub or of this machine, and ask again: \
             karmada-hub upgrade agents"
        )
    })
}

/// What an agent does that could end for another go of what is on trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Go {
    /// It ends.
    Goes,
    /// It stays for now.
    Waits(String),
    /// The trial is over.
    GoesBack(String),
}

/// Decides whether what is on trial gets another go: for an agent that hears the hub, and has its offer.
pub fn another_go(offer: Option<&Offer>, own: Own<'_>, trial: &Trial) -> Go {
    // One that is not made any more ends nothing that was begun.
    if let Some(offer) = offer {
        let is_same = offer.version == trial.version && offer.begun == trial.begun;
        if is_same && offer.returns {
            return Go::GoesBack("the hub asked for it".to_owned());
        }
        if !is_same {
            return Go::GoesBack(format!("version {} was offered meanwhile", offer.version));
        }
    }
    match wait(own) {
        Some(why) => Go::Waits(why),
        None => Go::Goes,
    }
}

/// What it says while it is offered nothing: what became of the last trial, for a hub that has not heard that yet. `said` is what it
/// has said last.
pub fn remembered(own: &Version, trial: Option<&Trial>, said: Option<&About>) -> Option<About> {
    let trial = trial?;
    let is_same = |about: &&About| about.version == trial.version && about.begun == trial.begun;
    let refused = said.filter(is_same).filter(|about| about.stands == Stands::Refused);
    if let Some(refused) = refused.filter(|_| trial.gave_way && trial.part(own) == Part::New) {
        // A hub that heard something else would ask it again to go back.
        return Some(refused.clone());
    }
    let (stands, why) = match trial.ended {
        None => (Stands::Trying, ""),
        Some(_) if trial.gave_way && trial.part(own) != Part::New => (Stands::Waiting, trial.why.as_str()),
        Some(Ended::Returned) => (Stands::Returned, trial.why.as_str()),
        Some(Ended::Committed) if trial.part(own) == Part::New => (Stands::Committed, ""),
        Some(Ended::Committed) => return None,
    };
    Some(About {
        version: trial.version.clone(),
        begun: trial.begun,
        stands,
        why: why.to_owned(),
        begins: false,
    })
}

/// Why a version that the hub still offers is not there: the agent has given way to somebody at the cluster.
pub fn gave_way<'a>(own: &Version, offer: Option<&Offer>, trial: Option<&'a Trial>) -> Option<&'a str> {
    let trial = trial.filter(|trial| trial.gave_way && trial.part(own) != Part::New)?;
    offer.filter(|offer| offer.begun == trial.begun && offer.version == trial.version)?;
    Some(&trial.why)
}

/// What is waited for.
fn wait(own: Own<'_>) -> Option<String> {
    match own.mode {
        Mode::Off => Some("the agent's owner does not let it be upgraded (--upgrade=off)".to_owned()),
        Mode::Windows if !own.windows => Some(
            "the agent changes its version in maintenance windows only (--upgrade=windows), and the Cluster has none \
             (cluster.karmada.io/maintenance-windows)"
                .to_owned(),
        ),
        Mode::Windows | Mode::On => own.held.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Program, trial::tests::trial},
        *,
    };

    /// An agent that takes whatever is offered, a day after that.
    fn own(version: &Version) -> Own<'_> {
        Own {
            version,
            mode: Mode::On,
            held: None,
            windows: false,
            way: Way::Deployment,
            floor: None,
            now: "2026-11-27T01:00:00Z".parse().unwrap(),
        }
    }

    #[test]
    fn an_agent_does_what_its_owner_and_the_time_allow() {
        let offer = |version: &str, returns| Offer {
            version: version.to_owned(),
            begun: trial().begun,
            image: String::new(),
            programs: Vec::new(),
            returns,
            downgrade: false,
            spread: 0,
        };
        let (new, back) = (offer("0.6.0", false), offer("0.6.0", true));
        let again = Offer { begun: new.begun.next(), ..new.clone() };
        let other = Offer { begun: again.begun, ..offer("0.6.1", false) };
        let (far, odd) = (offer("0.9.0", false), offer("latest", false));
        let open = trial();
        let taken = Trial { taken: Some(open.since), ..open.clone() };
        let ended = |how| Trial { ended: Some(how), why: "why".to_owned(), ..open.clone() };
        let (returned, committed) = (ended(Ended::Returned), ended(Ended::Committed));
        let away = |how| Trial { gave_way: true, ..ended(how) };
        let (put_back, put_there) = (away(Ended::Returned), away(Ended::Committed));
        let say = |stands, why: &str| Act::Say(stands, why.to_owned());
        // Offer, version, mode, held, windows, trial.
        let rows = [
            (None, "0.5.0", Mode::On, false, false, None, Act::Nothing),
            (Some(&new), "0.5.0", Mode::On, false, false, None, Act::Begin),
            (Some(&new), "0.5.0", Mode::On, true, false, None, say(Stands::Waiting, "held: fair")),
            (Some(&new), "0.5.0", Mode::Windows, false, true, None, Act::Begin),
            (Some(&new), "0.5.0", Mode::Windows, true, true, None, say(Stands::Waiting, "held: fair")),
            (Some(&new), "0.6.0", Mode::On, true, false, None, say(Stands::Committed, "")),
            (Some(&new), "0.6.0", Mode::On, false, false, Some(&committed), say(Stands::Committed, "")),
            (
                Some(&new),
                "0.5.0",
                Mode::On,
                false,
                false,
                Some(&committed),
                say(
                    Stands::Refused,
                    "it had been taken, and somebody has put back another version since: abort and resume, or a new request, \
                     tries again",
                ),
            ),
            (Some(&again), "0.5.0", Mode::On, false, false, Some(&committed), Act::Begin),
            // Once is enough, until a person begins another attempt.
            (Some(&new), "0.5.0", Mode::On, false, false, Some(&returned), say(Stands::Returned, "why")),
            (Some(&again), "0.5.0", Mode::On, false, false, Some(&returned), Act::Begin),
            (
                Some(&new),
                "0.5.0",
                Mode::On,
                false,
                false,
                Some(&open),
                say(Stands::Trying, "it is fetched and started"),
            ),
            // One after the other, whichever runs.
            (
                Some(&again),
                "0.5.0",
                Mode::On,
                false,
                false,
                Some(&open),
                say(Stands::Waiting, "version 0.6.0 is still on trial"),
            ),
            (
                Some(&other),
                "0.6.0",
                Mode::On,
                false,
                false,
                Some(&taken),
                say(Stands::Waiting, "version 0.6.0 is still on trial"),
            ),
            (
                Some(&new),
                "0.6.0",
                Mode::On,
                false,
                false,
                Some(&taken),
                say(Stands::Trying, "it runs, and has to prove itself"),
            ),
            (
                Some(&new),
                "0.5.5",
                Mode::On,
                false,
                false,
                Some(&open),
                say(Stands::Refused, "somebody has changed the version of the agent meanwhile"),
            ),
            (
                Some(&far),
                "0.5.0",
                Mode::On,
                false,
                false,
                None,
                say(Stands::Refused, "from 0.5.0 to 0.9.0 are more than two minor versions: first to 0.7"),
            ),
            (
                Some(&odd),
                "0.5.0",
                Mode::On,
                false,
                false,
                None,
                say(Stands::Refused, "\"latest\" is no version like 0.6.0"),
            ),
            (Some(&back), "0.6.0", Mode::On, false, false, Some(&committed), Act::GoBack),
            (
                Some(&back),
                "0.6.0",
                Mode::On,
                true,
                false,
                Some(&committed),
                say(Stands::Waiting, "held: fair"),
            ),
            (
                Some(&back),
                "0.6.0",
                Mode::On,
                false,
                false,
                None,
                say(Stands::Refused, "what ran before is not known here"),
            ),
            (Some(&back), "0.5.0", Mode::On, false, false, Some(&returned), say(Stands::Returned, "why")),
            // What somebody at the cluster has put there stays, whichever it is, until another attempt.
            (Some(&new), "0.5.0", Mode::On, false, false, Some(&put_back), say(Stands::Waiting, "why")),
            (Some(&new), "0.6.0", Mode::On, false, false, Some(&put_there), say(Stands::Committed, "")),
            (Some(&new), "0.6.0", Mode::On, false, false, Some(&put_back), say(Stands::Committed, "")),
            (Some(&back), "0.6.0", Mode::On, false, false, Some(&put_there), say(Stands::Refused, "why")),
            (Some(&back), "0.5.0", Mode::On, false, false, Some(&put_back), say(Stands::Returned, "why")),
            (Some(&again), "0.5.0", Mode::On, false, false, Some(&put_back), Act::Begin),
        ];
        for (offer, version, mode, is_held, windows, trial, want) in rows {
            let version: Version = version.parse().unwrap();
            let held = is_held.then_some("held: fair");
            let own = Own { mode, held, windows, ..own(&version) };
            assert_eq!(decide(offer, own, trial), want, "{offer:?} {version} {mode} {trial:?}");
        }
        for (version, trial, want) in [
            ("0.5.0", None, None),
            ("0.6.0", Some(&taken), Some(Stands::Trying)),
            ("0.6.0", Some(&committed), Some(Stands::Committed)),
            ("0.5.0", Some(&committed), None),
            ("0.5.0", Some(&returned), Some(Stands::Returned)),
            ("0.5.0", Some(&put_back), Some(Stands::Waiting)),
            ("0.6.0", Some(&put_there), Some(Stands::Committed)),
        ] {
            let said = remembered(&version.parse().unwrap(), trial, None);
            assert_eq!(said.as_ref().map(|about| about.stands), want, "{version} {trial:?}");
            assert!(said.is_none_or(|about| about.version == "0.6.0" && about.begun == new.begun));
        }
        // What was refused stays refused while nothing is offered; of another attempt it says nothing.
        let refused = |begun| About {
            version: "0.6.0".into(),
            begun,
            stands: Stands::Refused,
            why: "no".to_owned(),
            begins: false,
        };
        for (version, begun, trial, want) in [
            ("0.6.0", new.begun, &put_there, Stands::Refused),
            ("0.6.0", again.begun, &put_there, Stands::Committed),
            ("0.5.0", new.begun, &put_back, Stands::Waiting),
            ("0.6.0", new.begun, &committed, Stands::Committed),
        ] {
            let said = remembered(&version.parse().unwrap(), Some(trial), Some(&refused(begun)));
            assert_eq!(said.map(|about| about.stands), Some(want), "{version} {begun} {trial:?}");
        }
        // Another go is a change like the first.
        let go_back = |why: &str| Go::GoesBack(why.to_owned());
        let waits = |why: &str| Go::Waits(why.to_owned());
        for (offer, mode, is_held, windows, want) in [
            (Some(&new), Mode::On, false, false, Go::Goes),
            (None, Mode::On, false, false, Go::Goes),
            (Some(&new), Mode::Windows, false, true, Go::Goes),
            (Some(&new), Mode::On, true, false, waits("held: fair")),
            (None, Mode::Windows, true, true, waits("held: fair")),
            (Some(&back), Mode::On, true, false, go_back("the hub asked for it")),
            (Some(&again), Mode::On, false, false, go_back("version 0.6.0 was offered meanwhile")),
            (Some(&other), Mode::On, false, false, go_back("version 0.6.1 was offered meanwhile")),
        ] {
            let version = "0.5.0".parse().unwrap();
            let held = is_held.then_some("held: fair");
            let own = Own { mode, held, windows, way: Way::Program, ..own(&version) };
            assert_eq!(another_go(offer, own, &open), want, "{offer:?} {mode}");
        }
        // It is said that it gave way while the version is offered, and not there.
        for (version, offer, trial, want) in [
            ("0.5.0", Some(&new), &put_back, Some("why")),
            ("0.5.5", Some(&new), &put_there, Some("why")),
            ("0.6.0", Some(&new), &put_there, None),
            ("0.5.0", Some(&again), &put_back, None),
            ("0.5.0", None, &put_back, None),
            ("0.5.0", Some(&new), &returned, None),
        ] {
            assert_eq!(gave_way(&version.parse().unwrap(), offer, Some(trial)), want, "{version} {trial:?}");
        }
        let version: Version = "0.5.0".parse().unwrap();
        for (mode, want) in [(Mode::Off, "--upgrade=off"), (Mode::Windows, "the Cluster has none")] {
            let own = Own { mode, ..own(&version) };
            let Act::Say(Stands::Waiting, why) = decide(Some(&new), own, None) else { panic!("{mode}") };
            assert!(why.contains(want), "{why}");
        }
    }

    #[test]
    fn an_older_version_is_taken_where_a_person_asks_for_it_and_by_no_old_request() {
        let of = |version: &str, begun, downgrade| Offer {
            version: version.to_owned(),
            begun,
            image: String::new(),
            programs: Vec::new(),
            returns: false,
            downgrade,
            spread: 0,
        };
        // What runs came with this offer, for 0.6.0.
        let came = Trial { ended: Some(Ended::Committed), ..trial() };
        let (then, later) = (came.begun, came.begun.next());
        let before: Time = "2025-01-01T00:00:00Z".parse().unwrap();
        let (soon, far): (Time, Time) =
            ("2026-11-28T01:00:00Z".parse().unwrap(), "9999-01-01T00:00:00Z".parse().unwrap());
        let (came_soon, came_far) =
            (Trial { begun: soon, ..came.clone() }, Trial { begun: far, ..came.clone() });
        let rows = [
            // The offer, whether a person wants an older version, and what was taken last.
            ("0.5.0", later, false, Some(&came), Some("nobody has asked for an older version")),
            ("0.5.0", later, false, None, Some("--to 0.5.0 --allow-downgrade")),
            ("0.6.0-rc.1", later, false, None, Some("is older than 0.6.0")),
            ("0.5.0", later, true, Some(&came), None),
            ("0.5.0", later, true, None, None),
            // A hub that was restored goes on with what it was asked then.
            ("0.5.0", then, true, Some(&came), Some("was asked for before 0.6.0")),
            ("0.5.0", before, true, Some(&came), Some("ask again: karmada-hub upgrade agents --to 0.5.0")),
            ("0.5.0", before, false, Some(&came), Some("restored from a backup")),
            // Clocks differ by a day at most; by what is further ahead nothing is judged, and it is not taken.
            ("0.5.0", later, true, Some(&came_soon), Some("was asked for before 0.6.0")),
            ("0.5.0", later, true, Some(&came_far), None),
            ("0.5.0", soon, true, Some(&came), None),
            ("0.5.0", soon.next(), true, Some(&came), Some("set the clock of the hub")),
            ("0.6.1", far, false, Some(&came), Some("9999-01-01T00:00:00Z")),
            // Newer ones need no word of anybody's.
            ("0.6.1", before, false, Some(&came), None),
            ("0.7.0", later, false, None, None),
            ("0.3.0", later, true, Some(&came), Some("first to 0.4")),
        ];
        let version: Version = "0.6.0".parse().unwrap();
        for (wanted, begun, downgrade, trial, want) in rows {
            match (decide(Some(&of(wanted, begun, downgrade)), own(&version), trial), want) {
                (Act::Begin, None) => {}
                (Act::Say(Stands::Refused, why), Some(want)) => assert!(why.contains(want), "{why}"),
                (act, _) => panic!("{wanted} {begun} {downgrade}: {act:?}"),
            }
        }
        // What is put back because the new version fails is no offer, nor is what the hub takes back.
        let back = Offer { returns: true, ..of("0.6.0", then, false) };
        assert_eq!(decide(Some(&back), own(&version), Some(&came)), Act::GoBack);
    }

    #[test]
    fn the_owner_says_how_low_it_goes() {
        let of = |version: &str, returns| Offer {
            version: version.to_owned(),
            begun: trial().begun.next(),
            image: String::new(),
            programs: Vec::new(),
            returns,
            downgrade: true,
            spread: 0,
        };
        let floor: Version = "0.6.0".parse().unwrap();
        for (runs, wanted, taken) in [
            ("0.7.0", "0.5.9", false),
            ("0.7.0", "0.6.0-rc.1", false),
            ("0.7.0", "0.6.0", true),
            ("0.7.0", "0.8.0", true),
            // One that runs something older still gets nearer only by what its owner wants.
            ("0.5.0", "0.5.1", false),
            ("0.5.0", "0.6.0", true),
        ] {
            let version: Version = runs.parse().unwrap();
            let own = Own { floor: Some(&floor), ..own(&version) };
            match decide(Some(&of(wanted, false)), own, None) {
                Act::Begin if taken => {}
                Act::Say(Stands::Refused, why) if !taken => {
                    assert!(why.contains("no version below 0.6.0 (--upgrade-not-below)"), "{why}");
                }
                act => panic!("{runs} {wanted}: {act:?}"),
            }
        }
        // Nor does it go back there because the hub asks for it.
        let version: Version = "0.6.0".parse().unwrap();
        let back = Offer { begun: trial().begun, ..of("0.6.0", true) };
        let came = Trial { ended: Some(Ended::Committed), ..trial() };
        let at = Own { floor: Some(&floor), ..own(&version) };
        let Act::Say(Stands::Refused, why) = decide(Some(&back), at, Some(&came)) else {
            panic!("it goes back")
        };
        assert!(why.contains("0.5.0 is one"), "{why}");
    }

    #[test]
    fn an_offer_is_for_pods_or_for_programs() {
        let of = |programs: Vec<Program>| Offer {
            version: "0.6.0".to_owned(),
            begun: trial().begun,
            image: String::new(),
            programs,
            returns: false,
            downgrade: false,
            spread: 0,
        };
        let program = Program { arch: "x86_64".into(), url: "https://h/a".into(), sha256: "a".repeat(64) };
        let (bare, programs) = (of(Vec::new()), of(vec![program]));
        let version: Version = "0.5.0".parse().unwrap();
        for (way, offer, want) in [
            (Way::Deployment, &bare, None),
            (Way::Program, &programs, None),
            (Way::Deployment, &programs, Some("is a Pod, and was offered a program")),
            (Way::Program, &bare, Some("and was offered none (--program)")),
        ] {
            let own = Own { way, ..own(&version) };
            match (decide(Some(offer), own, None), want) {
                (Act::Begin, None) => {}
                (Act::Say(Stands::Refused, why), Some(want)) => assert!(why.contains(want), "{why}"),
                (act, _) => panic!("{way:?}: {act:?}"),
            }
        }
    }
}
