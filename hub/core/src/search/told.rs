//! What agents tell the hub of the kinds that are searched on their members: all of it once, and then what changes.
//!
//! ```text
//!   member ─▶ Outgoing ── Part 0, 1, 2 … of a course ──▶ Kept ─▶ searches
//!                 ▲                                       │
//!                 └──────── again: a new course ──────────┘
//! ```
//!
//! The parts of a course are numbered, and one is sent until it is answered: what comes twice is taken once, and where one is
//! missing, or the hub has begun anew, the agent begins a new course. What was whole before stands until that is whole, too.
//! An agent is somebody else's machine: what it tells has a size, and is read as what was asked for, whatever it says it is.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use karmada_api::consts::annotation;
use karmada_meta::object;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};

use super::{FOLLOWED, Followed};

/// The largest report that a hub reads, in bytes.
pub const REPORT: usize = 1 << 20;
/// The largest object that is told. A kind that has a larger one is not kept.
pub const LARGEST: usize = REPORT / 2;
/// What an object takes beside its text and its name, about.
const AROUND: usize = 128;
/// The longest text by which an agent is asked, in bytes.
const QUESTION: usize = 64 << 10;

/// What a part says of itself, in bytes.
const SAID: usize = 256;

/// What one is called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Named {
    /// Empty where it is in none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What an agent tells at a time.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// For how many seconds something has waited that is not told with this.
    #[serde(default)]
    pub waits: u64,
    /// Of each kind one at most.
    #[serde(default)]
    pub parts: Vec<Part>,
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
    /// With this the course has told of all there is.
    #[serde(default)]
    pub whole: bool,
    /// Nothing is told of the kind any more.
    #[serde(default)]
    pub withdrawn: bool,
    /// Nothing is told: this one was, and the question is whether it is known.
    #[serde(default)]
    pub check: bool,
    /// There, new or changed.
    #[serde(default)]
    pub objects: Vec<Box<RawValue>>,
    /// There no longer.
    #[serde(default)]
    pub gone: Vec<Named>,
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
    Ok(all.into_iter().filter(|one| !one.is_secret()).collect())
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
fn size(named: &Named, text: &str) -> usize {
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
    /// A course that has told nothing.
    pub fn new(what: Followed, plural: &str, course: String) -> Self {
        Self {
            what,
            plural: plural.to_owned(),
            course,
            next: 0,
            told: BTreeMap::new(),
            waiting: BTreeMap::new(),
            bytes: 0,
            listing: None,
            listed: false,
            whole: false,
            under_way: None,
        }
    }

    /// Bytes of what waits.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes that are to be told, with what is not answered.
    pub fn to_tell(&self) -> usize {
        self.bytes + self.under_way.as_ref().map_or(0, Part::bytes)
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
            let mut left = room;
            while let Some(entry) = self.waiting.first_entry() {
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
            part.whole = self.whole || (self.listed && self.waiting.is_empty());
            self.whole = part.whole;
            self.next += 1;
            self.under_way = Some(part);
        }
        self.under_way.as_ref()
    }

    /// This was taken.
    pub fn taken(&mut self, part: &Part) {
        let is = |one: &Part| one.course == part.course && one.number == part.number;
        if self.under_way.as_ref().is_some_and(is) {
            self.under_way = None;
        }
    }

    /// Asks whether the hub has what was told.
    pub fn check(&self) -> Option<Part> {
        let last = self.next.checked_sub(1).filter(|_| self.under_way.is_none())?;
        Some(Part { check: true, ..self.part(last, "") })
    }

    /// Takes back all that was told, by this course or one of before.
    pub fn withdraw(&mut self) {
        (self.told, self.waiting, self.bytes) = (BTreeMap::new(), BTreeMap::new(), 0);
        self.under_way = Some(Part { withdrawn: true, ..self.part(self.next, "") });
        (self.listed, self.listing) = (false, None);
    }

    fn part(&self, number: u64, revision: &str) -> Part {
        Part {
            what: self.what.clone(),
            course: self.course.clone(),
            number,
            plural: self.plural.clone(),
            revision: revision.to_owned(),
            whole: false,
            withdrawn: false,
            check: false,
            objects: Vec::new(),
            gone: Vec::new(),
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
}

/// What is kept of a kind.
#[derive(Debug, Default)]
struct Course {
    course: String,
    number: u64,
    all: All,
    whole: bool,
    /// What was whole before this course.
    before: Option<All>,
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
        self.all.bytes + self.before.as_ref().map_or(0, |before| before.bytes)
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

    /// All of a kind that `is` so, with what it is.
    pub fn find(&self, is: impl Fn(&Followed, &All) -> bool) -> Option<(&Followed, &All)> {
        let kinds = self.kinds.iter().filter_map(|(what, course)| {
            let all = if course.whole { Some(&course.all) } else { course.before.as_ref() };
            Some((what, all?))
        });
        kinds.into_iter().find(|(what, all)| is(what, all))
    }

    /// Keeps no other kinds than these.
    pub fn retain(&mut self, wanted: &BTreeSet<Followed>) {
        self.kinds.retain(|what, _| wanted.contains(what));
        self.bytes = self.kinds.values().map(Course::bytes).sum();
    }

    /// Takes in what was told, where no more than `most` bytes come of it in all.
    pub fn take(&mut self, read: Read, most: usize) -> Verdict {
        let what = read.part.what.clone();
        if read.part.withdrawn {
            self.drop_kind(&what);
            return Verdict::Taken;
        }
        let known = self.kinds.get(&what).filter(|known| known.course == read.part.course);
        match known.map(|known| known.number) {
            Some(number) if number == read.part.number => return Verdict::Taken,
            Some(number) if number + 1 == read.part.number && !read.part.check => {}
            None if read.part.number == 0 && !read.part.check => {
                let new = Course { course: read.part.course.clone(), ..Course::default() };
                let old = self.kinds.insert(what.clone(), new).unwrap_or_default();
                let before = if old.whole { Some(old.all) } else { old.before };
                if let Some(course) = self.kinds.get_mut(&what) {
                    course.before = before;
                    course.all.plural.clone_from(&read.part.plural);
                }
                self.count();
            }
            _ => return Verdict::Again,
        }
        let Some(course) = self.kinds.get_mut(&what) else { return Verdict::Again };
        let others = self.bytes - course.bytes();
        course.number = read.part.number;
        course.whole |= read.part.whole;
        course.all.take(read);
        // What is older goes where it is not needed, and first.
        if course.whole || others + course.bytes() > most {
            course.before = None;
        }
        self.bytes = others + course.bytes();
        if self.bytes > most {
            self.drop_kind(&what);
            return Verdict::NoRoom;
        }
        Verdict::Taken
    }

    fn drop_kind(&mut self, what: &Followed) {
        if let Some(gone) = self.kinds.remove(what) {
            self.bytes -= gone.bytes();
        }
    }

    fn count(&mut self) {
        self.bytes = self.kinds.values().map(Course::bytes).sum();
    }
}

#[cfg(test)]
mod tests;
