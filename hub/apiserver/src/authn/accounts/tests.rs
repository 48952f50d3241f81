use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use karmada_env::ManualClock;
use karmada_store::{Expect, Op, engine::memory::Memory};
use rcgen::KeyPair;
use tempfile::TempDir;

use super::{claims::Own, *};
use crate::{
    authn::{Authenticator, Stored, Tokens},
    open_store,
    pki::Pki,
    storage::ApiStore,
};

/// A server's part that knows accounts, without a server.
struct World {
    authenticator: Authenticator,
    accounts: Arc<ServiceAccounts>,
    stored: Stored,
    store: ApiStore,
    clock: ManualClock,
    env: Env,
    /// Of what signs the tokens.
    keys: Vec<SigningKey>,
}

fn keys() -> Vec<SigningKey> {
    let (dir, clock) = (TempDir::new().unwrap(), ManualClock::new(SystemTime::UNIX_EPOCH));
    let pki = Pki::open_or_create(dir.path(), &[], &Env::seeded(clock, 1)).unwrap();
    pki.service_account_keys().unwrap()
}

impl World {
    async fn new() -> Self {
        let clock = ManualClock::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_750_000_000));
        let env = Env::seeded(clock.clone(), 7);
        let store = open_store(Memory::new(), &env).unwrap();
        let stored = Stored::of(store.clone());
        let keys = keys();
        let accounts = Arc::new(ServiceAccounts::new(Settings::default(), keys.clone()));
        let authenticator = Authenticator::new(Tokens::new(), env.clone())
            .with_service_accounts(accounts.clone())
            .with_stored(stored.clone());
        let world = Self { authenticator, accounts, stored, store, clock, env, keys };
        world.put(ACCOUNTS, "n", "a", "u1", json!({})).await;
        world
    }

    async fn put(&self, resource: &str, namespace: &str, name: &str, uid: &str, rest: Value) {
        let mut object = json!({"metadata": {"name": name, "namespace": namespace, "uid": uid}});
        for (field, value) in rest.as_object().unwrap() {
            match field.as_str() {
                "deletionTimestamp" => object["metadata"][field] = value.clone(),
                _ => object[field] = value.clone(),
            }
        }
        let key = Key::new(resource, namespace, name);
        self.commit(Op::put(key.clone(), Expect::Any, object.to_string()), &key).await;
    }

    async fn remove(&self, resource: &str, namespace: &str, name: &str) {
        let key = Key::new(resource, namespace, name);
        self.commit(Op::delete(key.clone(), Expect::Any, "{}"), &key).await;
    }

    /// Commits and tells, as the follower does.
    async fn commit(&self, op: Op, key: &Key) {
        self.store.commit(vec![op]).await.unwrap();
        let now = self.store.snapshot();
        for derived in self.stored.derived() {
            derived.update(&[key.clone()].into(), &now);
        }
    }

    fn issue(&self, spec: &Value) -> Result<String, String> {
        let asked = Asked { namespace: "n", name: "a" };
        let review = json!({"spec": spec});
        let (now, id) = (self.env.wall(), self.env.uuid());
        let issued = self.accounts.issue(asked, review, &self.store.snapshot(), now, id);
        issued
            .map(|issued| issued.review["status"]["token"].as_str().unwrap().to_owned())
            .map_err(|status| format!("{} {status}", status.code()))
    }

    /// Who a token lets in, or why it does not.
    fn ask(&self, token: &str) -> String {
        self.ask_for(token, None)
    }

    fn ask_for(&self, token: &str, audiences: Option<&[&str]>) -> String {
        match self.authenticator.token(token, audiences) {
            Ok(accepted) => accepted.known.user.name,
            Err(why) => why.reason.to_owned(),
        }
    }

    fn claims(&self) -> Claims {
        let now = 1_750_000_000;
        Claims {
            aud: vec![ISSUER.to_owned()],
            exp: now + 600,
            iat: now,
            iss: ISSUER.to_owned(),
            jti: "j".to_owned(),
            own: Own {
                namespace: "n".to_owned(),
                serviceaccount: Reference { name: "a".to_owned(), uid: "u1".to_owned() },
                ..Own::default()
            },
            nbf: now,
            sub: user_name("n", "a"),
        }
    }
}

const A: &str = "system:serviceaccount:n:a";

fn encoded(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

fn decoded(part: &str) -> Value {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_token_says_what_kube_apiserver_says() {
    let world = World::new().await;
    world.put(NODES, "", "o", "u9", json!({})).await;
    world.put(PODS, "n", "p", "u2", json!({"spec": {"serviceAccountName": "a", "nodeName": "o"}})).await;
    let token =
        world.issue(&json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}})).unwrap();
    let parts: Vec<&str> = token.split('.').collect();
    assert_eq!(decoded(parts[0]), json!({"alg": "ES256", "kid": world.keys[0].id()}));
    let claims = decoded(parts[1]);
    let id = claims["jti"].as_str().unwrap().to_owned();
    assert_eq!(
        claims,
        json!({"aud": [ISSUER], "exp": 1_750_003_600, "iat": 1_750_000_000, "iss": ISSUER, "jti": id,
        "kubernetes.io": {"namespace": "n", "node": {"name": "o", "uid": "u9"}, "pod": {"name": "p", "uid": "u2"},
            "serviceaccount": {"name": "a", "uid": "u1"}},
        "nbf": 1_750_000_000, "sub": A})
    );
    let user = world.authenticator.token(&token, None).unwrap().known.user;
    assert_eq!((user.name.as_str(), user.uid.as_str()), (A, "u1"));
    assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"]);
    let extra = |key: &str| user.extra[&format!("authentication.kubernetes.io/{key}")][0].clone();
    let said = ["pod-name", "pod-uid", "node-name", "node-uid", "credential-id"].map(extra);
    assert_eq!(said, ["p", "u2", "o", "u9", &format!("JTI={id}")].map(str::to_owned));
    // The published key is the one that signs.
    let key = &world.accounts.key_set()["keys"][0];
    assert_eq!(key["kid"], world.keys[0].id());
    let public =
        DecodingKey::from_ec_components(key["x"].as_str().unwrap(), key["y"].as_str().unwrap()).unwrap();
    let public = PublicKey::new(None, public, vec![Algorithm::ES256]);
    let look = Look { key: None, ..jose::look(&token).unwrap() };
    assert!(public.open::<Claims>(&token, &look).is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_may_be_asked_for() {
    let world = World::new().await;
    world.put(PODS, "n", "p", "u2", json!({"spec": {"serviceAccountName": "a"}})).await;
    world.put(PODS, "n", "q", "u3", json!({"spec": {"serviceAccountName": "b"}})).await;
    world.put(SECRETS, "n", "s", "u4", json!({})).await;
    world.put(SECRETS, "m", "t", "u5", json!({})).await;
    let to = |kind: &str, name: &str, uid: &str| json!({"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": name, "uid": uid}});
    let rows = [
        (json!({}), Ok(())),
        (json!({"expirationSeconds": 600}), Ok(())),
        (json!({"expirationSeconds": 599}), Err("422")),
        (json!({"expirationSeconds": -1}), Err("422")),
        (json!({"expirationSeconds": (1_i64 << 32) + 1}), Err("422")),
        (json!({"audiences": vec!["a"; 33]}), Err("422")),
        (json!({"audiences": ["a".repeat(257)]}), Err("422")),
        (to("Pod", "p", "u2"), Ok(())),
        (to("Pod", "p", ""), Ok(())),
        (to("Pod", "p", "u1"), Err("409")),
        (to("Pod", "q", ""), Err("400")),
        (to("Pod", "none", ""), Err("404")),
        (to("Secret", "s", "u4"), Ok(())),
        // Nothing of another namespace.
        (to("Secret", "t", "u5"), Err("404")),
        (to("Node", "o", ""), Err("404")),
        (to("ConfigMap", "s", ""), Err("400")),
        (json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "apps/v1", "name": "p"}}), Err("400")),
    ];
    for (spec, want) in rows {
        match (world.issue(&spec), want) {
            (Ok(token), Ok(())) => assert_eq!(world.ask(&token), A, "{spec}"),
            (Err(why), Err(code)) => assert!(why.starts_with(code), "{spec}: {why}"),
            (got, _) => panic!("{spec}: {got:?}"),
        }
    }
    world.remove(ACCOUNTS, "n", "a").await;
    assert!(world.issue(&json!({})).unwrap_err().starts_with("404"));
}

#[tokio::test(start_paused = true)]
async fn tokens_are_for_somebody() {
    let world = World::new().await;
    let (here, there) =
        (world.issue(&json!({})).unwrap(), world.issue(&json!({"audiences": ["x", "y"]})).unwrap());
    let rows: [(&str, Option<&[&str]>, &str); 6] = [
        (&here, None, A),
        (&here, Some(&["x"]), "token_audience"),
        (&here, Some(&["x", ISSUER]), A),
        (&there, None, "token_audience"),
        (&there, Some(&["y", "z"]), A),
        // Also when it has been found good for somebody else.
        (&there, None, "token_audience"),
    ];
    for (token, asked, want) in rows {
        assert_eq!(world.ask_for(token, asked), want, "{asked:?}");
    }
    assert_eq!(world.authenticator.token(&there, Some(&["z", "y"])).unwrap().audiences, ["y"]);
}

#[tokio::test(start_paused = true)]
async fn a_token_ends_with_what_it_is_bound_to() {
    let world = World::new().await;
    let to = |kind: &str| json!({"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": "b"}});
    let pod = json!({"spec": {"serviceAccountName": "a"}});
    for (kind, resource, namespace) in [("Pod", PODS, "n"), ("Secret", SECRETS, "n"), ("Node", NODES, "")] {
        world.put(resource, namespace, "b", "u2", pod.clone()).await;
        let (bound, free) = (world.issue(&to(kind)).unwrap(), world.issue(&json!({})).unwrap());
        let hold = |token: &str| world.authenticator.token(token, None).unwrap().known.hold.unwrap();
        let (held, other) = (hold(&bound), hold(&free));
        // A change of it is not its end.
        world.put(resource, namespace, "b", "u2", pod.clone()).await;
        assert!(!held.ended.is_cancelled() && world.ask(&bound) == A, "{kind}");
        // Another one of its name is.
        world.put(resource, namespace, "b", "u3", pod.clone()).await;
        assert!(held.ended.is_cancelled(), "{kind}: what was begun ends");
        assert_eq!((world.ask(&bound).as_str(), world.ask(&free).as_str()), ("token_revoked", A), "{kind}");
        world.remove(resource, namespace, "b").await;
        assert_eq!(world.ask(&bound), "token_revoked", "{kind}");
        assert!(!other.ended.is_cancelled());
    }
    // With a finalizer on it the account stays a while.
    let token = world.issue(&json!({})).unwrap();
    assert_eq!(world.ask(&token), A);
    world.put(ACCOUNTS, "n", "a", "u1", json!({"deletionTimestamp": "2025-06-15T15:06:40Z"})).await;
    assert_eq!(world.ask(&token), A, "for a minute");
    world.clock.advance(Duration::from_secs(60));
    assert_eq!(world.ask(&token), "token_revoked");
    world.remove(ACCOUNTS, "n", "a").await;
    world.put(ACCOUNTS, "n", "a", "u7", json!({})).await;
    assert_eq!(world.ask(&token), "token_revoked", "another account of the name");
    let books = format!("{:?}", world.stored.bonds);
    assert!(!books.contains("u1") && !books.contains("u2"), "nothing is kept of what has gone: {books}");
}

#[tokio::test(start_paused = true)]
async fn a_token_ends_in_its_time() {
    let world = World::new().await;
    let token = world.issue(&json!({"expirationSeconds": 600})).unwrap();
    for (after, want) in [(0, A), (600, A), (59, A), (1, "token_expired")] {
        world.clock.advance(Duration::from_secs(after));
        assert_eq!(world.ask(&token), want, "after {after} more");
    }
}

#[tokio::test(start_paused = true)]
async fn what_attackers_show() {
    let world = World::new().await;
    let good = world.issue(&json!({})).unwrap();
    let parts: Vec<&str> = good.split('.').collect();
    let [head, body, signature] = parts[..] else { panic!("{good}") };
    let claims = |edit: &dyn Fn(&mut Value)| {
        let mut claims = decoded(body);
        edit(&mut claims);
        encoded(&claims)
    };
    let with_head = |header: Value| format!("{}.{body}.{signature}", encoded(&header));
    let kid = world.keys[0].id();
    let stranger = keys().remove(0);
    let forged = |id: &str, claims: &Claims| jose::sign(claims, id, stranger.pkcs8()).unwrap();
    let own = |claims: &Claims| jose::sign(claims, kid, world.keys[0].pkcs8()).unwrap();
    let admin = claims(&|claims| claims["sub"] = json!("system:serviceaccount:kube-system:admin"));
    let changed = |edit: fn(&mut Claims)| {
        let mut claims = world.claims();
        edit(&mut claims);
        claims
    };
    // A symmetric signature with what anyone can read as its key.
    let public = world.accounts.key_set()["keys"][0]["x"].as_str().unwrap().to_owned();
    let symmetric = {
        let message = format!("{}.{body}", encoded(&json!({"alg": "HS256", "kid": kid})));
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, public.as_bytes());
        let tag = ring::hmac::sign(&key, message.as_bytes());
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag))
    };
    let mut flipped = URL_SAFE_NO_PAD.decode(signature).unwrap();
    flipped[7] ^= 1;
    let rows = [
        ("as it is", good.clone(), A),
        ("by hand", own(&world.claims()), A),
        (
            "no algorithm",
            format!("{}.{body}.", encoded(&json!({"alg": "none", "kid": kid}))),
            "token_unknown",
        ),
        (
            "no algorithm, in capitals",
            format!("{}.{body}.", encoded(&json!({"alg": "NONE"}))),
            "token_unknown",
        ),
        ("no signature", format!("{head}.{body}."), "token_unproved"),
        ("nothing behind", format!("{head}.{body}"), "token_unknown"),
        ("symmetric", symmetric, "token_unproved"),
        ("another algorithm", with_head(json!({"alg": "RS256", "kid": kid})), "token_unproved"),
        ("a curve too large", with_head(json!({"alg": "ES384", "kid": kid})), "token_unproved"),
        ("an unknown key", with_head(json!({"alg": "ES256", "kid": "x"})), "token_unproved"),
        (
            "a header that was not signed",
            with_head(json!({"alg": "ES256", "kid": kid, "typ": "JWT"})),
            "token_unproved",
        ),
        (
            "what must be understood",
            with_head(json!({"alg": "ES256", "kid": kid, "crit": ["b64"]})),
            "token_unknown",
        ),
        ("other claims", format!("{head}.{admin}.{signature}"), "token_unproved"),
        (
            "claims that are a list",
            format!("{head}.{}.{signature}", encoded(&json!([world.claims().iss]))),
            "token_unknown",
        ),
        ("another signature", format!("{head}.{body}.{}", URL_SAFE_NO_PAD.encode(flipped)), "token_unproved"),
        ("zeroes", format!("{head}.{body}.{}", URL_SAFE_NO_PAD.encode([0; 64])), "token_unproved"),
        ("padded", format!("{good}="), "token_unproved"),
        ("five parts", format!("{good}.x.y"), "token_unknown"),
        ("a strange key", forged(stranger.id(), &world.claims()), "token_unproved"),
        ("a strange key under our name", forged(kid, &world.claims()), "token_unproved"),
        ("another issuer", own(&changed(|c| c.iss = "https://elsewhere".to_owned())), "token_unknown"),
        ("no audience", own(&changed(|c| c.aud.clear())), A),
        ("too old", own(&changed(|c| c.exp = 1)), "token_expired"),
        ("of another time", own(&changed(|c| c.exp = i64::MIN)), "token_expired"),
        ("to come", own(&changed(|c| c.nbf += 61)), "token_early"),
        ("made to come", own(&changed(|c| c.iat += 61)), "token_early"),
        ("a clock that is behind", own(&changed(|c| c.nbf += 60)), A),
        ("without end", own(&changed(|c| c.exp = i64::MAX)), A),
        ("another account", own(&changed(|c| c.own.serviceaccount.name = "b".to_owned())), "token_revoked"),
        (
            "an account of before",
            own(&changed(|c| c.own.serviceaccount.uid = "u0".to_owned())),
            "token_revoked",
        ),
        (
            "a pod that is not there",
            own(&changed(|c| c.own.pod = Some(Reference { name: "p".to_owned(), uid: "u".to_owned() }))),
            "token_revoked",
        ),
        ("dots", "..".to_owned(), "token_unknown"),
        ("nothing", String::new(), "token_unknown"),
        ("not base64", "é.é.é".to_owned(), "token_unknown"),
        ("arrays", format!("{}.{}.x", encoded(&json!([])), encoded(&json!([]))), "token_unknown"),
        (
            "two issuers",
            {
                let two = format!(r#"{{"iss":"x","iss":"{ISSUER}"}}"#);
                format!("{head}.{}.{signature}", URL_SAFE_NO_PAD.encode(two))
            },
            "token_unknown",
        ),
    ];
    for (what, token, want) in rows {
        assert_eq!(world.ask(&token), want, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn keys_change_while_old_ones_are_trusted() {
    let world = World::new().await;
    let old = world.issue(&json!({})).unwrap();
    let new = keys();
    let over = |keys: Vec<SigningKey>| {
        let accounts = Arc::new(ServiceAccounts::new(Settings::default(), keys));
        Authenticator::new(Tokens::new(), world.env.clone())
            .with_service_accounts(accounts)
            .with_stored(world.stored.clone())
    };
    let both = over([new.clone(), world.keys.clone()].concat());
    assert!(both.token(&old, None).is_ok());
    let asked = Asked { namespace: "n", name: "a" };
    let now = world.store.snapshot();
    let accounts = both.service_accounts().unwrap();
    let issued = accounts.issue(asked, json!({}), &now, world.env.wall(), "j".to_owned()).unwrap().review;
    let token = issued["status"]["token"].as_str().unwrap();
    assert_eq!(jose::look(token).unwrap().key.as_deref(), Some(new[0].id()), "the first signs");
    assert!(both.token(token, None).is_ok() && over(new).token(&old, None).is_err());
    assert_eq!(accounts.key_set()["keys"].as_array().map(Vec::len), Some(2));
}

#[test]
fn keys_are_kept_in_their_file() {
    let dir = TempDir::new().unwrap();
    let pki = Pki::open_or_create(dir.path(), &[], &Env::system()).unwrap();
    let ids = |keys: &[SigningKey]| keys.iter().map(|key| key.id().to_owned()).collect::<Vec<_>>();
    let first = pki.service_account_keys().unwrap();
    assert_eq!(ids(&pki.service_account_keys().unwrap()), ids(&first));
    let path = dir.path().join("pki/service-account.pem");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let mut text = KeyPair::generate().unwrap().serialize_pem();
    text.push_str(&std::fs::read_to_string(&path).unwrap());
    std::fs::write(&path, &text).unwrap();
    let two = pki.service_account_keys().unwrap();
    assert_eq!((two.len(), two[1].id()), (2, first[0].id()));
    for (text, part) in [("", "no private key"), (&*text.replace("MIGH", "MIGG"), "is damaged")] {
        std::fs::write(&path, text).unwrap();
        let why = pki.service_account_keys().unwrap_err().to_string();
        assert!(why.contains(part) && why.contains("service-account.pem"), "{why}");
    }
}
