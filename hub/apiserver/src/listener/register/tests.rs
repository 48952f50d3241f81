//! Floods against the register, with a clock of the tests' own.

use std::net::Ipv4Addr;

use super::*;

const AGENT: &str = "10.1.0.1";

struct Scene {
    register: Register,
    now: Instant,
}

impl Scene {
    fn new(limits: Limits) -> Self {
        let now = Instant::now();
        Self { register: Register::new(limits.consistent(), now), now }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    fn arrive(&mut self, address: &str) -> Result<(Id, Arc<Activity>), &'static str> {
        let activity = Activity::new(100, self.now);
        let id = self.register.arrive(address.parse().unwrap(), &activity, self.now)?;
        Ok((id, activity))
    }

    /// An agent that connects, says hello and shows its certificate.
    fn agent(&mut self, address: &str, name: &str) -> Result<Agent, &'static str> {
        let (id, activity) = self.arrive(address)?;
        self.register.turn(id, self.now)?;
        let shown = credential(name);
        let origin = self.register.show(id, &shown, self.now)?;
        Ok(Agent { id, activity, shown: (shown, origin) })
    }

    fn leave(&mut self, agent: &Agent) {
        self.register.leave(agent.id, Some(&agent.shown), self.now);
    }

    fn counts(&self) -> (usize, usize, usize) {
        let census = self.register.census();
        (census.open, census.strangers, census.reserved)
    }
}

#[derive(Debug)]
struct Agent {
    id: Id,
    activity: Arc<Activity>,
    shown: (Credential, Origin),
}

fn credential(name: &str) -> Credential {
    let mut key = [0; 32];
    key[..name.len()].copy_from_slice(name.as_bytes());
    Credential { key, identity: (name != "admin").then(|| Arc::from(name)) }
}

fn has_ended(activity: &Activity) -> Option<&'static str> {
    futures::FutureExt::now_or_never(activity.ended())
}

#[test]
fn places_are_few_for_strangers_of_one_address_and_who_does_nothing_goes() {
    let mut scene = Scene::new(Limits { strangers_per_address: 2, ..Limits::default() });
    let (one, first) = scene.arrive("10.0.0.1").unwrap();
    let (_, second) = scene.arrive("::ffff:10.0.0.1").unwrap();
    assert_eq!(scene.arrive("10.0.0.1").unwrap_err(), reason::ADDRESS, "nobody goes at once");
    scene.arrive("10.0.0.2").unwrap();
    scene.pass(SETTLE);
    let running = first.begin();
    let (_, third) = scene.arrive("10.0.0.1").unwrap();
    assert_eq!((has_ended(&first), has_ended(&second)), (None, Some(reason::ROOM)), "who is busy stays");
    assert_eq!(scene.counts(), (3, 3, 0));
    scene.pass(SETTLE);
    let stays = third.begin();
    assert_eq!(scene.arrive("10.0.0.1").unwrap_err(), reason::ADDRESS, "both are busy");
    drop((running, stays));
    scene.register.leave(one, None, scene.now);
    scene.register.leave(one, None, scene.now);
    assert_eq!(scene.counts(), (2, 2, 0), "who has left is not there twice");
    scene.arrive("10.0.0.1").unwrap();
}

#[test]
fn where_all_places_are_taken_the_largest_crowd_gives_one() {
    let mut scene = Scene::new(Limits { strangers: 10, strangers_per_address: 8, ..Limits::default() });
    let crowd: Vec<_> = (0..8).map(|i| scene.arrive(&format!("2001:db8::{i}")).unwrap()).collect();
    let (_, alone) = scene.arrive("10.0.0.1").unwrap();
    scene.arrive("10.0.0.2").unwrap();
    for i in 3..6 {
        scene.arrive(&format!("10.0.0.{i}")).unwrap();
    }
    let gone: Vec<_> = crowd.iter().map(|(_, activity)| has_ended(activity).is_some()).collect();
    assert_eq!(gone, [true, true, true, false, false, false, false, false]);
    assert_eq!((has_ended(&alone), scene.counts()), (None, (10, 10, 0)));
    // When each has one, the oldest goes.
    let mut scene = Scene::new(Limits { strangers: 3, ..Limits::default() });
    let all: Vec<_> = [5, 9, 1].map(|i| scene.arrive(&format!("10.0.0.{i}")).unwrap()).into();
    assert_eq!(scene.arrive("10.0.0.7").unwrap_err(), reason::STRANGERS, "but not at once");
    scene.pass(SETTLE);
    scene.arrive("10.0.0.7").unwrap();
    let gone: Vec<_> = all.iter().map(|(_, activity)| has_ended(activity).is_some()).collect();
    assert_eq!(gone, [true, false, false]);
}

#[test]
fn no_agent_goes_for_a_stranger_and_strangers_go_for_agents() {
    let mut scene = Scene::new(Limits { connections: 8, strangers: 4, reserved: 2, ..Limits::default() });
    let agents: Vec<_> = (0..6).map(|i| scene.agent(AGENT, &format!("a{i}")).unwrap()).collect();
    let strangers: Vec<_> = (0..2).map(|i| scene.arrive(&format!("10.0.0.{i}")).unwrap()).collect();
    scene.pass(Duration::from_secs(3600));
    let more = scene.agent(AGENT, "a6").unwrap();
    let last = scene.agent("10.2.0.1", "a7").unwrap();
    assert!(strangers.iter().all(|(_, activity)| has_ended(activity) == Some(reason::ROOM)));
    scene.pass(Duration::from_secs(3600));
    for address in ["10.0.0.9", AGENT] {
        assert_eq!(scene.arrive(address).unwrap_err(), reason::CONNECTIONS, "{address}");
    }
    assert!(agents.iter().chain([&more, &last]).all(|agent| has_ended(&agent.activity).is_none()));
    assert_eq!(scene.counts(), (8, 0, 0));
    for agent in agents.iter().chain([&more, &last]) {
        scene.leave(agent);
    }
    assert_eq!(scene.counts(), (0, 0, 0));
    assert!(scene.register.certified.is_empty() && scene.register.guests.is_empty());
}

#[test]
fn an_identity_has_so_many_connections_and_its_idle_ones_go_first() {
    let mut scene = Scene::new(Limits { connections_per_identity: 2, ..Limits::default() });
    let one = scene.agent(AGENT, "a").unwrap();
    scene.pass(Duration::from_secs(1));
    let two = scene.agent("10.9.9.9", "a").unwrap();
    let running = one.activity.begin();
    let three = scene.agent(AGENT, "a").unwrap();
    let ended = |agent: &Agent| has_ended(&agent.activity);
    assert_eq!((ended(&one), ended(&two), ended(&three)), (None, Some(reason::IDENTITY), None));
    scene.leave(&two);
    assert_eq!(scene.counts(), (2, 0, 0));
    let stays = three.activity.begin();
    assert_eq!(scene.agent(AGENT, "a").unwrap_err(), reason::IDENTITY, "all are busy");
    scene.agent(AGENT, "b").unwrap();
    for _ in 0..100 {
        scene.agent(AGENT, "admin").unwrap();
    }
    drop((running, stays));
}

/// Each second somebody connects from somewhere else, while strangers do as they like.
fn besieged(
    limits: Limits,
    seconds: u64,
    per_second: u32,
    mut stranger: impl FnMut(&mut Scene, u32),
    mut visit: impl FnMut(&mut Scene, u64),
) -> Scene {
    let mut scene = Scene::new(limits);
    let mut count = 0;
    for second in 0..seconds {
        for _ in 0..per_second {
            scene.pass(Duration::from_secs(1) / per_second);
            stranger(&mut scene, count);
            count += 1;
        }
        visit(&mut scene, second);
    }
    scene
}

#[test]
fn strangers_that_flood_keep_no_agent_out() {
    let one_byte = |addresses: u32| {
        move |scene: &mut Scene, i: u32| {
            let _ = scene.arrive(&format!("10.0.0.{}", i % addresses));
        }
    };
    let with_hello = |addresses: u32| {
        move |scene: &mut Scene, i: u32| {
            if let Ok((id, _)) = scene.arrive(&format!("10.0.0.{}", i % addresses)) {
                let _ = scene.register.turn(id, scene.now);
            }
        }
    };
    let of_one_net = |scene: &mut Scene, i: u32| {
        if let Ok((id, _)) = scene.arrive(&format!("2001:db8:0:1:{:x}:{:x}::1", i >> 16, i & 0xffff)) {
            let _ = scene.register.turn(id, scene.now);
        }
    };
    type Flood = Box<dyn FnMut(&mut Scene, u32)>;
    let floods: [(&str, u32, Flood); 5] = [
        ("one byte, from one address", 200, Box::new(one_byte(1))),
        ("one byte, from two addresses", 280, Box::new(one_byte(2))),
        ("hellos, from one address", 1_000, Box::new(with_hello(1))),
        ("hellos, from sixteen addresses", 5_000, Box::new(with_hello(16))),
        ("hellos, from one /64", 5_000, Box::new(of_one_net)),
    ];
    for (what, per_second, flood) in floods {
        let visit = |scene: &mut Scene, second: u64| {
            let address = format!("10.1.{}.1", second % 250);
            let (id, _) = scene.arrive(&address).unwrap_or_else(|why| panic!("{what}: {second}: {why}"));
            let turn = scene.register.turn(id, scene.now);
            assert_eq!(turn, Ok((Class::Newcomer, Duration::ZERO)), "{what}: {second}");
            scene.register.show(id, &credential(&format!("a{second}")), scene.now).unwrap();
        };
        let scene = besieged(Limits::default(), 60, per_second, flood, visit);
        let limits = scene.register.limits;
        assert!(scene.register.strangers.len() <= limits.strangers, "{what}");
    }
}

#[test]
fn a_flood_from_the_address_of_agents_leaves_them_their_share() {
    // 100 agents have been here, all from one address, which now floods; one of them loses its link each second.
    let mut agents = 0;
    let flood = |scene: &mut Scene, _: u32| {
        if let Ok((id, _)) = scene.arrive(AGENT) {
            let _ = scene.register.turn(id, scene.now);
        }
    };
    let visit = |scene: &mut Scene, second: u64| {
        if second < 10 {
            // Before the flood has filled anything.
            agents += (0..10).filter(|i| scene.agent(AGENT, &format!("a{second}-{i}")).is_ok()).count();
        }
    };
    let mut scene = besieged(Limits::default(), 10, 1, flood, visit);
    assert_eq!(agents, 100);
    let mut came_back = 0;
    for second in 0..60_u32 {
        for i in 0..1_000 {
            scene.pass(Duration::from_millis(1));
            if let Ok((id, _)) = scene.arrive(AGENT) {
                let _ = scene.register.turn(id, scene.now);
            }
            // Ten tries a second, at no fixed place in the flood.
            if (i * 7 + second) % 100 == 0 {
                came_back += u32::from(scene.agent(AGENT, &format!("a{}-0", second % 10)).is_ok());
            }
        }
        // Elsewhere nobody notices.
        scene.agent(&format!("10.3.0.{second}"), "b").unwrap();
    }
    assert!(came_back >= 60 * 6, "{came_back} of 600");
}

#[test]
fn a_fleet_that_comes_home_all_at_once_is_let_in() {
    let mut scene = Scene::new(Limits::default());
    for i in 0..5_000 {
        scene.pass(Duration::from_micros(300));
        let (id, _) = scene.arrive(AGENT).unwrap();
        let (_, wait) = scene.register.turn(id, scene.now).unwrap();
        assert_eq!(wait, Duration::ZERO, "{i}");
        scene.register.show(id, &credential(&format!("a{i}")), scene.now).unwrap();
    }
    assert_eq!(scene.counts().0, 5_000);
}

#[test]
fn one_key_does_not_buy_more_handshakes_than_a_fleet_needs() {
    let mut scene = Scene::new(Limits::default());
    let mut granted = 0;
    for i in 0..60_000_u32 {
        scene.pass(Duration::from_millis(1));
        let address = format!("10.{}.{}.{}", i % 7, i % 11, i % 13);
        if let Ok(agent) = scene.agent(&address, "stolen") {
            granted += 1;
            scene.leave(&agent);
        }
    }
    // The crowd's rate, newcomers' of the 1,001 addresses, what is returned, and what four known addresses have.
    let most = 256 + 800 * 61 + 256 + 400 * 61 + 2 * (64 + 60) + 4 * (16 + 4 * 60);
    assert!(granted <= most, "{granted}");
}

#[test]
fn for_want_of_files_idle_strangers_go() {
    let mut scene = Scene::new(Limits::default());
    let agent = scene.agent(AGENT, "a").unwrap();
    let all: Vec<_> = (0..10).map(|i| scene.arrive(&format!("10.0.0.{i}")).unwrap()).collect();
    let running = all[0].1.begin();
    scene.register.relieve(3);
    let gone = all.iter().filter(|(_, activity)| has_ended(activity).is_some()).count();
    assert_eq!((gone, scene.counts(), has_ended(&all[0].1)), (3, (8, 7, 0), None));
    scene.register.relieve(100);
    assert_eq!((scene.counts(), has_ended(&agent.activity)), ((2, 1, 0), None));
    drop(running);
}

/// A fleet that has lost its hub comes back to one that knows nobody. Answers after how long all are in; none if they are
/// not within ten minutes.
fn homecoming(agents: u32, addresses: u32, hello: Duration, proof: Duration) -> Option<Duration> {
    enum Step {
        Dial,
        Hello(Id, Arc<Activity>),
        Flight(Id, Arc<Activity>),
        Proof(Id, Arc<Activity>),
    }
    let mut scene = Scene::new(Limits::default());
    let start = scene.now;
    let mut steps = BTreeMap::new();
    let (mut number, mut random) = (0_u64, 1_u64);
    let mut draw = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as f64 / (1_u64 << 31) as f64
    };
    let mut tries = vec![0_u32; agents as usize];
    // As the agent's own: doubling, and drawn from all of it.
    let mut pause = |tries: &mut u32| {
        let longest = (0.25 * f64::from(1 << (*tries).min(8))).min(1.5);
        *tries += 1;
        Duration::from_secs_f64(draw() * longest)
    };
    for agent in 0..agents {
        number += 1;
        steps.insert((start + pause(&mut tries[agent as usize]), number), (agent, Step::Dial));
    }
    let mut left = agents;
    while let Some(((now, _), (agent, step))) = steps.pop_first() {
        scene.now = now;
        if now > start + Duration::from_secs(600) {
            return None;
        }
        let address = Ipv4Addr::from(0x0a00_0000 + agent % addresses).to_string();
        let next = match step {
            Step::Dial => scene.arrive(&address).map(|(id, activity)| (hello, Step::Hello(id, activity))),
            Step::Hello(_, activity) | Step::Flight(_, activity) | Step::Proof(_, activity)
                if has_ended(&activity).is_some() =>
            {
                Err(reason::ROOM)
            }
            Step::Hello(id, activity) => {
                activity.step(now);
                match scene.register.turn(id, now) {
                    Ok((_, wait)) => Ok((wait, Step::Flight(id, activity))),
                    Err(why) => {
                        scene.register.leave(id, None, now);
                        Err(why)
                    }
                }
            }
            Step::Flight(id, activity) => {
                activity.step(now);
                Ok((proof, Step::Proof(id, activity)))
            }
            Step::Proof(id, _) => {
                scene.register.show(id, &credential(&agent.to_string()), now).unwrap();
                left -= 1;
                if left == 0 {
                    return Some(now - start);
                }
                continue;
            }
        };
        number += 1;
        let (after, step) = next.unwrap_or_else(|_| (pause(&mut tries[agent as usize]), Step::Dial));
        steps.insert((now + after, number), (agent, step));
    }
    None
}

#[test]
fn ten_thousand_agents_come_home_to_a_hub_that_knows_nobody() {
    // Addresses, time to the hello, time to the proof, and the most that it may take, in milliseconds.
    let cases = [
        ("each from its own place", 10_000, 100, 100, 20_000),
        ("far away", 10_000, 600, 600, 30_000),
        // 3 kB of certificates at 4 kB/s, and what the line is long.
        ("on slow lines", 10_000, 600, 1_400, 90_000),
        ("through one balancer", 1, 100, 100, 30_000),
        ("through three, far away", 3, 600, 600, 30_000),
        ("through three, on slow lines", 3, 600, 1_400, 90_000),
    ];
    for (what, addresses, hello, proof, most) in cases {
        let took = homecoming(10_000, addresses, Duration::from_millis(hello), Duration::from_millis(proof));
        assert!(took.is_some_and(|took| took.as_millis() <= most), "{what}: {took:?}");
    }
}
