//! What the benches have in common: how they measure, the binaries they measure, and what they print.

pub mod binaries;
pub mod hub;
pub mod placing;
pub mod report;
pub mod stock;

use std::{
    fmt::Debug,
    net::SocketAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::{Args, ValueEnum};
use tokio::{runtime, time::sleep};

pub use report::Report;

use crate::{fleet::Binaries, process::Process};

/// How long anything may take before a figure is given up.
const PATIENCE: Duration = Duration::from_secs(180);

/// How often something is looked at that cannot be watched: well below what is measured so.
const LOOK: Duration = Duration::from_millis(10);

/// How often many things are counted.
const SELDOM: Duration = Duration::from_millis(500);

/// The figures to take: those that were asked for, or else all.
pub fn figures<F: ValueEnum + PartialEq + Debug + 'static>(only: &[F]) -> impl Iterator<Item = &'static F> {
    let wanted = F::value_variants().iter().filter(move |figure| only.is_empty() || only.contains(figure));
    wanted.inspect(|figure| eprintln!("{figure:?} …"))
}

/// What every bench is told.
#[derive(Clone, Debug, Args)]
pub struct Common<F: ValueEnum + Send + Sync + 'static> {
    /// Only these figures.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FIGURE,...")]
    only: Vec<F>,
    /// A folder with karmada-hub, karmada-agent and kubesim; without it they are built as they are shipped.
    #[arg(long, value_name = "DIR")]
    binaries: Option<PathBuf>,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

impl<F: ValueEnum + PartialEq + Debug + Send + Sync + 'static> Common<F> {
    /// The figures to take.
    pub fn figures(&self) -> impl Iterator<Item = &'static F> {
        figures(&self.only)
    }

    /// The programs that are measured: those in the folder that was named, or else built now.
    ///
    /// # Panics
    /// When they do not build, or are not there.
    pub fn binaries(&self) -> Binaries {
        // reqwest takes whichever provider the process has.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = self.binaries.clone().unwrap_or_else(binaries::build);
        let folder = folder.canonicalize().unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        Binaries::in_folder(&folder)
    }
}

/// Takes the figures, on one thread or two, and prints the report.
///
/// # Panics
/// When there is no runtime to be had.
pub fn print(threads: usize, measure: impl Future<Output = Report>) {
    let mut builder = match threads {
        1 => runtime::Builder::new_current_thread(),
        _ => runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(threads).enable_all().build().expect("a runtime");
    let report = runtime.block_on(measure);
    print!("\n{report}");
}

/// A stopwatch: a bench measures the real clock.
#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
pub fn now() -> Instant {
    Instant::now()
}

/// The middle one.
pub fn median<T: Ord + Copy + Default>(mut values: Vec<T>) -> T {
    values.sort();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// The value below which so many of a hundred are.
pub fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted
        .get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or_default()
}

/// Looks again and again until it is so. Answers how long that took.
///
/// # Panics
/// When it is not for minutes.
pub async fn until<F: Future<Output = bool>>(what: &str, mut is: impl FnMut() -> F) -> Duration {
    let start = now();
    while !is().await {
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        sleep(LOOK).await;
    }
    start.elapsed()
}

/// Counts now and then until there are so many. That may take as long as it will, while they become more.
///
/// # Panics
/// When they do not for minutes.
pub async fn until_all(what: &str, wanted: usize, count: impl AsyncFn() -> usize) {
    let (mut most, mut since) = (0, now());
    loop {
        let there = count().await;
        if there >= wanted {
            return;
        }
        if there > most {
            (most, since) = (there, now());
        }
        assert!(since.elapsed() < PATIENCE, "{there} of {wanted} {what}, and no more for {PATIENCE:?}");
        sleep(SELDOM).await;
    }
}

/// Resident memory of a process that runs.
///
/// # Panics
/// When it does not.
pub fn resident(process: &Process) -> u64 {
    process.resident().expect("the process runs")
}

/// Seconds that a process has computed.
pub fn computed(pid: &str) -> f64 {
    /// Of the kernel's clock, on every Linux there is.
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or_default();
    (ticks(11) + ticks(12)) / TICKS
}

/// How long the threads of a process that live have computed, to the nanosecond; nothing where the kernel does not tell.
pub fn on_cpu(pid: &str) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let times = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    });
    times.map(Duration::from_nanos).sum()
}

/// Bytes that a process has had written to a disk.
pub fn written(pid: &str) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}

/// How long it takes from now until a hub says that it is ready.
///
/// # Panics
/// When it ends before that.
pub async fn until_ready(hub: &mut Process, address: SocketAddr) -> Duration {
    let http = reqwest::Client::builder()
        .tls_danger_accept_invalid_certs(true)
        .timeout(Duration::from_secs(2))
        .build()
        .expect("a client");
    let start = now();
    loop {
        match http.get(format!("https://{address}/readyz")).send().await {
            Ok(answer) if answer.status().is_success() => return start.elapsed(),
            _ => sleep(Duration::from_millis(1)).await,
        }
        assert!(hub.is_running(), "the hub ended: {}", hub.log_tail(20));
    }
}
