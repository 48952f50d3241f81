//! What the clusters of a workload answer, and which of their answers count.

use std::{collections::BTreeMap, sync::Arc};

use karmada_api::{consts::event, work::ResourceBindingSpec};
use karmada_core::{
    autoscale::{hpa::Spec, look, question, report::Report},
    names,
};
use karmada_objects::{key::Key, kinds::WORKS};
use serde_json::json;

use super::{Autoscaling, COMPONENT, Kept};

/// Of each cluster the replicas that it has by the binding, and its report, if it counts.
type Answers = Vec<(i64, Option<Arc<Report>>)>;

impl Autoscaling {
    /// What clusters say: with the replicas that each has by the binding, its report, if it counts; and why those do not that do
    /// not.
    pub(super) fn reports(
        &self,
        key: &Key,
        spec: &Spec,
        (current, binding): (i64, &ResourceBindingSpec),
        kept: &mut Kept,
    ) -> (Answers, BTreeMap<String, String>) {
        let known = &self.context.known;
        let (mut reports, mut silent) = (Vec::new(), BTreeMap::new());
        for target in &binding.clusters {
            let assigned = i64::from(target.replicas);
            let name = question::work_name(&key.namespace, &key.name);
            let at = Key::new(names::execution_namespace(&target.name), name);
            let cluster = known.clusters.get(&Key::cluster_scoped(target.name.as_str()));
            let work = known.works.get(&at).filter(|work| !work.deleting);
            let sample =
                work.as_ref().and_then(|work| work.sample.as_ref()).filter(|sample| sample.hpa == *key);
            let counts = match (cluster, sample.and_then(|sample| Some((sample, sample.told.as_ref()?)))) {
                (None, _) => Err("there is no such cluster".to_owned()),
                (Some(cluster), _) if !cluster.reporting() => Err("nothing is heard of it".to_owned()),
                (_, None) => Err("it has not answered: its agent may be Karmada's, or older".to_owned()),
                (_, Some((sample, Ok(report)))) if report.generation != sample.generation => {
                    Err("it has not answered yet what is asked now".to_owned())
                }
                (_, Some((_, told))) => told.clone().and_then(|report| {
                    let most = look::plausible(spec, current, assigned);
                    match report.check(spec.metrics.len(), most) {
                        Ok(()) => Ok(report),
                        Err(why) => {
                            self.refuse(kept, &target.name, &at, (&report, &why));
                            Err(why)
                        }
                    }
                }),
            };
            if counts.is_ok() {
                kept.refused.remove(&target.name);
            }
            let report = counts.map_err(|why| silent.insert(target.name.clone(), why)).ok();
            reports.push((assigned, report));
        }
        (reports, silent)
    }

    /// Says once that the answer of a cluster cannot be.
    fn refuse(&self, kept: &mut Kept, cluster: &str, at: &Key, (report, why): (&Report, &str)) {
        if !report.error.is_empty() || kept.refused.get(cluster).is_some_and(|told| told == why) {
            return;
        }
        kept.refused.insert(cluster.to_owned(), why.to_owned());
        tracing::warn!(work = %at, why, "what an agent tells of a workload's use does not count");
        let work = json!({
            "apiVersion": WORKS.api_version(), "kind": WORKS.kind,
            "metadata": {"namespace": at.namespace, "name": at.name},
        });
        self.context.writer.warning(COMPONENT, &work, event::SAMPLES_REFUSED, why);
    }
}

/// How many clusters are named.
const NAMED: usize = 5;

/// Of which clusters nothing is known, and what follows from that.
pub(super) fn silence(silent: &BTreeMap<String, String>) -> Option<String> {
    let named: Vec<String> =
        silent.iter().take(NAMED).map(|(cluster, why)| format!("{cluster}: {why}")).collect();
    let more = silent.len().saturating_sub(NAMED);
    let and = if more > 0 { format!("; and {more} more") } else { String::new() };
    (!named.is_empty()).then(|| {
        format!(
            "nothing is scaled down while clusters are silent, whose replicas count: {}{and}",
            named.join("; ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_clusters_are_named() {
        assert_eq!(silence(&BTreeMap::new()), None);
        let many: BTreeMap<String, String> =
            (0..7).map(|n| (format!("m{n}"), "nothing is heard of it".to_owned())).collect();
        let text = silence(&many).unwrap();
        assert!(text.contains("m4: nothing is heard of it; and 2 more") && !text.contains("m5"), "{text}");
    }
}
