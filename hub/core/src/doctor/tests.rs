//! Verdicts as tables, and a page for each check.

use super::*;
use crate::ways::Ways;

const DAY: Duration = Duration::from_secs(86_400);

fn at(days: u32) -> SystemTime {
    SystemTime::UNIX_EPOCH + 20_000 * DAY + days * DAY
}

fn reached() -> Server {
    Server {
        host: "hub.example.com".to_owned(),
        port: 6443,
        proxy: None,
        addresses: Some(Ok(vec!["192.0.2.7:6443".to_owned()])),
        connected: Some(Ok(Duration::from_millis(31))),
        answered: Some(Ok((200, String::new()))),
        ahead: Some(2),
    }
}

fn verdicts(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|finding| format!("{} {}", finding.verdict.name(), finding.check.name())).collect()
}

#[test]
fn the_first_step_that_fails_is_the_problem() {
    let error = || "it does not work".to_owned();
    let nothing = Server { connected: None, answered: None, ahead: None, ..reached() };
    let rows: [(Server, &[&str]); 8] = [
        (reached(), &["ok dns", "ok connection", "ok tls", "ok login", "ok clock"]),
        (
            Server { addresses: Some(Err(error())), ..nothing.clone() },
            &["problem dns", "skipped connection", "skipped tls"],
        ),
        (
            Server { addresses: Some(Ok(Vec::new())), ..nothing.clone() },
            &["problem dns", "skipped connection", "skipped tls"],
        ),
        (
            Server { connected: Some(Err(error())), ..nothing.clone() },
            &["ok dns", "problem connection", "skipped tls"],
        ),
        (
            Server { proxy: Some("proxy:3128".to_owned()), connected: Some(Err(error())), ..nothing },
            &["ok dns", "problem proxy", "skipped tls"],
        ),
        (
            Server { answered: Some(Err(error())), ahead: None, ..reached() },
            &["ok dns", "ok connection", "problem tls"],
        ),
        (
            Server { answered: Some(Ok((401, error()))), ahead: Some(-4000), ..reached() },
            &["ok dns", "ok connection", "ok tls", "problem login", "problem clock"],
        ),
        (
            Server { answered: Some(Ok((502, error()))), ..reached() },
            &["ok dns", "ok connection", "ok tls", "problem login", "ok clock"],
        ),
    ];
    for (facts, want) in rows {
        let findings = server("hub", &facts, "make another one");
        assert_eq!(verdicts(&findings), want, "{facts:?}");
        for finding in findings.iter().filter(|finding| finding.verdict == Verdict::Problem) {
            assert!(
                !finding.found.is_empty() && !finding.wanted.is_empty() && !finding.advice.is_empty(),
                "{finding:?}"
            );
        }
    }
}

#[test]
fn times_are_judged() {
    let rows = [
        (clock("hub", 0), Verdict::Good, "the clocks agree"),
        (clock("hub", 180), Verdict::Good, "this clock is 3m0s behind"),
        (clock("hub", -3600), Verdict::Problem, "this clock is 1h0m0s ahead"),
        (own_clock(at(0), at(0)), Verdict::Good, "it is 2024-10-04T00:00:00Z here"),
        (own_clock(at(1), at(0)), Verdict::Problem, "files were written 24h0m0s later"),
        (
            certificate("hub", at(0), at(30), at(1), "renew"),
            Verdict::Good,
            "it holds until 2024-11-03T00:00:00Z",
        ),
        (
            certificate("hub", at(0), at(30), at(25), "renew"),
            Verdict::Problem,
            "in 5 days, and has not been renewed",
        ),
        (certificate("hub", at(0), at(30), at(31), "renew"), Verdict::Problem, "it has ended"),
        (certificate("hub", at(1), at(30), at(0), "renew"), Verdict::Problem, "it begins at 2024-10-05"),
        (authority(at(1000), at(0)), Verdict::Good, "holds until"),
        (authority(at(30), at(0)), Verdict::Problem, "in 30 days"),
        (authority(at(0), at(30)), Verdict::Problem, "in 0s"),
        (backup(None, at(0)), Verdict::Note, "never"),
        (backup(Some(at(0)), at(0) + DAY), Verdict::Good, "the last one is of"),
        (backup(Some(at(0)), at(3)), Verdict::Note, "3 days ago"),
    ];
    for (finding, verdict, says) in rows {
        assert!(finding.verdict == verdict && finding.found.contains(says), "{finding:?}");
    }
}

#[test]
fn machines_are_judged() {
    const GIB: u64 = 1 << 30;
    let there = |mode, written| folder("/d", &Folder { mode, written }, "the hub");
    let refused = || Err("Permission denied".to_owned());
    let rows = [
        (version("hub", "0.5.0", "v0.3.1", "the hub"), Verdict::Good, ""),
        (version("hub", "0.5.0", "v0.2.9", "the hub"), Verdict::Problem, "bring the hub up to date"),
        (version("hub", "0.1.0", "0.9.0", "the hub"), Verdict::Problem, "bring this program up to date"),
        (version("hub", "1.0.0", "0.9.0", "the hub"), Verdict::Problem, "bring the hub up to date"),
        (version("hub", "0.1.0", "unknown", "the hub"), Verdict::Skipped, ""),
        (kubernetes("member", "v1.36.2+k3s1"), Verdict::Good, ""),
        (kubernetes("member", "v1.21.0"), Verdict::Problem, "bring it up to date"),
        (rights("hub", 3, &[], "ask"), Verdict::Good, ""),
        (rights("hub", 3, &["get leases".to_owned()], "ask"), Verdict::Problem, "ask"),
        (there(Some(0o40_700), Ok(())), Verdict::Good, ""),
        (there(Some(0o40_755), Ok(())), Verdict::Problem, "chmod 0700 /d"),
        (there(Some(0o40_700), refused()), Verdict::Problem, "give it to the user"),
        (there(None, refused()), Verdict::Note, "it is made when the hub starts"),
        (disk("/d", 50 * GIB, 100 * GIB, Some(Duration::from_millis(2))), Verdict::Good, ""),
        (disk("/d", 100 << 20, GIB, None), Verdict::Problem, "make room"),
        (disk("/d", 2 * GIB, 100 * GIB, None), Verdict::Problem, "make room"),
        // Four gigabytes are enough of however much.
        (disk("/d", 5 * GIB, 10_000 * GIB, None), Verdict::Good, ""),
        (disk("/d", 50 * GIB, 100 * GIB, Some(Duration::from_millis(300))), Verdict::Problem, "local SSD"),
        (port("--listen", "0.0.0.0:6443", &Ok(()), false), Verdict::Good, ""),
        (port("--listen", "0.0.0.0:6443", &refused(), true), Verdict::Good, ""),
        (
            port("--listen", "0.0.0.0:6443", &refused(), false),
            Verdict::Problem,
            "choose another with --listen",
        ),
        (open_files(None, 16_384), Verdict::Good, ""),
        (open_files(Some(65_536), 16_384), Verdict::Good, ""),
        (open_files(Some(1_024), 16_384), Verdict::Problem, "LimitNOFILE"),
        (open_files(Some(1_024), 500), Verdict::Good, ""),
        (memory(Some(8 * GIB), 2 * GIB), Verdict::Good, ""),
        (memory(Some(GIB), 2 * GIB), Verdict::Problem, "--storage-quota"),
        (memory(Some(GIB), 0), Verdict::Note, "--storage-quota"),
        (memory(None, 0), Verdict::Skipped, ""),
        (ways(0, &[]), Verdict::Good, ""),
        (ways(7, &["m".to_owned()]), Verdict::Note, "cluster.karmada.io/tunnel=full"),
        (health("hub", Ok("[+]ping ok\nreadyz check passed\n"), "journalctl"), Verdict::Good, ""),
        (
            health("hub", Ok("[+]ping ok\n[-]store failed: reason withheld\n"), "journalctl"),
            Verdict::Problem,
            "journalctl",
        ),
        (health("hub", Err("nobody listens"), "journalctl"), Verdict::Note, "start it"),
    ];
    for (finding, verdict, advises) in rows {
        assert!(finding.verdict == verdict && finding.advice.contains(advises), "{finding:?}");
        assert_eq!(finding.advice.is_empty(), advises.is_empty(), "{finding:?}");
    }
}

#[test]
fn a_cluster_has_two_ways_until_somebody_says_which_is_meant() {
    let both = json!({
        "metadata": {"name": "m", "annotations": {"agent.karmada.io/tunnel": "full"}},
        "spec": {
            "syncMode": "Pull", "apiEndpoint": "https://10.0.0.1:6443",
            "impersonatorSecretRef": {"namespace": "karmada-cluster", "name": "m-impersonator"},
        },
    });
    assert!(Ways::read(&both).are_two());
    for (part, field, value) in [
        ("spec", "syncMode", json!("Push")),
        ("spec", "apiEndpoint", json!("")),
        ("spec", "apiEndpoint", Value::Null),
        ("spec", "impersonatorSecretRef", Value::Null),
        ("metadata", "annotations", Value::Null),
        ("metadata", "annotations", json!({"agent.karmada.io/tunnel": "off"})),
        (
            "metadata",
            "annotations",
            json!({"agent.karmada.io/tunnel": "full", "cluster.karmada.io/tunnel": "full"}),
        ),
        (
            "metadata",
            "annotations",
            json!({"agent.karmada.io/tunnel": "full", "cluster.karmada.io/tunnel": "off"}),
        ),
    ] {
        let mut cluster = both.clone();
        cluster[part][field] = value;
        assert!(!Ways::read(&cluster).are_two(), "{cluster}");
    }
    let found = |count: usize| ways(count, &["m".to_owned(), "n".to_owned()]).found;
    assert!(found(2).ends_with("2 of them, m, n") && found(7).ends_with("7 of them, m, n, …"));
}

#[test]
fn findings_are_shown_to_people_and_to_programs() {
    let findings = vec![
        clock("hub", 2),
        port("--listen", "0.0.0.0:6443", &Err("Address already in use".to_owned()), false),
        Finding::skipped(Check::Tls, "hub", "there is no connection"),
    ];
    let shown = text(&findings);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], "ok       clock hub      this clock is 2s behind");
    assert_eq!(lines[1], "PROBLEM  port --listen  0.0.0.0:6443: Address already in use");
    assert_eq!(lines[4], "           see:    hub/docs/doctor.md#port");
    assert_eq!(lines[7], "1 problem, 1 of 3 checks passed, 1 could not be made");
    assert!(has_problem(&findings) && !has_problem(&findings[..1]));
    let told = report("karmada-hub", "0.1.0", &findings);
    assert_eq!((&told["ok"], &told["checks"][1]["result"]), (&json!(false), &json!("problem")));
    assert_eq!(told["checks"][1]["see"], "hub/docs/doctor.md#port");
}

#[test]
fn it_is_said_which_program_is_to_run() {
    let kept = json!({
        "installed": "0.5.0", "current": "b",
        "trial": {"version": "0.6.0", "begun": "2026-11-26T01:00:00Z", "was": "0.5.1", "old": "a", "new": "b",
                  "since": "2026-11-26T02:00:00Z", "ended": "Committed"},
    });
    let kept: Slots = serde_json::from_value(kept).unwrap();
    let missed = Slots { missed: 2, ..kept.clone() };
    let mut open = Slots { current: Some("a".to_owned()), ..kept.clone() };
    open.trial.as_mut().unwrap().ended = None;
    for (kept, lets, verdict, found) in [
        (Ok(Slots::default()), true, None, ""),
        (Ok(kept.clone()), true, Some(Verdict::Good), "0.5.0 is installed, 0.6.0 is to run"),
        (Ok(kept), false, Some(Verdict::Note), "0.5.0 is installed, 0.6.0 is to run"),
        (Ok(missed), true, Some(Verdict::Problem), "in the last 2 starts"),
        (
            Ok(open),
            true,
            Some(Verdict::Good),
            "0.5.1 is to run; 0.6.0 is on trial since 2026-11-26T02:00:00Z",
        ),
        (Err("no".to_owned()), true, Some(Verdict::Skipped), "slots of --state-dir: no"),
    ] {
        let finding = program("0.5.0", lets, &kept);
        assert_eq!(finding.as_ref().map(|finding| finding.verdict), verdict, "{kept:?}");
        assert!(finding.is_none_or(|finding| finding.found.contains(found)), "{kept:?}");
    }
}

#[test]
fn every_check_has_its_place_in_the_guide() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/doctor.md");
    let guide = std::fs::read_to_string(path).expect("hub/docs/doctor.md");
    let headings: Vec<&str> = guide.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let names: Vec<&str> = Check::ALL.iter().map(|check| check.name()).collect();
    for name in &names {
        assert!(headings.contains(name), "hub/docs/doctor.md has no heading {name}");
    }
    let strange: Vec<_> = headings.iter().filter(|heading| !names.contains(heading)).collect();
    assert!(strange.is_empty(), "{strange:?} are no checks");
}
