//! What pages name is there.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use crate::{
    pages::{self, Page, docs, root},
    reference,
};

#[test]
fn links_and_anchors_lead_somewhere() {
    let all = pages::all();
    let by_path: BTreeMap<_, &Page> = all.iter().map(|page| (root().join(&page.path), page)).collect();
    let mut broken = Vec::new();
    for page in &all {
        let here = root().join(&page.path);
        for link in &page.links {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => Some(here.clone()),
                path => here.parent().unwrap().join(path).canonicalize().ok(),
            };
            let known = |target: &PathBuf| {
                anchor.is_empty() || by_path.get(target).is_some_and(|p| p.anchors.contains(anchor))
            };
            // Packages and archives have this folder alone.
            let is_shipped = |target: &PathBuf| !here.starts_with(docs()) || target.starts_with(docs());
            if !target.as_ref().is_some_and(|target| known(target) && is_shipped(target)) {
                broken.push(format!("{}: {link}", page.path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

/// What the service reads nobody else finds at its own paths.
#[test]
fn leaving_and_holding_name_the_files_that_the_unit_reads() {
    let unit = fs::read_to_string(root().join("manifests/systemd/karmada-agent@.service")).unwrap();
    let value = |key: &str| {
        let found = unit.lines().find_map(|line| line.strip_prefix(key));
        found.unwrap_or_else(|| panic!("the unit has no {key}")).replace("%i", "shop-17")
    };
    let page = fs::read_to_string(docs().join("leave.md")).unwrap();
    for argument in [
        format!("--karmada-kubeconfig {}", value("LoadCredential=karmada-kubeconfig:")),
        format!("--kubeconfig {}", value("LoadCredential=kubeconfig:")),
        format!("--state-dir /var/lib/{}", value("StateDirectory=")),
    ] {
        assert!(page.contains(&argument), "{argument}");
    }
    let page = fs::read_to_string(docs().join("at-the-site.md")).unwrap();
    let kubeconfig = value("LoadCredential=kubeconfig:").replace("shop-17", "NAME");
    assert!(page.contains(&format!("--cluster-name NAME --kubeconfig {kubeconfig}")), "{kubeconfig}");
}

#[test]
fn every_page_is_in_the_summary() {
    let all = pages::all();
    let summary = all.iter().find(|page| page.path.ends_with("SUMMARY.md")).unwrap();
    let listed: BTreeSet<_> = summary.links.iter().map(|link| docs().join(link)).collect();
    assert_eq!(listed.len(), summary.links.len(), "a page is listed once");
    let there = all.iter().map(|page| root().join(&page.path)).filter(|path| path.starts_with(docs()));
    let missing: Vec<_> =
        there.filter(|path| !path.ends_with("SUMMARY.md") && !listed.contains(path)).collect();
    assert!(missing.is_empty(), "not in SUMMARY.md: {missing:?}");
}

/// Flags of other programs that pages name.
const OTHERS: [&str; 34] = [
    "--agents",
    "--all-targets",
    "--authorization-mode",
    "--bench",
    "--bin",
    "--binaries",
    "--cluster-signing-cert-file",
    "--cluster-signing-key-file",
    "--controllers",
    "--damages",
    "--example",
    "--groups",
    "--hours",
    "--ignore-daemonsets",
    "--ignore-missing",
    "--ignored",
    "--kills",
    "--large",
    "--list",
    "--nocapture",
    "--only",
    "--profile",
    "--release",
    "--round",
    "--seed",
    "--seeds",
    "--seconds",
    "--server-side",
    "--test",
    "--workspace",
    "--works",
    "--check",
    "--set",
    "--stock",
];

#[test]
fn flags_that_pages_name_exist() {
    let mut known: BTreeSet<String> = reference::flags();
    known.extend(OTHERS.map(str::to_owned));
    for script in ["quickstart.sh", "deploy-agent.sh", "remove-agent.sh", "release.sh"] {
        let text = fs::read_to_string(root().join("scripts").join(script)).unwrap();
        known.extend(flags(&text));
    }
    let mut unknown = Vec::new();
    for page in pages::all() {
        for code in &page.code {
            // --audit-log-… stands for all flags that begin so.
            let family =
                |flag: &str| code.contains(&format!("{flag}…")) || code.contains(&format!("{flag}…"));
            for flag in flags(code) {
                let begins = family(&flag) && known.iter().any(|known| known.starts_with(&flag));
                if !known.contains(&flag) && !begins {
                    unknown.push(format!("{}: {flag}", page.path.display()));
                }
            }
        }
    }
    assert!(unknown.is_empty(), "flags that no program has:\n{}", unknown.join("\n"));
}

/// The words of a text that begin with two hyphens.
fn flags(text: &str) -> BTreeSet<String> {
    let is = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let words = text.split(|c: char| !is(c)).filter(|word| word.starts_with("--") && word.len() > 3);
    words.filter(|word| !word.starts_with("---")).map(|word| word.to_owned()).collect()
}

#[test]
fn paths_and_metrics_that_pages_name_exist() {
    let metrics = fs::read_to_string(docs().join("reference/metrics.md")).unwrap();
    let mut missing = Vec::new();
    for page in pages::all() {
        for code in &page.code {
            let word = code.split([' ', ':']).next().unwrap_or_default().trim_end_matches(',');
            let is_path =
                ["manifests/", "scripts/", "hub/", "agent/", "tests/"].iter().any(|p| word.starts_with(p));
            if is_path && !word.contains(['*', '<', '…', '{']) && !root().join(word).exists() {
                missing.push(format!("{}: {word}", page.path.display()));
            }
            let is_metric =
                word.starts_with("karmada_") && !word.contains(['…', ':']) && !code.contains("::");
            if is_metric && !metrics.contains(word) {
                missing.push(format!("{}: metric {word}", page.path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "named and not there:\n{}", missing.join("\n"));
}
