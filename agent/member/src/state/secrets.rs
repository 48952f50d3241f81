//! Where there is no volume: Secrets of the member, each with a share of the keys, compressed.
//!
//! A change is one write of one Secret, under the version that was read; a commit of many keys may write all of them. What
//! is in one counts by itself: a Work, a rule, a record of what was applied. A Secret whose checksum does not hold is
//! damaged, and with it what it held, which the hub says again.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::future::BoxFuture;
use karmada_client::{Error, Rest, rest::query_value};
use karmada_core::names::fnv64a;
use karmada_meta::object;
use serde_json::{Value, json};

use super::{
    Change, Entries,
    engine::{Engine, Unread, Unwritten},
    seal::{pack, unpack},
};
use crate::lease::make_namespace;

/// How many Secrets there are at most.
const SHARES: u64 = 16;

/// The largest share: a Secret may hold 1 MiB.
const LARGEST: usize = 900 << 10;

/// The label of these Secrets, with the cluster's name.
const LABEL: &str = "agent.karmada.io/state";

/// The field of a Secret, and of its checksum.
const FIELD: &str = "state";
const SUM: &str = "sum";

/// Somebody else may write a Secret at the same time; then it is read again, so often.
const TRIES: usize = 3;

/// See the module.
#[derive(Debug)]
pub(crate) struct Secrets {
    member: Rest,
    namespace: String,
    cluster: String,
}

/// A share as it was read: its version, none if there is no such Secret, and what it holds.
type Share = (Option<String>, Entries);

fn share_of(key: &str) -> u64 {
    fnv64a(key.as_bytes()) % SHARES
}

/// Keys and values in one text, each with its length before it.
fn join(entries: &Entries) -> Vec<u8> {
    let mut out = Vec::new();
    for bytes in entries.iter().flat_map(|(key, value)| [key.as_bytes(), value]) {
        out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(bytes);
    }
    out
}

fn part(mut rest: &[u8]) -> Option<Entries> {
    let mut entries = Entries::new();
    let take = |rest: &mut &[u8]| -> Option<Vec<u8>> {
        let (length, behind) = rest.split_first_chunk::<4>()?;
        let (bytes, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        *rest = behind;
        Some(bytes.to_vec())
    };
    while !rest.is_empty() {
        let key = String::from_utf8(take(&mut rest)?).ok()?;
        entries.insert(key, take(&mut rest)?);
    }
    Some(entries)
}

/// What a Secret holds; nothing if it is not as it was written.
fn read(secret: &Value) -> Option<Entries> {
    let field = |name: &str| STANDARD.decode(secret["data"][name].as_str()?).ok();
    let (packed, sum) = (field(FIELD)?, field(SUM)?);
    if sum != fnv64a(&packed).to_le_bytes() {
        return None;
    }
    part(&unpack(None, "", packed)?)
}

fn away(error: &Error) -> Unwritten {
    let text = error.to_string();
    match error.code() {
        Some(400 | 403 | 404 | 409 | 413 | 422) => Unwritten::Refused(text),
        _ => Unwritten::Away(text),
    }
}

/// The name of a share.
fn name_of(cluster: &str, share: u64) -> String {
    format!("karmada-agent-state-{cluster}-{share}")
}

/// The names of all shares that there can be.
pub(super) fn names(cluster: &str) -> impl Iterator<Item = String> + '_ {
    (0..SHARES).map(move |share| name_of(cluster, share))
}

impl Secrets {
    pub(crate) fn new(member: Rest, namespace: String, cluster: String) -> Self {
        Self { member, namespace, cluster }
    }

    fn name(&self, share: u64) -> String {
        name_of(&self.cluster, share)
    }

    fn path(&self, share: u64) -> String {
        format!("/api/v1/namespaces/{}/secrets/{}", self.namespace, self.name(share))
    }

    /// A share, or what is wrong with it.
    async fn share(&self, share: u64) -> Result<Result<Share, String>, Error> {
        let secret = match self.member.get(&self.path(share)).await {
            Ok(secret) => secret,
            Err(error) if error.is_absence_of(&self.name(share)) => return Ok(Ok((None, Entries::new()))),
            Err(error) => return Err(error),
        };
        let version = object::resource_version(&secret).to_owned();
        Ok(match read(&secret) {
            Some(entries) => Ok((Some(version), entries)),
            None => Err(version),
        })
    }

    async fn change(&self, share: u64, changes: &[Change]) -> Result<(), Unwritten> {
        let mut last = None;
        for _ in 0..TRIES {
            // What is damaged is written anew.
            let (version, mut entries) = match self.share(share).await.map_err(|error| away(&error))? {
                Ok(share) => share,
                Err(version) => (Some(version), Entries::new()),
            };
            let before = entries.clone();
            for (key, value) in changes {
                match value {
                    Some(value) => drop(entries.insert(key.clone(), value.clone())),
                    None => drop(entries.remove(key)),
                }
            }
            if before == entries && version.is_some() {
                return Ok(());
            }
            let packed = pack(None, "", &join(&entries)).map_err(Unwritten::Refused)?;
            if packed.len() > LARGEST {
                return Err(Unwritten::Refused(format!(
                    "{} would have {} bytes, and {LARGEST} are the most: give the agent a volume and --state-dir",
                    self.name(share),
                    packed.len()
                )));
            }
            match self.put(share, version, &packed).await {
                Ok(()) => return Ok(()),
                Err(error) if error.is_conflict() || error.is_already_exists() => last = Some(error),
                Err(error) => return Err(away(&error)),
            }
        }
        let why = last.map(|error| error.to_string()).unwrap_or_default();
        Err(Unwritten::Away(format!("somebody else writes {} again and again: {why}", self.name(share))))
    }

    async fn put(&self, share: u64, version: Option<String>, packed: &[u8]) -> Result<(), Error> {
        let sum = fnv64a(packed).to_le_bytes();
        let mut secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {
                "name": self.name(share), "namespace": self.namespace,
                "labels": {"app": "karmada-agent", LABEL: self.cluster},
            },
            "data": {FIELD: STANDARD.encode(packed), SUM: STANDARD.encode(sum)},
        });
        if let Some(version) = version {
            object::set_meta(&mut secret, "resourceVersion", version);
            return self.member.put(&self.path(share), &secret).await.map(drop);
        }
        let collection = format!("/api/v1/namespaces/{}/secrets", self.namespace);
        match self.member.post(&collection, &secret).await {
            Err(error) if error.is_absence_of(&self.namespace) => {
                make_namespace(&self.member, &self.namespace).await?;
                self.member.post(&collection, &secret).await.map(drop)
            }
            answer => answer.map(drop),
        }
    }
}

impl Engine for Secrets {
    fn load(&mut self) -> BoxFuture<'_, Result<Entries, Unread>> {
        Box::pin(async move {
            let (mut all, mut damaged) = (Entries::new(), Vec::new());
            let selector = query_value(&format!("{LABEL}={}", self.cluster));
            let collection =
                format!("/api/v1/namespaces/{}/secrets?labelSelector={selector}", self.namespace);
            let list =
                self.member.get(&collection).await.map_err(|error| Unread::Failed(error.to_string()))?;
            for secret in list["items"].as_array().into_iter().flatten() {
                match read(secret) {
                    Some(entries) => all.extend(entries),
                    None => damaged.push(object::name(secret)),
                }
            }
            if damaged.is_empty() {
                return Ok(all);
            }
            self.void().await.map_err(|error| Unread::Failed(format!("{error:?}")))?;
            let names = damaged.join(", ");
            Err(Unread::Damaged(format!("Secrets of the member are damaged, and were deleted: {names}")))
        })
    }

    fn write(&mut self, changes: Vec<Change>) -> BoxFuture<'_, Result<(), Unwritten>> {
        Box::pin(async move {
            let mut shares: BTreeMap<u64, Vec<Change>> = BTreeMap::new();
            for change in changes {
                shares.entry(share_of(&change.0)).or_default().push(change);
            }
            for (share, changes) in shares {
                self.change(share, &changes).await?;
            }
            Ok(())
        })
    }

    fn void(&mut self) -> BoxFuture<'_, Result<(), Unwritten>> {
        Box::pin(async move {
            for share in 0..SHARES {
                match self.member.delete(&self.path(share), &json!({})).await {
                    Err(error) if !error.is_not_found() => return Err(away(&error)),
                    _ => {}
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_read_as_it_was_written_or_not_at_all() {
        let entries: Entries =
            [("work/a", "{}"), ("work/b", ""), ("", "x")].map(|(k, v)| (k.into(), v.into())).into();
        assert_eq!(part(&join(&entries)), Some(entries.clone()));
        for odd in [&[1][..], &[9, 0, 0, 0, 1], &[1, 0, 0, 0, 0xff, 0, 0, 0, 0]] {
            assert_eq!(part(odd), None, "{odd:?}");
        }
        let packed = pack(None, "", &join(&entries)).unwrap();
        let secret = |packed: &[u8], sum: u64| json!({"data": {FIELD: STANDARD.encode(packed), SUM: STANDARD.encode(sum.to_le_bytes())}});
        assert_eq!(read(&secret(&packed, fnv64a(&packed))), Some(entries));
        assert_eq!(read(&secret(&packed, 7)), None);
        for end in 0..packed.len() {
            assert_eq!(read(&secret(&packed[..end], fnv64a(&packed))), None);
        }
        assert_eq!(read(&json!({})), None);
    }
}
