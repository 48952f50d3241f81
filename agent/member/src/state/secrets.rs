//! Where there is no volume: Secrets of the member, each with a share of the keys, compressed.
//!
//! A change is one write of one Secret, under the version that was read; a commit of many keys may write all of them. What
//! is in one counts by itself: a Work, a rule, a record of what was applied. A Secret that is missing, whose checksum does
//! not hold, or that is older than it was, loses what it held, and nothing else; the hub says it again. Each says what state
//! it is of, and how often it was written: whatever somebody else makes of it while the agent runs is noticed with the next
//! change of it, and the state begun anew.
//!
//! The checksum tells what is damaged, not who wrote it: whoever may write Secrets there is believed.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::future::BoxFuture;
use karmada_client::{Error, Rest, rest::query_value};
use karmada_core::names::fnv64a;
use karmada_meta::object;
use serde_json::{Value, json};

use super::{
    Change, Entries,
    engine::{Engine, Part, Unread, Unwritten},
    seal::{LONGEST, pack, unpack_within},
    stamp::{Found, Stamp},
};
use crate::namespace::make_namespace;

/// How many Secrets there are at most.
const SHARES: usize = 16;

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
    /// What the state is, and how often each share was written.
    stamp: Stamp,
    shares: [Share; SHARES],
}

/// What is known of a share beside its number.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    /// Whether there may be such a Secret.
    is_there: bool,
    /// What is in it counts not, and goes with the next write.
    is_odd: bool,
}

fn share_of(key: &str) -> usize {
    (fnv64a(key.as_bytes()) % SHARES as u64) as usize
}

/// A share in one text: the state's id, the share's number, keys and values, each with its length before it.
fn join(id: &str, number: u64, entries: &Entries) -> Vec<u8> {
    let mut out = Vec::new();
    let number = number.to_le_bytes();
    let head = [id.as_bytes(), &number];
    for bytes in head.into_iter().chain(entries.iter().flat_map(|(key, value)| [key.as_bytes(), value])) {
        out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(bytes);
    }
    out
}

fn part(mut rest: &[u8]) -> Option<(String, u64, Entries)> {
    fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
        let (length, behind) = rest.split_first_chunk::<4>()?;
        let (bytes, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        *rest = behind;
        Some(bytes)
    }
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    let id = text(take(&mut rest)?)?;
    let number = u64::from_le_bytes(take(&mut rest)?.try_into().ok()?);
    let mut entries = Entries::new();
    while !rest.is_empty() {
        let key = text(take(&mut rest)?)?;
        entries.insert(key, take(&mut rest)?.to_vec());
    }
    Some((id, number, entries))
}

/// What a Secret holds; nothing if it is not as it was written. `room` is how long it may be, unpacked.
fn read(secret: &Value, room: &mut u64) -> Option<(String, u64, Entries)> {
    let field = |name: &str| STANDARD.decode(secret["data"][name].as_str()?).ok();
    let (packed, sum) = (field(FIELD)?, field(SUM)?);
    if sum != fnv64a(&packed).to_le_bytes() {
        return None;
    }
    let text = unpack_within(*room, None, "", packed)?;
    *room -= text.len() as u64;
    part(&text)
}

/// Packs what there is room for; the rest is left out, the longest first, and what everything hangs on last. Answers which.
fn fit(id: &str, number: u64, entries: &mut Entries) -> Result<(Vec<u8>, Vec<String>), String> {
    let mut left_out = Vec::new();
    loop {
        let text = join(id, number, entries);
        let packed = pack(None, "", &text)?;
        if packed.len() <= LARGEST {
            return Ok((packed, left_out));
        }
        // So much has to go, as far as everything is packed alike.
        let mut excess = text.len() - (text.len() as u64 * LARGEST as u64 / packed.len() as u64) as usize;
        while excess > 0 {
            let longest = entries
                .iter()
                .max_by_key(|(key, value)| (super::contents::may_be_left_out(key), value.len()));
            let Some((key, length)) = longest.map(|(key, value)| (key.clone(), value.len())) else { break };
            entries.remove(&key);
            excess = excess.saturating_sub(key.len() + length + 8);
            left_out.push(key);
        }
    }
}

fn is_final(error: &Error) -> bool {
    matches!(error.code(), Some(400 | 403 | 404 | 409 | 413 | 422))
}

fn away(error: &Error) -> Unwritten {
    let text = error.to_string();
    if is_final(error) { Unwritten::Refused(text) } else { Unwritten::Away(text) }
}

/// The name of a share.
fn name_of(cluster: &str, share: usize) -> String {
    format!("karmada-agent-state-{cluster}-{share}")
}

/// The names of all shares that there can be.
pub(super) fn names(cluster: &str) -> impl Iterator<Item = String> + '_ {
    (0..SHARES).map(move |share| name_of(cluster, share))
}

impl Secrets {
    pub(crate) fn new(member: Rest, namespace: String, cluster: String) -> Self {
        let shares = [Share { is_there: true, is_odd: false }; SHARES];
        Self { member, namespace, cluster, stamp: Stamp::default(), shares }
    }

    fn name(&self, share: usize) -> String {
        name_of(&self.cluster, share)
    }

    fn path(&self, share: usize) -> String {
        format!("/api/v1/namespaces/{}/secrets/{}", self.namespace, self.name(share))
    }

    /// A share that is to be written: its version, none if there is no such Secret, and what it holds.
    async fn share(
        &self,
        share: usize,
        changes: &[Change],
    ) -> Result<(Option<String>, u64, Entries), Unwritten> {
        let name = self.name(share);
        let secret = match self.member.get(&self.path(share)).await {
            Ok(secret) => Some(secret),
            Err(error) if error.is_absence_of(&name) => None,
            Err(error) => return Err(away(&error)),
        };
        let version = secret.as_ref().map(|secret| object::resource_version(secret).to_owned());
        let known = self.stamp.numbers[share];
        if self.shares[share].is_odd || (secret.is_none() && known == 0) {
            return Ok((version, known, Entries::new()));
        }
        let mut room = LONGEST;
        let found = secret.as_ref().and_then(|secret| read(secret, &mut room));
        if let Some((_, number, entries)) = found.filter(|(id, ..)| *id == self.stamp.id) {
            let is_written = || {
                let has = |(key, value): &Change| entries.get(key) == value.as_ref();
                number == known + 1 && changes.iter().all(has)
            };
            // The answer to the write before this one may have been lost.
            if number == known || is_written() {
                return Ok((version, number, entries));
            }
        }
        Err(Unwritten::Refused(format!(
            "somebody else has changed or deleted the Secret {}/{name} on the member",
            self.namespace
        )))
    }

    async fn change(&mut self, share: usize, changes: &[Change]) -> Result<Vec<String>, Unwritten> {
        let mut last = None;
        for _ in 0..TRIES {
            let (version, number, mut entries) = self.share(share, changes).await?;
            let before = entries.clone();
            for (key, value) in changes {
                match value {
                    Some(value) => drop(entries.insert(key.clone(), value.clone())),
                    None => drop(entries.remove(key)),
                }
            }
            if before == entries && !self.shares[share].is_odd {
                self.stamp.numbers[share] = number;
                return Ok(Vec::new());
            }
            let (packed, left_out) =
                fit(&self.stamp.id, number + 1, &mut entries).map_err(Unwritten::Refused)?;
            // Whatever becomes of it.
            self.shares[share].is_there = true;
            match self.put(share, version, &packed).await {
                Ok(()) => {
                    self.stamp.numbers[share] = number + 1;
                    self.shares[share] = Share { is_there: true, is_odd: false };
                    return Ok(left_out);
                }
                Err(error) if error.is_conflict() || error.is_already_exists() => last = Some(error),
                Err(error) => return Err(away(&error)),
            }
        }
        let why = last.map(|error| error.to_string()).unwrap_or_default();
        Err(Unwritten::Away(format!("somebody else writes {} again and again: {why}", self.name(share))))
    }

    async fn put(&self, share: usize, version: Option<String>, packed: &[u8]) -> Result<(), Error> {
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
    fn load(&mut self) -> BoxFuture<'_, Result<Vec<Part>, Unread>> {
        Box::pin(async move {
            let selector = query_value(&format!("{LABEL}={}", self.cluster));
            let collection =
                format!("/api/v1/namespaces/{}/secrets?labelSelector={selector}", self.namespace);
            let list = self.member.get(&collection).await.map_err(|error| {
                let text = error.to_string();
                if is_final(&error) { Unread::Refused(text) } else { Unread::Away(text) }
            })?;
            let Some(items) = list["items"].as_array() else {
                return Err(Unread::Away(format!("{collection} was answered without a list")));
            };
            let (mut parts, mut room) = (Vec::new(), LONGEST);
            for share in 0..SHARES {
                let name = self.name(share);
                let secret = items.iter().find(|secret| object::name(secret) == name);
                self.shares[share] = Share { is_there: secret.is_some(), is_odd: false };
                let read = secret.map(|secret| read(secret, &mut room));
                let (found, entries) = match read {
                    None => (Found::Missing, Entries::new()),
                    Some(None) => (Found::Damaged, Entries::new()),
                    Some(Some((id, number, entries))) => (Found::There(id, number), entries),
                };
                parts.push(Part { found, entries });
            }
            Ok(parts)
        })
    }

    fn go_on(&mut self, stamp: Stamp, without: &[usize]) {
        self.stamp = stamp;
        for share in without {
            self.shares[*share].is_odd = true;
        }
    }

    fn begin(&mut self, id: &str) -> BoxFuture<'_, Result<(), Unwritten>> {
        let id = id.to_owned();
        Box::pin(async move {
            self.void().await?;
            self.stamp = Stamp { id, numbers: vec![0; SHARES] };
            Ok(())
        })
    }

    fn void(&mut self) -> BoxFuture<'_, Result<(), Unwritten>> {
        Box::pin(async move {
            for share in 0..SHARES {
                if !self.shares[share].is_there {
                    continue;
                }
                match self.member.delete(&self.path(share), &json!({})).await {
                    Err(error) if !error.is_not_found() => return Err(away(&error)),
                    _ => self.shares[share] = Share::default(),
                }
            }
            Ok(())
        })
    }

    fn write(&mut self, changes: Arc<Vec<Change>>) -> BoxFuture<'_, Result<Vec<String>, Unwritten>> {
        Box::pin(async move {
            let mut shares: BTreeMap<usize, Vec<Change>> = BTreeMap::new();
            for change in changes.iter() {
                shares.entry(share_of(&change.0)).or_default().push(change.clone());
            }
            let mut left_out = Vec::new();
            for (share, changes) in shares {
                left_out.extend(self.change(share, &changes).await?);
            }
            Ok(left_out)
        })
    }

    fn stamp(&self) -> Stamp {
        self.stamp.clone()
    }

    fn part_of(&self, key: &str) -> usize {
        share_of(key)
    }

    fn part_name(&self, part: usize) -> String {
        format!("the Secret {}/{}", self.namespace, self.name(part))
    }

    fn at_a_time(&self) -> usize {
        usize::MAX
    }

    fn compresses(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_read_as_it_was_written_or_not_at_all() {
        let entries: Entries =
            [("work/a", "{}"), ("work/b", ""), ("", "x")].map(|(k, v)| (k.into(), v.into())).into();
        let text = join("id", 7, &entries);
        assert_eq!(part(&text), Some(("id".to_owned(), 7, entries.clone())));
        for odd in
            [&[1][..], &[9, 0, 0, 0, 1], &[1, 0, 0, 0, 0xff, 0, 0, 0, 0], &text[..text.len() - 1], &text[1..]]
        {
            assert_eq!(part(odd), None, "{odd:?}");
        }
        let packed = pack(None, "", &text).unwrap();
        let secret = |packed: &[u8], sum: u64| json!({"data": {FIELD: STANDARD.encode(packed), SUM: STANDARD.encode(sum.to_le_bytes())}});
        let read = |secret: &Value| read(secret, &mut 1000).map(|(.., entries)| entries);
        assert_eq!(read(&secret(&packed, fnv64a(&packed))), Some(entries));
        assert_eq!(read(&secret(&packed, 7)), None);
        for end in 0..packed.len() {
            assert_eq!(read(&secret(&packed[..end], fnv64a(&packed))), None);
        }
        assert_eq!(read(&json!({})), None);
        let bomb = pack(None, "", &vec![0; 2000]).unwrap();
        assert_eq!(read(&secret(&bomb, fnv64a(&bomb))), None, "what it would unpack to is bounded");
    }

    #[test]
    fn what_there_is_no_room_for_is_left_out_the_longest_first() {
        // It does not pack.
        let mut seed = 1_u64;
        let mut noise = |length: usize| -> Vec<u8> {
            (0..length)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (seed >> 56) as u8
                })
                .collect()
        };
        let mut entries: Entries = [
            ("about", 10),
            ("rules/scripts", 400 << 10),
            ("work/a", 300 << 10),
            ("work/b", 1000 << 10),
            ("work/c", 100 << 10),
        ]
        .map(|(key, length)| (key.to_owned(), noise(length)))
        .into();
        let (packed, left_out) = fit("id", 1, &mut entries.clone()).unwrap();
        assert_eq!(left_out, ["work/b"]);
        assert!(packed.len() <= LARGEST);
        entries.insert("rules/scripts".into(), noise(1000 << 10));
        let (_, left_out) = fit("id", 1, &mut entries).unwrap();
        assert_eq!(left_out, ["work/b", "work/a", "work/c", "rules/scripts"], "rules go last");
        assert_eq!(entries.into_keys().collect::<Vec<_>>(), ["about"]);
    }
}
