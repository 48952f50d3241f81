//! Clusters that join by a token: from the start of the agent's program until its Cluster is Ready, alone and all at once.
//!
//!     cargo bench -p karmada-tests --bench joining [-- --binaries DIR] [--only one,many] [--agents N]
//!
//! Agents are programs of their own, each beside a stand-in member of its own and without a volume that has its key. Bytes
//! are the hub's count, TLS included, and TCP's own left out. Nothing is asserted.

use std::{path::PathBuf, time::Duration};

use clap::{Parser, ValueEnum};
use karmada_tests::{
    bench::{
        self, Common, Report, computed, now,
        report::{mb, seconds},
        resident, until,
    },
    fleet::{Binaries, Fleet, Options, cluster_path, condition, file, start_stock_with},
    process::Process,
};

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// A cluster that joins alone.
    One,
    /// Many at once.
    Many,
}

#[derive(Clone, Debug, Parser)]
struct Args {
    #[command(flatten)]
    common: Common<Figure>,
    /// Agents that join at once.
    #[arg(long, default_value_t = 1_000)]
    agents: usize,
}

fn main() {
    let args = Args::parse();
    bench::print(2, measure(&args));
}

async fn measure(args: &Args) -> Report {
    let binaries = args.common.binaries();
    let fleet = Fleet::start("joins", 0, &binaries, Options::default()).await.expect("a hub");
    let bed = Bed { fleet, binaries };
    let mut report = Report::new();
    for figure in args.common.figures() {
        match figure {
            Figure::One => bed.one(&mut report).await,
            Figure::Many => bed.many(args.agents, &mut report).await,
        }
    }
    report
}

struct Bed {
    fleet: Fleet,
    binaries: Binaries,
}

/// A member without an agent, and the line by which it joins.
struct Member {
    name: String,
    kubeconfig: PathBuf,
    line: Vec<String>,
    _cluster: Process,
}

impl Bed {
    fn at(&self, name: &str) -> PathBuf {
        self.fleet.dir.path().join(name)
    }

    fn member(&self, name: &str) -> Member {
        let (cluster, kubeconfig) =
            start_stock_with(self.fleet.dir.path(), name, &self.binaries, false, Some("--in-memory"));
        let admin = format!("--kubeconfig={}", self.fleet.kubeconfig.display());
        let made = self.fleet.command(&["token", "create", &format!("--cluster={name}"), &admin]);
        let made = String::from_utf8_lossy(&made.stdout).into_owned();
        let line = made.lines().find_map(|line| line.strip_prefix("karmada-agent join ")).expect("a line");
        let line = line.split_whitespace().map(str::to_owned).collect();
        Member { name: name.to_owned(), kubeconfig, line, _cluster: cluster }
    }

    fn agent(&self, member: &Member) -> Process {
        let own = [
            format!("--kubeconfig={}", member.kubeconfig.display()),
            format!("--state-dir={}", self.at(&format!("{}-state", member.name)).display()),
            "--health-probe-bind-address=0".to_owned(),
            "--metrics-bind-address=0".to_owned(),
        ];
        let (program, head) = &self.binaries.agent;
        let args = head.iter().cloned().chain(own).chain(member.line.iter().cloned());
        Process::start(self.fleet.dir.path(), &format!("{}-agent", member.name), program, args)
            .expect("the agent starts")
    }

    /// The sum of a figure of the hub's page.
    async fn figure(&self, name: &str) -> f64 {
        let page = self.fleet.api.get_text("/metrics").await.expect("the hub's figures");
        let values = page.lines().filter_map(|line| {
            let rest = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' ']))?;
            rest.rsplit(' ').next()?.parse::<f64>().ok()
        });
        values.sum()
    }

    async fn crossed(&self) -> f64 {
        self.figure("karmada_hub_received_bytes_total").await
            + self.figure("karmada_hub_sent_bytes_total").await
    }

    async fn one(&self, report: &mut Report) {
        let member = self.member("alone");
        file(&member.kubeconfig).await;
        // What it costs to ask goes off.
        let (first, before) = (self.crossed().await, self.crossed().await);
        let (program, head) = &self.binaries.agent;
        let start = now();
        let state = format!("--state-dir={}", self.at("alone-only").display());
        let joined = std::process::Command::new(program)
            .args(head)
            .args(["join", "--join-only", &state])
            .args(&member.line)
            .output()
            .expect("the agent starts");
        assert!(joined.status.success(), "{joined:?}");
        let took = start.elapsed();
        let bytes = self.crossed().await - before - (before - first);
        report.add(
            "bytes of a join, both ways, until the certificate is kept",
            format!("{bytes}"),
            "≤ 20 KB",
            "",
        );
        report.add("a join until the certificate is kept", seconds(took), "", "");
        let member = self.member("single");
        file(&member.kubeconfig).await;
        let start = now();
        let agent = self.agent(&member);
        until("the cluster to be Ready", || async {
            let cluster = self.fleet.api.get(&cluster_path(&member.name)).await;
            cluster.is_ok_and(|cluster| condition(&cluster, "Ready") == Some("True"))
        })
        .await;
        report.add("one agent joins: from its start to Ready", seconds(start.elapsed()), "≤ 3 s", "");
        drop(agent);
    }

    async fn many(&self, count: usize, report: &mut Report) {
        let members: Vec<_> = (0..count).map(|n| self.member(&format!("m{n:04}"))).collect();
        for member in &members {
            file(&member.kubeconfig).await;
        }
        eprintln!("  {count} members wait");
        let pid = self.fleet.hub.pid().expect("the hub runs").to_string();
        let ready = "cluster_ready_state";
        let (there, before) = (self.figure(ready).await, computed(&pid));
        let (start, mut peak) = (now(), 0);
        let agents: Vec<_> = members.iter().map(|member| self.agent(member)).collect();
        let started = start.elapsed();
        loop {
            tokio::time::sleep(Duration::from_millis(250)).await;
            peak = resident(&self.fleet.hub).max(peak);
            let now_ready = self.figure(ready).await - there;
            if now_ready >= count as f64 {
                break;
            }
            if start.elapsed() > Duration::from_secs(600) {
                eprintln!("  only {now_ready} after ten minutes");
                break;
            }
        }
        report.add(
            format!("{count} agents join at once: until all are Ready"),
            format!(
                "{} ({} of them until all were started, {:.1} s computed by the hub, {} at most)",
                seconds(start.elapsed()),
                seconds(started),
                computed(&pid) - before,
                mb(peak)
            ),
            "≤ 60 s",
            "",
        );
        drop(agents);
    }
}
