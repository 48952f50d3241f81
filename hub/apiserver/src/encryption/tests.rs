use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use super::*;

const SECRETS: &str = "core/secrets";

/// A file in which these lines are the providers of Secrets, and Works are kept in the same way.
fn file(providers: &[&str]) -> String {
    let lines: String = providers.iter().map(|provider| format!("  - {provider}\n")).collect();
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: \
         [secrets, \"*.work.karmada.io\"]\n  providers:\n{lines}"
    )
}

/// A provider with keys whose bytes are all the same.
fn keys(provider: &str, keys: &[(&str, u8)]) -> String {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let keys =
        keys.iter().map(|(name, byte)| format!("{{name: {name}, secret: {}}}", STANDARD.encode([*byte; 32])));
    format!("{provider}: {{keys: [{}]}}", keys.collect::<Vec<_>>().join(", "))
}

fn of(providers: &[&str]) -> Encryption {
    Encryption::new(file(providers).as_bytes()).unwrap()
}

fn key(name: &str) -> Key {
    Key::new(SECRETS, "shop", name)
}

const VALUE: Bytes =
    Bytes::from_static(br#"{"apiVersion":"v1","kind":"Secret","data":{"password":"aHVudGVyMg=="}}"#);

#[test]
fn what_is_sealed_opens_by_the_same_key_in_the_same_place_alone() {
    for provider in ["aesgcm", "secretbox"] {
        let one = of(&[&keys(provider, &[("key1", 1)])]);
        let kept = one.seal(&key("a"), &VALUE);
        assert!(!kept.windows(12).any(|window| window == b"aHVudGVyMg==".as_slice()));
        assert_eq!(one.unseal(&key("a"), kept.clone()), Ok(VALUE), "{provider}");
        // A hub that is started again, with the key behind another.
        let again = of(&[&keys(provider, &[("key2", 2), ("key1", 1)]), "identity: {}"]);
        assert_eq!(again.unseal(&key("a"), kept.clone()), Ok(VALUE));

        let places = [
            Key::new(SECRETS, "shop", "b"),
            Key::new(SECRETS, "sho", "pa"),
            Key::new(SECRETS, "", "a"),
            Key::new("work.karmada.io/works", "shop", "a"),
        ];
        for place in places {
            let why = one.unseal(&place, kept.clone()).unwrap_err();
            assert!(why.starts_with(&place.to_string()) && why.contains("key \"key1\""), "{why}");
        }
        for (other, want) in [
            (of(&[&keys(provider, &[("key1", 9)])]), "the key of that name there is another one"),
            (
                of(&[&keys(provider, &[("key9", 9)])]),
                "is not in the file of --encryption-provider-config; add it",
            ),
            (Encryption::none(), "is not in the file of --encryption-provider-config; add it"),
        ] {
            let why = other.unseal(&key("a"), kept.clone()).unwrap_err();
            assert!(
                why.starts_with("core/secrets shop/a is encrypted with key \"key1\"") && why.contains(want),
                "{why}"
            );
        }
        for at in 0..kept.len() {
            let mut changed = kept.to_vec();
            changed[at] ^= 4;
            let opened = again.unseal(&key("a"), changed.into());
            assert!(opened.as_ref().map_or(true, |value| *value != VALUE), "{provider} byte {at}");
            // Without its mark it is a value like any other, and no object.
            assert!(at < 8 || opened.is_err(), "{provider} byte {at}");
        }
        for len in 8..kept.len() {
            assert!(again.unseal(&key("a"), kept.slice(..len)).is_err(), "{provider} cut to {len}");
        }
    }
}

#[test]
fn no_nonce_comes_twice_under_a_key() {
    let mut seen = BTreeSet::new();
    let text = file(&[&keys("aesgcm", &[("key1", 1)])]);
    for _ in 0..3 {
        let encryption = Encryption::new(text.as_bytes()).unwrap();
        for round in 0..200 {
            // A file that is read again is a run of its own.
            if round == 100 {
                encryption.reload(text.as_bytes()).unwrap();
            }
            let kept = encryption.seal(&key("a"), &VALUE);
            let head = kept.len() - VALUE.len() - 16;
            assert!(seen.insert(kept[head - 24..head].to_vec()), "salt and number");
        }
    }
}

#[test]
fn what_is_not_encrypted_is_read_where_identity_allows_it() {
    let providers = keys("aesgcm", &[("key1", 1)]);
    let strict = of(&[&providers]);
    let why = strict.unseal(&key("a"), VALUE).unwrap_err();
    assert!(why.contains("core/secrets shop/a is not encrypted") && why.contains("identity"), "{why}");
    assert_eq!(strict.unseal(&Key::new("core/configmaps", "shop", "a"), VALUE), Ok(VALUE));
    let moving = of(&[&providers, "identity: {}"]);
    assert!(!moving.is_due(&moving.digest()));
    assert_eq!(moving.unseal(&key("a"), VALUE), Ok(VALUE));
    assert!(moving.is_due(&moving.digest()), "it would be encrypted now");
    moving.rewritten(false);
    assert!(moving.is_due(&moving.digest()));
    moving.rewritten(true);
    assert!(!moving.is_due(&moving.digest()));

    // And back.
    let kept = moving.seal(&key("a"), &VALUE);
    let back = of(&["identity: {}", &providers]);
    assert_eq!((back.covers(SECRETS), back.digest()), (false, String::new()));
    assert_eq!(back.unseal(&key("a"), kept), Ok(VALUE));
    assert_eq!(back.seal(&key("a"), &VALUE), VALUE);
    assert!(back.is_due(""));
}

#[test]
fn a_key_goes_when_nothing_is_encrypted_with_it() {
    let (one, two) = (keys("aesgcm", &[("key1", 1)]), keys("aesgcm", &[("key2", 2)]));
    let both = keys("aesgcm", &[("key2", 2), ("key1", 1)]);
    let encryption = of(&[&one]);
    let written = encryption.digest();
    let kept = encryption.seal(&key("a"), &VALUE);
    let why = encryption.reload(file(&[&two]).as_bytes()).unwrap_err().to_string();
    assert!(why.contains("it has no key \"key1\"") && why.contains("rewrite_due"), "{why}");
    assert_eq!(encryption.writing(), [encryption.keys()[0].clone()], "all is as before");
    assert_eq!(encryption.unseal(&key("a"), kept.clone()), Ok(VALUE));

    encryption.reload(file(&[&both]).as_bytes()).unwrap();
    assert!(encryption.is_due(&written));
    assert_eq!((encryption.keys().len(), encryption.writing().len()), (2, 1));
    assert_eq!(encryption.unseal(&key("a"), kept.clone()), Ok(VALUE));
    assert!(encryption.reload(file(&[&two]).as_bytes()).is_err());
    encryption.rewritten(true);
    encryption.reload(file(&[&two]).as_bytes()).unwrap();
    assert!(encryption.unseal(&key("a"), kept).is_err());
}

#[test]
fn a_file_is_read_as_kube_apiserver_reads_it_or_refused_with_its_field() {
    let good = keys("aesgcm", &[("key1", 1)]);
    let refused: [(&[&str], &str); 17] = [
        (&[], "resources[0].providers: there are none"),
        (
            &["aescbc: {keys: [{name: a, secret: AAAA}]}"],
            "resources[0].providers[0].aescbc: is not supported",
        ),
        (&["aesgcm: {keys: []}"], "resources[0].providers[0].aesgcm.keys: there are none"),
        (
            &["aesgcm: {keys: [{name: a, secret: AAAA}]}"],
            "aesgcm.keys[0].secret: has 3 bytes; must have one of [16, 24, 32]",
        ),
        (&["aesgcm: {keys: [{name: a, secret: \"?hunter2\"}]}"], "keys[0].secret: is not base64"),
        (&["aesgcm: {keys: [{name: a, secret: 123456}]}"], "secret: is not what must stand there"),
        (&["aesgcm: {keys: [{secret: AAAAAAAAAAAAAAAAAAAAAA==}]}"], "keys[0].name: must have 1 to 200 bytes"),
        (&[&good, &good], "providers[1].aesgcm.keys[0].name \"key1\": stands there twice"),
        (
            &["secretbox: {keys: [{name: a, secret: AAAAAAAAAAAAAAAAAAAAAA==}]}"],
            "has 16 bytes; must have one of [32]",
        ),
        (&["identity: {}\n    aesgcm: {keys: []}"], "must be one of aesgcm, secretbox, identity, kms"),
        (&["aesgcm: {keys: [hunter2]}"], "aesgcm.keys[0]: is not what must stand there"),
        (&["aesgcm: {keys: hunter2}"], "aesgcm.keys: is not what must stand there"),
        (&["secretbox: hunter2"], "secretbox: is not what must stand there"),
        (&["rot13: {}"], "unknown field `rot13`"),
        (&["kms: {name: k, endpoint: \"exec:///bin/k\"}"], "kms.apiVersion \"\": must be \"v2\""),
        (&["kms: {apiVersion: v2, name: k, endpoint: \"unix:///tmp/k.sock\"}"], "does not speak gRPC"),
        (
            &["kms: {apiVersion: v2, name: k, endpoint: \"exec:///bin/k\", timeout: 2h}"],
            "kms.timeout: must be more than 0",
        ),
    ];
    for (providers, want) in refused {
        let why = Configuration::parse(file(providers).as_bytes()).map(drop).unwrap_err();
        assert!(why.contains(want), "{why} instead of {want}");
        assert!(!why.contains("hunter2") && !why.contains("123456"), "{why}");
    }
    let resources = |names: &str| {
        let text = file(&[&good]).replace("secrets, \"*.work.karmada.io\"", names);
        Configuration::parse(text.as_bytes()).map(drop)
    };
    for names in ["secrets, configmaps", "\"*.\"", "\"*.*\"", "works.work.karmada.io", "\"*.apps\", secrets"]
    {
        assert_eq!(resources(names), Ok(()), "{names}");
    }
    for (names, want) in [
        ("secret", "resources[0].resources[0] \"secret\": the core group has no such resource"),
        ("secrets, secrets", "resources[0].resources[1] \"secrets\": stands there twice"),
        ("\"*.\", secrets", "\"secrets\": is masked by \"*.\", which stands before it"),
        ("\"*.*\", secrets", "\"secrets\": is masked by \"*.*\""),
        ("\"*.*\", \"*.apps\"", "\"*.apps\": is masked by \"*.*\""),
        ("\"*.work.karmada.io\", works.work.karmada.io", "is masked by \"*.work.karmada.io\""),
        ("\"*\"", "wildcards are"),
        ("\"secrets.\"", "wildcards are"),
        ("\"works.*\"", "wildcards are"),
        ("Secrets", "in lower case"),
        ("secrets/status", "without subresources"),
        ("", "resources[0].resources: there are none"),
    ] {
        let why = resources(names).unwrap_err();
        assert!(why.contains(want), "{names}: {why}");
    }
    let other = file(&[&good]).replace("apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v2");
    assert!(Configuration::parse(other.as_bytes()).is_err_and(|why| why.contains("must be apiVersion")));
    assert!(Configuration::parse(b"a: [").is_err());
}

#[test]
fn resources_are_covered_as_in_kube_apiserver() {
    let rows = [
        ("secrets", "core/secrets", true),
        ("secrets", "core/configmaps", false),
        ("secrets", "example.com/secrets", false),
        ("works.work.karmada.io", "work.karmada.io/works", true),
        ("*.work.karmada.io", "work.karmada.io/works", true),
        ("*.work.karmada.io", "work.karmada.io/resourcebindings", true),
        ("*.work.karmada.io", "core/secrets", false),
        ("*.", "core/secrets", true),
        ("*.", "apps/deployments", false),
        ("*.*", "apps/deployments", true),
        ("*.*", "core/secrets", true),
    ];
    for (pattern, storage, want) in rows {
        assert_eq!(covers(pattern, storage), want, "{pattern} {storage}");
    }
}

/// A command in the words of a KMS, whose encryption is base64 once more; it is well while `DIR/well` is there.
fn command(dir: &Path, key_id: &str) -> String {
    let path = dir.join("kms");
    let dir = dir.display();
    let script = format!(
        r#"#!/bin/bash
echo "$1" >> {dir}/calls
[ -e {dir}/well ] || {{ echo "the vault is sealed" >&2; exit 3; }}
read -r request
field() {{ sed -n 's/.*"'$1'":"\([^"]*\)".*/\1/p' <<< "$request"; }}
case $1 in
status) echo '{{"version":"v2","healthz":"ok","keyId":"{key_id}"}}' ;;
encrypt) echo '{{"keyId":"{key_id}","ciphertext":"'$(field plaintext | base64 -w0)'"}}' ;;
decrypt) echo '{{"plaintext":"'$(field ciphertext | base64 -d)'"}}' ;;
esac
"#
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(format!("{dir}/well"), "").unwrap();
    file(&[&format!(
        "kms: {{apiVersion: v2, name: vault, endpoint: \"exec://{}\", timeout: 20s}}",
        path.display()
    )])
}

#[test]
fn a_command_keeps_the_key_of_the_keys() {
    let dir = tempfile::tempdir().unwrap();
    let text = command(dir.path(), "k1");
    let calls = || fs::read_to_string(dir.path().join("calls")).unwrap().split_whitespace().count();
    let one = Encryption::new(text.as_bytes()).unwrap();
    let kept = one.seal(&key("a"), &VALUE);
    assert_eq!(one.unseal(&key("a"), kept.clone()), Ok(VALUE));
    let before = calls();
    assert_eq!(before, 3, "encrypt, its keyId, and decrypt to be sure");
    let again = Encryption::new(text.as_bytes()).unwrap();
    for _ in 0..3 {
        assert_eq!(again.unseal(&key("a"), kept.clone()), Ok(VALUE));
    }
    assert_eq!(calls(), before + 4, "a data key is asked for once");
    assert!(!again.is_due(&one.digest()), "it is the same key of the command's");
    assert!(again.unseal(&key("b"), kept.clone()).is_err());
    assert_eq!(again.has_new_key(), Ok(false));

    // Its key is another: what is written goes by that, and the old one is still read.
    let text = command(dir.path(), "k2");
    assert_eq!(again.has_new_key(), Ok(true));
    let written = again.digest();
    again.reload(text.as_bytes()).unwrap();
    assert!(again.is_due(&written));
    assert_eq!(again.unseal(&key("a"), kept.clone()), Ok(VALUE));
    assert!(label(&again.seal(&key("a"), &VALUE)).unwrap().starts_with("key \"k2\" of kms \"vault\""));

    // One that is not well holds nobody up who runs, and is named to whoever starts.
    fs::remove_file(dir.path().join("well")).unwrap();
    assert!(again.has_new_key().is_err());
    assert_eq!(again.unseal(&key("a"), again.seal(&key("a"), &VALUE)), Ok(VALUE));
    let why = Encryption::new(text.as_bytes()).map(drop).unwrap_err().to_string();
    assert!(why.contains("kms \"vault\"") && why.contains("the vault is sealed"), "{why}");
    let elsewhere = of(&[&keys("aesgcm", &[("key1", 1)])]);
    let why = elsewhere.unseal(&key("a"), kept).unwrap_err();
    assert!(why.contains("of kms \"vault\"") && why.contains("not among the kms providers"), "{why}");
}

#[test]
fn what_was_in_force_for_a_while_is_not_forgotten_when_it_is_taken_back() {
    let first = file(&[&keys("aesgcm", &[("key1", 1), ("key2", 2)])]);
    for other in [
        file(&[&keys("aesgcm", &[("key2", 2), ("key1", 1)])]),
        file(&["identity: {}", &keys("aesgcm", &[("key1", 1)])]),
    ] {
        let encryption = Encryption::new(first.as_bytes()).unwrap();
        let written = encryption.digest();
        encryption.reload(other.as_bytes()).unwrap();
        encryption.seal(&key("a"), &VALUE);
        // The store cannot be written anew meanwhile, and the file is as it was.
        encryption.rewritten(false);
        encryption.reload(first.as_bytes()).unwrap();
        assert!(encryption.digest() == written && encryption.is_due(&written));
        encryption.rewritten(true);
        assert!(!encryption.is_due(&written));
    }
}

#[test]
fn a_command_that_fails_is_not_asked_for_each_value() {
    let dir = tempfile::tempdir().unwrap();
    let text = command(dir.path(), "k1");
    let one = Encryption::new(text.as_bytes()).unwrap();
    let kept = one.seal(&key("a"), &VALUE);
    // A start with a key of its own, beside a command that does not answer any more.
    let providers = text.split("providers:\n  - ").nth(1).unwrap().trim().to_owned();
    let other = of(&[&keys("aesgcm", &[("key1", 1)]), &providers]);
    fs::remove_file(dir.path().join("well")).unwrap();
    let calls = || fs::read_to_string(dir.path().join("calls")).unwrap().split_whitespace().count();
    let before = calls();
    for _ in 0..5 {
        let why = other.unseal(&key("a"), kept.clone()).unwrap_err();
        assert!(why.contains("the vault is sealed"), "{why}");
    }
    assert_eq!(calls(), before + 1);
    fs::write(dir.path().join("well"), "").unwrap();
    other.reload(file(&[&keys("aesgcm", &[("key1", 1)]), &providers]).as_bytes()).unwrap();
    assert_eq!(other.unseal(&key("a"), kept), Ok(VALUE), "the file was read again");
}

#[test]
fn a_command_whose_answers_name_different_keys_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let text = command(dir.path(), "k1");
    let path = dir.path().join("kms");
    let script = fs::read_to_string(&path).unwrap().replacen("\"keyId\":\"k1\"", "\"keyId\":\"k9\"", 1);
    fs::write(&path, script).unwrap();
    let why = Encryption::new(text.as_bytes()).map(drop).unwrap_err().to_string();
    assert!(why.contains("\"k1\"") && why.contains("\"k9\"") && why.contains("must be the same"), "{why}");
}

#[test]
fn a_file_of_keys_is_known_by_its_keys() {
    let encryption = of(&[&keys("aesgcm", &[("key1", 1), ("key2", 2)])]);
    let kept = encryption.seal(&key("a"), &VALUE);
    let label = label(&kept).unwrap();
    assert!(keys_in(file(&[&keys("aesgcm", &[("key1", 1)])]).as_bytes()).contains(&label));
    assert!(!keys_in(file(&[&keys("aesgcm", &[("key1", 3)])]).as_bytes()).contains(&label));
    assert!(keys_in(b"-----BEGIN CERTIFICATE-----").is_empty());
    assert_eq!(super::label(&VALUE), None);
}
