//! What is printed: figures beside what they are to reach, and the machine they were taken on.

use std::{fmt, fs::File, io::Write, time::Duration};

use crate::bed::{median, now};

/// One line of the table.
pub(crate) struct Row {
    pub(crate) figure: String,
    pub(crate) measured: String,
    /// What the project set out to reach.
    pub(crate) reach: String,
    /// What stock Karmada was measured to take on such a machine.
    pub(crate) stock: &'static str,
}

/// The table.
pub(crate) struct Report {
    machine: String,
    sync: Duration,
    rows: Vec<Row>,
}

impl Report {
    pub(crate) fn new() -> Self {
        Self { machine: machine(), sync: sync(), rows: Vec::new() }
    }

    /// How long the disk takes to be sure.
    pub(crate) const fn sync(&self) -> Duration {
        self.sync
    }

    /// Adds a row, and shows it already.
    pub(crate) fn add(
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
        writeln!(f, "| figure | measured | reach | stock Karmada |\n|---|---|---|---|")?;
        for Row { figure, measured, reach, stock } in &self.rows {
            writeln!(f, "| {figure} | {measured} | {reach} | {stock} |")?;
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

pub(crate) fn ms(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}

pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

/// Memory, in the unit in which stock Karmada's was told.
pub(crate) fn mb(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
