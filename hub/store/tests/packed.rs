//! Values that are packed stay so on their way to a new file and from one.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::{sync::Arc, time::SystemTime};

use karmada_env::{Env, ManualClock};
use karmada_store::{
    Dictionary, Expect, Key, Op, Options, Store,
    engine::{Batch, Change, Engine, EngineError, Found, Image, Keep, Memory},
};
use parking_lot::Mutex;

static WORDS: Dictionary = Dictionary::new(b"what is stored");

/// What the values of an image have, and what they take in memory.
type Sizes = (usize, usize);

/// Remembers the sizes of what it is given and gives.
struct Scale(Memory, Arc<Mutex<Vec<Sizes>>>);

fn sizes(image: &Image) -> Sizes {
    let objects = image.objects.iter().map(|(_, stored)| &stored.value);
    let before = image.log.iter().filter_map(|record| record.prev.as_ref().map(|prev| &prev.value));
    let last = image.log.iter().filter_map(|record| match &record.change {
        Change::Delete(last) => last.as_ref(),
        Change::Put => None,
    });
    objects
        .chain(before)
        .chain(last)
        .fold((0, 0), |(len, kept), value| (len + value.len(), kept + value.kept()))
}

impl Engine for Scale {
    fn location(&self) -> String {
        self.0.location()
    }

    fn load(&mut self, keep: Keep<'_>) -> Result<Image, EngineError> {
        self.0.load(keep).inspect(|image| self.1.lock().push(sizes(image)))
    }

    fn write(&mut self, batch: &Batch) -> Result<(), EngineError> {
        self.0.write(batch)
    }

    fn reopen(&mut self) -> Result<Found, EngineError> {
        self.0.reopen()
    }

    fn renew(&mut self, image: Image) -> Result<(), EngineError> {
        self.1.lock().push(sizes(&image));
        self.0.renew(image)
    }

    fn blocks(&self) -> bool {
        false
    }

    fn seals(&mut self) -> Result<(), EngineError> {
        self.0.seals()
    }
}

#[tokio::test]
async fn no_image_has_all_values_as_they_are() {
    let (memory, seen) = (Memory::new(), Arc::new(Mutex::new(Vec::new())));
    let env = Env::seeded(ManualClock::new(SystemTime::UNIX_EPOCH), 1);
    let options = Options { packs: |_| Some(&WORDS), ..Options::default() };
    let open = || Store::open(Scale(memory.clone(), seen.clone()), (), env.clone(), options).unwrap();
    let key = |n: usize| Key::new("works", "n", format!("w{n}"));
    let store = open();
    for n in 0..30 {
        let put = Op::put(key(n % 20), Expect::Any, format!("what is stored {n} ").repeat(200));
        store.commit(vec![put]).await.unwrap();
    }
    store.commit(vec![Op::delete(key(0), Expect::Any, "the last words ".repeat(200))]).await.unwrap();
    store.rewrite().await.unwrap();
    store.close().await.unwrap();
    let again = open();
    assert_eq!(again.get(&key(19)).unwrap().value, "what is stored 19 ".repeat(200));
    let seen = seen.lock();
    assert_eq!(seen.len(), 3, "empty, written anew, and read again");
    for (len, kept) in &seen[1..] {
        assert!(*len > 90_000 && *kept < len / 10, "{kept} of {len} bytes");
    }
}
