//! `karmada-hub upgrade`: gives the agents of clusters a new version, in waves.

use std::{collections::BTreeMap, time::Duration};

use karmada_api::consts::{extension, namespace};
use karmada_core::{
    rollout::{Command, Phase, State, Sums, Wave, words},
    upgrade::{
        Report, Version, Way, next_step,
        request::{self, Request},
        with_hub,
        words::is_refusal,
    },
};
use karmada_env::Env;
use karmada_meta::{object, time::Time};
use karmada_objects::{
    Part,
    key::Key,
    kinds::{CLUSTERS, CONFIG_MAPS, NAMESPACES},
};
use serde_json::{Value, json};

use super::{
    Failure,
    args::{UpgradeAgentsArgs, UpgradeArgs, UpgradeVerb},
    ask::Server,
    progress::Progress,
    told::{Told, one_line},
    waves,
};

/// This program's own version, which is the hub's.
const OURS: &str = env!("CARGO_PKG_VERSION");

/// Between two looks at how far an upgrade is.
const LOOK: Duration = Duration::from_secs(2);

/// Asks for a version, shows how far it is, or does something about it.
pub(super) async fn run(args: UpgradeArgs, env: Env) -> Result<(), Failure> {
    let (command, word) = match args.verb {
        UpgradeVerb::Agents(args) => return agents(&args, &env).await,
        UpgradeVerb::Status(args) if args.wait => {
            let server = Server::open(&args.word.server, &env)?;
            server.reach().await?;
            return follow(&server, None, args.word.told, &env).await;
        }
        UpgradeVerb::Status(args) => (None, args.word),
        UpgradeVerb::Pause(word) => (Some(Command::Pause), word),
        UpgradeVerb::Resume(word) => (Some(Command::Resume), word),
        UpgradeVerb::Abort(word) => (Some(Command::Abort), word),
        UpgradeVerb::Return(word) => (Some(Command::Return), word),
    };
    let server = Server::open(&word.server, &env)?;
    server.reach().await?;
    match command {
        None => show(&server, word.told).await,
        Some(command) => act(&server, command, word.told).await,
    }
}

fn object_key() -> Key {
    Key::new(namespace::SYSTEM, extension::AGENT_UPGRADE_OBJECT)
}

/// What the command line asks for, as the ConfigMap has it.
fn asked(args: &UpgradeAgentsArgs, now: Time) -> Result<(BTreeMap<&'static str, String>, Request), Failure> {
    let mut data = BTreeMap::new();
    data.insert(request::VERSION, args.to.to_string());
    data.insert(request::REQUESTED, now.to_string());
    let waves = args.wave.as_deref().unwrap_or(request::WAVES_DEFAULT);
    // Commas also stand within selectors.
    let waves = if waves.contains(';') { waves.to_owned() } else { waves.replace(',', ";") };
    data.insert(request::WAVES, waves);
    let optional = [
        (request::GATE, args.gate.clone()),
        (request::IMAGE, args.image.clone()),
        (request::PROGRAMS, (!args.program.is_empty()).then(|| args.program.join("\n"))),
        (request::DOWNGRADE, args.allow_downgrade.then(|| "true".to_owned())),
    ];
    data.extend(optional.into_iter().filter_map(|(key, text)| Some((key, text?))));
    let request = Request::read(|key| data.get(key).map(String::as_str)).map_err(Failure::usage)?;
    Ok((data, request))
}

async fn agents(args: &UpgradeAgentsArgs, env: &Env) -> Result<(), Failure> {
    let now = Time::now(env);
    let (data, request) = asked(args, now)?;
    if let Ok(ours) = OURS.parse::<Version>()
        && let Some(why) = with_hub(&request.version, &ours)
    {
        return Err(Failure::failed(why));
    }
    let server = Server::open(&args.server, env)?;
    server.reach().await?;
    let fleet = Fleet::look(&server, &request).await?;
    if let Some((why, clusters)) = fleet.too_far.iter().next().filter(|_| !args.skip_too_old) {
        return Err(Failure::failed(format!(
            "{} of the agents cannot go to {} in one step: {why} ({}). Upgrade them to that first, or leave them out with \
             --skip-too-old",
            fleet.too_far.values().map(Vec::len).sum::<usize>(),
            request.version,
            clusters.join(", ")
        )));
    }
    if let Some(why) = fleet.is_ahead(&request.version) {
        return Err(Failure::failed(why));
    }
    let summary = format!(
        "version {}: {} of {} clusters get it; {} have it, {} are newer{}, {} take no versions from the hub{}",
        request.version,
        fleet.concerned,
        fleet.all,
        fleet.have,
        fleet.newer,
        if fleet.newer > 0 { " and keep their version (--allow-downgrade)" } else { "" },
        fleet.off,
        match fleet.no_program {
            0 => String::new(),
            count => format!(", {count} are programs on machines, and no --program is named for them"),
        }
    );
    let value = json!({
        "version": request.version.to_string(), "clusters": fleet.all, "concerned": fleet.concerned, "have": fleet.have,
        "newer": fleet.newer, "off": fleet.off, "noProgram": fleet.no_program, "tooFar": fleet.too_far, "dryRun": args.dry_run,
    });
    if args.dry_run {
        return args.told.say(&format!("{summary}. Nothing was changed (--dry-run)"), &value);
    }
    put(&server, &data).await?;
    if args.wait {
        args.told.say(&summary, &value)?;
        return follow(&server, data.get(request::REQUESTED).map(String::as_str), args.told, env).await;
    }
    args.told.say(&format!("{summary}\nHow far it is: karmada-hub upgrade status"), &value)
}

/// Writes the request: a newer one takes the place of the one before.
async fn put(server: &Server, data: &BTreeMap<&'static str, String>) -> Result<(), Failure> {
    let failure = |error| server.failure(&error);
    let replace = |live: &mut Value| {
        live["data"] = json!(data);
        object::remove_annotation(live, extension::ROLLOUT_COMMAND);
        true
    };
    let written =
        server.objects.modify(&CONFIG_MAPS, &object_key(), Part::Main, replace).await.map_err(failure)?;
    if written.is_some() {
        return Ok(());
    }
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace::SYSTEM}});
    match server.objects.create(&NAMESPACES, &namespace).await {
        Err(error) if !error.is_already_exists() && !error.is_forbidden() => return Err(failure(error)),
        _ => {}
    }
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": extension::AGENT_UPGRADE_OBJECT, "namespace": namespace::SYSTEM},
        "data": data,
    });
    server.objects.create(&CONFIG_MAPS, &object).await.map(drop).map_err(failure)
}

/// The agents, as far as a request concerns them.
#[derive(Debug, Default)]
struct Fleet {
    all: usize,
    concerned: usize,
    have: usize,
    newer: usize,
    /// The newest of them, and its cluster.
    newest: Option<(Version, String)>,
    off: usize,
    /// They are programs, and none is named.
    no_program: usize,
    /// Which step comes first, and for whom: some of them.
    too_far: BTreeMap<String, Vec<String>>,
}

impl Fleet {
    async fn look(server: &Server, request: &Request) -> Result<Self, Failure> {
        let mut fleet = Self::default();
        let each = |page: Vec<Value>| page.iter().for_each(|cluster| fleet.add(cluster, request));
        server.objects.list(&CLUSTERS, None, "", each).await.map_err(|error| server.failure(&error))?;
        Ok(fleet)
    }

    fn add(&mut self, cluster: &Value, request: &Request) {
        self.all += 1;
        let version =
            object::annotation(cluster, extension::VERSION).and_then(|text| text.parse::<Version>().ok());
        let takes = object::annotation(cluster, extension::AGENT_UPGRADE).and_then(Report::read);
        let is_program = takes.as_ref().is_some_and(|report| report.way == Way::Program);
        let Some(version) = version else {
            self.off += 1;
            return;
        };
        if version == request.version {
            self.have += 1;
        } else if takes.is_none() {
            self.off += 1;
        } else if is_program && request.programs.is_empty() {
            self.no_program += 1;
        } else if version > request.version && !request.downgrade {
            self.newer += 1;
            if self.newest.as_ref().is_none_or(|(newest, _)| version > *newest) {
                self.newest = Some((version, object::name(cluster).to_owned()));
            }
        } else if let Some(why) = next_step(&version, &request.version) {
            self.too_far.entry(why).or_default().push(object::name(cluster).to_owned());
        } else {
            self.concerned += 1;
        }
    }
}

impl Fleet {
    /// Why a version is none to ask for: it would reach nobody, and is older than what runs.
    fn is_ahead(&self, version: &Version) -> Option<String> {
        let (newest, cluster) = self.newest.as_ref().filter(|_| self.concerned == 0)?;
        Some(format!(
            "{version} is older than what runs: {} of {} agents are newer ({cluster} runs {newest}), and none of the others would get \
             it. To take them back to {version}, add --allow-downgrade. To take back an upgrade that is under way: karmada-hub \
             upgrade return",
            self.newer, self.all
        ))
    }
}

/// The ConfigMap, and how far the upgrade is.
async fn find(server: &Server) -> Result<(Value, Option<State>), Failure> {
    let live =
        server.objects.get(&CONFIG_MAPS, &object_key()).await.map_err(|error| server.failure(&error))?;
    let live = live.ok_or_else(|| {
        Failure::failed("no upgrade was asked for: karmada-hub upgrade agents --to VERSION asks for one")
    })?;
    let state =
        State::read(&live).map_err(|why| Failure::failed(format!("its state cannot be read: {why}")))?;
    Ok((live, state))
}

/// How an upgrade stands for somebody who waits for its end.
#[derive(Debug, PartialEq, Eq)]
enum Stands {
    /// It goes on by itself: so many clusters are done, of how many, and where it is.
    Goes(usize, usize, String),
    /// It has gone to every cluster.
    Ended,
    /// It does not end by itself, and why.
    Stopped(String),
}

/// `requested` is when what is waited for was asked for.
fn stands(live: &Value, state: Option<&State>, requested: &str) -> Stands {
    let data = |key: &str| live["data"][key].as_str().unwrap_or_default();
    let version = data(request::VERSION);
    if data(request::REQUESTED) != requested {
        return Stands::Stopped(format!("a newer request, for {version}, took the place of this one"));
    }
    let first = data(request::STATUS).lines().next().unwrap_or_default();
    if is_refusal(first) {
        // Whatever is kept: the hub does nothing, and takes no command, until somebody mends that.
        return Stands::Stopped(first.to_owned());
    }
    let seed = requested.parse::<Time>().map_or_else(|_| requested.to_owned(), |time| time.to_string());
    // What is kept may still be of the request before.
    let Some(state) = state.filter(|state| state.revision == version && state.seed == seed) else {
        return match first {
            "" => Stands::Goes(0, 0, "the hub has not looked at it yet".to_owned()),
            why => Stands::Stopped(why.to_owned()),
        };
    };
    match state.phase {
        _ if object::annotation(live, extension::ROLLOUT_COMMAND).is_some() => {
            Stands::Goes(0, 0, "the hub has not done yet what it was asked".to_owned())
        }
        Phase::Complete => Stands::Ended,
        Phase::Returned => Stands::Stopped(first.to_owned()),
        _ if words::waits(state) => Stands::Stopped(first.to_owned()),
        _ => {
            let counts = serde_json::from_str::<Sums>(data(request::COUNTS)).unwrap_or_default();
            let (done, total) = counts.done();
            Stands::Goes(done, total, first.to_owned())
        }
    }
}

/// Waits until an upgrade has ended, and shows how far it is.
async fn follow(server: &Server, requested: Option<&str>, told: Told, env: &Env) -> Result<(), Failure> {
    let mut requested = requested.map(str::to_owned);
    let progress = Progress::new("upgraded", None, env);
    loop {
        match find(server).await {
            Ok((live, state)) => {
                let requested = requested.get_or_insert_with(|| {
                    live["data"][request::REQUESTED].as_str().unwrap_or_default().to_owned()
                });
                match stands(&live, state.as_ref(), requested) {
                    Stands::Goes(done, 0, at) => progress.is_at(done as u64, &at),
                    Stands::Goes(done, total, at) => progress.is_at_of(done as u64, total as u64, &at),
                    Stands::Ended => {
                        progress.clear();
                        return tell(&live, state.as_ref(), told);
                    }
                    Stands::Stopped(why) => {
                        progress.clear();
                        let next = state
                            .as_ref()
                            .filter(|_| !is_refusal(&why))
                            .and_then(waves::next)
                            .unwrap_or_else(|| "karmada-hub upgrade status says more".to_owned());
                        return Err(Failure::failed(format!("the upgrade has stopped: {why} ({next})")));
                    }
                }
            }
            // The hub may be restarted meanwhile; it goes on then.
            Err(Failure::Failed(reason) | Failure::Answered { why: reason, .. })
                if !server.is_connected() =>
            {
                progress.clear();
                eprintln!("karmada-hub: {}; trying again", one_line(&reason));
            }
            Err(failure) => return Err(failure),
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn show(server: &Server, told: Told) -> Result<(), Failure> {
    let (live, state) = find(server).await?;
    tell(&live, state.as_ref(), told)
}

fn tell(live: &Value, state: Option<&State>, told: Told) -> Result<(), Failure> {
    let text = live["data"][request::STATUS].as_str().unwrap_or("the hub has not looked at it yet");
    let phase = state.map(|state| format!("{:?}", state.phase));
    let waves: &[Wave] = state.map(|state| state.waves.as_slice()).unwrap_or_default();
    let counts =
        live["data"][request::COUNTS].as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let value = json!({
        "version": live["data"][request::VERSION], "phase": phase, "waves": waves, "counts": counts,
        "status": text.lines().collect::<Vec<_>>(),
    });
    let next = state
        .filter(|_| !is_refusal(text))
        .and_then(waves::next)
        .map_or_else(String::new, |next| format!("\n{next}"));
    told.say(&format!("{text}{next}"), &value)
}

/// Leaves a word for the hub on the ConfigMap.
async fn act(server: &Server, command: Command, told: Told) -> Result<(), Failure> {
    let (live, state) = find(server).await?;
    let version = live["data"][request::VERSION].as_str().unwrap_or_default().to_owned();
    if state.is_some_and(|state| state.phase == Phase::Complete && state.revision == version) {
        return Err(Failure::failed(format!(
            "no upgrade is under way: {version} went to every cluster. To go back, ask for the version before: karmada-hub upgrade \
             agents --to VERSION --allow-downgrade"
        )));
    }
    if !waves::leave(server, (&CONFIG_MAPS, &object_key()), command, &version).await? {
        return Err(Failure::failed("the request is gone"));
    }
    let line =
        format!("the hub is asked to {command} the upgrade to {version} (upgrade status shows what it does)");
    told.say(&line, &json!({"command": command.to_string(), "version": version}))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use karmada_core::rollout::What;

    use super::*;
    use crate::args::{Args, Command as Line};

    fn read(line: &str) -> Result<(BTreeMap<&'static str, String>, Request), String> {
        let words = std::iter::once("karmada-hub").chain(line.split('|'));
        let args = Args::try_parse_from(words).map_err(|error| error.to_string())?;
        let Line::Upgrade(UpgradeArgs { verb: UpgradeVerb::Agents(args) }) = args.command else {
            panic!("{line}")
        };
        asked(&args, "2026-11-26T01:00:00Z".parse().unwrap()).map_err(|error| format!("{error:?}"))
    }

    #[test]
    fn what_is_asked_for_stands_in_the_object() {
        let (data, request) = read("upgrade|agents|--to|v0.1.5").unwrap();
        assert_eq!((data["version"].as_str(), data["waves"].as_str()), ("0.1.5", request::WAVES_DEFAULT));
        assert!(!request.downgrade && !data.contains_key("gate"));
        let (data, request) =
            read("upgrade|agents|--to|0.1.5|--wave|1%,10% soak=1h,100%|--gate|maxFailures=2|--image|x/a:1")
                .unwrap();
        assert_eq!((data["waves"].as_str(), request.image.as_str()), ("1%;10% soak=1h;100%", "x/a:1"));
        let (one, two) = ("a".repeat(64), "b".repeat(64));
        let line = format!(
            "upgrade|agents|--to|0.1.5|--program|x86_64=https://h/a@sha256:{one}|--program|aarch64=https://h/b@sha256:{two}"
        );
        let (_, request) = read(&line).unwrap();
        assert_eq!(
            request.programs.iter().map(|program| program.arch.as_str()).collect::<Vec<_>>(),
            ["x86_64", "aarch64"]
        );
        let (data, _) =
            read("upgrade|agents|--to|0.1.5|--wave|tier in (a,b); 100%|--allow-downgrade").unwrap();
        assert_eq!((data["waves"].as_str(), data["downgrade"].as_str()), ("tier in (a,b); 100%", "true"));
        for (line, why) in [
            ("upgrade|agents", "--to"),
            ("upgrade|agents|--to|new", "is no version like 0.6.0"),
            ("upgrade|agents|--to|0.1.5|--wave|50%", "the last wave must be 100%"),
            ("upgrade|agents|--to|0.1.5|--gate|soon", "has no value"),
            ("upgrade|agents|--to|0.1.5|--program|x86_64=http://h/a@sha256:00", "programs: "),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
        }
    }

    #[test]
    fn an_older_version_that_would_reach_nobody_is_not_asked_for() {
        let cluster = |(name, version): (&str, &str)| {
            json!({"metadata": {"name": name, "annotations": {
                extension::VERSION: version, extension::AGENT_UPGRADE: r#"{"mode":"on","way":"Deployment"}"#,
            }}})
        };
        type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], Option<&'a str>);
        let rows: [Row<'_>; 7] = [
            (
                "--to|0.1.5",
                &[("m1", "0.1.6"), ("m2", "0.2.0")],
                Some("2 of 2 agents are newer (m2 runs 0.2.0)"),
            ),
            ("--to|0.1.5", &[("m1", "0.1.6"), ("m2", "0.1.5")], Some("add --allow-downgrade")),
            ("--to|0.1.5|--allow-downgrade", &[("m1", "0.1.6"), ("m2", "0.2.0")], None),
            // It is for those that are older.
            ("--to|0.1.5", &[("m1", "0.1.6"), ("m2", "0.1.4")], None),
            ("--to|0.1.5", &[("m1", "0.1.5")], None),
            ("--to|0.1.5", &[("m1", "0.1.4")], None),
            ("--to|0.1.5", &[], None),
        ];
        for (line, clusters, want) in rows {
            let (_, request) = read(&format!("upgrade|agents|{line}")).unwrap();
            let mut fleet = Fleet::default();
            clusters.iter().for_each(|row| fleet.add(&cluster(*row), &request));
            assert_eq!(fleet.off, 0);
            match (fleet.is_ahead(&request.version), want) {
                (None, None) => {}
                (Some(why), Some(want)) => assert!(why.contains(want), "{why}"),
                (got, _) => panic!("{line} {clusters:?}: {got:?}"),
            }
        }
    }

    #[test]
    fn an_upgrade_that_is_waited_for_goes_on_ends_or_stops() {
        const AT: &str = "2026-11-26T01:00:00Z";
        let live = |version: &str, status: &str, counts: &str| json!({"data": {"version": version, "requested": AT, "status": status, "counts": counts}});
        let state = |phase, revision: &str| {
            let (seed, revision) = (AT.to_owned(), revision.to_owned());
            State { what: What::Agents, phase, revision, seed, ..State::default() }
        };
        let counts = r#"{"Unconcerned":5,"NotYet":6,"Offered":1,"Healthy":3}"#;
        let goes = live("0.6.0", "Progressing: wave 2 of 4\nskipped: 5", counts);
        let rows = [
            (
                &goes,
                Some(state(Phase::Running, "0.6.0")),
                Stands::Goes(3, 10, "Progressing: wave 2 of 4".into()),
            ),
            (&goes, Some(state(Phase::Complete, "0.6.0")), Stands::Ended),
            (
                &goes,
                Some(state(Phase::Breached, "0.6.0")),
                Stands::Stopped("Progressing: wave 2 of 4".into()),
            ),
            (
                &goes,
                Some(state(Phase::Returned, "0.6.0")),
                Stands::Stopped("Progressing: wave 2 of 4".into()),
            ),
        ];
        for (live, state, want) in rows {
            assert_eq!(stands(live, state.as_ref(), AT), want, "{state:?}");
        }
        // A word that the hub has not read yet may make it go on.
        let mut asked = goes.clone();
        object::set_annotation(&mut asked, extension::ROLLOUT_COMMAND, "resume 0.6.0");
        let paused = state(Phase::Paused, "0.6.0");
        assert!(matches!(stands(&asked, Some(&paused), AT), Stands::Goes(..)));
        // What is kept is of the request before, until the hub has looked.
        let before = state(Phase::Complete, "0.5.0");
        let fresh = json!({"data": {"version": "0.6.0", "requested": AT}});
        let waits = Stands::Goes(0, 0, "the hub has not looked at it yet".into());
        assert_eq!(stands(&fresh, Some(&before), AT), waits);
        let refused = live("0.6.0", "Refused: it is newer than the hub", "");
        let why = Stands::Stopped("Refused: it is newer than the hub".into());
        // Nor does it go on where it was under way before, or somebody has left a word.
        let running = state(Phase::Running, "0.6.0");
        let mut asked = refused.clone();
        object::set_annotation(&mut asked, extension::ROLLOUT_COMMAND, "resume 0.6.0");
        for (live, kept) in [(&refused, &before), (&refused, &running), (&asked, &paused)] {
            assert_eq!(stands(live, Some(kept), AT), why, "{:?}", kept.phase);
        }
        let newer = stands(&goes, Some(&before), "2026-11-25T01:00:00Z");
        assert!(matches!(newer, Stands::Stopped(why) if why.contains("newer request, for 0.6.0")));
    }

    #[test]
    fn the_fleet_is_counted_and_the_next_step_named() {
        let (_, request) = read("upgrade|agents|--to|0.6.0").unwrap();
        let takes = "{\"mode\":\"on\",\"way\":\"Deployment\"}";
        let cluster = |name: &str, version: Option<&str>, takes: Option<&str>| {
            let annotations = json!({"agent.karmada.io/version": version, "agent.karmada.io/upgrade": takes});
            json!({"metadata": {"name": name, "annotations": annotations}})
        };
        let mut fleet = Fleet::default();
        for cluster in [
            cluster("a", Some("0.5.0"), Some(takes)),
            cluster("b", Some("0.6.0"), None),
            cluster("c", Some("0.6.1"), Some(takes)),
            cluster("d", Some("0.5.0"), None),
            cluster("e", None, None),
            cluster("f", Some("0.3.0"), Some(takes)),
            cluster("g", Some("0.5.0"), Some("{\"mode\":\"on\",\"way\":\"Program\"}")),
        ] {
            fleet.add(&cluster, &request);
        }
        let counts = (fleet.all, fleet.concerned, fleet.have, fleet.newer, fleet.off, fleet.no_program);
        assert_eq!(counts, (7, 1, 1, 1, 2, 1));
        let (why, clusters) = fleet.too_far.iter().next().unwrap();
        assert!(why.ends_with("first to 0.5") && clusters == &["f"], "{why}");
    }
}
