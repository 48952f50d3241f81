//! What is decided, as tables.

#![allow(clippy::needless_pass_by_value, reason = "rows are made where they stand")]

use std::time::{Duration, SystemTime};

use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::{
    policy::{Known, Requester, USUAL, Verdict, decide, is_past, life},
    *,
};

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

fn secret(groups: &str, annotations: Value) -> Value {
    let encode = |text: &str| STANDARD.encode(text);
    json!({"metadata": {"name": "bootstrap-token-abcdef", "annotations": annotations},
        "type": "bootstrap.kubernetes.io/token",
        "data": {"token-id": encode("abcdef"), "token-secret": encode("0123456789abcdef"),
            "usage-bootstrap-authentication": encode("true"), "auth-extra-groups": encode(groups),
            "expiration": encode("1970-01-01T01:00:00Z")}})
}

fn known(token: Option<&Value>) -> Known<'_> {
    Known { token, ended: None, asked: at(100), now: at(100) }
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
        (spec("system:karmada:agent:m1", &["system:karmada:agents"]), Requester::Agent("m1".to_owned())),
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
        (secret("system:bootstrappers:karmada:default-cluster-token", json!({})), "leave", "for no cluster"),
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
    let agent = || spec("system:karmada:agent:m1", &["system:karmada:agents"]);
    let with = |change: fn(&mut Requested)| {
        let mut requested = requested("m1");
        change(&mut requested);
        Ok(requested)
    };
    let rows = [
        (with(|_| {}), "approve", "renews"),
        (Ok(requested("m2")), "deny", "asks for cluster \"m2\""),
        (Ok(requested("rbac-generator")), "deny", "with the name of a cluster"),
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
        let (got, why) = said(decide(&agent(), &requested, known(None)));
        assert_eq!(got, want, "{requested:?}: {why}");
        assert!(why.contains(part), "{part}: {why}");
    }
    // What was asked with a credential that has ended since is not made good.
    for (ended, want) in [(99, "approve"), (100, "deny"), (101, "deny")] {
        let known = Known { ended: Some(at(ended)), ..known(None) };
        assert_eq!(said(decide(&agent(), &Ok(requested("m1")), known)).0, want, "{ended}");
    }
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
        assert_eq!(life(&json!({"expirationSeconds": seconds})).as_secs(), want, "{seconds}");
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

/// By the letter of RFC 7515, made by hand with another implementation.
#[test]
fn a_detached_signature() {
    assert_eq!(cluster_info::detached("abcdef", "0123456789abcdef", "text"), DETACHED);
}

const DETACHED: &str =
    "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..v28Ea_KqmHOtFWksJ_4tbV6AFRNzMkrRUG_jsuLJz-4";
