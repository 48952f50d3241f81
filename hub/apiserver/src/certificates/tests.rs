//! What is decided, as tables.

#![allow(clippy::needless_pass_by_value, reason = "rows are made where they stand")]

use std::time::{Duration, SystemTime};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use karmada_meta::object;
use serde_json::{Value, json};

use super::{
    ANY_CLUSTER_GROUP, CLUSTER, USED_AT, USED_BY, USES_LEFT,
    policy::{self, Known, Requester, USUAL, Verdict, decide, is_past, life},
    requested::Requested,
};
use crate::authn::epochs::EPOCH;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn requested(cluster: &str) -> Requested {
    Requested {
        common_names: vec![format!("system:karmada:agent:{cluster}")],
        organisations: vec!["system:karmada:agents".to_owned()],
        more: false,
        names: false,
        key_error: None,
        key: vec![1, 2, 3],
    }
}

fn spec(user: &str, groups: &[&str]) -> Value {
    json!({"username": user, "groups": groups, "usages": ["client auth", "digital signature", "key encipherment"]})
}

fn by_token() -> Value {
    spec("system:bootstrap:abcdef", &["system:bootstrappers"])
}

/// What the agent of m1 asks who has shown a certificate of an epoch.
fn agent(epoch: Option<&str>) -> Value {
    let mut spec = spec("system:karmada:agent:m1", &["system:karmada:agents"]);
    if let Some(epoch) = epoch {
        spec["extra"] = json!({"hub.karmada.io/credential-epoch": [epoch]});
    }
    spec
}

fn secret(groups: &str, annotations: Value) -> Value {
    let encode = |text: &str| STANDARD.encode(text);
    json!({"metadata": {"name": "bootstrap-token-abcdef", "annotations": annotations},
        "type": "bootstrap.kubernetes.io/token",
        "data": {"token-id": encode("abcdef"), "token-secret": encode("0123456789abcdef"),
            "usage-bootstrap-authentication": encode("true"), "auth-extra-groups": encode(groups),
            "expiration": encode("1970-01-01T01:00:00Z")}})
}

fn known(token: Option<&Value>) -> Known<'_> {
    Known {
        name: "m1-abcde",
        token,
        epoch: 0,
        registered: false,
        leaving: false,
        pushed: false,
        free: Ok(()),
        now: at(100),
    }
}

/// A word for a verdict, and what it says.
fn said(verdict: Verdict) -> (&'static str, String) {
    match verdict {
        Verdict::Approve { why, .. } => ("approve", why),
        Verdict::Deny(_, why) => ("deny", why),
        Verdict::Leave(why) => ("leave", why),
    }
}

#[test]
fn who_asks() {
    let rows = [
        (by_token(), Requester::Token("abcdef".to_owned())),
        (spec("system:bootstrap:abcdef", &["other"]), Requester::Other),
        (agent(None), Requester::Agent { cluster: "m1".to_owned(), epoch: 0 }),
        (agent(Some("7")), Requester::Agent { cluster: "m1".to_owned(), epoch: 7 }),
        (agent(Some("x")), Requester::Agent { cluster: "m1".to_owned(), epoch: 0 }),
        (spec("system:karmada:agent:rbac-generator", &["system:karmada:agents"]), Requester::Other),
        (spec("system:karmada:agent:m1", &[]), Requester::Other),
        (json!({}), Requester::Other),
    ];
    for (spec, want) in rows {
        assert_eq!(Requester::of(&spec), want, "{spec}");
    }
}

#[test]
fn tokens_are_for_one_cluster_and_so_many_keys() {
    let digest = requested("m1").digest();
    let group = "system:bootstrappers:hub:m1";
    let rows = [
        (secret(group, json!({})), "approve", "is for cluster \"m1\""),
        (secret("", json!({CLUSTER: "m1"})), "approve", "is for cluster \"m1\""),
        (secret(group, json!({CLUSTER: "m2"})), "deny", "is for cluster \"m2\", not for \"m1\""),
        (secret("system:bootstrappers:hub:m2", json!({})), "deny", "is for cluster \"m2\""),
        (secret("system:bootstrappers:kubeadm:default-node-token", json!({})), "leave", "for no cluster"),
        (secret(ANY_CLUSTER_GROUP, json!({})), "approve", "is for cluster \"m1\""),
        (secret(ANY_CLUSTER_GROUP, json!({CLUSTER: "m2"})), "deny", "is for cluster \"m2\", not for \"m1\""),
        (secret(group, json!({USES_LEFT: "2"})), "approve", ""),
        (secret(group, json!({USES_LEFT: "0"})), "deny", "used as often"),
        (secret(group, json!({USES_LEFT: "0", USED_BY: digest})), "approve", ""),
        (secret(group, json!({USES_LEFT: "-1"})), "deny", "no number"),
        (secret("system:masters", json!({CLUSTER: "m1"})), "deny", "does not hold"),
    ];
    for (secret, want, part) in rows {
        let (got, why) = said(decide(&by_token(), &Ok(requested("m1")), known(Some(&secret))));
        assert_eq!(got, want, "{secret}: {why}");
        assert!(why.contains(part), "{why}");
    }
    let two = secret(group, json!({USES_LEFT: "2"}));
    match decide(&by_token(), &Ok(requested("m1")), known(Some(&two))) {
        Verdict::Approve { token: Some(secret), .. } => {
            assert_eq!(object::annotation(&secret, USES_LEFT), Some("1"));
            assert_eq!(object::annotation(&secret, USED_BY), Some(&*digest));
        }
        other => panic!("{other:?}"),
    }
    let ended = Known { now: at(3600), ..known(Some(&two)) };
    assert!(said(decide(&by_token(), &Ok(requested("m1")), ended)).1.contains("expired"));
    assert!(said(decide(&by_token(), &Ok(requested("m1")), known(None))).1.contains("not there any more"));
}

#[test]
fn an_agent_asks_for_itself_and_for_nothing_else() {
    let with = |change: fn(&mut Requested)| {
        let mut requested = requested("m1");
        change(&mut requested);
        Ok(requested)
    };
    let rows = [
        (with(|_| {}), "approve", "renews"),
        (Ok(requested("m2")), "deny", "asks for cluster \"m2\""),
        (Ok(requested("rbac-generator")), "deny", "its name \"m1-abcde\" is not agent-rbac-generator-"),
        (Ok(requested("M_1")), "deny", "with the name of a cluster"),
        (with(|r| r.common_names.clear()), "deny", "0 common names"),
        (with(|r| r.common_names.push("x".to_owned())), "deny", "2 common names"),
        (with(|r| r.organisations.push("system:masters".to_owned())), "deny", "alone"),
        (with(|r| r.organisations.clear()), "deny", "alone"),
        (with(|r| r.more = true), "deny", "more than"),
        (with(|r| r.names = true), "deny", "alternative names"),
        (with(|r| r.key_error = Some("weak".to_owned())), "deny", "weak"),
        (Err("torn".to_owned()), "deny", "torn"),
    ];
    for (requested, want, part) in rows {
        let (got, why) = said(decide(&agent(None), &requested, known(None)));
        assert_eq!(got, want, "{requested:?}: {why}");
        assert!(why.contains(part), "{part}: {why}");
    }
    // What was asked with a credential that has ended since is not made good, whatever clocks say.
    let rows = [
        (None, 0, "approve"),
        (Some("7"), 7, "approve"),
        (Some("8"), 7, "approve"),
        (Some("6"), 7, "deny"),
        (None, 7, "deny"),
    ];
    for (shown, counts, want) in rows {
        let known = Known { epoch: counts, ..known(None) };
        assert_eq!(said(decide(&agent(shown), &Ok(requested("m1")), known)).0, want, "{shown:?} at {counts}");
    }
}

#[test]
fn a_token_ends_with_the_credentials_of_its_cluster_and_with_its_agent() {
    let (group, digest) = ("system:bootstrappers:hub:m1", requested("m1").digest());
    let of = |epoch: &str, more: &[(&str, &str)]| {
        let mut annotations = json!({EPOCH: epoch});
        more.iter().for_each(|(key, text)| annotations[*key] = Value::from(*text));
        secret(group, annotations)
    };
    let (mine, other) = ((USED_BY, digest.as_str()), (USED_BY, "sha256:00"));
    // token, epoch that counts, whether an agent has registered since, verdict
    let rows = [
        (secret(group, json!({})), 7, false, "deny", "were ended"),
        (of("6", &[]), 7, false, "deny", "were ended"),
        (of("6", &[mine]), 7, false, "deny", "were ended"),
        (of("7", &[]), 7, false, "approve", ""),
        (of("x", &[]), 7, false, "deny", "were ended"),
        (of("0", &[]), 0, true, "deny", "before the agent of cluster \"m1\" registered"),
        (of("0", &[mine]), 0, true, "approve", ""),
        (of("0", &[other]), 0, true, "deny", "registered"),
        (of("0", &[(USES_LEFT, "1")]), 0, true, "deny", "registered"),
        (of("0", &[(USES_LEFT, "1"), other]), 0, true, "approve", ""),
        (of("0", &[(USES_LEFT, "0"), mine]), 0, true, "approve", ""),
    ];
    for (secret, epoch, registered, want, part) in rows {
        let known = Known { epoch, registered, ..known(Some(&secret)) };
        let (got, why) = said(decide(&by_token(), &Ok(requested("m1")), known));
        assert_eq!(got, want, "{secret} at {epoch}, {registered}: {why}");
        assert!(why.contains(part), "{why}");
    }
    // While one of the name is leaving nobody comes after it, whoever has asked before.
    for token in [of("0", &[]), of("0", &[mine]), of("0", &[(USES_LEFT, "1"), other])] {
        let known = Known { leaving: true, ..known(Some(&token)) };
        let (got, why) = said(decide(&by_token(), &Ok(requested("m1")), known));
        assert!(got == "deny" && why.contains("is leaving: ask again"), "{token}: {why}");
    }
    let leaving = Known { leaving: true, ..known(None) };
    assert_eq!(
        said(decide(&agent(None), &Ok(requested("m1")), leaving)).0,
        "approve",
        "it renews to the end"
    );
    // Nobody is let in where the hub works by itself, renewals included.
    let pushed = |token| Known { pushed: true, ..known(token) };
    for (spec, token) in [(by_token(), Some(&of("0", &[]))), (agent(None), None)] {
        let (got, why) = said(decide(&spec, &Ok(requested("m1")), pushed(token)));
        assert!(got == "deny" && why.contains("is in push mode"), "{spec}: {why}");
    }
    // Whose key it was is noted of tokens without a count, too.
    match decide(&by_token(), &Ok(requested("m1")), known(Some(&secret(group, json!({}))))) {
        Verdict::Approve { token: Some(secret), .. } => {
            assert_eq!(object::annotation(&secret, USED_BY), Some(&*digest));
            assert_eq!(object::annotation(&secret, USED_AT), Some("1970-01-01T00:01:40Z"));
            assert_eq!(object::annotation(&secret, USES_LEFT), None);
        }
        other => panic!("{other:?}"),
    }
}

/// What `karmadactl register` asks for first.
#[test]
fn who_makes_roles_is_named_by_the_request_and_uses_no_token_up() {
    let group = "system:bootstrappers:hub:m1";
    let (mine, any) = (secret(group, json!({USES_LEFT: "1"})), secret(ANY_CLUSTER_GROUP, json!({})));
    let generator = requested("rbac-generator");
    // name, token, whether the name is free, verdict, what it says, the cluster of the token from then on
    let rows = [
        ("agent-rbac-generator-m1abcde", &mine, Ok(()), "approve", "whose roles are to be made", None),
        ("agent-rbac-generator-m1abcde", &any, Ok(()), "approve", "whose roles are to be made", Some("m1")),
        ("agent-rbac-generator-m1abcde", &any, Err("taken"), "deny", "become one for \"m1\": taken", None),
        (
            "agent-rbac-generator-m2abcde",
            &mine,
            Ok(()),
            "deny",
            "is for cluster \"m1\", not for \"m2\"",
            None,
        ),
        ("agent-rbac-generator-m1abcd", &mine, Ok(()), "deny", "for \"m\"", None),
        ("agent-rbac-generator-abcde", &mine, Ok(()), "deny", "is not agent-rbac-generator-", None),
        ("agent-rbac-generator-abcd", &mine, Ok(()), "deny", "is not agent-rbac-generator-", None),
        ("agent-rbac-generator-m1äbcd", &mine, Ok(()), "deny", "is not agent-rbac-generator-", None),
        ("agent-rbac-generator-rbac-generatorabcde", &any, Ok(()), "deny", "is not agent-rbac", None),
        ("m1-abcde", &mine, Ok(()), "deny", "is not agent-rbac-generator-", None),
    ];
    for (name, token, free, want, part, cluster) in rows {
        let known = Known { name, free, epoch: 0, ..known(Some(token)) };
        let verdict = decide(&by_token(), &Ok(generator.clone()), known);
        let bound = match &verdict {
            Verdict::Approve { token: Some(secret), .. } => {
                assert_eq!(object::annotation(secret, USED_BY), None);
                object::annotation(secret, CLUSTER).map(str::to_owned)
            }
            _ => None,
        };
        assert_eq!(bound.as_deref(), cluster, "{name}");
        let (got, why) = said(verdict);
        assert_eq!(got, want, "{name}: {why}");
        assert!(why.contains(part), "{name}: {why}");
    }
    let used_up = secret(group, json!({USES_LEFT: "0"}));
    let named = |token| Known { name: "agent-rbac-generator-m1abcde", ..known(token) };
    assert!(
        said(decide(&by_token(), &Ok(generator.clone()), named(Some(&used_up)))).1.contains("as often as")
    );
    assert!(
        said(decide(&agent(None), &Ok(generator), named(None)))
            .1
            .contains("an agent asks for no certificate")
    );
    let whose = Some(policy::Whose::Generator("m1"));
    assert_eq!(life(whose, &json!({"expirationSeconds": 31_536_000}), USUAL), Duration::from_mins(10));
}

#[test]
fn what_others_write_is_quoted_in_part() {
    let long = "\u{1}".repeat(60_000);
    let rows = [
        Requested { common_names: vec![long.clone()], ..requested("m1") },
        Requested { organisations: vec![long.clone(), long], ..requested("m1") },
    ];
    for requested in rows {
        let (word, why) = said(decide(&agent(None), &Ok(requested), known(None)));
        assert!(word == "deny" && why.len() < 300, "{word}, {} bytes", why.len());
    }
    assert_eq!(policy::short("m\"1"), r#""m\"1""#);
}

#[test]
fn lives_are_bounded() {
    let year = 365 * 24 * 3600;
    let rows = [
        (json!({}), USUAL.as_secs()),
        (json!(1), 600),
        (json!(7200), 7200),
        (json!(year), year),
        (json!(9 * year), year),
    ];
    for (seconds, want) in rows {
        assert_eq!(life(None, &json!({"expirationSeconds": seconds}), USUAL).as_secs(), want, "{seconds}");
    }
}

#[test]
fn how_long_requests_are_kept() {
    let condition = |sort: &str| json!({"type": sort, "lastUpdateTime": "1970-01-01T00:00:00Z"});
    let rows = [
        (json!({}), 24),
        (json!({"conditions": [condition("Denied")]}), 1),
        (json!({"conditions": [condition("Failed")]}), 1),
        (json!({"conditions": [condition("Approved")], "certificate": "x"}), 1),
        // Another signer's.
        (json!({"conditions": [condition("Approved")]}), u64::MAX),
    ];
    for (status, hours) in rows {
        let request = json!({"status": status});
        for past in [1, 2, 23, 24, 1000] {
            assert_eq!(is_past(&request, at(0), at(past * 3600)), past >= hours, "{status} after {past} h");
        }
    }
    // What was denied to a machine goes sooner, for it may ask on and on.
    for (spec, minutes) in [(by_token(), 10), (agent(None), 10), (spec("jane", &[]), 60)] {
        let request = json!({"spec": spec, "status": {"conditions": [condition("Denied")]}});
        for past in [9, 10, 59, 60] {
            assert_eq!(is_past(&request, at(0), at(past * 60)), past >= minutes, "{spec} after {past} min");
        }
    }
}

#[test]
fn keys_are_of_a_few_kinds_and_prove_themselves() {
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};
    for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519] {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let request = CertificateParams::default().serialize_request(&key).unwrap();
        let read = Requested::read(&STANDARD.encode(request.pem().unwrap())).unwrap();
        assert_eq!(read.key_error, None, "{algorithm:?}");
        let mut der = request.der().to_vec();
        *der.last_mut().unwrap() ^= 1;
        let forged = format!(
            "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
            STANDARD.encode(der)
        );
        let read = Requested::read(&STANDARD.encode(forged)).unwrap();
        assert!(read.key_error.is_some_and(|why| why.contains("not signed by")), "{algorithm:?}");
    }
    for nonsense in ["", "LS0=", "!"] {
        assert!(Requested::read(nonsense).is_err());
    }
    assert!(Requested::read(&"A".repeat(64 * 1024 + 1)).unwrap_err().contains("longer"));
}

/// Another signer may read more than the first list.
#[test]
fn alternative_names_are_seen_wherever_they_are_asked_for() {
    use rcgen::{Attribute, CertificateParams, KeyPair, KeyUsagePurpose};
    const EXTENSION_REQUEST: &[u64] = &[1, 2, 840, 113_549, 1, 9, 14];
    let name = [0x31, 16, 0x30, 14, 0x30, 12, 6, 3, 0x55, 0x1d, 17, 4, 5, 0x30, 3, 0x82, 1, b'a'];
    let mut unread = name;
    // A name that is longer than what it stands in.
    unread[16] = 9;
    let usage = [0x31, 16, 0x30, 14, 0x30, 12, 6, 3, 0x55, 0x1d, 15, 4, 5, 3, 3, 7, 0, 0x80];
    for (first, second, want) in [
        (true, None, false),
        (false, Some(name), true),
        (true, Some(name), true),
        (true, Some(unread), true),
        (true, Some(usage), false),
    ] {
        let mut params = CertificateParams::default();
        params.key_usages = if first { vec![KeyUsagePurpose::DigitalSignature] } else { Vec::new() };
        let more = second.map(|values| Attribute { oid: EXTENSION_REQUEST, values: values.to_vec() });
        let key = KeyPair::generate().unwrap();
        let request = params.serialize_request_with_attributes(&key, more.into_iter().collect()).unwrap();
        let read = Requested::read(&STANDARD.encode(request.pem().unwrap()));
        // What cannot be read is refused as well.
        assert_eq!(read.map_or(true, |read| read.names), want, "{first}, {second:?}");
    }
}
