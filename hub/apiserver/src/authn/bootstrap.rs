//! Bootstrap tokens: what a machine that has no credential yet shows to get one.
//!
//! ```text
//!   Secret kube-system/bootstrap-token-ID ─► store ─► follower ─► BootstrapTokens ◄─ every request with ID.SECRET
//!   (karmadactl token create, karmada-hub token create)               └─► what is open by one that has gone ends
//! ```
//!
//! | in the Secret | |
//! |---|---|
//! | `type` | `bootstrap.kubernetes.io/token` |
//! | `token-id`, `token-secret` | six and sixteen of `a-z0-9`; the id is the end of the Secret's name, too |
//! | `usage-bootstrap-authentication` | `true`, or nobody gets in by it |
//! | `expiration` | RFC 3339; without one it does not end. What cannot be read has ended |
//! | annotation `hub.karmada.io/uses-left` | 0 ends it, ten minutes after `hub.karmada.io/used-at`: until then the machine that was let in may have missed its answer |
//! | `auth-extra-groups` | groups beside `system:bootstrappers`, and of no others than those that begin so |
//!
//! Of the secrets only digests are kept, and every attempt costs one digest and one comparison of whole digests, whether
//! there is such an id or not: its time tells nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use karmada_meta::{object, time::Time};
use karmada_store::{Key, Snapshot};
use parking_lot::RwLock;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;

use super::{
    epochs::Hold,
    known::{By, Known, RefusedToken, forever},
};
use crate::{follow::Derived, identity::UserInfo, storage::Header};

/// Where bootstrap tokens are kept.
pub const NAMESPACE: &str = "kube-system";
/// What the name of a token's Secret begins with; the token's id follows.
pub const PREFIX: &str = "bootstrap-token-";
/// The type of a token's Secret.
pub const TYPE: &str = "bootstrap.kubernetes.io/token";
pub use crate::identity::{BOOTSTRAP_PREFIX as USER_PREFIX, BOOTSTRAPPERS};

/// On the Secret of a bootstrap token: the cluster that it is for.
pub const CLUSTER: &str = "hub.karmada.io/cluster";
/// On the Secret of a bootstrap token: how many keys it may still have certified.
pub const USES_LEFT: &str = "hub.karmada.io/uses-left";
/// On the Secret of a bootstrap token: a digest of the key that was certified last.
pub const USED_BY: &str = "hub.karmada.io/used-by";
/// On the Secret of a bootstrap token: when a key was last certified by it.
pub const USED_AT: &str = "hub.karmada.io/used-at";
/// What the group of a token begins with that says which cluster it is for.
pub const CLUSTER_GROUP: &str = "system:bootstrappers:hub:";

/// The group of the tokens that `karmadactl token create` makes if nobody says another one.
pub const ANY_CLUSTER_GROUP: &str = "system:bootstrappers:karmada:default-cluster-token";

/// The resource as the store names it.
pub(crate) const SECRETS: &str = "core/secrets";
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;
/// The longest name of a group behind `system:bootstrappers:`.
const GROUP_LENGTH: usize = 256;

/// A token in its two parts; nothing if it has not the form of a bootstrap token.
pub fn parse(token: &str) -> Option<(&str, &str)> {
    token.split_once('.').filter(|(id, secret)| is_id(id) && is_part(secret, SECRET_LENGTH))
}

/// Whether a text has the form of a token's id.
pub(crate) fn is_id(text: &str) -> bool {
    is_part(text, ID_LENGTH)
}

fn is_part(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

/// Whether a token may put somebody into this group.
pub fn is_group(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b':' | b'-');
    name.strip_prefix(BOOTSTRAPPERS).and_then(|rest| rest.strip_prefix(':')).is_some_and(|rest| {
        let bytes = rest.as_bytes();
        (1..=GROUP_LENGTH).contains(&bytes.len())
            && bytes.iter().copied().all(allowed)
            && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
    })
}

/// A token by which somebody may get in.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    /// Of the secret.
    digest: [u8; 32],
    groups: Vec<String>,
    until: SystemTime,
    /// From when on it counts as used up.
    spent: Option<SystemTime>,
    /// The cluster that it is for.
    cluster: Option<String>,
}

impl Token {
    /// Reads the Secret of a token.
    ///
    /// # Errors
    /// Why nobody gets in by it.
    fn read(id: &str, secret: &Value) -> Result<Self, String> {
        if object::deletion_timestamp(secret).is_some() {
            return Err("it is being deleted".to_owned());
        }
        if secret["type"] != TYPE {
            return Err(format!("its type is {}, not {TYPE}", secret["type"]));
        }
        let text = |field: &str| -> Result<String, String> {
            let encoded = secret["data"][field].as_str().unwrap_or_default();
            let bytes = STANDARD.decode(encoded).map_err(|_| format!("data.{field} is not base64"))?;
            String::from_utf8(bytes).map_err(|_| format!("data.{field} is not text"))
        };
        let (token_id, token_secret) = (text("token-id")?, text("token-secret")?);
        if token_id != id {
            return Err(format!("data.token-id is {token_id:?}, and its name says {id:?}"));
        }
        if parse(&format!("{id}.{token_secret}")).is_none() {
            return Err("its name or data.token-secret has not the form of a token's".to_owned());
        }
        if text("usage-bootstrap-authentication")? != "true" {
            return Err("data.usage-bootstrap-authentication is not \"true\"".to_owned());
        }
        let mut groups = BTreeSet::from([BOOTSTRAPPERS.to_owned()]);
        let extra = text("auth-extra-groups")?;
        for group in extra.split(',').filter(|_| !extra.is_empty()) {
            if !is_group(group) {
                return Err(format!(
                    "data.auth-extra-groups: {group:?} does not begin with {BOOTSTRAPPERS}: or has other characters \
                     behind it than a-z, 0-9, : and -"
                ));
            }
            groups.insert(group.to_owned());
        }
        let until = match text("expiration")?.as_str() {
            "" => forever(),
            at => at
                .parse::<Time>()
                .map_err(|_| format!("data.expiration: {at:?} is no time"))?
                .timestamp()
                .into(),
        };
        let digest = Sha256::digest(token_secret).into();
        let groups = groups.into_iter().collect();
        Ok(Self { digest, groups, until, spent: spent(secret), cluster: cluster(secret) })
    }
}

/// Judges the Secret of a token by which something was asked. How often it was used is not looked at.
///
/// # Errors
/// Why nobody gets in by it.
pub(crate) fn judge(id: &str, secret: &Value, now: SystemTime) -> Result<(), String> {
    let token = Token::read(id, secret)?;
    if now >= token.until { Err("it has expired".to_owned()) } else { Ok(()) }
}

/// For how long a token that is used up still lets its last user in.
const LINGERS: Duration = Duration::from_mins(10);

/// From when on a token counts as used up.
fn spent(secret: &Value) -> Option<SystemTime> {
    object::annotation(secret, USES_LEFT).filter(|left| left.parse() == Ok(0_u32))?;
    let used = object::annotation(secret, USED_AT).and_then(|at| at.parse::<Time>().ok());
    Some(used.map_or(SystemTime::UNIX_EPOCH, |at| SystemTime::from(at.timestamp()) + LINGERS))
}

/// The cluster that a token is for.
pub(crate) fn cluster(secret: &Value) -> Option<String> {
    let said = object::annotation(secret, CLUSTER).map(str::to_owned);
    said.or_else(|| {
        let groups = field(secret, "auth-extra-groups")?;
        groups.split(',').find_map(|group| group.strip_prefix(CLUSTER_GROUP)).map(str::to_owned)
    })
}

/// Whether a token that is for no cluster yet is for the first one that is asked for by it.
pub(crate) fn takes_first(secret: &Value) -> bool {
    field(secret, "auth-extra-groups").is_some_and(|groups| groups.split(',').any(|g| g == ANY_CLUSTER_GROUP))
}

/// Whether the Secret of a token is kept there.
pub(crate) fn is_place(resource: &str, namespace: &str, name: &str) -> bool {
    resource == SECRETS && namespace == NAMESPACE && name.starts_with(PREFIX)
}

/// The text of a field of a token's Secret.
fn field(secret: &Value, name: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(secret["data"][name].as_str()?).ok()?).ok()
}

/// When the time of a token is up; nothing if that cannot be read, which is left for people to look at, or if it is no
/// token's.
pub(crate) fn ends_at(secret: &Value) -> Option<SystemTime> {
    let until = field(secret, "expiration")?.parse::<Time>().ok()?;
    (secret["type"] == TYPE).then(|| until.timestamp().into())
}

/// Sets when the time of a token is up.
pub(crate) fn end_at(secret: &mut Value, at: SystemTime) {
    let text = STANDARD.encode(Time::from_system(at).to_string());
    object::ensure_map(secret, "data").insert("expiration".to_owned(), text.into());
}

/// What a token signs by that signs what machines read before they know this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signing {
    /// Its secret part.
    pub(crate) key: String,
    /// Until when: as long as somebody gets in by it.
    pub(crate) until: SystemTime,
}

/// What a token signs by, if it does. One whose time cannot be read has none left, as for whoever shows it.
pub(crate) fn signing(id: &str, secret: &Value) -> Option<Signing> {
    let is = |name: &str, text: &str| field(secret, name).as_deref() == Some(text);
    let signs = secret["type"] == TYPE
        && object::deletion_timestamp(secret).is_none()
        && is("usage-bootstrap-signing", "true")
        && is("token-id", id);
    let ends = match field(secret, "expiration") {
        None if secret["data"]["expiration"].is_null() => forever(),
        None => return None,
        Some(at) if at.is_empty() => forever(),
        Some(at) => at.parse::<Time>().ok()?.timestamp().into(),
    };
    let key = field(secret, "token-secret").filter(|key| signs && parse(&format!("{id}.{key}")).is_some())?;
    Some(Signing { key, until: spent(secret).map_or(ends, |spent| spent.min(ends)) })
}

#[derive(Debug)]
struct Entry {
    token: Token,
    /// Ends what was begun by it.
    ended: CancellationToken,
}

/// The tokens by which somebody may get in, as new as the store.
#[derive(Debug, Default)]
pub struct BootstrapTokens {
    tokens: RwLock<BTreeMap<String, Entry>>,
}

impl BootstrapTokens {
    /// Who shows this; nothing if it is no bootstrap token by its form.
    pub(super) fn judge(&self, token: &str, now: SystemTime) -> Option<Result<Known, RefusedToken>> {
        let (id, secret) = parse(token)?;
        let digest: [u8; 32] = Sha256::digest(secret).into();
        let tokens = self.tokens.read();
        let entry = tokens.get(id);
        let right = entry.map_or([0; 32], |entry| entry.token.digest).ct_eq(&digest);
        let Some(Entry { token, ended }) = entry.filter(|_| right.into()) else {
            return Some(Err(RefusedToken::unknown()));
        };
        let name = format!("{USER_PREFIX}{id}");
        if now >= token.until {
            return Some(Err(RefusedToken::ended(&name, "token_expired", "the bootstrap token has expired")));
        }
        if token.spent.is_some_and(|spent| now >= spent) {
            let why = "the bootstrap token has been used as often as it may be";
            return Some(Err(RefusedToken::ended(&name, "token_used_up", why)));
        }
        let user = UserInfo::new(name, &token.groups);
        let hold = Hold { ended: ended.clone(), until: token.until, leaving: false };
        Some(Ok(Known { user, by: By::Token, hold: Some(hold) }))
    }

    /// Whether a token that holds, another one than `except`, is for a cluster.
    pub(crate) fn is_promised(&self, cluster: &str, except: &str, now: SystemTime) -> bool {
        let tokens = self.tokens.read();
        let others = tokens.iter().filter(|(id, entry)| *id != except && now < entry.token.until);
        others.into_iter().any(|(_, entry)| entry.token.cluster.as_deref() == Some(cluster))
    }

    fn take(&self, id: &str, now: &Snapshot<Header>) {
        let name = format!("{PREFIX}{id}");
        let token = now.find(SECRETS, NAMESPACE, &name).and_then(|secret| {
            let read = serde_json::from_slice(&secret.value.get()).map_err(|error| error.to_string());
            read.and_then(|secret: Value| Token::read(id, &secret))
                .inspect_err(|why| {
                    tracing::debug!(secret = name, why, "nobody gets in by this bootstrap token")
                })
                .ok()
        });
        let mut tokens = self.tokens.write();
        if let (Some(entry), Some(token)) = (tokens.get_mut(id), &token) {
            // Whoever was let in by it, and made it a cluster's or used it up, is still waiting for the certificate.
            entry.token.spent = token.spent;
            entry.token.cluster.clone_from(&token.cluster);
        }
        if tokens.get(id).map(|entry| &entry.token) == token.as_ref() {
            return;
        }
        let before = match token {
            Some(token) => tokens.insert(id.to_owned(), Entry { token, ended: CancellationToken::new() }),
            None => tokens.remove(id),
        };
        if let Some(entry) = before {
            entry.ended.cancel();
        }
    }
}

/// The id of the token that an object is the Secret of.
fn id_of(key: &Key) -> Option<&str> {
    key.name.strip_prefix(PREFIX).filter(|_| *key.namespace == *NAMESPACE)
}

impl Derived for BootstrapTokens {
    fn resources(&self) -> &[&'static str] {
        &[SECRETS]
    }

    fn rebuild(&self, now: &Snapshot<Header>) {
        let mut ids: BTreeSet<String> = self.tokens.read().keys().cloned().collect();
        ids.extend(
            now.range(SECRETS, Some(NAMESPACE), None)
                .filter_map(|secret| id_of(&secret.key).map(str::to_owned)),
        );
        ids.iter().for_each(|id| self.take(id, now));
    }

    fn update(&self, changed: &BTreeSet<Key>, now: &Snapshot<Header>) {
        changed.iter().filter_map(id_of).for_each(|id| self.take(id, now));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SECRET: &str = "0123456789abcdef";

    fn secret(fields: &[(&str, &str)]) -> Value {
        let mut data = serde_json::Map::new();
        let usual =
            [("token-id", "abcdef"), ("token-secret", SECRET), ("usage-bootstrap-authentication", "true")];
        for (field, text) in usual.iter().chain(fields) {
            data.insert((*field).to_owned(), STANDARD.encode(text).into());
        }
        json!({"metadata": {"name": "bootstrap-token-abcdef"}, "type": TYPE, "data": data})
    }

    #[test]
    fn the_form_of_a_token() {
        let rows = [
            ("abcdef.0123456789abcdef", true),
            ("abcde.0123456789abcdef", false),
            ("abcdef.0123456789abcde", false),
            ("abcdef.0123456789abcdef0", false),
            ("Abcdef.0123456789abcdef", false),
            ("abcdef.0123456789abcde\n", false),
            ("abcdéf.0123456789abcdef", false),
            ("abcdef.012345678.abcdef", false),
            ("abcdef", false),
            (".", false),
            ("", false),
        ];
        for (token, is) in rows {
            assert_eq!(parse(token).is_some(), is, "{token:?}");
        }
    }

    #[test]
    fn groups_are_those_of_bootstrappers_alone() {
        let long = |n| format!("{BOOTSTRAPPERS}:{}", "a".repeat(n));
        let rows = [
            ("system:bootstrappers:hub:shop-17".to_owned(), true),
            (long(256), true),
            (long(257), false),
            ("system:bootstrappers".to_owned(), false),
            ("system:bootstrappers:".to_owned(), false),
            ("system:bootstrappers:a-".to_owned(), false),
            ("system:bootstrappers:A".to_owned(), false),
            ("system:bootstrappers:a b".to_owned(), false),
            ("system:bootstrappersx:a".to_owned(), false),
            ("system:masters".to_owned(), false),
            (" system:bootstrappers:a".to_owned(), false),
            (String::new(), false),
        ];
        for (group, is) in rows {
            assert_eq!(is_group(&group), is, "{group:?}");
        }
    }

    #[test]
    fn which_secrets_let_somebody_in() {
        let rows: [(&[(&str, &str)], _); 12] = [
            (&[], Ok(vec![BOOTSTRAPPERS])),
            (
                &[("auth-extra-groups", "system:bootstrappers:b,system:bootstrappers:a")],
                Ok(vec![BOOTSTRAPPERS, "system:bootstrappers:a", "system:bootstrappers:b"]),
            ),
            (&[("auth-extra-groups", "system:bootstrappers:a,system:masters")], Err("system:masters")),
            (&[("auth-extra-groups", "system:bootstrappers:a,")], Err("auth-extra-groups: \"\"")),
            (&[("usage-bootstrap-authentication", "True")], Err("usage-bootstrap-authentication")),
            (&[("usage-bootstrap-authentication", "")], Err("usage-bootstrap-authentication")),
            (&[("token-id", "fedcba")], Err("token-id")),
            (&[("token-secret", "")], Err("token-secret")),
            (&[("token-secret", "short")], Err("token-secret")),
            (&[("expiration", "tomorrow")], Err("no time")),
            (&[("expiration", "2001-01-01T00:00:00Z")], Ok(vec![BOOTSTRAPPERS])),
            (&[("expiration", "2001-01-01T02:00:00+02:00")], Ok(vec![BOOTSTRAPPERS])),
        ];
        for (fields, want) in rows {
            let got = Token::read("abcdef", &secret(fields));
            match (&got, want) {
                (Ok(token), Ok(groups)) => assert_eq!(token.groups, groups, "{fields:?}"),
                (Err(why), Err(part)) => assert!(why.contains(part), "{fields:?}: {why}"),
                _ => panic!("{fields:?}: {got:?}"),
            }
        }
        let mut other = secret(&[]);
        other["type"] = "Opaque".into();
        assert!(Token::read("abcdef", &other).unwrap_err().contains("Opaque"));
        let mut going = secret(&[]);
        going["metadata"]["deletionTimestamp"] = "2001-01-01T00:00:00Z".into();
        assert!(Token::read("abcdef", &going).is_err());
    }

    /// Who gets in, and whose signature machines believe: the same, whatever the Secret says of its time.
    #[test]
    fn what_has_no_time_left_signs_nothing() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let (never, past) = (None, Some("1970-01-01T00:01:00Z"));
        // expiration, uses-left, used-at, when, whether it signs, whether somebody gets in
        let rows = [
            (never, None, None, 100, true, true),
            (Some(""), None, None, 100, true, true),
            (past, None, None, 59, true, true),
            (past, None, None, 60, false, false),
            (Some("tomorrow"), None, None, 0, false, false),
            (never, Some("1"), Some("1970-01-01T00:00:00Z"), 9000, true, true),
            (never, Some("0"), Some("1970-01-01T00:00:00Z"), 599, true, true),
            (never, Some("0"), Some("1970-01-01T00:00:00Z"), 600, false, false),
            (never, Some("0"), None, 0, false, false),
        ];
        for row in rows {
            let (expiration, left, used, when, signs, lets_in) = row;
            let mut secret = secret(&[("usage-bootstrap-signing", "true")]);
            if let Some(at) = expiration {
                secret["data"]["expiration"] = STANDARD.encode(at).into();
            }
            for (key, text) in [(USES_LEFT, left), (USED_AT, used)] {
                if let Some(text) = text {
                    object::set_annotation(&mut secret, key, text);
                }
            }
            let shown = signing("abcdef", &secret).filter(|signing| at(when) < signing.until);
            assert_eq!(shown.is_some(), signs, "{row:?}");
            let tokens = BootstrapTokens::default();
            if let Ok(token) = Token::read("abcdef", &secret) {
                let entry = Entry { token, ended: CancellationToken::new() };
                tokens.tokens.write().insert("abcdef".to_owned(), entry);
            }
            let judged = tokens.judge("abcdef.0123456789abcdef", at(when)).expect("a token by its form");
            assert_eq!(judged.is_ok(), lets_in, "{row:?}");
        }
        let mut garbled = secret(&[("usage-bootstrap-signing", "true")]);
        garbled["data"]["expiration"] = "!".into();
        assert_eq!(signing("abcdef", &garbled), None);
    }

    #[test]
    fn a_token_is_judged_by_its_secret_and_its_time() {
        let tokens = BootstrapTokens::default();
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let token = Token::read("abcdef", &secret(&[("expiration", "1970-01-01T00:01:00Z")])).unwrap();
        let entry = Entry { token, ended: CancellationToken::new() };
        tokens.tokens.write().insert("abcdef".to_owned(), entry);
        let rows = [
            ("abcdef.0123456789abcdef", 59, "system:bootstrap:abcdef"),
            ("abcdef.0123456789abcdef", 60, "token_expired"),
            ("abcdef.0123456789abcdee", 59, "token_unknown"),
            ("abcdef.1123456789abcdef", 59, "token_unknown"),
            ("fedcba.0123456789abcdef", 59, "token_unknown"),
            // Whoever does not know the secret does not learn that there is such a token.
            ("abcdef.fedcba9876543210", 60, "token_unknown"),
        ];
        for (token, seconds, want) in rows {
            let got = match tokens.judge(token, at(seconds)).expect("a token by its form") {
                Ok(known) => known.user.name,
                Err(why) => why.reason.to_owned(),
            };
            assert_eq!(got, want, "{token} at {seconds}");
        }
        assert!(tokens.judge("abcdef", at(0)).is_none());
    }
}
