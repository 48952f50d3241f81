//! Whether the hub still has what it was told. What an agent has told does not come back to it, so it does not hear when somebody
//! deletes that: the hub takes back what nobody asks for, which an agent may not know whose watch is silent without being broken,
//! and people may delete a Work.
//!
//! The hub is asked when another Work than before asks for a Service, after each full list of Works, and now and then; for metadata
//! alone, and only while there is something.

use std::{collections::BTreeMap, time::Duration};

use karmada_client::{Backoff, Error, rest::METADATA_LIST};
use serde::Deserialize;
use tokio::time::sleep;

use super::{Collecting, Held, RETRY, SliceKey};

/// So often at least, and by so much of that later.
const EVERY: Duration = Duration::from_secs(600);
const LATER: f64 = 0.5;
/// Works per page.
const PAGE: usize = 500;

#[derive(Deserialize)]
struct Item {
    metadata: Known,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Known {
    name: String,
    #[serde(default)]
    resource_version: String,
}

impl Held {
    fn text(&self, field: &str) -> String {
        self.metadata[field].as_str().unwrap_or_default().to_owned()
    }
}

impl Collecting<'_> {
    /// Checks when there is a doubt, and now and then.
    pub(super) async fn keep_checking(&self) {
        let mut doubt = self.doubt.listen();
        loop {
            let pause = self.collector.env.jitter(EVERY, LATER);
            tokio::select! {
                biased;
                () = doubt.woken() => {}
                () = sleep(pause) => {}
            }
            let held: BTreeMap<SliceKey, (String, String)> = {
                let state = self.state.lock();
                let of = |held: &Held| (held.text("name"), held.text("resourceVersion"));
                state.held.iter().map(|(key, held)| (key.clone(), of(held))).collect()
            };
            if !held.is_empty() {
                self.check(held).await;
            }
        }
    }

    /// Holds what is remembered of Works against what the hub has. What was written meanwhile is as it was answered.
    async fn check(&self, held: BTreeMap<SliceKey, (String, String)>) {
        let mut backoff = Backoff::new(RETRY);
        let there = loop {
            match self.list_metadata().await {
                Ok(there) => break there,
                Err(error) => {
                    tracing::debug!(%error, "it is not known yet whether the hub has what it was told");
                    let pause = backoff.next(&self.collector.env);
                    sleep(pause.max(error.retry_after().unwrap_or_default())).await;
                }
            }
        };
        let mut others = Vec::new();
        {
            let mut state = self.state.lock();
            for (key, (name, revision)) in held {
                if state.held.get(&key).is_none_or(|held| held.text("resourceVersion") != revision) {
                    continue;
                }
                match there.get(&name) {
                    Some(now) if *now == revision => {}
                    Some(_) => others.push((key, name)),
                    None => {
                        tracing::debug!(work = name, "the hub does not have any more what it was told");
                        state.held.remove(&key);
                        self.queue.add(key);
                    }
                }
            }
        }
        for (key, name) in others {
            match self.read_anew(&key, &name).await {
                Ok(wait) => self.queue.add_after(key, wait.unwrap_or_default()),
                // Whoever writes it next finds that out.
                Err(error) => tracing::debug!(work = name, %error, "a Work of a slice cannot be read"),
            }
        }
    }

    /// The Works that the hub has of it, with their revisions.
    async fn list_metadata(&self) -> Result<BTreeMap<String, String>, Error> {
        let mut pages = self.collector.hub.pages(self.collected(), PAGE).accept(METADATA_LIST).or_anew();
        let mut there = BTreeMap::new();
        while let Some(page) = pages.next::<Item>().await? {
            if page.is_first {
                there.clear();
            }
            let known = page.items.into_iter().map(|item| item.metadata);
            there.extend(known.map(|known| (known.name, known.resource_version)));
        }
        Ok(there)
    }
}
