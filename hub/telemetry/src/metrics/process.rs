//! The process itself, from `/proc`: the figures every exporter shows, under the names they all use.

use std::{fmt, time::SystemTime};

use super::{Sheet, Source};

/// The clock ticks of `/proc/self/stat`: 100 a second on every Linux that this runs on.
const TICKS: f64 = 100.0;
/// Pages of `/proc/self/statm`.
const PAGE: f64 = 4096.0;

/// Memory, processor time and open files of this process, and which build it is.
#[derive(Clone, Debug)]
pub struct Process {
    version: &'static str,
    /// When it was started, in seconds since 1970.
    started: f64,
}

impl Process {
    /// This process, of that version of its program, started just now by the time of day.
    pub fn new(version: &'static str, now: SystemTime) -> Self {
        let started = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { version, started: started.as_secs_f64() }
    }
}

impl Source for Process {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
        let labels = vec![
            ("git_version", format!("v{}", self.version)),
            ("compiler", "rustc".to_owned()),
            ("platform", platform),
        ];
        sheet.gauge("karmada_build_info", "Which build this is.", [(labels, 1.0)])?;
        sheet.one_gauge(
            "process_start_time_seconds",
            "When the process started, since 1970.",
            self.started,
        )?;
        if let Some(seconds) = cpu_seconds(&file("stat")) {
            sheet.one_counter("process_cpu_seconds_total", "Processor time, user and system.", seconds)?;
        }
        if let Some(bytes) = resident_bytes(&file("statm")) {
            sheet.one_gauge("process_resident_memory_bytes", "Resident memory.", bytes)?;
        }
        if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
            sheet.one_gauge("process_open_fds", "Open file descriptors.", open.count() as f64)?;
        }
        Ok(())
    }
}

fn file(name: &str) -> String {
    std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default()
}

/// The 14th and 15th field; the second is the program's name, which may hold anything.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11).map(str::parse::<f64>);
    Some((fields.next()?.ok()? + fields.next()?.ok()?) / TICKS)
}

fn resident_bytes(statm: &str) -> Option<f64> {
    Some(statm.split_whitespace().nth(1)?.parse::<f64>().ok()? * PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_read() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 4 0 100 1000 300";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(resident_bytes("2000 300 100 1 0 1 0"), Some(300.0 * 4096.0));
        assert_eq!((cpu_seconds(""), resident_bytes("")), (None, None));
    }
}
