//! The Clusters that controllers follow while they run, for whoever reaches members in this process: they need not ask for each.

use std::sync::{Arc, Weak};

use karmada_api::cluster::Cluster;
use karmada_objects::key::Key;
use parking_lot::RwLock;

use super::{heads::ClusterHead, index::Index};

/// Those of the controllers that run, one after another; none while none run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Followed(Arc<RwLock<Weak<Index<ClusterHead>>>>);

impl Followed {
    /// These are followed from now on.
    pub(crate) fn open(&self, clusters: &Arc<Index<ClusterHead>>) {
        *self.0.write() = Arc::downgrade(clusters);
    }

    /// The Cluster of this name, as far as controllers look at it. Nothing says nothing: there is none, it is not known yet, or it
    /// cannot be read.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Cluster>> {
        let clusters = self.0.read().upgrade()?;
        let head = clusters.get(&Key::cluster_scoped(name))?;
        // What cannot be read has no more than its name.
        head.cluster.metadata.uid.as_ref().map(|_| head.cluster.clone())
    }
}

#[cfg(test)]
mod tests {
    use karmada_client::Event;
    use serde_json::json;

    use super::*;

    #[test]
    fn clusters_are_known_while_somebody_follows_them() {
        let followed = Followed::default();
        assert_eq!(followed.get("m"), None);
        let clusters = Index::grouped_by(ClusterHead::groups);
        followed.open(&clusters);
        assert_eq!(followed.get("m"), None);
        let told = |name: &str, spec: serde_json::Value| {
            let value = json!({"metadata": {"name": name, "uid": "1"}, "spec": spec});
            clusters.apply(Event::Upsert((Key::cluster_scoped(name), ClusterHead::project(&value))));
        };
        told("m", json!({"syncMode": "Push", "apiEndpoint": "https://m"}));
        told("odd", json!({"syncMode": 7}));
        assert_eq!(followed.get("m").unwrap().spec.api_endpoint, "https://m");
        assert_eq!(followed.get("odd"), None, "it is asked for, and said to be odd");
        drop(clusters);
        assert_eq!(followed.get("m"), None, "nobody follows it any more");
    }
}
