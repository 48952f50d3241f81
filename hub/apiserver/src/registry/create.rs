//! Creating objects.

use std::sync::Arc;

use bytes::Bytes;
use karmada_meta::{
    gvk::GroupResource,
    object,
    status::{Status, StatusCause},
};
use karmada_store::{Expect, Guard, Op, Purpose, Revision};
use serde_json::Value;

use super::{Caller, Registry, Target, Written, ask::Attempt, escalation, metadata, rules, served, telling};
use crate::{
    admission::Operation,
    authn::bootstrap,
    certificates, crd, fields,
    findings::Findings,
    identity::REPORTED_BY,
    kinds::Kind,
    options::WriteOptions,
    storage::{self, Object},
    webhooks::Options,
};

/// How often an object is judged anew whose schema changes meanwhile.
const SCHEMAS: usize = 8;
/// kube-apiserver's number of tries for a generated name.
const NAME_TRIES: usize = 8;
/// A generated name is a prefix of at most this length and five more characters.
const MAX_PREFIX: usize = 63 - NAME_SUFFIX;
const NAME_SUFFIX: usize = 5;

impl Registry {
    /// Creates an object. `object` has been decoded and defaulted.
    ///
    /// # Errors
    /// 403 for what the caller may not create, 404 or 403 of a namespace that is missing or ends, 409 when the name is taken, 422 for what is not valid.
    pub async fn create(
        &self,
        caller: &Caller<'_>,
        kind: &Arc<Kind>,
        namespace: &str,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        caller.check_create(&Target { kind, namespace, name: object::name(&object), subresource: "" }, "")?;
        let own = || {
            for warning in metadata::dedup_owners(&mut object) {
                caller.warn(warning);
            }
            // Not a client's to set, so neither a client's to own.
            for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
                object::remove_meta(&mut object, field);
            }
            fields::update(kind, None, &object, caller.manager(options), "", &self.now())
        };
        let mut object = self.pool.run(caller.weight(), own).await?;
        let name = object::name(&object).to_owned();
        let target = Target { kind, namespace, name: &name, subresource: "" };
        let attempt = Attempt {
            operation: Operation::Create,
            target: &target,
            options: Options::Write(options),
            old: None,
        };
        if let Some(cluster) = telling::teller(caller.user, kind) {
            // By this it is known for the agent's when it is changed.
            object::set_annotation(&mut object, REPORTED_BY, cluster);
            // What may not stand there is refused alike whether there is such a namespace or not.
            self.admit_ours(caller, &attempt, &mut object).await?;
            self.check_open(&target)?;
        } else {
            self.check_open(&target)?;
            self.admit_ours(caller, &attempt, &mut object).await?;
        }
        self.admit_theirs(caller, &attempt, &mut object).await?;
        let prefix = object::generate_name(&object).to_owned();
        if !object::name(&object).is_empty() || prefix.is_empty() {
            return self.insert(caller, kind, namespace, object, options).await;
        }
        for _ in 0..NAME_TRIES {
            let mut named = self.pool.run(caller.weight(), || object.clone()).await?;
            let head: String = prefix.chars().take(MAX_PREFIX).collect();
            object::set_meta(&mut named, "name", format!("{head}{}", self.env.name_suffix(NAME_SUFFIX)));
            match self.insert(caller, kind, namespace, named, options).await {
                Err(status) if status.is_already_exists() => {}
                other => return other,
            }
        }
        Err(Status::generate_name_conflict(&kind.group_resource(), &prefix))
    }

    /// Stores a new object that has its name.
    pub(super) async fn insert(
        &self,
        caller: &Caller<'_>,
        kind: &Arc<Kind>,
        namespace: &str,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        let promised = self.node_ports.claim(kind, &mut object, None, &self.env)?;
        let inserted = self.insert_whole(caller, kind, namespace, object, options).await;
        self.node_ports.settle(&promised);
        inserted
    }

    /// Stores a new object that has its name and its node ports.
    async fn insert_whole(
        &self,
        caller: &Caller<'_>,
        kind: &Arc<Kind>,
        namespace: &str,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        let mut kind = kind.clone();
        let name = object::name(&object).to_owned();
        for _ in 0..SCHEMAS {
            let value = match self.try_insert(caller, &kind, namespace, object, options).await? {
                Inserted::Written(written) => return Ok(written),
                Inserted::Outdated(value) => value,
            };
            // It is read as if it had been stored before the schema changed, and judged by the new one.
            kind = self.kind_now(&kind).await?;
            let read = || served(&kind, &value, Some(Revision::ZERO));
            object = self.pool.run(caller.weight(), read).await?;
        }
        let why = "its definition keeps changing; please try again";
        Err(Status::conflict(&kind.group_resource(), &name, why))
    }

    /// The same, by the schema that a kind has.
    async fn try_insert(
        &self,
        caller: &Caller<'_>,
        kind: &Arc<Kind>,
        namespace: &str,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<Inserted, Status> {
        let name = object::name(&object).to_owned();
        let target = Target { kind, namespace, name: &name, subresource: "" };
        let attempt = Attempt {
            operation: Operation::Create,
            target: &target,
            options: Options::Write(options),
            old: None,
        };
        let prepare = || {
            if &*kind.storage == certificates::STORAGE {
                // Here, where every new object passes, and after everybody who may change it.
                certificates::requested_by(&mut object, caller.user);
            }
            if bootstrap::is_place(&kind.storage, namespace, &name) {
                certificates::date_token(&mut object, &self.store);
            }
            self.judge_escalation(caller, &attempt, &object)?;
            self.judge_certificate(caller, &attempt, &object)?;
            self.prepare_create(kind, &mut object);
            let mut errors = metadata::validate_create(kind, &object);
            errors.extend(kind.shape.validate_create(&object));
            Ok::<_, Status>(errors)
        };
        let mut errors = self.pool.run(escalation::weight(caller, kind), prepare).await??;
        rules::judge(&self.pool, caller, kind, &object, None, &mut errors).await?;
        let check = || {
            if !errors.is_empty() {
                return Err(Status::invalid(&kind.gvk.kind, kind.error_group(), &name, errors));
            }
            for warning in kind.shape.warnings(&object, None) {
                caller.warn(warning);
            }
            Ok(())
        };
        self.pool.run(caller.weight(), check).await??;
        self.admit_final(caller, &attempt, Some(&object)).await?;
        if !matches!(object::resource_version(&object), "" | "0") {
            return Err(Status::unclassified("resourceVersion should not be set on objects to be created"));
        }
        let key = target.key();
        if let Some(there) = self.store.get(&key) {
            return Err(taken(kind, &name, &there));
        }
        let commit = |value: &Bytes| {
            let guards = self.check_open(&target)?.into_iter().chain(kind.guard()).collect();
            let put = Op::put(key.clone(), Expect::Absent, value.clone());
            Ok::<_, Status>(self.begin(caller, guards, put, Purpose::Growth))
        };
        let encode = || {
            kind.shape.settle(&mut object);
            let value = Self::encode(kind, object);
            caller.check_size(&value, 0)?;
            let begun = (!options.dry_run).then(|| commit(&value)).transpose()?;
            Ok::<_, Status>((value, begun))
        };
        let (value, begun) = self.pool.run(caller.weight(), encode).await??;
        let Some(mut begun) = begun else {
            let shown = self.made(&target, value, None);
            return Ok(Inserted::Written(Written { shown, created: true }));
        };
        loop {
            if let Some(stored) = self.conclude(caller, begun).await? {
                let shown = super::Shown::Stored(stored);
                return Ok(Inserted::Written(Written { shown, created: true }));
            }
            // Else namespace or definition are not as they were: they may go, or only have been given a label.
            if let Some(there) = self.store.get(&key) {
                return Err(taken(kind, &name, &there));
            }
            if !self.is_current(kind) {
                return Ok(Inserted::Outdated(value));
            }
            begun = self.pool.run(value.len(), || commit(&value)).await??;
        }
    }

    /// Gives a new object what the server gives every object.
    pub(super) fn prepare_create(&self, kind: &Kind, object: &mut Value) {
        if !kind.rules.keeps_status_on_create
            && kind.has_status()
            && let Some(map) = object.as_object_mut()
        {
            reset_status(kind, map);
        }
        let meta = object::metadata_mut(object);
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            meta.remove(field);
        }
        meta.insert("uid".to_owned(), Value::String(self.env.uuid()));
        meta.insert("creationTimestamp".to_owned(), Value::String(self.now()));
        if kind.rules.generation {
            meta.insert("generation".to_owned(), Value::from(1));
        }
        kind.shape.prepare_create(object);
    }

    /// Refuses what would be created where nothing new may be: of a definition, or in a namespace, that is on its way out
    /// or not there. Answers what must still hold when it is created.
    pub(super) fn check_open(&self, target: &Target<'_>) -> Result<Vec<Guard>, Status> {
        let (definition, namespace) = (self.check_definition(target)?, self.check_namespace(target)?);
        Ok(definition.into_iter().chain(namespace).collect())
    }

    /// Refuses what would be created of a definition that is not there, or is on its way out.
    fn check_definition(&self, target: &Target<'_>) -> Result<Option<Guard>, Status> {
        let Some(custom) = &target.kind.custom else { return Ok(None) };
        let name = &*custom.definition;
        let Some(definition) = self.store.get(&storage::key_of(crd::STORAGE, "", name)) else {
            let resource = GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions");
            return Err(Status::not_found(&resource, name));
        };
        if definition.header.deleting {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Status::forbidden(&target.kind.group_resource(), target.name, why));
        }
        Ok(Some(Guard::Holds(definition.key.clone(), Expect::At(definition.revision))))
    }

    /// Refuses what would be created in a namespace that is not there, or is on its way out.
    fn check_namespace(&self, target: &Target<'_>) -> Result<Option<Guard>, Status> {
        if !target.kind.namespaced || target.namespace.is_empty() {
            return Ok(None);
        }
        let Some(namespace) = self.namespace(target.namespace) else {
            return Err(Status::not_found(&GroupResource::new("", "namespaces"), target.namespace));
        };
        if !namespace.header.deleting {
            return Ok(Some(Guard::Holds(namespace.key.clone(), Expect::At(namespace.revision))));
        }
        let why = format!(
            "unable to create new content in namespace {} because it is being terminated",
            target.namespace
        );
        let mut status = Status::forbidden(&target.kind.group_resource(), target.name, why);
        status.details.get_or_insert_default().causes.push(StatusCause {
            reason: "NamespaceTerminating".to_owned(),
            message: format!("namespace {} is being terminated", target.namespace),
            field: "metadata.namespace".to_owned(),
        });
        Err(status)
    }

    /// A namespace.
    pub(crate) fn namespace(&self, name: &str) -> Option<Arc<Object>> {
        self.store.get(&storage::key_of("core/namespaces", "", name))
    }
}

/// What came of storing a new object.
enum Inserted {
    Written(Written),
    /// Nothing: the schema has changed by which this was judged, its stored form.
    Outdated(Bytes),
}

/// 409 for a name that is taken.
fn taken(kind: &Kind, name: &str, there: &Object) -> Status {
    let mut status = Status::already_exists(&kind.group_resource(), name);
    if there.header.deleting {
        status.message = format!("object is being deleted: {}", status.message);
    }
    status
}

/// Takes a client's status away. Kinds whose Go type has a status always show one.
fn reset_status(kind: &Kind, object: &mut serde_json::Map<String, Value>) {
    let mut empty = serde_json::json!({});
    storage::stamp(kind, &mut empty, None);
    match kind.shape.decode(&mut empty, &mut Findings::default()).map(|()| empty.get("status")) {
        Ok(Some(status)) => object.insert("status".to_owned(), status.clone()),
        _ => object.remove("status"),
    };
}
