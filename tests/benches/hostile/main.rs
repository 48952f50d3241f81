//! What others notice when one agent, strangers or a user attack a hub: real processes, in release.
//!
//!     cargo bench -p karmada-tests --bench hostile [-- --binaries DIR] [--only flood,strangers] [--seconds N] …
//!
//! ```text
//!   main ── one function per figure ─▶ karmada_tests::hostile: a hub of its own, agents under load, attacks
//!     └──▶ report: a Markdown table, beside the machine, its fsync and what is to be reached
//! ```
//!
//! As in `main_job`, nothing is asserted. The attackers share the machine's cores with the hub: what both took stands
//! beside every row, and how late the thread that measures was woken itself.

use std::time::Duration;

use clap::{Parser, ValueEnum};
use karmada_tests::{
    bench::{
        self, Common, Report,
        report::{mb, ms, seconds},
    },
    fleet::Binaries,
    hostile::{
        Round,
        attack::{ATTACKS, Attack, By},
        bodies,
        client::Ask,
        ground::{Family, Ground, MALLORY, own_work, works},
        measured, one,
        others::{Others, Rates, spread},
        play,
    },
};
use tokio::time::sleep;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// The same load without an attack.
    Calm,
    /// One certified identity floods.
    Flood,
    /// Strangers open a thousand connections a second.
    Strangers,
    /// Single requests at the limits.
    Largest,
    /// Every attack alone.
    Attacks,
}

#[derive(Clone, Debug, Parser)]
struct Args {
    /// Only these attacks, or requests at the limits.
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    attack: Vec<String>,
    #[command(flatten)]
    common: Common<Figure>,
    /// Seconds of an attack.
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Agents that do their work meanwhile.
    #[arg(long, default_value_t = 20)]
    agents: usize,
    /// Agents that join during an attack.
    #[arg(long, default_value_t = 3)]
    newcomers: usize,
    /// Milliseconds between two renewals of one agent.
    #[arg(long, default_value_t = 200)]
    renew: u64,
    /// Seconds that a hub gets to come to rest.
    #[arg(long, default_value_t = 2)]
    settle: u64,
}

struct Bed {
    args: Args,
    binaries: Binaries,
}

fn main() {
    let args = Args::parse();
    // One thread for the attackers; those who notice have one of their own.
    bench::print(1, measure(&Bed { binaries: args.common.binaries(), args }));
}

async fn measure(bed: &Bed) -> Report {
    let mut report = Report::new();
    for figure in bed.args.common.figures() {
        match figure {
            Figure::Calm => bed.calm(&mut report).await,
            Figure::Flood => bed.flood(&mut report).await,
            Figure::Strangers => bed.strangers(&mut report).await,
            Figure::Largest => bed.largest(&mut report).await,
            Figure::Attacks => bed.attacks(&mut report).await,
        }
    }
    report
}

impl Bed {
    fn span(&self) -> Duration {
        Duration::from_secs(self.args.seconds)
    }

    fn wanted(&self, name: &str) -> bool {
        self.args.attack.is_empty() || self.args.attack.iter().any(|wanted| wanted == name)
    }

    /// A hub with agents that do their work, at rest.
    async fn ground(&self, family: Family) -> (Ground, Others) {
        let ground = Ground::start(&self.binaries, family, self.args.agents, self.args.newcomers, &[]).await;
        let rates = Rates {
            renew: Duration::from_millis(self.args.renew),
            report: Duration::from_secs(1),
            ready: Duration::from_millis(5),
            fresh: Duration::from_millis(500),
            join: self.span() / u32::try_from(self.args.newcomers.max(1)).unwrap_or(1),
        };
        let others = Others::start(&ground.people, rates).await;
        let kept =
            ground.people.mallory.ask(Ask::post(&works(MALLORY), own_work("kept", "v").to_string())).await;
        assert!(matches!(&kept, Ok(kept) if kept.code == 201), "a Work of the attacker's own: {kept:?}");
        sleep(Duration::from_secs(self.args.settle)).await;
        (ground, others)
    }

    async fn alone(&self, attack: &Attack, family: Family) -> Round {
        let (ground, others) = self.ground(family).await;
        play(&ground, &others, &[attack], 1, self.span()).await
    }

    async fn calm(&self, report: &mut Report) {
        let (ground, others) = self.ground(Family::V4).await;
        let round = measured(&ground, &others, sleep(self.span())).await;
        row(report, "without an attack", &round, "");
    }

    async fn flood(&self, report: &mut Report) {
        let attack = attack("flood");
        let round = self.alone(attack, Family::V4).await;
        let (_, p99, _) = spread(&round.noticed.renewals);
        report.add(
            "p99 of other agents' renewals while one certified identity floods, refused",
            format!("{}, {} of {}", ms(p99), round.noticed.renewals_refused(), round.noticed.renewals.len()),
            "≤ 250 ms, none",
            "",
        );
        row(report, attack.name, &round, "");
    }

    async fn strangers(&self, report: &mut Report) {
        let names = ["one-byte-1000", "one-byte-many", "silent", "hellos", "garbage", "plain-http"];
        let (mut worst, mut joining, mut refused) = (("", Duration::ZERO), Duration::ZERO, 0);
        for (name, family) in
            names.map(|name| (name, Family::V4)).into_iter().chain([("one-byte-1000", Family::V6)])
        {
            if !self.wanted(name) {
                continue;
            }
            let round = self.alone(attack(name), family).await;
            let (_, p99, _) = spread(&round.noticed.renewals);
            if p99 >= worst.1 {
                worst = (name, p99);
            }
            joining = joining.max(spread(&round.noticed.joins).2);
            refused += round.noticed.renewals_refused();
            row(report, &format!("{name} ({family:?})"), &round, "");
        }
        report.add(
            "p99 of renewals while strangers open 1,000 connections/s, the worst of all kinds",
            format!("{} ({}), {refused} refused", ms(worst.1), worst.0),
            "≤ 250 ms, none",
            "",
        );
        report.add("a new agent joins meanwhile, the slowest", seconds(joining), "≤ 5 s", "");
    }

    async fn largest(&self, report: &mut Report) {
        let (ground, others) = self.ground(Family::V4).await;
        let (all, mut slowest) = (bodies::all("kept"), Vec::new());
        for large in all.iter().filter(|large| self.wanted(large.name)) {
            let (round, said) = one(&ground, &others, large).await;
            let (ready, renewal) = (spread(&round.noticed.ready).2, spread(&round.noticed.renewals).2);
            let lag = spread(&round.noticed.lag).2;
            eprintln!(
                "{:?}: {}: readyz {}, renewals {}, own lag {}, peak {}: {said}",
                large.by,
                large.name,
                ms(ready),
                ms(renewal),
                ms(lag),
                mb(round.peak)
            );
            slowest.push((ready, renewal, round.peak, large));
        }
        slowest.sort_by_key(|(ready, ..)| std::cmp::Reverse(*ready));
        for (ready, renewal, peak, large) in slowest.iter().take(8) {
            report.add(
                format!("{}, by {:?}: no answer to /readyz, slowest renewal, memory", large.name, large.by),
                format!("{}, {}, {}", ms(*ready), ms(*renewal), mb(*peak)),
                "",
                "",
            );
        }
        let (ready, ..) = slowest.first().expect("there are some");
        report.add(
            format!(
                "longest time without an answer to /readyz under any of {} single requests",
                slowest.len()
            ),
            ms(*ready),
            "≤ 100 ms",
            "",
        );
    }

    async fn attacks(&self, report: &mut Report) {
        for attack in ATTACKS.iter().filter(|attack| self.wanted(attack.name)) {
            let family =
                if attack.by == By::Stranger && attack.name == "silent" { Family::V6 } else { Family::V4 };
            let round = self.alone(attack, family).await;
            row(report, attack.name, &round, attack.what);
        }
    }
}

fn attack(name: &str) -> &'static Attack {
    ATTACKS.iter().find(|attack| attack.name == name).expect("it stands in the table")
}

/// What was noticed of an attack, on one line.
fn row(report: &mut Report, name: &str, round: &Round, what: &str) {
    let noticed = &round.noticed;
    let (p50, p99, max) = spread(&noticed.renewals);
    let refused: Vec<String> =
        noticed.refused.iter().map(|((who, code), count)| format!("{count} {who} {code}")).collect();
    let broken: Vec<String> =
        noticed.broken.iter().map(|(who, count)| format!("{count} {who} unanswered")).collect();
    let refused: Vec<String> = refused.into_iter().chain(broken).collect();
    let (.., events) = spread(&noticed.events);
    let measured = format!(
        "{} / {} / {} of {}; refused: {}; readyz {}; watches {}; new connection {}; join {}; {}; cores {:.2} hub, {:.2} here; \
         lag {} / {}",
        ms(p50),
        ms(p99),
        ms(max),
        noticed.renewals.len(),
        if refused.is_empty() { "none".to_owned() } else { refused.join(", ") },
        ms(spread(&noticed.ready).2),
        ms(events),
        ms(spread(&noticed.fresh).2),
        seconds(spread(&noticed.joins).2),
        mb(round.peak),
        round.cores.0,
        round.cores.1,
        ms(spread(&noticed.lag).1),
        ms(spread(&noticed.lag).2),
    );
    let what = if what.is_empty() { String::new() } else { format!(": {what}") };
    report.add(format!("{name}{what}"), measured, "", "");
    for (name, tally) in &round.tallies {
        eprintln!("    {name}: {tally}");
    }
    for wrong in &round.wrong {
        eprintln!("    wrong: {wrong}");
    }
}
