//! Figures of what the process around the controllers has: certificates, and the last backup.

use std::{
    fmt,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use karmada_apiserver::{authn::epochs::Epochs, pki::Pki};
use karmada_core::figures::MEMBER_CLUSTER;
use karmada_env::Env;
use karmada_meta::time::Time;

use crate::{
    cli::backup::MARK,
    metrics::{HubFigures, Sheet, Source},
};

/// An agent that is heard and has so little left has a problem today.
const LAST_DAY: Duration = Duration::from_secs(24 * 3600);
/// A time is shorter.
const MARK_LENGTH: u64 = 64;

/// The hub's own certificates.
#[derive(Clone, Debug)]
pub(super) struct OwnCertificates(pub(super) Arc<Pki>);

impl Source for OwnCertificates {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let (_, signing, _) = self.0.authorities();
        let ends = [("authority", Some(signing.until)), ("serving", self.0.serving().until())];
        let rows =
            ends.into_iter().filter_map(|(name, until)| Some(([("certificate", name)], seconds(until?))));
        sheet.gauge(
            "karmada_hub_certificate_expiration_timestamp_seconds",
            "When the hub's own certificates end: that of its authority, and the one that its listener shows.",
            rows,
        )
    }
}

/// The certificates that agents have shown.
#[derive(Clone, Debug)]
pub(super) struct AgentCertificates {
    pub(super) epochs: Arc<Epochs>,
    pub(super) hub: HubFigures,
    pub(super) env: Env,
}

impl Source for AgentCertificates {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let now = self.env.wall();
        let ends = self.epochs.ends(now);
        // Of those that are silent nobody expects that they renew.
        let heard: Vec<_> = ends.iter().filter(|(cluster, _, _)| self.hub.hears(cluster)).collect();
        sheet.one_gauge(
            "karmada_hub_agent_certificates_overdue",
            "Agents that are heard and whose certificates should have been renewed by now.",
            heard.iter().filter(|(_, _, soon)| *soon).count() as f64,
        )?;
        sheet.one_gauge(
            "karmada_hub_agent_certificates_last_day",
            "Agents that are heard and whose certificates end within a day.",
            heard.iter().filter(|(_, until, _)| *until < now + LAST_DAY).count() as f64,
        )?;
        if !self.hub.shows_each() {
            return Ok(());
        }
        sheet.gauge(
            "karmada_hub_agent_certificate_expiration_timestamp_seconds",
            "When the certificate ends that the cluster's agent has shown to this process.",
            ends.iter().map(|(cluster, until, _)| ([(MEMBER_CLUSTER, &**cluster)], seconds(*until))),
        )
    }
}

/// When a data directory was last backed up, by the mark that `karmada-hub backup` leaves there.
pub(in crate::cli) fn last_backup(dir: &Path) -> Option<SystemTime> {
    let mut text = String::new();
    File::open(dir.join(MARK)).ok()?.take(MARK_LENGTH).read_to_string(&mut text).ok()?;
    Some(text.trim().parse::<Time>().ok()?.timestamp().into())
}

/// [`last_backup`] of a data directory, for a page.
#[derive(Clone, Debug)]
pub(super) struct LastBackup(pub(super) PathBuf);

impl Source for LastBackup {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        sheet.gauge(
            "karmada_hub_last_backup_timestamp_seconds",
            "When karmada-hub backup last wrote a backup of the data directory; missing if it never has.",
            last_backup(&self.0).map(|time| ([("engine", "embedded")], seconds(time))),
        )
    }
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use karmada_apiserver::authn::epochs::Validity;
    use karmada_env::ManualClock;
    use karmada_telemetry::metrics::{Page, read};
    use serde_json::json;

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[test]
    fn ends_of_certificates_count_for_agents_that_are_heard() {
        let now = SystemTime::UNIX_EPOCH + 20_000 * DAY;
        let env = Env::seeded(ManualClock::new(now), 1);
        let hub = HubFigures::new(env.clone());
        let epochs = Arc::new(Epochs::default());
        // name, Ready, days left of 30
        let rows = [("a", "True", 20), ("b", "True", 3), ("c", "Unknown", 3), ("d", "False", 0)];
        for (name, ready, left) in rows {
            hub.clusters()
                .seen(name, &json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}}));
            let until = now + left * DAY + DAY / 2;
            let shown = Validity { from: until - 30 * DAY, until };
            epochs.judge(name, 0, shown, now).expect("it holds");
        }
        let page = |each: bool| {
            hub.show_each(each);
            let figures = AgentCertificates { epochs: epochs.clone(), hub: hub.clone(), env: env.clone() };
            read(&Page::new().with(figures).render()).expect("a page")
        };
        let shown = page(true);
        assert_eq!(shown.value("karmada_hub_agent_certificates_overdue", &[]), Some(2.0));
        assert_eq!(shown.value("karmada_hub_agent_certificates_last_day", &[]), Some(1.0));
        let each = "karmada_hub_agent_certificate_expiration_timestamp_seconds";
        assert_eq!(shown.value(each, &[("member_cluster", "c")]), Some(20_003.5 * 86_400.0));
        assert!(!page(false).families.contains_key(each));
    }

    #[test]
    fn the_hubs_own_certificates_and_its_last_backup() {
        let now = SystemTime::UNIX_EPOCH + 20_000 * DAY;
        let env = Env::seeded(ManualClock::new(now), 1);
        let dir = tempfile::tempdir().unwrap();
        let pki = Arc::new(Pki::open_or_create(dir.path(), &[], &env).unwrap());
        let page = || {
            let page = Page::new().with(OwnCertificates(pki.clone())).with(LastBackup(dir.path().to_owned()));
            read(&page.render()).expect("a page")
        };
        let shown = page();
        let ends = |name: &str| {
            shown
                .value("karmada_hub_certificate_expiration_timestamp_seconds", &[("certificate", name)])
                .unwrap()
        };
        assert!(ends("serving") > seconds(now + 300 * DAY) && ends("authority") > ends("serving"));
        let (backup, of) = ("karmada_hub_last_backup_timestamp_seconds", [("engine", "embedded")]);
        assert_eq!(shown.value(backup, &of), None);
        assert!(shown.families.contains_key(backup), "rules name it in any case");
        std::fs::write(dir.path().join(MARK), "2024-10-04T12:00:00Z\n").unwrap();
        assert_eq!(page().value(backup, &of), Some(1_728_043_200.0));
        std::fs::write(dir.path().join(MARK), [0xff; 200]).unwrap();
        assert_eq!(page().value(backup, &of), None, "a damaged mark says nothing");
    }
}
