//! `manifests/monitoring` and what is written of it: rules are whole, tested, and explained, boards can be evaluated.
//!
//! Whether there is every metric that they name is held against the pages of real processes, in `observability.rs`. What needs
//! promtool (Debian's package `prometheus` has it) is skipped without it, with a line that says so.

#![allow(clippy::unwrap_used, reason = "a failing step fails the test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
    process::Command,
};

use karmada_tests::monitoring::{PROGRAMS, board, board_expressions, folder, rules};
use serde_json::Value;

/// None, with a line that says so, where there is no promtool.
fn promtool(test: &str, args: &[&str]) -> Option<(bool, String)> {
    match Command::new("promtool").args(args).current_dir(folder()).output() {
        Err(_) => {
            eprintln!("{test}: skipped, there is no promtool (Debian: apt-get install prometheus)");
            None
        }
        Ok(output) => {
            let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
            Some((output.status.success(), said.concat()))
        }
    }
}

fn guide() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../hub/docs/monitoring.md")).unwrap()
}

#[test]
fn every_alert_says_what_it_is_and_has_a_page() {
    let guide = guide();
    let headings: BTreeSet<&str> = guide.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let mut alerts = BTreeSet::new();
    for program in PROGRAMS {
        for rule in rules(program) {
            let Some(alert) = rule.alert else { continue };
            let text =
                |pointer: &str| rule.whole.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            assert!(alert.starts_with("Karmada"), "{alert}");
            assert!(rule.whole["for"].is_string(), "{alert} has a time");
            let severity = text("/labels/severity");
            assert!(["critical", "warning", "info", "none"].contains(&severity), "{alert}: {severity}");
            for field in ["summary", "description"] {
                let sentence = text(&format!("/annotations/{field}"));
                assert!(sentence.ends_with('.'), "{alert}: {field}: {sentence:?}");
            }
            // Headings of one word are their own anchors, in small letters.
            let anchor = format!("hub/docs/monitoring.md#{}", alert.to_lowercase());
            assert_eq!(text("/annotations/runbook"), anchor);
            // That is for a URL, and where these pages are served is for whoever serves them to say.
            assert_eq!(text("/annotations/runbook_url"), "", "{alert}");
            assert!(headings.contains(&*alert), "hub/docs/monitoring.md says what to do about {alert}");
            alerts.insert(alert);
        }
    }
    let explained = headings.into_iter().filter(|heading| heading.starts_with("Karmada"));
    assert_eq!(explained.map(str::to_owned).collect::<BTreeSet<_>>(), alerts, "and of nothing else");
}

#[test]
fn every_alert_is_seen_to_fire_and_to_stay_quiet() {
    for program in PROGRAMS {
        let path = folder().join(format!("tests/{program}.test.yaml"));
        let file: Value = serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        // Name and severity, and whether it was seen to fire and not to.
        let mut seen = BTreeMap::<(String, String), (bool, bool)>::new();
        for rule in rules(program) {
            if let Some(alert) = rule.alert {
                let severity = rule.whole["labels"]["severity"].as_str().unwrap();
                seen.insert((alert, severity.to_owned()), (false, false));
            }
        }
        let tests = file["tests"].as_array().unwrap().iter();
        for look in tests.flat_map(|test| test["alert_rule_test"].as_array().unwrap()) {
            let alert = look["alertname"].as_str().unwrap();
            let fire: BTreeSet<&str> = look["exp_alerts"]
                .as_array()
                .unwrap()
                .iter()
                .map(|alert| alert["exp_labels"]["severity"].as_str().unwrap())
                .collect();
            for ((name, severity), (fires, quiet)) in &mut seen {
                if name == alert {
                    *if fire.contains(&**severity) { &mut *fires } else { &mut *quiet } = true;
                }
            }
        }
        // It never is.
        seen.retain(|(name, _), _| name != "KarmadaWatchdog");
        let unseen: Vec<_> = seen.into_iter().filter(|(_, seen)| *seen != (true, true)).collect();
        assert!(unseen.is_empty(), "{program}: {unseen:?}");
    }
}

#[test]
fn promtool_takes_the_rules_and_they_do_what_their_tests_say() {
    for program in PROGRAMS {
        for args in [
            ["check", "rules", &format!("{program}.rules.yaml")],
            ["test", "rules", &format!("tests/{program}.test.yaml")],
        ] {
            let Some((passed, said)) = promtool("rules", &args) else { return };
            assert!(passed, "{args:?}: {said}");
        }
    }
}

#[test]
fn promtool_can_read_what_the_boards_ask() {
    for program in PROGRAMS {
        let mut file = "groups:\n- name: board\n  rules:\n".to_owned();
        let expressions = board_expressions(program);
        assert!(expressions.len() > 10, "{}", expressions.len());
        for (n, (_, expr)) in expressions.iter().enumerate() {
            let expr = Value::String(expr.clone());
            writeln!(file, "  - record: board:{n}\n    expr: {expr}").unwrap();
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("board.yaml");
        fs::write(&path, &file).unwrap();
        let args = ["check", "rules", path.to_str().unwrap()];
        let Some((passed, said)) = promtool("boards", &args) else { return };
        assert!(passed, "{program}: {said}\n{file}");
    }
}

#[test]
fn boards_can_be_imported_anywhere() {
    for program in PROGRAMS {
        let board = board(program);
        assert!(board["id"].is_null() && board["uid"] == program && board["graphTooltip"] == 1, "{program}");
        assert!(board.get("__inputs").is_none());
        let variables = board["templating"]["list"].as_array().unwrap();
        let names: Vec<_> = variables.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["datasource", "job"]);
        let mut ids = BTreeSet::new();
        for panel in board["panels"].as_array().unwrap() {
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
            if panel["type"] == "row" {
                continue;
            }
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel}");
            assert!(panel["description"].as_str().is_some_and(|text| text.ends_with('.')), "{panel}");
            assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{panel}");
            let targets = panel["targets"].as_array().unwrap();
            assert!(
                targets.iter().all(|target| target["expr"].as_str().unwrap().contains("$job")),
                "{panel}"
            );
        }
    }
}
