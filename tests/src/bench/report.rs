//! What is printed: figures beside what they are to reach, and the machine they were taken on.

use std::{fmt, fs::File, io::Write, time::Duration};

use super::{median, now};

/// One line of the table.
#[derive(Debug)]
struct Row {
    figure: String,
    measured: String,
    /// What the project set out to reach.
    reach: String,
    /// What others take: none said so where it is empty.
    stock: &'static str,
}

/// The table.
#[derive(Debug)]
pub struct Report {
    machine: String,
    sync: Duration,
    rows: Vec<Row>,
}

impl Report {
    /// An empty one; measures the disk.
    #[expect(clippy::new_without_default, reason = "it takes a while")]
    pub fn new() -> Self {
        Self { machine: machine(), sync: sync(), rows: Vec::new() }
    }

    /// How long the disk takes to be sure.
    pub const fn sync(&self) -> Duration {
        self.sync
    }

    /// Adds a row, and shows it already.
    pub fn add(
        &mut self,
        figure: impl Into<String>,
        measured: impl Into<String>,
        reach: impl Into<String>,
        stock: &'static str,
    ) {
        let row = Row { figure: figure.into(), measured: measured.into(), reach: reach.into(), stock };
        eprintln!("{}: {}", row.figure, row.measured);
        self.rows.push(row);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Machine: {}; fdatasync of 4 KiB: {} (median of 100).\n", self.machine, ms(self.sync))?;
        let compared = self.rows.iter().any(|row| !row.stock.is_empty());
        let (head, line) = if compared { (" stock Karmada |", "---|") } else { ("", "") };
        writeln!(f, "| figure | measured | reach |{head}\n|---|---|---|{line}")?;
        for Row { figure, measured, reach, stock } in &self.rows {
            write!(f, "| {figure} | {measured} | {reach} |")?;
            if compared {
                write!(f, " {stock} |")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model =
        cpu.lines().find_map(|l| l.strip_prefix("model name")?.split_once(": ")).map_or("", |(_, m)| m);
    let cores = cpu.lines().filter(|l| l.starts_with("processor")).count();
    let memory = read("/proc/meminfo");
    let kib: u64 = memory
        .lines()
        .find_map(|l| l.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok())
        .unwrap_or_default();
    let load = read("/proc/loadavg");
    let load = load.split_whitespace().next().unwrap_or_default();
    format!("{cores} × {model}, {} GiB, load {load} at the start", kib >> 20)
}

/// The median time of a small write that is made sure of.
fn sync() -> Duration {
    let mut file = tempfile::tempfile().expect("a temporary file");
    let once = |file: &mut File| {
        let start = now();
        file.write_all(&[0; 4096]).and_then(|()| file.sync_data()).expect("the disk takes a write");
        start.elapsed()
    };
    median((0..100).map(|_| once(&mut file)).collect())
}

/// A time that is short.
pub fn ms(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}

/// A time that is not.
pub fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

/// Memory, in the unit in which stock Karmada's was told.
pub fn mb(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
