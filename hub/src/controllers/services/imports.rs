//! ServiceImports: each has a Service `derived-<name>`, by which it is used where the import goes.

use std::sync::Arc;

use karmada_api::consts::{component, event, extension};
use karmada_client::{Error, WorkQueue};
use karmada_core::services::{import, multi};
use karmada_meta::object;
use karmada_objects::{
    key::Key,
    kinds::{SERVICE_IMPORTS, SERVICES},
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    super::{Context, Next, work},
    said::Said,
};

/// How many are worked on at a time.
const WORKERS: usize = 2;
/// Who reports.
const COMPONENT: &str = component::SERVICE_IMPORT;

/// Makes the Services of imports.
pub(crate) struct Imports {
    context: Arc<Context>,
    queue: WorkQueue<Key>,
    said: Said,
    /// What was said about annotations.
    odd: Said,
}

impl Imports {
    /// A controller that hears the context's ServiceImports and templates from now on.
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        let queue: WorkQueue<Key> = WorkQueue::new(context.env.clone());
        context.figures.queue("serviceimport", &queue);
        let changed = queue.clone();
        context.known.imports.listen(move |change| changed.add(change.key.clone()));
        let again = queue.clone();
        context.resync.tell(&context.known.imports, move |key, _| again.add(key.clone()));
        // Services are watched while an import needs one.
        let (services, shared) = (queue.clone(), Arc::downgrade(context));
        context.known.templates.listen(move |kind, change| {
            let Some(name) = change.key.name.strip_prefix(import::DERIVED) else { return };
            if kind.group.is_empty() && kind.kind == "Service" {
                let key = Key::new(change.key.namespace.as_str(), name);
                if shared.upgrade().is_some_and(|context| context.known.imports.get(&key).is_some()) {
                    services.add(key);
                }
            }
        });
        Self { context: context.clone(), queue, said: Said::default(), odd: Said::default() }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        self.context.known.imports.synced().await;
        work("serviceimport", &self.queue, WORKERS, &stop, |key: Key| self.reconcile(key)).await;
    }

    async fn reconcile(&self, key: Key) -> Result<Next, Error> {
        let objects = &self.context.writer.objects;
        let Some(import) = objects.get(&SERVICE_IMPORTS, &key).await? else {
            self.said.forget(&key);
            self.odd.forget(&key);
            return self.clean(&key).await;
        };
        if object::deletion_timestamp(&import).is_some() {
            return Ok(Next::Done);
        }
        let odd = multi::withdraw_after(&import).err();
        let odd = odd.map(|why| (event::INVALID_ANNOTATION, format!("{}: {why}", extension::WITHDRAW_AFTER)));
        for (reason, why) in self.odd.news(&key, odd.into_iter().collect()) {
            self.context.writer.warning(COMPONENT, &import, reason, why);
        }
        let service = Key::new(key.namespace.as_str(), import::derived_name(&key.name));
        let mut live = objects.get(&SERVICES, &service).await?;
        if let Some(old) = live.take_if(|live| import::is_of_another_type(&import, live)) {
            objects.delete(&SERVICES, &old).await?;
        }
        let wanted = match import::derived(&import, live.as_ref()) {
            Ok(wanted) if Some(&wanted) == live.as_ref() => {
                self.said.forget(&key);
                return Ok(Next::Done);
            }
            Ok(wanted) => wanted,
            Err(why) => return self.failed(&import, why),
        };
        let written = match live {
            Some(_) => objects.replace(&SERVICES, &wanted).await,
            None => objects.create(&SERVICES, &wanted).await,
        };
        match written {
            Ok(_) => {
                self.said.forget(&key);
                let message = format!("Sync derived service for serviceImport({}) succeed.", key.name);
                self.context.writer.normal(COMPONENT, &import, event::SYNC_DERIVED_SERVICE_SUCCEED, message);
                Ok(Next::Done)
            }
            Err(error) if error.is_invalid() || error.code() == Some(400) => {
                self.failed(&import, error.to_string())
            }
            Err(error) => Err(error),
        }
    }

    fn failed(&self, import: &Value, why: String) -> Result<Next, Error> {
        if !self.said.is_new(&Key::of(import), &why) {
            return Ok(Next::Done);
        }
        tracing::warn!(import = %Key::of(import), why, "a derived Service cannot be made");
        self.context.writer.warning(COMPONENT, import, event::SYNC_DERIVED_SERVICE_FAILED, why);
        Ok(Next::Done)
    }

    /// The import is gone: the collector takes its Service away, where there is one.
    async fn clean(&self, import: &Key) -> Result<Next, Error> {
        let objects = &self.context.writer.objects;
        let service = Key::new(import.namespace.as_str(), import::derived_name(&import.name));
        if let Some(live) = objects.get(&SERVICES, &service).await?
            && import::is_of_an_import(&live)
        {
            objects.delete(&SERVICES, &live).await?;
        }
        Ok(Next::Done)
    }
}
