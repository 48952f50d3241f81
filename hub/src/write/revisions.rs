//! The revisions of templates whose changes go out in waves: one immutable Secret for each, owned by the binding.
//!
//! A Secret, because a template may be one. It lies beside its binding, or among what is the hub's own where that has no namespace,
//! and is as good as gone where somebody has changed it: its name and its content have to agree.

use std::{collections::BTreeMap, fmt, sync::Arc};

use base64::{Engine, prelude::BASE64_STANDARD};
use karmada_api::consts::{label, namespace};
use karmada_client::Error;
use karmada_core::{
    rollout::{Revision, Sure},
    skip,
};
use karmada_meta::object;
use karmada_objects::{
    Objects, bindings,
    key::Key,
    kinds::SECRETS,
    scope::{BindingKey, Scope},
};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// The label by which the Secrets of a binding are found.
const OF: &str = "hub.karmada.io/revision-of";
/// Where in the Secret it stands.
const FIELD: &str = "revision";
/// A Secret takes a MiB, of which this is left for what is beside the content.
const MOST: usize = (1 << 20) - 4096;
/// So many are kept in memory.
const RECENT: usize = 64;

/// Those that were used last.
#[derive(Default)]
pub(crate) struct Revisions(Mutex<BTreeMap<(String, String), Arc<Revision>>>);

impl fmt::Debug for Revisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Revisions").field("recent", &self.0.lock().len()).finish()
    }
}

impl Revisions {
    /// Keeps a revision of a binding. Answers why it cannot be kept, if it cannot.
    pub(crate) async fn keep(
        &self,
        objects: &Objects,
        key: &BindingKey,
        binding: &Value,
        sure: Sure<'_>,
        revision: &Revision,
    ) -> Result<Result<(), String>, Error> {
        let text = match serde_json::to_string(revision) {
            Ok(text) => text,
            Err(error) => return Ok(Err(error.to_string())),
        };
        if text.len() > MOST {
            return Ok(Err(format!("{} bytes are more than a Secret takes ({MOST})", text.len())));
        }
        let uid = object::uid(binding);
        let place = place(key, uid, sure.name);
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": place.name, "namespace": place.namespace,
                "labels": {label::SYSTEM: label::SYSTEM_VALUE, OF: uid},
                "ownerReferences": [{
                    "apiVersion": bindings::resource(key.scope).api_version(), "kind": key.kind(),
                    "name": key.key.name, "uid": uid,
                }],
            },
            "type": skip::REVISION, "immutable": true,
            "data": {FIELD: BASE64_STANDARD.encode(text)},
        });
        match objects.create(&SECRETS, &secret).await {
            Ok(_) => {}
            Err(error) if error.is_already_exists() => {
                let there = objects.get(&SECRETS, &place).await?;
                let read = there.as_ref().and_then(|secret| read(secret, uid, sure, &revision.template));
                if read.is_none() {
                    return Ok(Err(format!("Secret {place} is somebody else's: delete it")));
                }
            }
            // It may be too large, or not be allowed: by a quota, or to the hub.
            Err(error) if error.is_invalid() || matches!(error.code(), Some(403 | 413)) => {
                return Ok(Err(error.to_string()));
            }
            Err(error) => return Err(error),
        }
        self.note(uid, sure, Arc::new(revision.clone()));
        Ok(Ok(()))
    }

    /// A revision of a binding, if it is kept, and is one of `live`.
    pub(crate) async fn find(
        &self,
        objects: &Objects,
        (key, uid): (&BindingKey, &str),
        sure: Sure<'_>,
        live: &Value,
    ) -> Result<Option<Arc<Revision>>, Error> {
        if let Some(known) = self.0.lock().get(&recent(uid, sure)) {
            return Ok(Some(known.clone()));
        }
        let Some(secret) = objects.get(&SECRETS, &place(key, uid, sure.name)).await? else { return Ok(None) };
        let Some(revision) = read(&secret, uid, sure, live) else { return Ok(None) };
        let revision = Arc::new(revision);
        self.note(uid, sure, revision.clone());
        Ok(Some(revision))
    }

    /// Lets go of a revision of a binding.
    pub(crate) async fn forget(
        &self,
        objects: &Objects,
        key: &BindingKey,
        uid: &str,
        name: &str,
    ) -> Result<(), Error> {
        self.0.lock().retain(|(of, known), _| of != uid || !known.starts_with(name));
        let Some(secret) = objects.get(&SECRETS, &place(key, uid, name)).await? else { return Ok(()) };
        if secret["type"] == skip::REVISION {
            objects.delete(&SECRETS, &secret).await?;
        }
        Ok(())
    }

    /// Lets go of all revisions of a binding, where nothing says which there are. The list is taken page by page, and only names
    /// are kept of it.
    pub(crate) async fn forget_all(
        &self,
        objects: &Objects,
        key: &BindingKey,
        uid: &str,
    ) -> Result<(), Error> {
        self.0.lock().retain(|(of, _), _| of != uid);
        let place = place(key, uid, "");
        let mut all = Vec::new();
        let take = |page: Vec<Value>| {
            let ours = page.into_iter().filter(|secret| {
                secret["type"] == skip::REVISION && object::name(secret).starts_with(&place.name)
            });
            all.extend(ours.map(|secret| (Key::of(&secret), object::uid(&secret).to_owned())));
        };
        objects.list(&SECRETS, Some(&place.namespace), &format!("{OF}={uid}"), take).await?;
        for (key, uid) in all {
            objects.delete_uid(&SECRETS, &key, &uid).await?;
        }
        Ok(())
    }

    fn note(&self, uid: &str, sure: Sure<'_>, revision: Arc<Revision>) {
        let mut all = self.0.lock();
        if all.len() >= RECENT {
            all.clear();
        }
        all.insert(recent(uid, sure), revision);
    }
}

/// Under what a revision is found that was used: what was checked by its name alone is no answer for whoever knows more.
fn recent(uid: &str, sure: Sure<'_>) -> (String, String) {
    (uid.to_owned(), format!("{}/{}", sure.name, sure.whole.unwrap_or_default()))
}

/// Where a revision is kept.
fn place(key: &BindingKey, uid: &str, name: &str) -> Key {
    let of = match key.scope {
        Scope::Namespaced => key.key.namespace.as_str(),
        Scope::Cluster => namespace::SYSTEM,
    };
    Key::new(of, format!("karmada-revision-{uid}-{name}"))
}

/// What a Secret keeps, if that is the revision that is meant, of the binding and of the object that is there.
fn read(secret: &Value, uid: &str, sure: Sure<'_>, live: &Value) -> Option<Revision> {
    if object::label(secret, OF) != Some(uid)
        || !object::owner_references(secret).iter().any(|owner| owner.uid == uid)
    {
        return None;
    }
    let text = BASE64_STANDARD.decode(secret.get("data")?.get(FIELD)?.as_str()?).ok()?;
    let revision: Revision = serde_json::from_slice(&text).ok()?;
    sure.is(&revision, live).then_some(revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_is_not_believed() {
        let template =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}});
        let revision = Revision::new(template.clone(), &[], &[]);
        let (name, whole) = (revision.digest(), revision.whole_digest());
        let secret = |revision: &Revision| {
            let text = serde_json::to_string(revision).expect("it is JSON");
            let owner = json!([{"apiVersion": "v1", "kind": "B", "name": "b", "uid": "u"}]);
            json!({"metadata": {"labels": {OF: "u"}, "ownerReferences": owner},
                   "data": {FIELD: BASE64_STANDARD.encode(text)}})
        };
        let sure = Sure { name: &name, whole: Some(&whole) };
        let of_before = Sure { whole: None, ..sure };
        for sure in [sure, of_before] {
            assert_eq!(read(&secret(&revision), "u", sure, &template).as_ref(), Some(&revision));
        }
        // The name alone says little: what shares it is not the same.
        let another = format!("{name}{}", "0".repeat(48));
        let found = read(&secret(&revision), "u", Sure { name: &name, whole: Some(&another) }, &template);
        assert_eq!(found, None);
        // Nor is a revision of another object, or a Secret of another binding.
        for (path, value) in [("/kind", "Secret"), ("/metadata/name", "b")] {
            let mut live = template.clone();
            *live.pointer_mut(path).expect("it is there") = value.into();
            assert_eq!(read(&secret(&revision), "u", sure, &live), None, "{path}");
        }
        assert_eq!(read(&secret(&revision), "v", sure, &template), None);
        for path in ["/metadata/labels", "/metadata/ownerReferences"] {
            let mut bare = secret(&revision);
            *bare.pointer_mut(path).expect("it is there") = Value::Null;
            assert_eq!(read(&bare, "u", sure, &template), None, "{path}");
        }
        let mut other = revision;
        other.template["data"]["x"] = json!("2");
        assert_eq!(read(&secret(&other), "u", sure, &template), None);
        assert_eq!(read(&json!({}), "u", sure, &template), None);
    }
}
