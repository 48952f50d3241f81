//! Which kinds are to be watched.

use std::{collections::BTreeSet, time::Duration};

use karmada_meta::gvk::GroupVersionKind;
use karmada_objects::policies::PolicyHead;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use super::Detector;
use crate::{controllers::scaling, known::heads::BindingHead};

/// How often discovery is asked even if nothing seems to have changed: API servers behind an aggregation layer come
/// and go without a definition. Karmada's period.
const REDISCOVER: Duration = Duration::from_secs(30);
/// How long after a change discovery is asked once more: a kind is established a moment after its definition is
/// there, and on a stock API server discovery follows later still.
const SECOND_LOOK: Duration = Duration::from_secs(2);

impl Detector {
    /// Keeps the watched kinds in step with what is wanted and served.
    pub(super) async fn watch_kinds(&self, stop: &CancellationToken) {
        let templates = &self.context.known.templates;
        let mut ticks = interval(REDISCOVER);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = templates.poked() => {}
                _ = ticks.tick() => templates.forget(),
            }
            self.refresh_kinds(stop).await;
            if self.wanted_kinds().iter().any(|kind| templates.is_unserved(kind)) {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    () = sleep(SECOND_LOOK) => templates.forget(),
                    () = templates.poked() => {}
                }
                self.refresh_kinds(stop).await;
            }
        }
    }

    async fn refresh_kinds(&self, stop: &CancellationToken) {
        let context = &self.context;
        let wanted = self.wanted_kinds();
        let rest = context.writer.objects.rest().clone().counting(context.figures.watch_failures());
        let watched = context
            .known
            .templates
            .watch_only(&wanted, &context.known.skip, &rest, &context.env, &context.tasks, stop)
            .await;
        if let Err((kind, error)) = watched {
            tracing::warn!(%kind, %error, "could not look the kind up");
            context.known.templates.poke_after(Duration::from_secs(1), &context.tasks);
        }
    }

    /// The kinds that policies select, bindings hold and workloads need, and what MultiClusterServices and autoscalers are about.
    fn wanted_kinds(&self) -> BTreeSet<GroupVersionKind> {
        let mut wanted = BTreeSet::new();
        for (_, index) in self.context.known.policies.both() {
            wanted.extend(index.heads(None).iter().flat_map(|head| selected_kinds(head)));
        }
        for (_, index) in self.context.known.bindings.both() {
            let kinds = index.group_names(BindingHead::KINDS);
            wanted.extend(kinds.iter().filter_map(|name| BindingHead::kind_of_group(name)));
        }
        wanted.extend(self.context.accounts.needs.kinds());
        if self.context.to_scale.is_some() {
            // Those that follow what they scale.
            wanted.insert(scaling::autoscaler());
        }
        if !self.context.known.multi.is_empty() {
            wanted.extend(GroupVersionKind::from_api_version("v1", "Service"));
        }
        wanted
    }
}

/// The kinds that a policy's selectors name.
pub(super) fn selected_kinds(policy: &PolicyHead) -> Vec<GroupVersionKind> {
    let selectors = &policy.policy().spec().resource_selectors;
    selectors
        .iter()
        .filter_map(|s| GroupVersionKind::from_api_version(&s.api_version, s.kind.as_str()))
        .filter(|kind| !kind.version.is_empty() && !kind.kind.is_empty())
        .collect()
}
