//! Every case works on a real folder: what matters here is what stands in files after a restart.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use karmada_env::{Env, ManualClock};
use tempfile::TempDir;

use super::*;

const YEAR: Duration = Duration::from_hours(24 * 365);

fn env() -> (Env, ManualClock) {
    let clock = ManualClock::new(SystemTime::UNIX_EPOCH + 56 * YEAR);
    (Env::seeded(clock.clone(), 1), clock)
}

fn open(dir: &Path, hosts: &[&str], env: &Env) -> Result<Pki, PkiError> {
    let hosts: Vec<String> = hosts.iter().map(|h| (*h).to_owned()).collect();
    Pki::open_or_create(dir, &hosts, env)
}

fn read(dir: &Path, name: &str) -> String {
    fs::read_to_string(dir.join(name)).unwrap()
}

fn hosts_of(dir: &Path) -> BTreeSet<String> {
    Leaf::parse(&files::read_credential(&dir.join("pki/serving.pem")).unwrap().unwrap()).unwrap().hosts
}

#[test]
fn files_are_private_and_kept_from_start_to_start() {
    let dir = TempDir::new().unwrap();
    let (env, _) = env();
    let names = ["pki/ca.pem", "pki/serving.pem", "pki/admin.pem", "admin.kubeconfig"];
    let mut first = Vec::new();
    for start in 0..2 {
        let pki = open(dir.path(), &["hub.example.com"], &env).unwrap();
        pki.write_admin_kubeconfig("https://hub.example.com:6443").unwrap();
        let texts: Vec<String> = names.iter().map(|n| read(dir.path(), n)).collect();
        for name in names {
            let mode = fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        if start == 0 {
            first = texts;
        } else {
            assert_eq!(first, texts);
        }
    }
}

#[test]
fn the_admin_kubeconfig_is_complete() {
    let dir = TempDir::new().unwrap();
    let (env, _) = env();
    let pki = open(dir.path(), &[], &env).unwrap();
    let path = pki.write_admin_kubeconfig(&pki.server_url(6443)).unwrap();
    let config: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    assert_eq!(config["current-context"], "karmada-apiserver");
    assert_eq!(config["contexts"][0]["name"], "karmada-apiserver");
    assert_eq!(config["clusters"][0]["cluster"]["server"], "https://127.0.0.1:6443");
    assert!(config["users"][0]["user"]["client-key-data"].is_string());
}

#[test]
fn a_serving_certificate_follows_the_hosts_and_the_clock() {
    let dir = TempDir::new().unwrap();
    let (env, clock) = env();
    open(dir.path(), &["10.0.0.7", "Hub.Example.com"], &env).unwrap();
    let first = read(dir.path(), "pki/serving.pem");
    let hosts = hosts_of(dir.path());
    for host in ["10.0.0.7", "hub.example.com", "localhost", "127.0.0.1", "::1"] {
        assert!(hosts.contains(host), "{host} in {hosts:?}");
    }
    open(dir.path(), &["hub.example.com", "10.0.0.7"], &env).unwrap();
    assert_eq!(first, read(dir.path(), "pki/serving.pem"), "the order of hosts does not matter");

    let pki = open(dir.path(), &["10.0.0.8"], &env).unwrap();
    let second = read(dir.path(), "pki/serving.pem");
    assert_ne!(first, second);
    assert!(!hosts_of(dir.path()).contains("10.0.0.7"));

    clock.advance(YEAR - RENEW_BEFORE - Duration::from_secs(60));
    pki.renew().unwrap();
    assert_eq!(second, read(dir.path(), "pki/serving.pem"));
    clock.advance(Duration::from_secs(120));
    pki.renew().unwrap();
    assert_ne!(second, read(dir.path(), "pki/serving.pem"));
}

#[test]
fn what_nears_its_end_is_reissued_while_the_server_runs() {
    let dir = TempDir::new().unwrap();
    let (env, clock) = env();
    let pki = open(dir.path(), &[], &env).unwrap();
    let url = pki.server_url(1);
    let monitor = Holder { file: "monitoring", user: "m", group: "g", entry: "m" };
    let files = [
        "pki/serving.pem",
        "pki/admin.pem",
        "admin.kubeconfig",
        "pki/monitoring.pem",
        "monitoring.kubeconfig",
    ];
    let keep = || {
        pki.keep_current(&ADMINISTRATOR, &url).unwrap();
        pki.keep_current(&monitor, &url).unwrap();
        files.map(|file| read(dir.path(), file))
    };
    let first = keep();
    clock.advance(YEAR - RENEW_BEFORE - Duration::from_secs(60));
    assert_eq!(keep(), first);
    clock.advance(Duration::from_secs(120));
    let second = keep();
    for (index, file) in files.iter().enumerate() {
        assert_ne!(first[index], second[index], "{file}");
    }
    assert_eq!(keep(), second);
    // What is damaged is named, and keeps nothing else from being kept.
    clock.advance(YEAR);
    fs::write(dir.path().join("pki/serving.pem"), "noise").unwrap();
    let error = pki.keep_current(&ADMINISTRATOR, &url).unwrap_err();
    assert!(error.to_string().contains("serving.pem"), "{error}");
    assert_ne!(read(dir.path(), "admin.kubeconfig"), second[2]);
}

#[test]
fn server_urls_name_the_first_advertised_host() {
    let cases: [(&[&str], &str); 4] = [
        (&[], "https://127.0.0.1:1"),
        (&["hub.example.com", "10.0.0.1"], "https://hub.example.com:1"),
        (&["fd00::1"], "https://[fd00::1]:1"),
        (&["[fd00::1]"], "https://[fd00::1]:1"),
    ];
    for (hosts, url) in cases {
        let dir = TempDir::new().unwrap();
        let (env, _) = env();
        assert_eq!(open(dir.path(), hosts, &env).unwrap().server_url(1), url, "{hosts:?}");
    }
}

#[test]
fn a_host_with_too_much_around_it_is_refused_with_what_to_say_instead() {
    for (given, instead) in [
        ("hub:6443", Some("hub")),
        ("https://Hub.example.com:6443/", Some("hub.example.com")),
        ("https://[fd00::1]:6443", Some("fd00::1")),
        ("a b", None),
        ("a b:6443", None),
    ] {
        let said = PkiError::Host { host: given.to_owned() }.to_string();
        let hint = instead.map(|host| format!("give it without scheme and port: {host}"));
        assert!(hint.is_none_or(|hint| said.ends_with(&hint)), "{said}");
        assert_eq!(said.contains("without"), instead.is_some(), "{said}");
    }
}

#[test]
fn bad_hosts_are_refused() {
    let (env, _) = env();
    for host in ["", "a b", "https://hub", "-x", "a..b", "hub:6443"] {
        let dir = TempDir::new().unwrap();
        let error = open(dir.path(), &[host], &env).unwrap_err();
        assert!(matches!(error, PkiError::Host { .. }), "{host:?}: {error}");
    }
}

#[test]
fn what_is_damaged_is_named_and_never_replaced() {
    let (env, clock) = env();
    let other = {
        let dir = TempDir::new().unwrap();
        open(dir.path(), &[], &env).unwrap();
        read(dir.path(), "pki/ca.pem")
    };
    let other_certificate =
        other.split_once(files_begin()).map(|(_, c)| format!("{}{c}", files_begin())).unwrap();
    for file in ["pki/ca.pem", "pki/serving.pem"] {
        for damage in ["empty", "cut", "noise", "binary", "foreign certificate"] {
            let dir = TempDir::new().unwrap();
            open(dir.path(), &[], &env).unwrap();
            let path = dir.path().join(file);
            let text = fs::read_to_string(&path).unwrap();
            let bad = match damage {
                "empty" => Vec::new(),
                "cut" => text.as_bytes()[..text.len() * 2 / 3].to_vec(),
                "noise" => text.replace('A', "!").into_bytes(),
                "binary" => vec![0xff; 64],
                _ => {
                    let key = text.split_once(files_begin()).unwrap().0;
                    format!("{key}{other_certificate}").into_bytes()
                }
            };
            fs::write(&path, &bad).unwrap();
            let error = open(dir.path(), &[], &env).unwrap_err();
            assert!(matches!(error, PkiError::Damaged { .. }), "{file}, {damage}: {error}");
            assert!(error.to_string().contains(file), "{error}");
            assert_eq!(fs::read(&path).unwrap(), bad, "{file}, {damage}");
        }
    }
    let dir = TempDir::new().unwrap();
    open(dir.path(), &[], &env).unwrap();
    fs::remove_file(dir.path().join("pki/ca.pem")).unwrap();
    assert!(matches!(open(dir.path(), &[], &env), Err(PkiError::AuthorityLost { .. })));

    let dir = TempDir::new().unwrap();
    open(dir.path(), &[], &env).unwrap();
    clock.advance(CA_VALIDITY);
    assert!(matches!(open(dir.path(), &[], &env), Err(PkiError::AuthorityExpired { .. })));
}

fn files_begin() -> &'static str {
    "-----BEGIN CERTIFICATE-----"
}

fn certificates(pem: &str) -> usize {
    CertificateDer::pem_slice_iter(pem.as_bytes()).count()
}

#[test]
fn an_authority_changes_in_steps_that_may_be_cut_off() {
    let dir = TempDir::new().unwrap();
    let (env, _) = env();
    let again = || open(dir.path(), &[], &env).unwrap();
    let shown = |pki: &Pki| pki.serving.current.load().as_ref().as_ref().unwrap().cert.len();
    let pki = again();
    let (stage, first, other) = pki.authorities();
    assert_eq!((stage, &*first.name, other, shown(&pki)), (Stage::Settled, "karmada", None, 1));
    let serving = read(dir.path(), "pki/serving.pem");

    assert_eq!(pki.step_authority().unwrap(), Stage::Introduced);
    let next = again().authorities().2.unwrap();
    for pki in [&pki, &again()] {
        let (stage, signs, other) = pki.authorities();
        assert_eq!((stage, &signs, other.as_ref()), (Stage::Introduced, &first, Some(&next)));
        assert_eq!(certificates(&pki.ca_pem()), 2);
    }
    assert_eq!(read(dir.path(), "pki/serving.pem"), serving, "who knows the old one alone goes on");
    assert_eq!(read(dir.path(), "pki/ca.crt"), pki.ca_pem());
    assert_eq!(certificates(pki.signer().unwrap().ca_pem()), 2);

    // Cut off before the rename: what is to be old signs still.
    fs::copy(dir.path().join("pki/ca.pem"), dir.path().join("pki/ca-old.pem")).unwrap();
    assert_eq!(again().authorities().0, Stage::Introduced);

    let pki = again();
    assert_eq!(pki.step_authority().unwrap(), Stage::Changed);
    for pki in [&pki, &again()] {
        assert_eq!(pki.authorities(), (Stage::Changed, next.clone(), Some(first.clone())));
        assert_eq!((certificates(&pki.ca_pem()), shown(pki)), (2, 2), "the old one vouches for the new one");
    }
    assert!(read(dir.path(), "pki/serving.pem") != serving);

    assert_eq!(pki.step_authority().unwrap(), Stage::Settled);
    for pki in [&pki, &again()] {
        assert_eq!((pki.authorities(), shown(pki)), ((Stage::Settled, next.clone(), None), 1));
        assert_eq!(certificates(&pki.ca_pem()), 1);
    }
    let mut names: Vec<_> = fs::read_dir(dir.path().join("pki"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["ca.crt", "ca.pem", "serving.pem"]);
}

#[test]
fn the_key_of_tokens_changes_in_steps_that_may_be_cut_off() {
    let dir = TempDir::new().unwrap();
    let (env, _) = env();
    let pki = open(dir.path(), &[], &env).unwrap();
    let ids =
        || pki.service_account_keys().unwrap().iter().map(|key| key.id().to_owned()).collect::<Vec<_>>();
    let first = ids();
    assert_eq!((first.len(), pki.service_accounts_stage().unwrap()), (1, Stage::Settled));
    assert_eq!(pki.step_service_accounts().unwrap(), Stage::Introduced);
    let both = ids();
    assert_eq!((both.len(), &both[0]), (2, &first[0]), "the old one signs");
    let next = read(dir.path(), "pki/service-account-next.pem");
    assert_eq!(pki.step_service_accounts().unwrap(), Stage::Changed);
    assert_eq!(ids(), [both[1].clone(), both[0].clone()]);
    // Cut off before the file went.
    fs::write(dir.path().join("pki/service-account-next.pem"), next).unwrap();
    assert_eq!((ids().len(), pki.service_accounts_stage().unwrap()), (2, Stage::Changed));
    assert_eq!(pki.step_service_accounts().unwrap(), Stage::Settled);
    assert_eq!(ids(), [both[1].clone()]);
}
