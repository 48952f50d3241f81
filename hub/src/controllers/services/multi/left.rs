//! What providers have told of Services that nobody asks them for any more. Our agents take it back themselves; a stock Karmada's
//! leave that to their hub.

use std::time::Duration;

use karmada_client::Error;
use karmada_core::{health::Ready, names, services::slices};
use karmada_meta::object;
use karmada_objects::{Part, key::Key, kinds::WORKS};
use serde_json::Value;

use super::{Multi, key_of};

/// So long an agent that is heard has for taking it back itself.
const LEFT: Duration = Duration::from_secs(60);

impl Multi {
    /// Whether nobody asks a provider for what its Work tells.
    fn is_left(&self, provider: &str, live: &Value) -> bool {
        let Some(service) = slices::multi(live).filter(|_| object::deletion_timestamp(live).is_none()) else {
            return false;
        };
        if !slices::asked(live).multi_cluster {
            return false;
        }
        match self.context.known.multi.get(&key_of(&service)) {
            None => true,
            Some(head) if head.deleting => true,
            // Of one that cannot be read nothing is known.
            Some(head) => head
                .spec
                .as_ref()
                .is_some_and(|spec| !spec.is_cross_cluster() || !spec.is_provided_by(provider)),
        }
    }

    /// Whether nobody works on a provider at present, as far as its Cluster says.
    fn is_away(&self, provider: &str) -> bool {
        let head = self.context.known.clusters.get(&Key::cluster_scoped(provider));
        head.is_some_and(|head| head.ready() != Ready::Never && !head.reporting())
    }

    /// Takes back what a provider has told and is not asked for, if its agent does not. When to look again.
    pub(super) async fn take_back(&self, source: &Key, live: &Value) -> Result<Option<Duration>, Error> {
        let provider = names::cluster_of_namespace(&source.namespace).unwrap_or_default();
        if !self.is_left(provider, live) {
            self.left.lock().remove(source);
            return Ok(None);
        }
        let now = self.context.env.now();
        let since = *self.left.lock().entry(source.clone()).or_insert(now);
        if self.is_away(provider) {
            // Its agent may do it when it is back.
            return Ok(Some(LEFT));
        }
        // One that has been away has as much time when it is back.
        let back = self.silence.turned(provider).unwrap_or_default();
        let wait = (since.max(back) + LEFT).saturating_sub(now);
        if !wait.is_zero() {
            return Ok(Some(wait));
        }
        self.left.lock().remove(source);
        if !slices::asked(live).export {
            self.delete(source).await?;
            return Ok(None);
        }
        let uid = object::uid(live).to_owned();
        let release = |live: &mut Value| {
            let same = object::uid(live) == uid && self.is_left(provider, live);
            same && slices::release_multi(live)
        };
        self.context.writer.objects.modify(&WORKS, source, Part::Main, release).await?;
        Ok(None)
    }
}
