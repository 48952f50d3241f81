//! What a binding's template is now, what it was, and which clusters that makes a difference to.

use std::{collections::BTreeMap, sync::Arc};

use karmada_api::{
    cluster::Cluster,
    policy::{ClusterOverridePolicy, OverridePolicy},
};
use karmada_client::Error;
use karmada_core::rollout::{Revision, State};
use karmada_interpreter::{Interpreter, RuleError};
use karmada_meta::object;
use karmada_objects::scope::BindingKey;
use serde_json::Value;

use crate::write::Writer;

/// The override policies that mean a template.
pub(crate) type Overriding = (Vec<ClusterOverridePolicy>, Vec<OverridePolicy>);

/// A template and its overrides as a revision.
pub(crate) async fn revision(
    interpreter: &Interpreter,
    template: &Value,
    (wide, near): &Overriding,
) -> Result<Revision, RuleError> {
    let mut level = template.clone();
    karmada_interpreter::prune(&mut level);
    // How many there are does not wait for a wave.
    interpreter.revise_replicas(&mut level, 0).await?;
    for field in ["generation", "uid"] {
        if let Some(value) = object::meta(template, field) {
            object::set_meta(&mut level, field, value.clone());
        }
    }
    Ok(Revision::new(level, wide, near))
}

/// The template of a revision as it is rendered now.
pub(crate) async fn template(
    interpreter: &Interpreter,
    revision: &Revision,
    now: &Value,
) -> Result<Value, RuleError> {
    let mut template = revision.template_now(now);
    if let Some(replicas) = interpreter.replicas(now).await? {
        interpreter.revise_replicas(&mut template, replicas.replicas).await?;
    }
    Ok(template)
}

/// What is rolled out, beside what clusters have that have not got it.
#[derive(Debug)]
pub(crate) struct Changes {
    to: Arc<Revision>,
    /// By their names, and whether they have the same template.
    from: BTreeMap<String, (Arc<Revision>, bool)>,
}

impl Changes {
    /// Those of a state, which goes to `to`. What is not kept any more is missing.
    pub(crate) async fn read(
        writer: &Writer,
        key: &BindingKey,
        uid: &str,
        state: &State,
        to: Arc<Revision>,
    ) -> Result<Self, Error> {
        let mut from = BTreeMap::new();
        for name in state.kept.iter().chain([&state.base]).filter(|name| **name != state.revision) {
            if !from.contains_key(name)
                && let Some(revision) =
                    writer.revisions.find(&writer.objects, (key, uid), state.sure(name), &to.template).await?
            {
                let same = to.same_template(&revision);
                from.insert(name.clone(), (revision, same));
            }
        }
        Ok(Self { to, from })
    }

    /// Those that are kept, without the one that is rolled out.
    pub(crate) fn older(&self) -> impl Iterator<Item = (&String, &Arc<Revision>)> {
        self.from.iter().map(|(name, (revision, _))| (name, revision))
    }

    /// Whether this is kept, or is what is rolled out itself.
    pub(crate) fn has(&self, name: &str, state: &State) -> bool {
        name == state.revision || self.from.contains_key(name)
    }

    /// Whether a cluster that has this revision would get something else.
    pub(crate) fn concern(&self, cluster: &Cluster, from: &str, revision: &str) -> bool {
        from != revision
            && self.from.get(from).is_none_or(|(from, same)| self.to.concerns(from, cluster, *same))
    }
}
