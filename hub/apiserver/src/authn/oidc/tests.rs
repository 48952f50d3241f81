use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use karmada_env::ManualClock;
use parking_lot::Mutex;
use serde_json::json;
use tempfile::TempDir;

use super::{super::jose, *};
use crate::{
    authn::{Authenticator, Tokens},
    pki::{Pki, SigningKey},
};

const ISSUER: &str = "https://issuer.example";
const NOW: u64 = 1_750_000_000;

fn key() -> SigningKey {
    let (dir, clock) = (TempDir::new().unwrap(), ManualClock::new(SystemTime::UNIX_EPOCH));
    let pki = Pki::open_or_create(dir.path(), &[], &Env::seeded(clock, 1)).unwrap();
    pki.service_account_keys().unwrap().remove(0)
}

fn jwk(key: &SigningKey) -> Value {
    let [x, y] = key.coordinates();
    json!({"kty": "EC", "crv": "P-256", "kid": key.id(), "use": "sig", "x": x, "y": y})
}

/// An issuer that answers what it is told to, and counts.
#[derive(Debug)]
struct Issuer {
    about: Mutex<Value>,
    keys: Mutex<Value>,
    away: Mutex<bool>,
    asked: Mutex<usize>,
}

impl Issuer {
    fn new(keys: &[&SigningKey]) -> Arc<Self> {
        let about = json!({"issuer": ISSUER, "jwks_uri": "https://keys.example/k"});
        let issuer = Self {
            about: Mutex::new(about),
            keys: Mutex::default(),
            away: Mutex::new(false),
            asked: Mutex::new(0),
        };
        issuer.has(keys);
        Arc::new(issuer)
    }

    fn has(&self, keys: &[&SigningKey]) {
        *self.keys.lock() = json!({"keys": keys.iter().map(|key| jwk(key)).collect::<Vec<_>>()});
    }
}

impl IssuerClient for Issuer {
    fn get<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<Vec<u8>, String>> {
        let answer = match url {
            _ if *self.away.lock() => Err("it is away".to_owned()),
            "https://issuer.example/.well-known/openid-configuration" => Ok(self.about.lock().to_string()),
            "https://keys.example/k" => {
                *self.asked.lock() += 1;
                Ok(self.keys.lock().to_string())
            }
            other => Err(format!("404 {other}")),
        };
        Box::pin(async move { answer.map(String::into_bytes) })
    }

    fn post<'a>(
        &'a self,
        url: &'a str,
        form: String,
        as_whom: Option<(&'a str, &'a Secret)>,
    ) -> BoxFuture<'a, Result<Vec<u8>, String>> {
        let shown = as_whom.map(|(name, secret)| format!("{name}:{}", secret.expose()));
        let mut about = self.about.lock();
        about["posted"] = json!([url, form, shown]);
        let answer = json!({"access_token": "x", "id_token": about["gives"]}).to_string();
        Box::pin(async move { Ok(answer.into_bytes()) })
    }
}

fn pairs(query: &str) -> BTreeMap<String, String> {
    form_urlencoded::parse(query.as_bytes()).into_owned().collect()
}

/// By hand, as RFC 7636 has it for S256.
#[tokio::test]
async fn people_log_in_at_the_issuer() {
    use super::login::Attempt;
    let (key, clock) = (key(), clock());
    let issuer = Issuer::new(&[&key]);
    let more = Settings {
        client_secret: Some(Arc::new(Secret::known("s&cret"))),
        scopes: vec!["email".to_owned(), "groups".to_owned()],
        ..settings()
    };
    for (settings, shown, id) in [(settings(), Value::Null, true), (more, json!("hub:s%26cret"), false)] {
        let confidential = settings.client_secret.is_some();
        let (oidc, authenticator) = over(settings, &clock);
        let attempt = Attempt::default();
        oidc.fetch(&*issuer).await.unwrap();
        assert!(!oidc.has_login() && oidc.begin(&attempt, "https://hub/done").is_none(), "it names no page");
        {
            let mut about = issuer.about.lock();
            about["authorization_endpoint"] = "https://issuer.example/auth?realm=r".into();
            about["token_endpoint"] = "https://issuer.example/token".into();
        }
        oidc.fetch(&*issuer).await.unwrap();
        assert_eq!(oidc.host(), "issuer.example");
        let address = oidc.begin(&attempt, "https://hub/done").unwrap();
        let (page, query) = address.split_once('?').unwrap();
        let asked = pairs(query);
        let wanted = [
            ("realm", "r"),
            ("response_type", "code"),
            ("client_id", "hub"),
            ("redirect_uri", "https://hub/done"),
            ("scope", if confidential { "openid email groups" } else { "openid" }),
            ("code_challenge_method", "S256"),
        ];
        assert!(
            page == "https://issuer.example/auth" && wanted.iter().all(|(key, value)| asked[*key] == *value),
            "{asked:?}"
        );
        // The browser keeps it, and nobody else's answer is for it.
        let kept = Attempt::read(attempt.kept().expose()).unwrap();
        assert!(kept.is_of(&asked["state"]) && !kept.is_of(&asked["nonce"]) && !kept.is_of(""));
        for other in ["", ".", "a.b", &"0".repeat(129)] {
            assert!(Attempt::read(other).is_none(), "{other}");
        }
        let redeem = |code: &'static str, nonce: Value| {
            issuer.about.lock()["gives"] = signed(&key, &json!({"nonce": nonce})).into();
            oidc.redeem(&*issuer, &kept, code, "https://hub/done")
        };
        let token = redeem("c&de", json!(asked["nonce"])).await.unwrap();
        assert_eq!(ask(&authenticator, token.expose()).unwrap().name, "https://issuer.example#u");
        let posted = issuer.about.lock()["posted"].clone();
        let form = pairs(posted[1].as_str().unwrap());
        let verifier = URL_SAFE_NO_PAD.encode(<sha2::Sha256 as sha2::Digest>::digest(&form["code_verifier"]));
        assert_eq!(
            (&verifier, &form["code"], form.contains_key("client_id")),
            (&asked["code_challenge"], &"c&de".to_owned(), id)
        );
        assert_eq!((&posted[0], &posted[2]), (&json!("https://issuer.example/token"), &shown));
        for (code, nonce) in [("", json!(asked["nonce"])), ("c", json!("of another")), ("c", Value::Null)] {
            assert!(redeem(code, nonce.clone()).await.is_err(), "{code} {nonce}");
        }
        issuer.about.lock()["token_endpoint"] = "http://issuer.example/token".into();
        oidc.fetch(&*issuer).await.unwrap();
        assert!(!oidc.has_login(), "not over a line that anybody reads");
        *issuer.about.lock() = json!({"issuer": ISSUER, "jwks_uri": "https://keys.example/k"});
    }
}

fn settings() -> Settings {
    Settings {
        issuer: ISSUER.to_owned(),
        client_id: "hub".to_owned(),
        groups_claim: "groups".to_owned(),
        algorithms: vec!["ES256".to_owned()],
        ..Settings::default()
    }
}

fn over(settings: Settings, clock: &ManualClock) -> (Arc<Oidc>, Authenticator) {
    let (oidc, env) = (Arc::new(Oidc::new(settings).unwrap()), Env::seeded(clock.clone(), 7));
    (oidc.clone(), Authenticator::new(Tokens::new(), env).with_oidc(oidc))
}

fn clock() -> ManualClock {
    ManualClock::new(SystemTime::UNIX_EPOCH + Duration::from_secs(NOW))
}

fn ask(authenticator: &Authenticator, token: &str) -> Result<UserInfo, (String, String)> {
    let known = authenticator.token(token, None);
    known.map(|accepted| accepted.known.user).map_err(|why| (why.reason.to_owned(), why.to_string()))
}

fn signed(key: &SigningKey, edit: &Value) -> String {
    let mut claims = json!({"iss": ISSUER, "aud": "hub", "sub": "u", "exp": NOW + 60, "email": "u@example.com",
        "name": "n", "groups": ["a", "b"]});
    for (claim, value) in edit.as_object().unwrap() {
        match value {
            Value::Null => claims.as_object_mut().unwrap().remove(claim),
            value => claims.as_object_mut().unwrap().insert(claim.clone(), value.clone()),
        };
    }
    jose::sign(&claims, key.id(), key.pkcs8()).unwrap()
}

#[test]
fn what_may_be_set() {
    let set = |edit: fn(&mut Settings)| {
        let mut settings = settings();
        edit(&mut settings);
        Oidc::new(settings).map(|oidc| oidc.settings.username_prefix)
    };
    type Row = (fn(&mut Settings), Result<&'static str, &'static str>);
    let rows: [Row; 12] = [
        (|_| {}, Ok("https://issuer.example#")),
        (|s| s.username_claim = "email".to_owned(), Ok("")),
        (|s| s.username_prefix = "-".to_owned(), Ok("")),
        (|s| s.username_prefix = "oidc:".to_owned(), Ok("oidc:")),
        (|s| s.issuer = "http://issuer.example".to_owned(), Err("--oidc-issuer-url")),
        (|s| s.issuer = "https://".to_owned(), Err("--oidc-issuer-url")),
        (|s| s.issuer = "https://u@issuer.example".to_owned(), Err("--oidc-issuer-url")),
        (|s| s.issuer = "https://issuer.example?x".to_owned(), Err("--oidc-issuer-url")),
        (|s| s.client_id.clear(), Err("--oidc-client-id")),
        (|s| s.algorithms = vec!["HS256".to_owned()], Err("--oidc-signing-algs")),
        (|s| s.algorithms = vec!["none".to_owned()], Err("--oidc-signing-algs")),
        (|s| s.algorithms.clear(), Ok("https://issuer.example#")),
    ];
    for (index, (edit, want)) in rows.into_iter().enumerate() {
        match (set(edit), want) {
            (Ok(prefix), Ok(want)) => assert_eq!(prefix, want, "row {index}"),
            (Err(why), Err(part)) => assert!(why.starts_with(part), "row {index}: {why}"),
            (got, _) => panic!("row {index}: {got:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_let_in_and_as_whom() {
    let (key, clock) = (key(), clock());
    let issuer = Issuer::new(&[&key]);
    let named = |claim: &str, prefix: &str| Settings {
        username_claim: claim.to_owned(),
        username_prefix: prefix.to_owned(),
        ..settings()
    };
    let required = Settings { required: [("team".to_owned(), "x".to_owned())].into(), ..settings() };
    let grouped = Settings { groups_prefix: "g:".to_owned(), ..settings() };
    let masters = json!({"groups": ["a", "system:masters", "system:karmada:agents"]});
    let (both, none) = (&["a", "b"][..], &[][..]);
    let rows = [
        (settings(), json!({}), Ok(("https://issuer.example#u", both))),
        (settings(), json!({"groups": "a"}), Ok(("https://issuer.example#u", &["a"][..]))),
        (settings(), json!({"groups": null}), Ok(("https://issuer.example#u", none))),
        (settings(), json!({"groups": 7}), Err("token_invalid")),
        (settings(), json!({"groups": ["a", 7]}), Err("token_invalid")),
        (settings(), json!({"groups": vec!["a"; 1025]}), Err("token_invalid")),
        (grouped, json!({}), Ok(("https://issuer.example#u", &["g:a", "g:b"][..]))),
        (named("name", "-"), json!({}), Ok(("n", both))),
        (named("name", "o:"), json!({}), Ok(("o:n", both))),
        (named("name", "-"), json!({"name": null}), Err("token_invalid")),
        (named("name", "-"), json!({"name": ""}), Err("token_invalid")),
        (named("name", "-"), json!({"name": ["n"]}), Err("token_invalid")),
        (named("email", ""), json!({}), Ok(("u@example.com", both))),
        (named("email", ""), json!({"email_verified": true}), Ok(("u@example.com", both))),
        (named("email", ""), json!({"email_verified": false}), Err("token_invalid")),
        (named("email", ""), json!({"email_verified": "true"}), Err("token_invalid")),
        // What is the server's own is given by nobody else.
        (named("name", "-"), json!({"name": "system:admin"}), Err("token_invalid")),
        (named("name", "system:"), json!({"name": "karmada:agent:m1"}), Err("token_invalid")),
        (settings(), masters, Ok(("https://issuer.example#u", &["a"][..]))),
        (required.clone(), json!({"team": "x"}), Ok(("https://issuer.example#u", both))),
        (required.clone(), json!({"team": "y"}), Err("token_invalid")),
        (required.clone(), json!({"team": ["x"]}), Err("token_invalid")),
        (required, json!({}), Err("token_invalid")),
        (settings(), json!({"aud": "other"}), Err("token_audience")),
        (settings(), json!({"aud": ["other", "hub"]}), Ok(("https://issuer.example#u", both))),
        (settings(), json!({"aud": []}), Err("token_audience")),
        (settings(), json!({"aud": null}), Err("token_audience")),
        (settings(), json!({"exp": null}), Err("token_invalid")),
        (settings(), json!({"exp": "soon"}), Err("token_invalid")),
        (settings(), json!({"exp": -1}), Err("token_invalid")),
        (settings(), json!({"exp": NOW}), Err("token_expired")),
        (settings(), json!({"exp": 1.0e300}), Ok(("https://issuer.example#u", both))),
        (settings(), json!({"nbf": NOW + 300}), Ok(("https://issuer.example#u", both))),
        (settings(), json!({"nbf": NOW + 301}), Err("token_early")),
        (settings(), json!({"iss": "https://elsewhere.example"}), Err("token_unknown")),
    ];
    for (index, (settings, edit, want)) in rows.into_iter().enumerate() {
        let (oidc, authenticator) = over(settings, &clock);
        assert_eq!(oidc.fetch(&*issuer).await, Ok(1));
        match (ask(&authenticator, &signed(&key, &edit)), want) {
            (Ok(user), Ok((name, groups))) => {
                assert_eq!(user.name, name, "row {index}: {edit}");
                assert_eq!(user.groups, [groups, &["system:authenticated"]].concat(), "row {index}: {edit}");
            }
            (Err((reason, _)), Err(want)) => assert_eq!(reason, want, "row {index}: {edit}"),
            (got, _) => panic!("row {index}: {edit}: {got:?}"),
        }
    }
    // It ends by time, also when it has been found good.
    let (oidc, authenticator) = over(settings(), &clock);
    assert_eq!(oidc.fetch(&*issuer).await, Ok(1));
    let token = signed(&key, &json!({}));
    assert!(ask(&authenticator, &token).is_ok());
    clock.advance(Duration::from_secs(60));
    assert_eq!(ask(&authenticator, &token).unwrap_err().0, "token_expired");
}

#[tokio::test(start_paused = true)]
async fn what_attackers_show() {
    let (key, stranger, clock) = (key(), key(), clock());
    let (oidc, authenticator) = over(settings(), &clock);
    assert_eq!(oidc.fetch(&*Issuer::new(&[&key])).await, Ok(1));
    let good = signed(&key, &json!({}));
    let parts: Vec<&str> = good.split('.').collect();
    let with_head =
        |head: Value| format!("{}.{}.{}", URL_SAFE_NO_PAD.encode(head.to_string()), parts[1], parts[2]);
    let claims = json!({"iss": ISSUER, "aud": "hub", "sub": "u", "exp": NOW + 60});
    let rows = [
        (good.clone(), None),
        (jose::sign(&claims, key.id(), stranger.pkcs8()).unwrap(), Some("token_unproved")),
        (jose::sign(&claims, stranger.id(), stranger.pkcs8()).unwrap(), Some("token_unproved")),
        (with_head(json!({"alg": "none"})), Some("token_unknown")),
        (with_head(json!({"alg": "HS256", "kid": key.id()})), Some("token_unproved")),
        (with_head(json!({"alg": "RS256", "kid": key.id()})), Some("token_unproved")),
        // A key of the attacker's own brought along is not looked at.
        (with_head(json!({"alg": "ES256", "jwk": jwk(&stranger)})), Some("token_unproved")),
        (format!("{}.{}.", parts[0], parts[1]), Some("token_unproved")),
    ];
    for (index, (token, want)) in rows.into_iter().enumerate() {
        let got = ask(&authenticator, &token).err().map(|(reason, _)| reason);
        assert_eq!(got.as_deref(), want, "row {index}");
    }
}

#[tokio::test(start_paused = true)]
async fn keys_that_cannot_be_used_are_left_out() {
    let (oidc, _) = over(settings(), &clock());
    let good = jwk(&key());
    let with = |field: &str, value: Value| {
        let mut key = good.clone();
        key[field] = value;
        key
    };
    let rows = [
        (good.clone(), 1),
        (with("alg", json!("ES256")), 1),
        (with("alg", json!("ES384")), 0),
        (with("alg", json!("EdDSA")), 0),
        (with("use", json!("enc")), 0),
        (with("crv", json!("P-521")), 0),
        (with("kty", json!("oct")), 0),
        (with("x", json!("*")), 0),
        (json!({"kty": "RSA", "n": "AQAB", "e": "AQAB"}), 0),
        (json!(7), 0),
    ];
    for (key, want) in rows {
        assert_eq!(oidc.read_keys(&json!({"keys": [key]})).unwrap().len(), want, "{key}");
    }
    for set in [json!({}), json!([]), json!({"keys": {}}), json!({"keys": vec![good.clone(); 65]})] {
        assert!(oidc.read_keys(&set).is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn keys_come_beside_requests_and_go_on_while_the_issuer_is_away() {
    let (first, second, clock) = (key(), key(), clock());
    let issuer = Issuer::new(&[&first]);
    let (oidc, authenticator) = over(settings(), &clock);
    let (old, new) = (signed(&first, &json!({})), signed(&second, &json!({})));
    assert_eq!(ask(&authenticator, &old).unwrap_err().0, "token_unproved", "there are no keys yet");
    let stop = CancellationToken::new();
    let env = Env::seeded(clock.clone(), 7);
    let following = tokio::spawn(oidc.clone().follow(issuer.clone(), env, stop.clone()));
    let pass = async |seconds| tokio::time::sleep(Duration::from_secs(seconds)).await;
    pass(1).await;
    assert!(ask(&authenticator, &old).is_ok());
    issuer.has(&[&first, &second]);
    // However often somebody asks, the issuer is asked in its time.
    for _ in 0..1_000 {
        assert_eq!(ask(&authenticator, &new).unwrap_err().0, "token_unproved");
    }
    let asked = *issuer.asked.lock();
    pass(LEAST.as_secs()).await;
    assert_eq!(*issuer.asked.lock(), asked + 1);
    assert!(ask(&authenticator, &new).is_ok());
    *issuer.away.lock() = true;
    pass(2 * REFRESH.as_secs()).await;
    assert!(
        ask(&authenticator, &old).is_ok() && ask(&authenticator, &new).is_ok(),
        "those that are known go on"
    );
    *issuer.away.lock() = false;
    issuer.has(&[&second]);
    pass(2 * REFRESH.as_secs()).await;
    clock.advance(TRUSTED);
    assert!(ask(&authenticator, &old).is_err(), "the issuer has taken it back");
    *issuer.about.lock() =
        json!({"issuer": "https://elsewhere.example", "jwks_uri": "https://keys.example/k"});
    issuer.has(&[&first]);
    pass(2 * REFRESH.as_secs()).await;
    assert!(ask(&authenticator, &old).is_err(), "not from one who says that it is another");
    stop.cancel();
    following.await.unwrap();
}

/// RFC 7515, A.2.
#[test]
fn keys_of_rsa() {
    let n = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
    let body =
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let signature = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
    let token = format!("eyJhbGciOiJSUzI1NiJ9.{body}.{signature}");
    let oidc = Oidc::new(Settings { algorithms: Vec::new(), ..settings() }).unwrap();
    let key = oidc.read_key(&json!({"kty": "RSA", "n": n, "e": "AQAB"})).unwrap();
    let look = jose::look(&token).unwrap();
    let claims: Map<String, Value> = key.open(&token, &look).unwrap();
    assert_eq!(claims["iss"], "joe");
    let changed = token.replace(".cC4", ".cC5");
    assert!(key.open::<Map<String, Value>>(&changed, &look).is_err());
}
