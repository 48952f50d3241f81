//! What agents tell the hub of the kinds that are searched on their members: all of it once, and then what changes.
//!
//! ```text
//!   member ─▶ Outgoing ── Part 0, 1, 2 … of a course ──▶ Kept ─▶ searches
//!                 ▲                                       │
//!                 └──────── again: a new course ──────────┘
//! ```
//!
//! The parts of a course are numbered, and one is sent until it is answered: what comes twice is taken once, and where one is
//! missing, or the hub has begun anew, the agent begins a new course. What stood before stands until that is current, too.
//!
//! The first part says how much there is of the kind. Where that is more than one part it says nothing else: what the hub has no room
//! for is not sent. What was announced so has its room until it has come, or comes no more ([`Kept::expire`]).
//!
//! With each report the agent says which kinds are current ([`Word`]), and for how long that counts. What it does not say again is
//! as old as the last time at which it did: nothing is taken for current because nobody has said otherwise.
//!
//! An agent is somebody else's machine: what it tells has a size, and is read as what was asked for, whatever it says it is.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    marker::PhantomData,
    sync::Arc,
    time::Duration,
};

use karmada_api::consts::annotation;
use karmada_meta::object;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error as _, SeqAccess, Visitor},
};
use serde_json::{Value, json, value::RawValue};

use super::{FOLLOWED, Followed};

/// The largest report that a hub reads, in bytes.
pub const REPORT: usize = 1 << 20;
/// The largest object that is told. A kind that has a larger one is not kept.
pub const LARGEST: usize = REPORT / 2;
/// What a hub keeps of one cluster at most, in bytes.
pub const KEPT: usize = 32 << 20;
/// What an object takes beside its text and its name, about.
const AROUND: usize = 128;
/// The longest text by which an agent is asked, in bytes.
const QUESTION: usize = 64 << 10;

/// For so long what was announced has its room without a part that comes.
const ANNOUNCED: Duration = Duration::from_secs(600);

/// What a part says of itself, in bytes.
const SAID: usize = 256;

/// The shortest object that has a name: `{"metadata":{"name":"x"}}`.
const SMALLEST: usize = 25;

/// What one is called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Named {
    /// Empty where it is in none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What an agent tells at a time. In this order it is taken: what is withdrawn, the parts, and what is said of kinds.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Each has a higher number than those before it. One that comes late is not taken.
    pub number: u64,
    /// For how many seconds what `kinds` say is current counts as that.
    #[serde(default)]
    pub holds: u64,
    /// Of all kinds of which something was told, what holds with this report. Nothing else is current.
    #[serde(default, deserialize_with = "few")]
    pub kinds: Vec<Word>,
    /// Of these nothing is told any more.
    #[serde(default, deserialize_with = "few")]
    pub withdrawn: Vec<Followed>,
    /// Of each kind one at most.
    #[serde(default, deserialize_with = "few")]
    pub parts: Vec<Part>,
}

/// What an agent says of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Word {
    /// Of which kind.
    pub what: Followed,
    /// Its course.
    pub course: String,
    /// The last part of it.
    pub number: u64,
    /// All there is on the member was told, and its changes are heard.
    #[serde(default)]
    pub current: bool,
}

/// What is told of a kind at a time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    /// Of which kind.
    pub what: Followed,
    /// Which course it belongs to.
    pub course: String,
    /// Its place there. The first is 0.
    pub number: u64,
    /// The kind's name in paths.
    pub plural: String,
    /// The member's resourceVersion.
    #[serde(default)]
    pub revision: String,
    /// There, new or changed.
    #[serde(default, deserialize_with = "objects")]
    pub objects: Vec<Box<RawValue>>,
    /// There no longer.
    #[serde(default)]
    pub gone: Vec<Named>,
    /// What all objects of the kind take, in bytes, with the first part, and where that is known; if not, 0.
    #[serde(default, skip_serializing_if = "is_none")]
    pub total: u64,
}

/// What the hub answers to a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// What is to be told from the start.
    #[serde(default)]
    pub again: Vec<Followed>,
    /// What is not to be told for now.
    #[serde(default)]
    pub unwanted: Vec<Followed>,
    /// Nothing of it was taken: there was a report of this number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
}

/// Whether nothing is known of a size.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_none(bytes: &u64) -> bool {
    *bytes == 0
}

/// Reads a list of no more than there are kinds.
fn few<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    list(deserializer, |_, before| match before < FOLLOWED {
        true => Ok(()),
        false => Err(format!("more than {FOLLOWED} of them")),
    })
}

/// Reads objects. There are no more of them than can be some.
fn objects<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Box<RawValue>>, D::Error> {
    list::<_, Box<RawValue>>(deserializer, |object, _| match object.get().len() < SMALLEST {
        true => Err("an object without a name".to_owned()),
        false => Ok(()),
    })
}

/// Reads a list whose parts `may` stand behind so many others, and looks at none behind one that may not.
fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
    may: impl Fn(&T, usize) -> Result<(), String>,
) -> Result<Vec<T>, D::Error> {
    struct Each<T, F>(F, PhantomData<T>);
    impl<'de, T: Deserialize<'de>, F: Fn(&T, usize) -> Result<(), String>> Visitor<'de> for Each<T, F> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(one) = list.next_element()? {
                (self.0)(&one, all.len()).map_err(A::Error::custom)?;
                all.push(one);
            }
            Ok(all)
        }
    }
    deserializer.deserialize_seq(Each(may, PhantomData))
}

/// What an agent is asked for; nothing where that is nothing.
pub fn question(wanted: &BTreeSet<Followed>) -> Option<String> {
    (!wanted.is_empty()).then(|| json!(wanted).to_string())
}

/// Reads what [`question`] wrote. Of Secrets nothing is ever told.
///
/// # Errors
/// Why it cannot be read.
pub fn asked(text: &str) -> Result<BTreeSet<Followed>, String> {
    if text.len() > QUESTION {
        return Err(format!("it is longer than {QUESTION} bytes"));
    }
    let all: BTreeSet<Followed> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if all.len() > FOLLOWED {
        return Err(format!("it names more than {FOLLOWED} kinds"));
    }
    Ok(all.into_iter().filter(Followed::may_leave).collect())
}

/// Reads an object as one of a kind, without what nobody searches.
///
/// # Errors
/// What is wrong with it.
pub fn essence(text: &str, what: &Followed) -> Result<(Named, Arc<str>), String> {
    let mut value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let named =
        Named { namespace: object::namespace(&value).to_owned(), name: object::name(&value).to_owned() };
    if named.name.is_empty() {
        return Err("it has no name".to_owned());
    }
    if !what.namespace.is_empty() && what.namespace != named.namespace {
        return Err(format!("it is not in the namespace {}", what.namespace));
    }
    let Some(all) = value.as_object_mut() else { return Err("it is no object".to_owned()) };
    // Items of lists of built-in kinds come without.
    all.insert("apiVersion".to_owned(), what.api_version.clone().into());
    all.insert("kind".to_owned(), what.kind.clone().into());
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(annotation::LAST_APPLIED);
        }
    }
    Ok((named, value.to_string().into()))
}

/// An object's place and its text, in bytes.
pub fn size(named: &Named, text: &str) -> usize {
    AROUND + named.namespace.len() + named.name.len() + text.len()
}

fn digest(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// What is to be told of a kind: the newest of each object, and nothing twice.
#[derive(Debug)]
pub struct Outgoing {
    what: Followed,
    plural: String,
    course: String,
    next: u64,
    /// What all of them take.
    total: u64,
    /// What was told of each.
    told: BTreeMap<Named, u64>,
    /// What is to be told: a text, or that it is gone.
    waiting: BTreeMap<Named, Option<Arc<str>>>,
    /// Of what waits.
    bytes: usize,
    /// What the list under way has named.
    listing: Option<BTreeSet<Named>>,
    /// All there is was heard once.
    listed: bool,
    /// The same was told.
    whole: bool,
    under_way: Option<Part>,
}

impl Outgoing {
    /// A course that has told nothing, of a kind whose objects take nobody knows how much.
    pub fn new(what: Followed, plural: &str, course: String) -> Self {
        Self {
            what,
            plural: plural.to_owned(),
            course,
            next: 0,
            total: 0,
            told: BTreeMap::new(),
            waiting: BTreeMap::new(),
            bytes: 0,
            listing: None,
            listed: false,
            whole: false,
            under_way: None,
        }
    }

    /// All there is takes so many bytes.
    #[must_use]
    pub fn of_bytes(self, total: u64) -> Self {
        Self { total, ..self }
    }

    /// Bytes of what waits.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Which kind.
    pub fn what(&self) -> &Followed {
        &self.what
    }

    /// Whether its next part takes no more than so many bytes.
    pub fn fits(&self, room: usize) -> bool {
        if let Some(part) = &self.under_way {
            return part.bytes() <= room;
        }
        let first = self.waiting.first_key_value();
        first.is_none_or(|(named, text)| size(named, text.as_deref().unwrap_or_default()) <= room)
    }

    /// Whether a part is under way.
    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Whether all that was heard of the member was told, with what is under way.
    pub fn is_told(&self) -> bool {
        self.listed && self.listing.is_none() && self.next > 0 && self.waiting.is_empty()
    }

    /// What is said of it; nothing before something was told.
    pub fn word(&self, current: bool) -> Option<Word> {
        let number = self.next.checked_sub(1)?;
        Some(Word { what: self.what.clone(), course: self.course.clone(), number, current })
    }

    /// Whether something waits that is not under way.
    pub fn waits(&self) -> bool {
        !self.waiting.is_empty() || (self.listed && !self.whole)
    }

    /// Whether there is something to tell.
    pub fn has_news(&self) -> bool {
        self.under_way.is_some() || self.waits()
    }

    /// A list of all there is begins.
    pub fn begins(&mut self) {
        self.listing = Some(BTreeSet::new());
    }

    /// It has ended: what it has not named is gone.
    pub fn ends(&mut self) {
        let Some(seen) = self.listing.take() else { return };
        let there = self.waiting.iter().filter(|(_, text)| text.is_some()).map(|(named, _)| named);
        let gone: BTreeSet<Named> =
            self.told.keys().chain(there).filter(|named| !seen.contains(named)).cloned().collect();
        gone.iter().for_each(|named| self.gone(named));
        self.listed = true;
    }

    /// One is there, so.
    pub fn heard(&mut self, named: Named, text: Arc<str>) {
        if let Some(seen) = &mut self.listing {
            seen.insert(named.clone());
        }
        let old = self.waiting.remove(&named);
        self.less(&named, old);
        if self.told.get(&named) != Some(&digest(&text)) {
            self.bytes += size(&named, &text);
            self.waiting.insert(named, Some(text));
        }
    }

    /// One is there no longer.
    pub fn gone(&mut self, named: &Named) {
        if let Some(seen) = &mut self.listing {
            seen.remove(named);
        }
        let old = self.waiting.remove(named);
        self.less(named, old);
        if self.told.contains_key(named) {
            self.bytes += size(named, "");
            self.waiting.insert(named.clone(), None);
        }
    }

    fn less(&mut self, named: &Named, waited: Option<Option<Arc<str>>>) {
        if let Some(text) = waited {
            self.bytes -= size(named, text.as_deref().unwrap_or_default());
        }
    }

    /// What is told next, of so many bytes, or one that has more; the same until it is answered. `revision`: the member's when
    /// nothing waits any more.
    pub fn next(&mut self, room: usize, revision: &str) -> Option<&Part> {
        if self.under_way.is_none() {
            if !self.has_news() {
                return None;
            }
            let mut part = self.part(self.next, revision);
            // More than a part: the hub says first whether it has room.
            let goes_along = usize::try_from(part.total).is_ok_and(|total| total <= room);
            let mut left = room;
            while goes_along && let Some(entry) = self.waiting.first_entry() {
                let bytes = size(entry.key(), entry.get().as_deref().unwrap_or_default());
                if bytes > left && left < room {
                    break;
                }
                left = left.saturating_sub(bytes);
                self.bytes -= bytes;
                let (named, text) = entry.remove_entry();
                match text {
                    Some(text) => {
                        let hash = digest(&text);
                        // It was read as JSON before.
                        if let Ok(raw) = RawValue::from_string(text.as_ref().to_owned()) {
                            part.objects.push(raw);
                            self.told.insert(named, hash);
                        }
                    }
                    None => {
                        self.told.remove(&named);
                        part.gone.push(named);
                    }
                }
            }
            if !self.waiting.is_empty() {
                part.revision.clear();
            }
            self.whole |= self.listed && self.waiting.is_empty();
            self.next += 1;
            self.under_way = Some(part);
        }
        self.under_way.as_ref()
    }

    /// This was taken.
    pub fn taken(&mut self, part: &Part) {
        if self.is_sending(part) {
            self.under_way = None;
        }
    }

    /// Whether this is under way.
    pub fn is_sending(&self, part: &Part) -> bool {
        let is = |one: &Part| one.course == part.course && one.number == part.number;
        self.under_way.as_ref().is_some_and(is)
    }

    fn part(&self, number: u64, revision: &str) -> Part {
        Part {
            what: self.what.clone(),
            course: self.course.clone(),
            number,
            plural: self.plural.clone(),
            revision: revision.to_owned(),
            objects: Vec::new(),
            gone: Vec::new(),
            total: if number == 0 { self.total } else { 0 },
        }
    }
}

/// A [`Part`] whose objects were read.
#[derive(Debug)]
pub struct Read {
    part: Part,
    objects: Vec<(Named, Arc<str>)>,
}

impl Part {
    /// What its objects take, about.
    pub fn bytes(&self) -> usize {
        let gone = |named: &Named| size(named, "");
        let texts = self.objects.iter().map(|object| AROUND + object.get().len());
        texts.chain(self.gone.iter().map(gone)).sum()
    }

    /// Reads its objects.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub fn read(mut self) -> Result<Read, String> {
        let said = [("course", &self.course), ("plural", &self.plural), ("revision", &self.revision)];
        if let Some((field, _)) = said.into_iter().find(|(_, text)| text.len() > SAID) {
            return Err(format!("{field} is longer than {SAID} bytes"));
        }
        let objects = std::mem::take(&mut self.objects);
        let objects = objects.into_iter().map(|object| essence(object.get(), &self.what));
        let objects = objects.collect::<Result<Vec<_>, _>>()?;
        Ok(Read { part: self, objects })
    }
}

impl Read {
    /// Of which kind it is.
    pub fn what(&self) -> &Followed {
        &self.part.what
    }
}

/// What became of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is known.
    Taken,
    /// It goes on with what is not known.
    Again,
    /// There is no room, and nothing is known of the kind any more.
    NoRoom,
}

/// What the hub keeps of a cluster.
#[derive(Debug, Default)]
pub struct Kept {
    kinds: BTreeMap<Followed, Course>,
    bytes: usize,
    /// What is kept no more, until somebody has the time to drop it.
    dropped: Vec<All>,
}

/// What may come of what is told, in bytes of all that is kept of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Where it was not announced how much there is.
    pub share: usize,
    /// Otherwise.
    pub most: usize,
}

impl Room {
    /// So much, announced or not.
    pub fn of(bytes: usize) -> Self {
        Self { share: bytes, most: bytes }
    }
}

/// What is kept of a kind.
#[derive(Debug, Default)]
struct Course {
    course: String,
    number: u64,
    all: All,
    /// What it was said to take; 0 where that is not known.
    announced: usize,
    /// Of that, what is kept free for it.
    reserved: usize,
    /// When the last part of it came.
    came: Duration,
    /// When it was last said to be current.
    as_of: Option<Duration>,
    /// As long as that counts.
    until: Option<Duration>,
    /// What there was before this course, and when that was current: for as long as this one never was.
    before: Option<(All, Duration)>,
}

/// What is kept of a kind that was current once.
#[derive(Debug)]
pub struct Found<'a> {
    /// Which kind.
    pub what: &'a Followed,
    /// Its objects.
    pub all: &'a All,
    /// When they were last known to be all there are; none where that counts still.
    pub as_of: Option<Duration>,
}

/// Objects, as they were at a revision.
#[derive(Debug, Default)]
pub struct All {
    /// The kind's name in paths.
    pub plural: String,
    /// The member's resourceVersion.
    pub revision: String,
    /// As JSON.
    pub objects: BTreeMap<Named, Arc<str>>,
    bytes: usize,
}

impl Course {
    fn bytes(&self) -> usize {
        let before = self.before.as_ref().map_or(0, |(before, _)| before.bytes);
        (self.all.bytes + before).max(self.reserved)
    }

    /// Whether it has become larger than it was said to be, though nobody has said yet that this is all. Some may have come
    /// between.
    fn is_beyond(&self) -> bool {
        let slack = self.announced / 4 + LARGEST;
        self.announced > 0 && self.as_of.is_none() && self.all.bytes > self.announced.saturating_add(slack)
    }

    /// What may come of it.
    fn most(&self, room: Room) -> usize {
        if self.announced == 0 && self.as_of.is_none() { room.share } else { room.most }
    }

    /// What there was before goes.
    fn forget(&mut self, dropped: &mut Vec<All>) {
        dropped.extend(self.before.take().map(|(before, _)| before));
    }
}

impl All {
    fn take(&mut self, read: Read) {
        for named in &read.part.gone {
            if let Some(old) = self.objects.remove(named) {
                self.bytes -= size(named, &old);
            }
        }
        for (named, text) in read.objects {
            self.bytes += size(&named, &text);
            match self.objects.entry(named) {
                Entry::Occupied(mut there) => {
                    self.bytes -= size(there.key(), there.get());
                    there.insert(text);
                }
                Entry::Vacant(place) => drop(place.insert(text)),
            }
        }
        if !read.part.revision.is_empty() {
            self.revision = read.part.revision;
        }
    }
}

impl Kept {
    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What is kept at this time of a kind that `is` so, and was current once.
    pub fn find(&self, now: Duration, is: impl Fn(&Followed, &All) -> bool) -> Option<Found<'_>> {
        let found = self.kinds.iter().filter_map(|(what, course)| {
            let holds = course.until.is_some_and(|until| now <= until);
            Some(match (course.as_of, &course.before) {
                (Some(_), _) if holds => Found { what, all: &course.all, as_of: None },
                (Some(as_of), _) => Found { what, all: &course.all, as_of: Some(as_of) },
                (None, Some((all, as_of))) => Found { what, all, as_of: Some(*as_of) },
                (None, None) => return None,
            })
        });
        found.into_iter().find(|found| is(found.what, found.all))
    }

    /// Nothing is current until that is said again.
    pub fn doubt(&mut self) {
        self.kinds.values_mut().for_each(|course| course.until = None);
    }

    /// Takes in what is said at this time, and that it counts for so long: nothing else is current. What is to be told anew.
    pub fn hear(&mut self, words: &[Word], now: Duration, holds: Duration) -> Vec<Followed> {
        self.doubt();
        let mut again = Vec::new();
        for word in words {
            let known = self.kinds.get_mut(&word.what);
            let known = known.filter(|known| (&known.course, known.number) == (&word.course, word.number));
            match known {
                Some(known) if word.current => {
                    (known.as_of, known.until) = (Some(now), Some(now + holds));
                    known.reserved = 0;
                    known.forget(&mut self.dropped);
                }
                Some(_) => {}
                None => again.push(word.what.clone()),
            }
        }
        self.count();
        again
    }

    /// Keeps no other kinds than these.
    pub fn retain(&mut self, wanted: &BTreeSet<Followed>) {
        let gone: Vec<Followed> = self.kinds.keys().filter(|what| !wanted.contains(what)).cloned().collect();
        gone.iter().for_each(|what| self.withdraw(what));
    }

    /// What may come of a part at most, in bytes of all that is kept.
    pub fn with(&self, read: &Read) -> usize {
        let what = &read.part.what;
        let is_new = self.kinds.get(what).is_none_or(|known| known.course != read.part.course);
        // What it replaces can go.
        let there = self.bytes - if is_new { self.kinds.get(what).map_or(0, Course::bytes) } else { 0 };
        let objects: usize = read.objects.iter().map(|(named, text)| size(named, text)).sum();
        let total = usize::try_from(read.part.total).unwrap_or(usize::MAX);
        there.saturating_add(objects.max(total))
    }

    /// Takes in what was told at this time, where no more comes of it in all than there is room for.
    pub fn take(&mut self, read: Read, room: Room, now: Duration) -> Verdict {
        let what = read.part.what.clone();
        let known = self.kinds.get(&what).filter(|known| known.course == read.part.course);
        match known.map(|known| known.number) {
            Some(number) if number == read.part.number => return Verdict::Taken,
            Some(number) if number.checked_add(1) == Some(read.part.number) => {}
            None if read.part.number == 0 => {
                let others = self.bytes - self.kinds.get(&what).map_or(0, Course::bytes);
                let total = usize::try_from(read.part.total).unwrap_or(usize::MAX);
                if others.saturating_add(total) > room.most {
                    self.withdraw(&what);
                    return Verdict::NoRoom;
                }
                self.begin(&read, total);
            }
            _ => return Verdict::Again,
        }
        let Some(course) = self.kinds.get_mut(&what) else { return Verdict::Again };
        let others = self.bytes - course.bytes();
        let most = course.most(room);
        (course.number, course.came) = (read.part.number, now);
        course.all.take(read);
        // What is older goes first.
        if others + course.bytes() > most {
            course.forget(&mut self.dropped);
        }
        self.bytes = others + course.bytes();
        if self.bytes > most || course.is_beyond() {
            self.withdraw(&what);
            return Verdict::NoRoom;
        }
        Verdict::Taken
    }

    /// A course begins in place of what is known of its kind, which stands until the course is current.
    fn begin(&mut self, read: &Read, total: usize) {
        let old = self.kinds.remove(&read.part.what).unwrap_or_default();
        let before = match old.as_of {
            Some(as_of) => {
                self.dropped.extend(old.before.map(|(before, _)| before));
                Some((old.all, as_of))
            }
            None => {
                self.dropped.push(old.all);
                old.before
            }
        };
        let course = Course {
            course: read.part.course.clone(),
            all: All { plural: read.part.plural.clone(), ..All::default() },
            announced: total,
            reserved: total,
            before,
            ..Course::default()
        };
        self.kinds.insert(read.part.what.clone(), course);
        self.count();
    }

    /// Nothing is kept of a kind.
    pub fn withdraw(&mut self, what: &Followed) {
        if let Some(mut gone) = self.kinds.remove(what) {
            self.bytes -= gone.bytes();
            gone.forget(&mut self.dropped);
            self.dropped.push(gone.all);
        }
    }

    /// What was announced long ago, and comes no more, has no room any more.
    pub fn expire(&mut self, now: Duration) {
        for course in self.kinds.values_mut() {
            if now.saturating_sub(course.came) >= ANNOUNCED {
                course.reserved = 0;
            }
        }
        self.count();
    }

    /// The kind that takes most, if any takes something.
    pub fn largest(&self) -> Option<&Followed> {
        let largest = self.kinds.iter().max_by_key(|(_, course)| course.bytes());
        largest.filter(|(_, course)| course.bytes() > 0).map(|(what, _)| what)
    }

    /// What is kept no more. That may be much: it takes a while to drop.
    pub fn dropped(&mut self) -> Vec<All> {
        std::mem::take(&mut self.dropped)
    }

    fn count(&mut self) {
        self.bytes = self.kinds.values().map(Course::bytes).sum();
    }
}

#[cfg(test)]
mod tests;
