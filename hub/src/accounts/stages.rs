//! How far the Works of each cluster are, counted as they change.

use std::collections::BTreeMap;

use karmada_core::{names, stage::Stage};
use parking_lot::Mutex;

use crate::known::{heads::WorkHead, index::Change};

/// The counts of one cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) applied: u32,
    pub(crate) waiting: u32,
    pub(crate) failed: u32,
    pub(crate) fenced: u32,
    /// The shortest fence that any of them has had since there were none.
    pub(crate) fence: u32,
    /// How often any of them has changed since there were none, whatever of it.
    pub(crate) changes: u32,
}

/// Counts by cluster. Those without Works are not kept.
#[derive(Debug, Default)]
pub(crate) struct Stages(Mutex<BTreeMap<String, Count>>);

impl Count {
    fn of(&mut self, stage: Stage) -> &mut u32 {
        match stage {
            Stage::Applied => &mut self.applied,
            Stage::Waiting => &mut self.waiting,
            Stage::Failed => &mut self.failed,
        }
    }

    fn add(&mut self, work: &WorkHead) {
        *self.of(work.stage) += 1;
        if let Some(fence) = work.fence {
            self.fence = if self.fenced == 0 { fence } else { self.fence.min(fence) };
            self.fenced += 1;
        }
    }

    fn take(&mut self, work: &WorkHead) {
        let count = self.of(work.stage);
        *count = count.saturating_sub(1);
        self.fenced = self.fenced.saturating_sub(u32::from(work.fence.is_some()));
    }
}

impl Stages {
    /// The index shows another state of a Work.
    pub(crate) fn heard(&self, change: &Change<'_, WorkHead>) {
        let Some(cluster) = names::cluster_of_namespace(&change.key.namespace) else { return };
        let mut all = self.0.lock();
        let count = match all.get_mut(cluster) {
            Some(count) => count,
            None => all.entry(cluster.to_owned()).or_default(),
        };
        count.changes = count.changes.wrapping_add(1);
        change.new.iter().for_each(|work| count.add(work));
        change.old.iter().for_each(|work| count.take(work));
        if count.applied + count.waiting + count.failed == 0 {
            all.remove(cluster);
        }
    }

    /// The counts of many clusters.
    pub(crate) fn of<'a>(&self, clusters: impl IntoIterator<Item = &'a str>, mut each: impl FnMut(Count)) {
        let all = self.0.lock();
        clusters.into_iter().for_each(|cluster| each(all.get(cluster).copied().unwrap_or_default()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use karmada_objects::key::Key;
    use serde_json::json;

    use super::*;

    #[test]
    fn works_are_counted_as_they_come_and_go() {
        let head = |applied: &str, fence: Option<&str>| {
            let work = json!({
                "spec": {"workload": {"manifests": [
                    {"metadata": {}},
                    {"metadata": {"annotations": fence.map(|fence| json!({"work.karmada.io/fence-after": fence}))}},
                ]}},
                "status": {"conditions": [{"type": "Applied", "status": applied}]},
            });
            Arc::new(WorkHead::project(&work))
        };
        let stages = Stages::default();
        let heard = |name: &str, old: Option<&Arc<WorkHead>>, new: Option<&Arc<WorkHead>>| {
            stages.heard(&Change { key: &Key::new("karmada-es-m", name), old, new });
            let mut found = Count::default();
            stages.of(["m"], |count| found = count);
            (found.applied, found.failed, found.fenced, found.fence)
        };
        let (well, bad, fenced) = (head("True", None), head("False", None), head("True", Some("2m")));
        assert_eq!(heard("a", None, Some(&well)), (1, 0, 0, 0));
        assert_eq!(heard("b", None, Some(&fenced)), (2, 0, 1, 120));
        assert_eq!(heard("a", Some(&well), Some(&bad)), (1, 1, 1, 120));
        let changes = || {
            let mut found = Count::default();
            stages.of(["m"], |count| found = count);
            found.changes
        };
        // What else changes of a Work counts, too.
        let before = changes();
        assert_eq!(heard("a", Some(&bad), Some(&bad)), (1, 1, 1, 120));
        assert_eq!(changes(), before + 1);
        assert_eq!(heard("b", Some(&fenced), None), (0, 1, 0, 120));
        assert_eq!(heard("a", Some(&bad), None), (0, 0, 0, 0));
        assert!(stages.0.lock().is_empty());
    }
}
