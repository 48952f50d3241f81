//! Reading and writing single objects.
//!
//! Every write carries the resourceVersion of what was read, so that two writers never undo each other: the later
//! one gets a conflict, and its reconcile runs again.

use karmada_client::{Error, Resource, Rest, rest::query_value};
use karmada_meta::object;
use serde_json::{Value, json};

use crate::key::Key;

/// The part of an object that a write is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Everything but the status.
    Main,
    /// The status.
    Status,
}

/// How often [`Objects::modify`] reads anew after another writer was faster. More would only hide a fight.
const ATTEMPTS: usize = 5;

/// How many objects a page of a list holds.
const PAGE: usize = 200;

/// So many bytes of objects are values at a time, and the last of them whole: a hub stores objects of which few bytes are many.
const TOGETHER: usize = 4 << 20;

/// The API, object by object. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Objects {
    rest: Rest,
}

impl Objects {
    /// Objects over a client.
    pub fn new(rest: Rest) -> Self {
        Self { rest }
    }

    /// Requests that are not about one object.
    pub fn rest(&self) -> &Rest {
        &self.rest
    }

    /// The object, or nothing where it (or its kind) is not there.
    pub async fn get(&self, resource: &Resource, key: &Key) -> Result<Option<Value>, Error> {
        found(self.rest.get(&resource.object(Some(&key.namespace), &key.name)).await)
    }

    /// Creates `value`; the answer is what the server made of it.
    pub async fn create(&self, resource: &Resource, value: &Value) -> Result<Value, Error> {
        self.rest.post(&resource.collection(Some(object::namespace(value))), value).await
    }

    /// Replaces an object, if it still has the resourceVersion that `value` carries.
    pub async fn replace(&self, resource: &Resource, value: &Value) -> Result<Value, Error> {
        let key = Key::of(value);
        self.rest.put(&resource.object(Some(&key.namespace), &key.name), value).await
    }

    /// Replaces an object's status, if it still has the resourceVersion that `value` carries.
    pub async fn replace_status(&self, resource: &Resource, value: &Value) -> Result<Value, Error> {
        let key = Key::of(value);
        self.rest.put(&resource.subresource(Some(&key.namespace), &key.name, "status"), value).await
    }

    /// Reads an object, lets `change` alter it, and writes it back if `change` says that it did; again if another
    /// writer was faster. Answers with the object as it is then, or nothing where it is not there.
    pub async fn modify(
        &self,
        resource: &Resource,
        key: &Key,
        part: Part,
        mut change: impl FnMut(&mut Value) -> bool,
    ) -> Result<Option<Value>, Error> {
        let mut attempt = 1;
        loop {
            let Some(mut value) = self.get(resource, key).await? else { return Ok(None) };
            if !change(&mut value) {
                return Ok(Some(value));
            }
            let written = match part {
                Part::Main => self.replace(resource, &value).await,
                Part::Status => self.replace_status(resource, &value).await,
            };
            match written {
                Err(error) if error.is_conflict() && attempt < ATTEMPTS => attempt += 1,
                Err(error) if error.is_not_found() => return Ok(None),
                other => return other.map(Some),
            }
        }
    }

    /// Asks for the deletion of exactly the object that was read: its uid and resourceVersion must still be the
    /// same. Whether it was still there.
    pub async fn delete(&self, resource: &Resource, read: &Value) -> Result<bool, Error> {
        let preconditions = json!({
            "uid": object::uid(read),
            "resourceVersion": object::resource_version(read),
        });
        self.delete_if(resource, &Key::of(read), preconditions).await
    }

    /// Asks for the deletion of an object of this uid. Whether it was still there.
    pub async fn delete_uid(&self, resource: &Resource, key: &Key, uid: &str) -> Result<bool, Error> {
        self.delete_if(resource, key, json!({ "uid": uid })).await
    }

    async fn delete_if(&self, resource: &Resource, key: &Key, preconditions: Value) -> Result<bool, Error> {
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": preconditions,
        });
        let path = resource.object(Some(&key.namespace), &key.name);
        Ok(found(self.rest.delete(&path, &options).await)?.is_some())
    }

    /// Lists page by page, and hands each page, at times in parts, to `each` before the next is fetched: nobody holds a whole
    /// list. Of a page that is too large for an answer less is asked for at a time; a list that goes on after ten thousand pages is
    /// an error.
    pub async fn list(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        label_selector: &str,
        each: impl FnMut(Vec<Value>),
    ) -> Result<(), Error> {
        self.list_by(resource, namespace, "labelSelector", label_selector, each).await
    }

    /// The same by a field selector.
    pub async fn list_by_fields(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        field_selector: &str,
        each: impl FnMut(Vec<Value>),
    ) -> Result<(), Error> {
        self.list_by(resource, namespace, "fieldSelector", field_selector, each).await
    }

    async fn list_by(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        by: &str,
        selector: &str,
        mut each: impl FnMut(Vec<Value>),
    ) -> Result<(), Error> {
        let mut path = resource.collection(namespace);
        if !selector.is_empty() {
            path.push_str(&format!("?{by}={}", query_value(selector)));
        }
        let mut pages = self.rest.pages(&path, PAGE).each_looked_at().passing();
        loop {
            let (mut items, mut read) = (Vec::new(), 0);
            let one = |object: &str| -> Result<(), serde_json::Error> {
                if let Err(error) = self.rest.not_too_dense(object.as_bytes()) {
                    tracing::warn!(path, bytes = object.len(), error, "skipped an object that is not read");
                    return Ok(());
                }
                items.push(serde_json::from_str(object)?);
                read += object.len();
                // As values they take much more than as text.
                if read > TOGETHER {
                    each(std::mem::take(&mut items));
                    read = 0;
                }
                Ok(())
            };
            if !pages.each(one).await? {
                return Ok(());
            }
            each(items);
        }
    }
}

/// A 404 is an answer, not a failure.
fn found(answer: Result<Value, Error>) -> Result<Option<Value>, Error> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
