//! Damages: agent, hub or both die by SIGKILL at any step of a change, and what the agent keeps is cut off, flipped, exchanged or
//! taken away before it starts again, with its hub or without. Nothing on the member is lost, doubled or taken back.
//!
//! ```text
//!   a change on the hub ─▶ told ─▶ kept ─▶ applied ─▶ reported        one of these is waited for, and somebody is killed
//!                                                          │
//!   what the agent keeps is damaged; one object on the member is deleted, another is changed
//!                                                          │
//!   the agent starts alone ─▶ all is put back by what was kept, or the damage is noticed, set aside and told
//!   hub and link are back  ─▶ all agrees, each object is the one that it was; what was noticed stands on the Cluster
//!   the agent starts alone ─▶ all is put back: what the hub said was kept anew
//! ```

use std::{
    collections::BTreeMap,
    fmt, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use karmada_client::{Patch, Rest};
use karmada_env::{Random, SplitMix};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    fleet::{Binaries, Fleet, Member, Options, cluster_path, condition},
    link::Mode,
    process::{agent_status, own_address},
    samples::{condition_of, config_map, config_map_path, policy, selector, works_path},
    wait::{END, PATIENCE, eventually, until},
};

/// What an agent keeps of what the hub said, where it sets that aside, and by what it is recognised.
const STATE: &str = "state.log";
const ASIDE: &str = "state.log.damaged";
const INSTANCE: &str = "instance";
/// What it keeps of the credential for the hub.
const CREDENTIAL: [&str; 4] = ["karmada-kubeconfig", "karmada-kubeconfig.copy", "joined-by", "pending-key"];

/// How many templates there may be.
const TEMPLATES: u64 = 8;
/// Those that are there from the beginning, and stay.
const FIRST: [&str; 3] = ["stays", "vanishes", "drifts"];

/// What a user does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Makes a template.
    Make,
    /// Changes one.
    Alter,
    /// Deletes one.
    Remove,
}

/// How far the change has come when somebody is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The hub has taken it, and nothing else is known.
    Told,
    /// The agent has written what it keeps.
    Kept,
    /// It is on the member.
    Applied,
    /// The hub knows that it is.
    Reported,
}

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victims {
    /// The agent.
    Agent,
    /// The hub, and the agent a little later.
    Both,
    /// The hub; the agent after that, to be able to damage what it keeps, when it has noticed or has not.
    Hub,
}

/// Where in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At so many millionths of its length.
    Part(u32),
    /// At this byte.
    Byte(u64),
}

impl Place {
    fn within(self, length: usize) -> usize {
        let at = match self {
            Self::Part(millionths) => length as u64 * u64::from(millionths) / 1_000_000,
            Self::Byte(at) => at,
        };
        (at as usize).min(length)
    }
}

/// What becomes of what the agent keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Nothing.
    None,
    /// A file ends there.
    Cut(&'static str, Place),
    /// A byte there is another: it differs by these bits.
    Flip(&'static str, Place, u8),
    /// What was there a round before is put in its place. What is younger than the last renewal of the Lease cannot be told to be
    /// missing: without the hub, what was changed since may be as it was then. Not done where something was deleted since: what
    /// comes back so stays, for the hub that is back knows nothing of it any more.
    Exchange,
    /// It is gone.
    Lose,
}

/// One round.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// What a user does.
    pub change: Change,
    /// When somebody is killed.
    pub step: Step,
    /// Milliseconds after that.
    pub later: u64,
    /// Who is.
    pub victims: Victims,
    /// What becomes of what the agent keeps.
    pub damage: Damage,
    /// It starts again without the hub.
    pub alone: bool,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Decides which templates are changed.
    pub seed: u64,
    /// In turn.
    pub rounds: Vec<Round>,
}

impl Plan {
    /// So many rounds of all sorts, by a seed.
    pub fn of(seed: u64, rounds: u32) -> Self {
        let random = SplitMix::new(seed);
        let rounds = (0..rounds).map(|_| Round::of(&random)).collect();
        Self { seed, rounds }
    }
}

fn below(random: &SplitMix, bound: u64) -> u64 {
    random.next_u64() % bound.max(1)
}

fn one_of<T: Copy>(random: &SplitMix, of: &[T]) -> T {
    of[below(random, of.len() as u64) as usize]
}

impl Round {
    fn of(random: &SplitMix) -> Self {
        let at = Place::Part(below(random, 1_000_001) as u32);
        // Most of what there is to be damaged is the log.
        let file = match below(random, 8) {
            0 => INSTANCE,
            1..=2 => one_of(random, &CREDENTIAL),
            _ => STATE,
        };
        Self {
            change: one_of(random, &[Change::Make, Change::Alter, Change::Alter, Change::Remove]),
            step: one_of(random, &[Step::Told, Step::Kept, Step::Applied, Step::Reported]),
            later: one_of(random, &[0, 0, below(random, 20), below(random, 400)]),
            victims: one_of(random, &[Victims::Agent, Victims::Agent, Victims::Both, Victims::Hub]),
            damage: match below(random, 8) {
                0..=1 => Damage::None,
                2..=3 => Damage::Cut(file, at),
                4..=5 => Damage::Flip(file, at, 1 << below(random, 8)),
                6 => Damage::Exchange,
                _ => Damage::Lose,
            },
            alone: below(random, 3) > 0,
        }
    }
}

impl Damage {
    /// Whether nothing has happened to what was wanted, so that it is to be gone on with. Nor does a SIGKILL make it less whole.
    fn spares_the_state(self) -> bool {
        match self {
            Self::None => true,
            Self::Cut(file, _) | Self::Flip(file, ..) => file != STATE,
            Self::Exchange | Self::Lose => false,
        }
    }
}

/// What happened, when all was well.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Rounds.
    pub rounds: u32,
    /// Of the starts without a hub, those in which all was put back by what was kept.
    pub healed: u32,
    /// How often what was kept was set aside.
    pub aside: u32,
    /// How often the hub was told that it was damaged.
    pub told: u32,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "rounds                                        {}", self.rounds)?;
        writeln!(f, "starts without a hub that put everything back {}", self.healed)?;
        writeln!(f, "what was kept was set aside                   {} times", self.aside)?;
        writeln!(f, "of these the hub was told of a damage         {} times", self.told)
    }
}

/// Carries out a plan on a fleet of one member. Nothing, with a line that says why, where there is none.
///
/// # Errors
/// What was wrong. The fleet's folder is left behind.
///
/// # Panics
/// When something does not start, or does not come about.
pub async fn run(plan: &Plan, binaries: &Binaries) -> Result<Option<Summary>, String> {
    let Some(mut fleet) = Fleet::start("damages", 1, binaries, options()).await else {
        return Ok(None);
    };
    // Whoever fails, or panics, leaves everything as it is.
    fleet.dir.disable_cleanup(true);
    let folder = fleet.dir.path().to_owned();
    eprintln!("damages: seed {}, in {}", plan.seed, folder.display());
    let address = own_address();
    join_by_token(&mut fleet).await;
    let agent = &mut fleet.members[0].agent;
    agent.set_arg("--health-probe-bind-address=", format!("--health-probe-bind-address={address}"));
    let mut run = Run {
        state: folder.join(format!("{}-state", fleet.members[0].name)),
        health: address,
        random: SplitMix::new(plan.seed ^ 0x0064_616d_6167_6573),
        fleet,
        wishes: BTreeMap::new(),
        uids: BTreeMap::new(),
        former: Vec::new(),
        before: String::new(),
        made: 0,
        summary: Summary::default(),
    };
    run.begin().await;
    for (n, round) in plan.rounds.iter().enumerate() {
        eprintln!("damages: round {n}: {round:?}");
        run.round(round).await.map_err(|why| {
            format!("seed {}, round {n}, {round:?}: {why}; all of it is in {}", plan.seed, folder.display())
        })?;
        run.summary.rounds += 1;
    }
    let Run { mut fleet, summary, .. } = run;
    fleet.dir.disable_cleanup(false);
    fleet.clean_up().await;
    Ok(Some(summary))
}

/// Has the agent join by a token, as its machine does in the field: its credential lies beside what the hub said.
async fn join_by_token(fleet: &mut Fleet) {
    let (name, kubeconfig) = (&fleet.members[0].name, fleet.kubeconfig.display());
    let cluster = format!("--cluster={name}");
    let made = fleet.command(&["token", "create", &cluster, &format!("--kubeconfig={kubeconfig}")]);
    let text = String::from_utf8_lossy(&made.stdout).into_owned();
    let words: Vec<&str> = text.split_whitespace().collect();
    let value = |flag: &str| {
        let at = words.iter().position(|word| *word == flag).unwrap_or_else(|| panic!("{flag}: {text}"));
        words[at + 1].to_owned()
    };
    let (token, digest) = (value("--token"), value("--ca-cert-hash"));
    let Member { agent, link, .. } = &mut fleet.members[0];
    agent.terminate(END).await.expect("the agent ends when asked");
    agent.set_arg("--karmada-kubeconfig=", format!("--hub={}", link.address()));
    agent.set_arg("--token=", format!("--token={token}"));
    agent.set_arg("--ca-cert-hash=", format!("--ca-cert-hash={digest}"));
    agent.spawn().expect("the agent starts");
    let name = fleet.members[0].name.clone();
    fleet.ready(&name).await;
}

/// An agent that renews and reports by the second, and a hub that takes it for lost in no round: a cluster that is lost again and
/// again is held out of new scheduling.
fn options() -> Options {
    Options {
        hub: vec!["--cluster-monitor-grace-period=3m".to_owned()],
        agent: Options::impatient().agent,
        ..Options::default()
    }
}

struct Run {
    fleet: Fleet,
    /// What the agent keeps.
    state: PathBuf,
    /// Where it says how it is.
    health: SocketAddr,
    random: SplitMix,
    /// What templates say, by name.
    wishes: BTreeMap<String, String>,
    /// Which objects the member has.
    uids: BTreeMap<String, String>,
    /// The log as it was a round before.
    former: Vec<u8>,
    /// What was changed in that round.
    before: String,
    made: u32,
    summary: Summary,
}

impl Run {
    fn member(&self) -> &Rest {
        &self.fleet.members[0].api
    }

    fn path(&self, name: &str) -> String {
        config_map_path(&self.fleet.namespace, name)
    }

    async fn begin(&mut self) {
        self.fleet.create_namespace().await;
        let cluster = self.fleet.members[0].name.clone();
        self.fleet.create([policy("all", selector("v1", "ConfigMap", ""), &[&cluster])]).await;
        for name in FIRST {
            self.fleet.create([config_map(name, "0")]).await;
            self.wishes.insert(name.to_owned(), "0".to_owned());
        }
        self.agree().await;
        self.uids = self
            .found()
            .await
            .expect("the member answers")
            .into_iter()
            .map(|(name, (_, uid))| (name, uid))
            .collect();
    }

    async fn round(&mut self, round: &Round) -> Result<(), String> {
        let former = self.log();
        let name = self.change(round, &former).await;
        let is_gone = |name: &str| !name.is_empty() && !self.wishes.contains_key(name);
        let is_left = round.damage == Damage::Exchange && (is_gone(&name) || is_gone(&self.before));
        let round = &Round { damage: if is_left { Damage::None } else { round.damage }, ..*round };
        sleep(Duration::from_millis(round.later)).await;
        let (kills_hub, ends_agent_first) = match round.victims {
            Victims::Agent => (false, true),
            Victims::Both => (true, below(&self.random, 2) == 0),
            Victims::Hub => (true, false),
        };
        if kills_hub && !ends_agent_first {
            self.fleet.hub.kill();
            if round.victims == Victims::Hub {
                sleep(Duration::from_millis(below(&self.random, 300))).await;
            }
        }
        self.fleet.members[0].agent.kill();
        if kills_hub {
            self.fleet.hub.kill();
        }
        let noticed_before = self.state.join(ASIDE).exists();
        if noticed_before {
            fs::remove_file(self.state.join(ASIDE)).map_err(|e| e.to_string())?;
        }
        self.damage(round.damage);
        self.former = former;
        self.drift().await?;

        if round.alone {
            self.fleet.members[0].link.set(Mode::Refuse);
        } else if kills_hub {
            self.fleet.hub.spawn().expect("the hub starts again");
        }
        self.fleet.members[0].agent.spawn().expect("the agent starts again");
        if round.alone {
            self.alone(round, &name).await?;
            if kills_hub {
                self.fleet.hub.spawn().expect("the hub starts again");
            }
            self.fleet.members[0].link.set(Mode::Pass);
        }
        self.agree().await;
        self.same(&name).await?;
        self.before = name;
        if self.state.join(ASIDE).exists() {
            if round.damage.spares_the_state() {
                return Err("what was whole was set aside".to_owned());
            }
            self.rebuilt(round).await?;
        }
        Ok(())
    }

    /// Has a user change something, and waits until that has come as far as it is to. Answers what was changed.
    async fn change(&mut self, round: &Round, former: &[u8]) -> String {
        let others: Vec<String> =
            self.wishes.keys().filter(|name| !FIRST.contains(&name.as_str())).cloned().collect();
        self.made += 1;
        let value = self.made.to_string();
        let api = self.fleet.api.clone();
        let pick = (!others.is_empty()).then(|| below(&self.random, others.len() as u64) as usize);
        let name = match (round.change, pick) {
            (Change::Alter, _) => {
                let name = pick.map_or_else(|| FIRST[0].to_owned(), |at| others[at].clone());
                let change = json!({"data": {"key": value}});
                api.patch(&self.path(&name), Patch::Merge, &change).await.expect("a template is changed");
                self.wishes.insert(name.clone(), value);
                name
            }
            (Change::Remove, Some(at)) => {
                let name = others[at].clone();
                api.delete(&self.path(&name), &json!({})).await.expect("a template is deleted");
                self.wishes.remove(&name);
                name
            }
            (Change::Make, Some(at)) if self.wishes.len() as u64 >= TEMPLATES => {
                let name = others[at].clone();
                let change = json!({"data": {"key": value}});
                api.patch(&self.path(&name), Patch::Merge, &change).await.expect("a template is changed");
                self.wishes.insert(name.clone(), value);
                name
            }
            _ => {
                let name = format!("made-{value}");
                self.fleet.create([config_map(&name, &value)]).await;
                self.wishes.insert(name.clone(), value);
                name
            }
        };
        eventually(&format!("{name} to be {:?}", round.step), PATIENCE, || async {
            let is = match round.step {
                Step::Told => true,
                Step::Kept => self.log() != former,
                Step::Applied => self.is_applied(&name).await,
                Step::Reported => self.is_applied(&name).await && self.is_reported(&name).await,
            };
            is.then_some(()).ok_or("not yet")
        })
        .await;
        name
    }

    async fn is_applied(&self, name: &str) -> bool {
        let object = self.member().get(&self.path(name)).await;
        match (self.wishes.get(name), object) {
            (Some(value), Ok(object)) => object["data"]["key"] == value.as_str(),
            (None, Err(error)) => error.is_not_found(),
            _ => false,
        }
    }

    async fn is_reported(&self, name: &str) -> bool {
        let Ok(works) = self.works().await else { return false };
        match works.iter().find(|work| manifest(work)["metadata"]["name"] == name) {
            Some(work) => self.wishes.contains_key(name) && condition(work, "Applied") == Some("True"),
            None => !self.wishes.contains_key(name),
        }
    }

    /// Works with objects of ours.
    async fn works(&self) -> Result<Vec<Value>, String> {
        let path = works_path(&self.fleet.members[0].name);
        let list = self.fleet.api.get(&path).await.map_err(|e| e.to_string())?;
        let works = list["items"].as_array().cloned().unwrap_or_default();
        Ok(works.into_iter().filter(|work| manifest(work)["kind"] == "ConfigMap").collect())
    }

    fn log(&self) -> Vec<u8> {
        fs::read(self.state.join(STATE)).unwrap_or_default()
    }

    fn damage(&self, damage: Damage) {
        let write = |path: &Path, bytes: &[u8]| fs::write(path, bytes).expect("a file is written");
        match damage {
            Damage::None => {}
            Damage::Cut(file, at) => {
                let path = self.state.join(file);
                let mut bytes = fs::read(&path).unwrap_or_default();
                bytes.truncate(at.within(bytes.len()));
                write(&path, &bytes);
            }
            Damage::Flip(file, at, bits) => {
                let path = self.state.join(file);
                let mut bytes = fs::read(&path).unwrap_or_default();
                let at = at.within(bytes.len()).min(bytes.len().saturating_sub(1));
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= bits;
                }
                write(&path, &bytes);
            }
            Damage::Exchange if !self.former.is_empty() => write(&self.state.join(STATE), &self.former),
            Damage::Exchange => {}
            Damage::Lose => drop(fs::remove_file(self.state.join(STATE))),
        }
    }

    /// Somebody on the member deletes one object, and changes another.
    async fn drift(&self) -> Result<(), String> {
        let text = |error: karmada_client::Error| error.to_string();
        self.member().delete(&self.path("vanishes"), &json!({})).await.map_err(text)?;
        let wrong = json!({"data": {"key": "wrong"}});
        self.member().patch(&self.path("drifts"), Patch::Merge, &wrong).await.map_err(text)?;
        Ok(())
    }

    /// What the member has, with its values and uids.
    async fn found(&self) -> Result<BTreeMap<String, (String, String)>, String> {
        let path = format!("/api/v1/namespaces/{}/configmaps", self.fleet.namespace);
        let list = self.member().get(&path).await.map_err(|e| e.to_string())?;
        let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let objects = items.iter().map(|object| {
            let meta = &object["metadata"];
            (text(&meta["name"]), (text(&object["data"]["key"]), text(&meta["uid"])))
        });
        Ok(objects.filter(|(name, _)| name != "kube-root-ca.crt").collect())
    }

    /// What is wrong, as the agent says it on its machine.
    async fn troubles(&self) -> Result<Vec<String>, String> {
        let status = agent_status(self.health).await?;
        let troubles = status["troubles"].as_array().cloned().unwrap_or_default();
        Ok(troubles.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    }

    /// Whether what the user did not touch is as wanted.
    async fn is_put_back(&self, but: &[&str]) -> Result<(), String> {
        let found = self.found().await?;
        for (wish, value) in self.wishes.iter().filter(|(wish, _)| !but.contains(&wish.as_str())) {
            match found.get(wish) {
                Some((there, _)) if there == value => {}
                other => return Err(format!("{wish} is {other:?} and is to be {value}")),
            }
        }
        Ok(())
    }

    /// Without a hub all is put back by what was kept, unless that is set aside; then nothing is done.
    async fn alone(&mut self, round: &Round, name: &str) -> Result<(), String> {
        let before = if round.damage == Damage::Exchange { self.before.as_str() } else { name };
        let but = [name, before];
        let is_aside = eventually("all to be put back, or the damage to be noticed", PATIENCE, || async {
            let aside = self.state.join(ASIDE).exists();
            match self.is_put_back(&but).await {
                Ok(()) => Ok(false),
                // Where nothing is left there is nothing to be set aside.
                Err(_) if aside || round.damage == Damage::Lose && !self.log().is_empty() => Ok(true),
                Err(why) => Err(why),
            }
        })
        .await;
        self.kept(name).await?;
        if !is_aside {
            self.summary.healed += 1;
            let noticed = self.state.join(ASIDE).exists();
            return if round.damage.spares_the_state() && noticed {
                Err("what was whole was set aside".to_owned())
            } else {
                Ok(())
            };
        }
        if round.damage.spares_the_state() {
            return Err("what was whole was not gone on with".to_owned());
        }
        if matches!(round.damage, Damage::Cut(STATE, _) | Damage::Flip(STATE, ..)) {
            eventually("the damage to be told on the machine", PATIENCE, || async {
                let troubles = self.troubles().await?;
                let is_told = troubles.iter().any(|why| why.contains("the agent's state: "));
                if is_told { Ok(()) } else { Err(format!("{troubles:?}")) }
            })
            .await;
        }
        Ok(())
    }

    /// Nothing that nobody deleted is gone, and each is the object that it was.
    async fn kept(&self, name: &str) -> Result<(), String> {
        let found = self.found().await?;
        for wish in self.wishes.keys().filter(|wish| *wish != name && *wish != "vanishes") {
            match (found.get(wish), self.uids.get(wish)) {
                (Some((_, uid)), Some(before)) if uid == before => {}
                (there, before) => return Err(format!("{wish} is {there:?}, and was {before:?}")),
            }
        }
        Ok(())
    }

    /// Hub, Works and member agree, and nothing is there twice.
    async fn agree(&self) {
        self.fleet.ready(&self.fleet.members[0].name).await;
        eventually("hub, Works and the member to agree", PATIENCE, || async {
            let found = self.found().await?;
            let values: BTreeMap<String, String> =
                found.into_iter().map(|(name, (value, _))| (name, value)).collect();
            if values != self.wishes {
                return Err(format!("the member has {values:?} of {:?}", self.wishes));
            }
            let works = self.works().await?;
            let said = works.iter().map(|work| {
                let manifest = manifest(work);
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                (text(&manifest["metadata"]["name"]), text(&manifest["data"]["key"]))
            });
            let said: BTreeMap<String, String> =
                said.filter(|(name, _)| name != "kube-root-ca.crt").collect();
            if said != self.wishes || works.len() != said.len() {
                return Err(format!("{} Works say {said:?} of {:?}", works.len(), self.wishes));
            }
            match works.iter().find(|work| condition(work, "Applied") != Some("True")) {
                Some(work) => Err(format!("not applied: {}", work["metadata"]["name"])),
                None => Ok(()),
            }
        })
        .await;
    }

    /// Each object is the one that it was, but for what somebody has deleted.
    async fn same(&mut self, name: &str) -> Result<(), String> {
        self.kept(name).await?;
        let found = self.found().await?;
        // One that was changed is still the same.
        if let (Some((_, uid)), Some(before)) = (found.get(name), self.uids.get(name))
            && uid != before
        {
            return Err(format!("{name} was made anew, and was only changed"));
        }
        self.uids = found.into_iter().map(|(name, (_, uid))| (name, uid)).collect();
        Ok(())
    }

    /// What was set aside stands on the Cluster if it was damaged, and what the hub says is kept anew: without the hub all is put
    /// back again.
    async fn rebuilt(&mut self, round: &Round) -> Result<(), String> {
        self.summary.aside += 1;
        if matches!(round.damage, Damage::Cut(STATE, _) | Damage::Flip(STATE, ..)) {
            let path = cluster_path(&self.fleet.members[0].name);
            let told = until(&self.fleet.api, &path, "told of the damage", PATIENCE, |cluster| {
                condition(cluster, "StateNotKept") == Some("True")
            })
            .await;
            let said = condition_of(&told, "StateNotKept").map(|said| said["reason"].clone());
            if said != Some(json!("Damaged")) {
                return Err(format!("the Cluster says {said:?}"));
            }
            self.summary.told += 1;
        }
        // What was applied is kept a little later, and is not needed for this.
        self.fleet.members[0].link.set(Mode::Refuse);
        self.fleet.members[0].agent.kill();
        fs::remove_file(self.state.join(ASIDE)).map_err(|e| e.to_string())?;
        self.drift().await?;
        self.fleet.members[0].agent.spawn().expect("the agent starts again");
        eventually("all to be put back by what was kept anew", PATIENCE, || self.is_put_back(&[])).await;
        if self.state.join(ASIDE).exists() {
            return Err("what was kept anew was set aside".to_owned());
        }
        self.kept("").await?;
        self.summary.healed += 1;
        self.fleet.members[0].link.set(Mode::Pass);
        self.agree().await;
        self.same("").await
    }
}

/// What a Work of one object carries.
fn manifest(work: &Value) -> &Value {
    &work["spec"]["workload"]["manifests"][0]
}
