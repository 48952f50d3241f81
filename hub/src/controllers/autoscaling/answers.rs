//! What the clusters of a workload answer, and which of their answers count.
//!
//! ```text
//!   the workload's Work on a cluster ─▶ what it was given ─┐
//!   the Work that asks it ─▶ its report ───────────────────┴─▶ checked, new enough ─▶ Answer, or why there is none
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, StreamExt, stream};
use karmada_api::{
    consts::event,
    work::{ReplicaRequirements, TargetCluster},
};
use karmada_core::{
    autoscale::{
        hpa::Spec,
        question,
        report::Report,
        trust::{Beat, Evidence, Given, Lately, asked_at_once},
    },
    names,
};
use karmada_objects::{key::Key, kinds::WORKS, scope::BindingKey};
use serde_json::{Value, json};

use super::{Again, Autoscaling, COMPONENT, Kept, SETTLES, Target};

/// Works of a workload that are read at a time.
const AT_ONCE: usize = 16;

/// What a cluster says of a workload.
#[derive(Debug)]
pub(super) struct Answer {
    /// What it was given of it.
    pub given: Arc<Given>,
    /// For how many replicas it stands.
    pub replicas: i64,
    /// Its report, if it counts.
    pub report: Option<Arc<Report>>,
}

/// What is kept of a cluster between two looks.
#[derive(Clone, Debug, Default)]
pub(super) struct Witness {
    /// What it was given, by a Work of this content if that is known.
    given: Option<(Option<u64>, Arc<Given>)>,
    lately: Lately,
    evidence: Evidence,
    /// Its answer cannot be, and that was told.
    refused: bool,
}

/// What Pods ask for, in thousandths.
type Requests = Arc<BTreeMap<String, i64>>;

fn requests(needs: Option<&ReplicaRequirements>) -> BTreeMap<String, i64> {
    let all = needs.into_iter().flat_map(|needs| &needs.resource_request);
    all.map(|(name, amount)| (name.clone(), amount.milli())).collect()
}

impl Autoscaling {
    /// What clusters say, in the order of the binding; and why the words of those do not count whose do not.
    pub(super) async fn answers(
        &self,
        key: &Key,
        spec: &Spec,
        (current, target): (i64, &Target),
        kept: &mut Kept,
    ) -> (Vec<Answer>, BTreeMap<String, String>) {
        let binding = &target.binding;
        let placed: BTreeSet<&str> = binding.clusters.iter().map(|target| target.name.as_str()).collect();
        kept.clusters.retain(|name, _| placed.contains(name.as_str()));
        let template: Requests = Arc::new(requests(binding.replica_requirements.as_ref()));
        let kinds = &binding.resource;
        let work = names::work_name(&kinds.kind, &kinds.namespace, &kinds.name);
        let of = BindingKey::of_template(&kinds.kind, &kinds.namespace, &kinds.name);
        let given = binding.clusters.iter().map(|placed| {
            let known = kept.clusters.get(&placed.name).and_then(|witness| witness.given.clone());
            let at = Key::new(names::execution_namespace(&placed.name), work.as_str());
            // Of a kind whose replicas the hub does not know each cluster has all.
            let replicas = if binding.replicas > 0 { i64::from(placed.replicas) } else { current };
            self.given(at, &of, known, (replicas, Arc::clone(&template))).boxed()
        });
        let given: Vec<_> = given.collect();
        let given: Vec<_> = stream::iter(given).buffered(AT_ONCE).collect().await;
        let now = self.context.env.now();
        let (mut answers, mut silent) = (Vec::new(), BTreeMap::new());
        let mut may_ask = asked_at_once(binding.clusters.len());
        for (placed, (content, given)) in binding.clusters.iter().zip(given) {
            let witness = kept.clusters.entry(placed.name.clone()).or_default();
            witness.given = Some((content, Arc::clone(&given)));
            let told = self.told(key, placed, (&given, spec), witness, (now, &mut may_ask));
            let told = told.map_err(|why| silent.insert(placed.name.clone(), why)).ok();
            let (replicas, report) = match told {
                Some((replicas, report)) => (replicas, Some(report)),
                None => (given.replicas, None),
            };
            answers.push(Answer { given, replicas, report });
        }
        (answers, silent)
    }

    /// What a cluster was given: what its Work says, after overrides. Where there is none yet, what its binding says. While that
    /// cannot be read it is what was known last, and is tried again.
    async fn given(
        &self,
        at: Key,
        of: &BindingKey,
        known: Option<(Option<u64>, Arc<Given>)>,
        (replicas, template): (i64, Requests),
    ) -> (Option<u64>, Arc<Given>) {
        let of_binding = Arc::clone(&template);
        let by_binding = |manifest: &Value| Given::of(manifest, replicas, Arc::clone(&of_binding));
        let head = self.context.known.works.get(&at);
        let Some(head) = head.filter(|head| !head.deleting && head.binding.as_ref() == Some(of)) else {
            return (None, Arc::new(by_binding(&Value::Null)));
        };
        let known = match known {
            Some((content, given)) if content == Some(head.content) => return (content, given),
            // What was taken from the binding may have changed there.
            known => known.filter(|(content, _)| content.is_some()),
        };
        let work = match self.context.writer.objects.get(&WORKS, &at).await {
            Ok(Some(work)) => work,
            Ok(None) => return (None, Arc::new(by_binding(&Value::Null))),
            Err(error) => {
                tracing::debug!(work = %at, %error, "what a cluster was given cannot be read now");
                return known.unwrap_or_else(|| (None, Arc::new(by_binding(&Value::Null))));
            }
        };
        let manifest = work.pointer("/spec/workload/manifests/0").unwrap_or(&Value::Null);
        let given = match self.context.rules.interpreter.replicas(manifest).await {
            Ok(Some(found)) => {
                let asked = requests(found.requirements.as_ref());
                let asked = if asked == *template { template } else { Arc::new(asked) };
                Given::of(manifest, found.replicas, asked)
            }
            Ok(None) => by_binding(manifest),
            Err(error) => {
                tracing::debug!(work = %at, %error, "what a cluster was given cannot be interpreted now");
                let asked = known.map_or(template, |(_, given)| Arc::clone(&given.requests));
                return (None, Arc::new(Given::of(manifest, replicas, asked)));
            }
        };
        (Some(head.content), Arc::new(given))
    }

    /// A cluster's report, if it counts, and for how many replicas it stands.
    fn told(
        &self,
        key: &Key,
        placed: &TargetCluster,
        (given, spec): (&Given, &Spec),
        witness: &mut Witness,
        (now, may_ask): (Duration, &mut usize),
    ) -> Result<(i64, Arc<Report>), String> {
        let known = &self.context.known;
        let at = Key::new(
            names::execution_namespace(&placed.name),
            question::work_name(&key.namespace, &key.name),
        );
        let cluster = known.clusters.get(&Key::cluster_scoped(placed.name.as_str()));
        let cluster = cluster.ok_or("there is no such cluster")?;
        let since = self.agents.since(&placed.name, &cluster).ok_or("nothing is heard of it")?;
        let work = known.works.get(&at).filter(|work| !work.deleting);
        let sample = work.as_ref().and_then(|work| work.sample.as_ref()).filter(|sample| sample.hpa == *key);
        let answered = sample.and_then(|sample| Some((sample, sample.told.as_ref()?)));
        let (sample, told) = answered.ok_or("it has not answered: its agent may be Karmada's, or older")?;
        if sample.since.as_deref() != Some(since.to_string().as_str()) {
            return Err(format!("it is heard again since {since}, and has not answered yet"));
        }
        let report = told.clone()?;
        let is_newest = report.generation == sample.generation;
        if !is_newest && sample.anew != Some(report.generation) {
            return Err("it has not answered yet what is asked now".to_owned());
        }
        let beat = self.agents.beat(&placed.name, !is_newest, now);
        if beat != Beat::Alive && is_newest && *may_ask > 0 {
            *may_ask -= 1;
            self.agents.asked(&placed.name, now);
            self.returned.add(Again { work: at.clone(), of: Some(sample.generation) });
        }
        if beat == Beat::Silent {
            return Err("it was asked once more and has not answered: its agent may be Karmada's, or older"
                .to_owned());
        }
        let most = witness.lately.most(given.pods(), now, SETTLES);
        if let Err(why) = report.check(spec.metrics.len()) {
            self.refuse(witness, &at, (&report, &why));
            return Err(why);
        }
        witness.refused = false;
        match witness.evidence.weigh(&report, given, now, SETTLES) {
            Some(replicas) => {
                let counts = report.within(most).map_or(report, Arc::new);
                Ok((replicas.min(most), counts))
            }
            None => Err(format!(
                "it was given {} replicas and has reported {} ever since: its agent may be Karmada's, or older",
                given.replicas, report.spec_replicas
            )),
        }
    }

    /// Says once that the answer of a cluster cannot be.
    fn refuse(&self, witness: &mut Witness, at: &Key, (report, why): (&Report, &str)) {
        if !report.error.is_empty() || std::mem::replace(&mut witness.refused, true) {
            return;
        }
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
            "nothing is scaled down while clusters are silent or cannot measure, whose replicas count: {}{and}",
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
