//! What an agent that starts has to know, on the member: which objects are fenced, when the hub last confirmed anything,
//! by the time of day, and at which revision that hub was. One ConfigMap.

use std::time::{Duration, UNIX_EPOCH};

use http::Method;
use karmada_api::consts::manager::AGENT;
use karmada_client::Error;
use karmada_core::judge::guard::{Asked, Guard, State};
use karmada_meta::{object, time::Time};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Fence, Guarded};
use crate::{namespace::make_namespace, works::desired::ObjectId};

/// The key in the ConfigMap.
const KEY: &str = "fenced.json";

/// The ConfigMap's text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Ledger {
    /// When the renewal that the hub took last was asked for.
    confirmed: Option<Time>,
    /// The hub's revision at some time before, and when the hub turned out to be another than before.
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    another_since: Option<Time>,
    /// The first revision that was seen of that one.
    #[serde(skip_serializing_if = "Option::is_none")]
    another_from: Option<u64>,
    objects: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    work: String,
    api_version: String,
    group: String,
    kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    namespace: String,
    name: String,
    path: String,
    after_seconds: u64,
    /// When it was confirmed itself, if renewals since do not count for it: it did not run, or nobody wanted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    confirmed: Option<Time>,
}

impl Entry {
    fn id(&self) -> ObjectId {
        let Self { group, kind, namespace, name, .. } = self.clone();
        ObjectId { group, kind, namespace, name }
    }
}

impl Ledger {
    /// Reads a ConfigMap; one that cannot be read is an error, since what it held would not be stopped.
    fn read(config_map: &Value) -> Result<Self, serde_json::Error> {
        config_map["data"][KEY].as_str().map_or_else(|| Ok(Self::default()), serde_json::from_str)
    }

    fn confirmed(&self) -> Option<Duration> {
        self.confirmed.and_then(since_1970)
    }

    /// When an object was confirmed.
    fn confirmed_of(&self, entry: &Entry) -> Option<Duration> {
        entry.confirmed.or(self.confirmed).and_then(since_1970)
    }
}

fn since_1970(time: Time) -> Option<Duration> {
    u64::try_from(time.timestamp().as_second()).ok().map(Duration::from_secs)
}

impl Fence {
    /// Reads the ledger, once.
    pub(crate) async fn load(&self) -> Result<(), Error> {
        let _one = self.ledger.lock().await;
        if self.inner.lock().loaded {
            return Ok(());
        }
        let ledger = self.fetch().await?;
        let confirmed = ledger.confirmed();
        let mut inner = self.inner.lock();
        if inner.renewal == Asked::NEVER {
            inner.renewal = Asked::recalled(confirmed);
        }
        inner.written = confirmed;
        inner.written_revision = ledger.revision;
        let now = self.moment();
        let another = ledger.another_since.and_then(since_1970);
        let doubtful = inner.history.recall(ledger.revision, another, ledger.another_from, now);
        for entry in &ledger.objects {
            let id = entry.id();
            let entry = entry.clone();
            let guarded = Guarded {
                guard: Guard::recalled(Duration::from_secs(entry.after_seconds), ledger.confirmed_of(&entry)),
                work: entry.work,
                api_version: entry.api_version,
                path: entry.path,
                noted: true,
                stopped: None,
                resumed: false,
            };
            inner.guards.entry(id).or_insert(guarded);
        }
        inner.loaded = true;
        drop(inner);
        if doubtful {
            self.doubts();
        }
        self.asking.wake();
        Ok(())
    }

    /// Reads what another agent of this member may have written since.
    pub(super) async fn learn(&self) -> Result<(), Error> {
        let _one = self.ledger.lock().await;
        let ledger = self.fetch().await?;
        let mut inner = self.inner.lock();
        for entry in &ledger.objects {
            if let Some(guarded) = inner.guards.get_mut(&entry.id()) {
                guarded.guard.learnt(ledger.confirmed_of(entry));
            }
        }
        Ok(())
    }

    async fn fetch(&self) -> Result<Ledger, Error> {
        match self.member.get(&self.ledger_path()).await {
            // Nothing fenced is begun on a guess: what it held may run elsewhere, or is to be stopped.
            Ok(config_map) => Ledger::read(&config_map).map_err(|error| Error::Answer {
                method: Method::GET,
                path: self.ledger_path(),
                cause: format!(
                    "{error}; it says what may run in one place only: mend its {KEY}, or delete it when nothing fenced runs elsewhere"
                ),
            }),
            Err(error) if error.is_absence_of(&self.ledger_name()) => Ok(Ledger::default()),
            Err(error) => Err(error),
        }
    }

    /// Writes the ledger as it should be.
    pub(super) async fn write(&self) -> Result<(), Error> {
        let _one = self.ledger.lock().await;
        let ledger = {
            let mut inner = self.inner.lock();
            inner.outdated = false;
            let objects = inner.guards.iter().map(|(id, guarded)| Entry {
                work: guarded.work.clone(),
                api_version: guarded.api_version.clone(),
                group: id.group.clone(),
                kind: id.kind.clone(),
                namespace: id.namespace.clone(),
                name: id.name.clone(),
                path: guarded.path.clone(),
                after_seconds: guarded.guard.after().as_secs(),
                confirmed: match guarded.guard.state() {
                    State::Running => None,
                    State::Recalled | State::Held => {
                        guarded.guard.confirmed().map(|wall| Time::from_system(UNIX_EPOCH + wall))
                    }
                },
            });
            let confirmed = inner.renewal.wall.map(|wall| Time::from_system(UNIX_EPOCH + wall));
            let another = inner.history.another_at().map(|wall| Time::from_system(UNIX_EPOCH + wall));
            Ledger {
                confirmed,
                revision: inner.history.revision(),
                another_since: another,
                another_from: inner.history.first(),
                objects: objects.collect(),
            }
        };
        let answer = self.put(&ledger).await;
        let mut inner = self.inner.lock();
        if let Err(error) = answer {
            inner.outdated = true;
            return Err(error);
        }
        inner.written = ledger.confirmed();
        inner.written_revision = ledger.revision;
        for entry in ledger.objects {
            if let Some(guarded) = inner.guards.get_mut(&entry.id()) {
                guarded.noted =
                    guarded.work == entry.work && guarded.guard.after().as_secs() == entry.after_seconds;
            }
        }
        Ok(())
    }

    async fn put(&self, ledger: &Ledger) -> Result<(), Error> {
        let config_map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": self.ledger_name(), "namespace": self.ledger_namespace},
            "data": {KEY: json!(ledger).to_string()},
        });
        match self.member.apply(&self.ledger_path(), AGENT, true, &config_map).await {
            Err(error) if error.is_not_found() => {
                // An agent that does not run in the member itself may be the first there.
                make_namespace(&self.member, &self.ledger_namespace).await?;
                self.member.apply(&self.ledger_path(), AGENT, true, &config_map).await.map(drop)
            }
            answer => answer.map(drop),
        }
    }

    /// Several hubs may have a member each under a name of their own.
    fn ledger_name(&self) -> String {
        format!("karmada-agent-fence-{}", self.cluster)
    }

    fn ledger_path(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps/{}", self.ledger_namespace, self.ledger_name())
    }

    /// Whether an object on the member is one of ours.
    pub(super) fn is_ours(&self, live: &Value) -> bool {
        object::annotation(live, karmada_api::consts::annotation::WORK_NAMESPACE)
            == Some(self.execution_namespace.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_is_read_as_it_was_written() {
        let ledger = Ledger {
            confirmed: Some(Time::from_system(UNIX_EPOCH + Duration::from_secs(77))),
            revision: Some(500),
            another_since: None,
            another_from: None,
            objects: vec![Entry {
                work: "web-1".to_owned(),
                api_version: "apps/v1".to_owned(),
                group: "apps".to_owned(),
                kind: "Deployment".to_owned(),
                namespace: "shop".to_owned(),
                name: "web".to_owned(),
                path: "/apis/apps/v1/namespaces/shop/deployments/web".to_owned(),
                after_seconds: 60,
                confirmed: None,
            }],
        };
        let read = |text: String| Ledger::read(&json!({"data": {KEY: text}}));
        assert_eq!(read(json!(ledger).to_string()).unwrap(), ledger);
        assert_eq!(ledger.confirmed(), Some(Duration::from_secs(77)));
        assert_eq!(Ledger::read(&json!({})).unwrap(), Ledger::default());
        assert!(read("{".to_owned()).is_err());
    }
}
