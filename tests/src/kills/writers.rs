//! Writers that create, replace, patch and delete templates, and know at every time what may be there.

use std::{fmt, sync::Arc, time::Duration};

use karmada_client::{Error, Patch, Rest};
use karmada_env::{Env, SplitMix};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::{
    VALUE, below,
    journal::{Journal, Promise, revision_of},
    value_of,
};
use crate::samples;

/// Between two attempts at a hub that is away.
const AWAY: Duration = Duration::from_millis(60);

/// What an object is, or may be: not there, or of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Absent,
    Is(String),
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("absent"),
            Self::Is(value) => write!(f, "{value:?}"),
        }
    }
}

/// An object of one writer's, and what is known of it.
#[derive(Clone, Debug)]
pub(super) struct Template {
    /// The collection's name: `configmaps` or `deployments`.
    pub scope: &'static str,
    pub name: String,
    pub path: String,
    collection: String,
    /// What was last acknowledged, or seen.
    settled: State,
    /// What writes without an answer would have left, since then.
    open: Vec<State>,
    /// The object as it was last seen, for a PUT.
    last: Option<Value>,
}

impl Template {
    pub(super) fn config_map(namespace: &str, name: String) -> Self {
        let path = samples::config_map_path(namespace, &name);
        Self::new("configmaps", name, path)
    }

    pub(super) fn deployment(namespace: &str, name: String) -> Self {
        let path = samples::deployment_path(namespace, &name);
        Self::new("deployments", name, path)
    }

    fn new(scope: &'static str, name: String, path: String) -> Self {
        let collection = path.rsplit_once('/').map_or("", |(collection, _)| collection).to_owned();
        Self { scope, name, path, collection, settled: State::Absent, open: Vec::new(), last: None }
    }

    /// What it is called in a journal.
    pub(super) fn title(&self) -> String {
        format!("{}/{}", self.scope, self.name)
    }

    /// What it is, after [`Template::look`].
    pub(super) const fn settled(&self) -> &State {
        &self.settled
    }

    fn object(&self, value: &str, random: &SplitMix) -> Value {
        let mut object = match self.scope {
            "deployments" => samples::deployment(&self.name, below(random, 3) as i64),
            _ => samples::config_map(&self.name, value),
        };
        object["metadata"]["annotations"] = json!({ VALUE: value });
        object
    }

    /// Reads it. What is there must be what was acknowledged, or what a write without an answer would have left.
    /// Fails only if the hub cannot be reached.
    pub(super) async fn look(&mut self, api: &Rest, journal: &Journal) -> Result<(), Error> {
        let found = match api.get(&self.path).await {
            Ok(object) => Some(object),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        let state = found.as_ref().map_or(State::Absent, |object| State::Is(value_of(object)));
        if let Some(object) = &found {
            journal.seen(self.scope, object, false);
        }
        if state != self.settled && !self.open.contains(&state) {
            journal.wrong(format!(
                "{} is {state}; acknowledged was {}, without an answer {:?}",
                self.title(),
                self.settled,
                self.open
            ));
        }
        self.settled = state;
        self.open.clear();
        self.last = found;
        Ok(())
    }
}

/// One writer. The checker takes its templates between two writes.
#[derive(Clone)]
pub(super) struct Writer {
    pub number: usize,
    pub templates: Arc<Mutex<Vec<Template>>>,
    pub api: Rest,
    pub journal: Arc<Journal>,
    pub pause: Duration,
}

/// What is written.
#[derive(Clone, Copy, Debug)]
enum Verb {
    Create,
    Replace,
    Patch,
    Delete,
}

impl Verb {
    const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Replace => "replace",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

impl Writer {
    /// Writes until `stop`.
    pub(super) async fn run(self, seed: u64, stop: CancellationToken) {
        let random = SplitMix::new(seed);
        let env = Env::system();
        let mut count = 0_u64;
        while !stop.is_cancelled() {
            let reached = {
                let mut templates = self.templates.lock().await;
                // First of all, what became of a write without an answer.
                let unsure = templates.iter().position(|t| !t.open.is_empty());
                let chosen = unsure.unwrap_or_else(|| below(&random, templates.len() as u64) as usize);
                count += 1;
                self.write(&mut templates[chosen], &format!("{}.{count}", self.number), &random).await
            };
            let pause = if reached { env.jitter(self.pause / 2, 2.0) } else { AWAY };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// One write. Answers whether the hub was there.
    async fn write(&self, template: &mut Template, value: &str, random: &SplitMix) -> bool {
        if !template.open.is_empty() && template.look(&self.api, &self.journal).await.is_err() {
            return false;
        }
        let verb = match (&template.settled, below(random, 100)) {
            (State::Absent, _) => Verb::Create,
            (State::Is(_), 0..40) if template.last.is_some() => Verb::Replace,
            (State::Is(_), 0..85) => Verb::Patch,
            (State::Is(_), _) => Verb::Delete,
        };
        let title = template.title();
        let newest = self.journal.begin(self.number, verb.name(), &title, value);
        let answer = self.send(verb, template, value, random).await;
        let left = match verb {
            Verb::Delete => State::Absent,
            _ => State::Is(value.to_owned()),
        };
        match answer {
            Ok(answer) => {
                let promise = (!matches!(verb, Verb::Delete)).then(|| Promise {
                    scope: template.scope,
                    name: template.name.clone(),
                    revision: revision_of(&answer).unwrap_or_default(),
                });
                if let Some(promise) = &promise {
                    if promise.revision <= newest {
                        self.journal.wrong(format!(
                            "{title} was written at {}, but {newest} had been seen before",
                            promise.revision
                        ));
                    }
                    self.journal.seen(template.scope, &answer, false);
                }
                self.journal.acknowledged(self.number, value, promise);
                template.last = (left != State::Absent).then_some(answer);
                template.settled = left;
                true
            }
            Err(error) if error.is_transient() => {
                self.journal.unanswered(self.number, value, &error.to_string());
                template.open.push(left);
                !error.is_unreachable()
            }
            // Controllers write templates, too.
            Err(error) if error.is_conflict() => {
                self.journal.refused(self.number, value, &error.to_string());
                template.look(&self.api, &self.journal).await.is_ok()
            }
            Err(error) => {
                self.journal.wrong(format!(
                    "{} {title}, which is {}: {error}",
                    verb.name(),
                    template.settled
                ));
                true
            }
        }
    }

    async fn send(
        &self,
        verb: Verb,
        template: &Template,
        value: &str,
        random: &SplitMix,
    ) -> Result<Value, Error> {
        let mut changed = json!({ "metadata": { "annotations": { VALUE: value } } });
        match (verb, &template.last) {
            (Verb::Create, _) => self.api.post(&template.collection, &template.object(value, random)).await,
            (Verb::Replace, Some(last)) => {
                let mut object = last.clone();
                object["metadata"]["annotations"][VALUE] = value.into();
                match template.scope {
                    "deployments" => object["spec"]["replicas"] = below(random, 3).into(),
                    _ => object["data"] = json!({ "key": value }),
                }
                self.api.put(&template.path, &object).await
            }
            (Verb::Replace | Verb::Patch, _) => {
                match template.scope {
                    "deployments" => changed["spec"] = json!({ "replicas": below(random, 3) }),
                    _ => changed["data"] = json!({ "key": value }),
                }
                self.api.patch(&template.path, Patch::Merge, &changed).await
            }
            (Verb::Delete, _) => self.api.delete(&template.path, &json!({})).await,
        }
    }
}
