//! What an agent shows at `/metrics`. Read when somebody asks.

use std::{fmt, sync::Arc};

use karmada_client::{LinkStatus, metrics::LinkFigures};
use karmada_core::figures::{CLUSTER_FAMILIES, MEMBER_CLUSTER};
use karmada_env::Env;
use karmada_telemetry::metrics::{Page, PageSource, Process, Sheet, Source};

use crate::{
    Handle, Phase,
    hub::credential::standing::{Figures, Standing},
};

/// The page of a process with one agent and its two links.
pub(super) fn page(
    agent: Handle,
    hub: LinkStatus,
    member: LinkStatus,
    standing: Arc<Standing>,
    env: &Env,
) -> PageSource {
    let process = Process::new(env!("CARGO_PKG_VERSION"), env.wall());
    let link = |prefix, to, link| LinkFigures { prefix, to, link, env: env.clone() };
    let hub = link("karmada_agent_hub", "hub", hub);
    let member = link("karmada_agent_member", "member", member);
    Page::new()
        .with(process)
        .with(Shown(agent))
        .with(Certified(standing))
        .with(hub)
        .with(member)
        .into_source()
}

/// The certificate for the hub, and clocks.
#[derive(Clone, Debug)]
struct Certified(Arc<Standing>);

impl Source for Certified {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let Figures { until, renewals, errors, clock_ahead } = self.0.figures();
        let seconds = until.and_then(|until| until.duration_since(std::time::UNIX_EPOCH).ok());
        if let Some(seconds) = seconds {
            sheet.one_gauge(
                "karmada_agent_hub_certificate_expiration_timestamp_seconds",
                "When the certificate for the hub ends.",
                seconds.as_secs_f64(),
            )?;
        }
        sheet.one_counter(
            "karmada_agent_hub_certificate_renewals_total",
            "Certificates for the hub that took the place of others.",
            renewals as f64,
        )?;
        sheet.one_counter(
            "karmada_agent_hub_certificate_renewal_errors_total",
            "Refusals of the hub to give another certificate.",
            errors as f64,
        )?;
        match clock_ahead {
            None => Ok(()),
            Some(ahead) => sheet.one_gauge(
                "karmada_agent_hub_clock_ahead_seconds",
                "By how much the hub's clock is ahead of ours.",
                ahead as f64,
            ),
        }
    }
}

/// An agent.
#[derive(Clone, Debug)]
struct Shown(Handle);

impl Source for Shown {
    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let (agent, stats) = (&self.0, self.0.stats());
        let member = [(MEMBER_CLUSTER, agent.cluster())];
        let figures = agent.cluster_figures();
        for (name, help, value) in CLUSTER_FAMILIES {
            let row = figures.as_ref().and_then(value);
            sheet.gauge(name, help, row.map(|value| (member, value)))?;
        }
        sheet.histogram(
            "cluster_sync_status_duration_seconds",
            "How long it took to look at the member and report its status.",
            [(member, stats.status_times.took())],
        )?;
        sheet.histogram(
            "work_sync_workload_duration_seconds",
            "How long it took to carry a Work out.",
            stats.sync_times.rows().map(|(labels, attempts)| (labels, attempts.took())),
        )?;
        agent.queues().write(sheet)?;
        self.counts(sheet)
    }
}

impl Shown {
    fn counts(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let (agent, stats) = (&self.0, self.0.stats());
        let counters = [
            ("syncs_total", "Works carried out, each time.", stats.syncs.get()),
            (
                "sync_errors_total",
                "Failures to carry out a Work or an object of one.",
                stats.sync_errors.get(),
            ),
            ("applies_total", "Objects written on the member.", stats.applies.get()),
            (
                "corrections_total",
                "Objects that had been changed behind the hub's back.",
                stats.corrections.get(),
            ),
            ("deletions_total", "Objects deleted on the member.", stats.deletions.get()),
            ("work_reports_total", "Work statuses written to the hub.", stats.work_reports.get()),
            (
                "reports_dropped_total",
                "Reports of Works that the hub has refused, or whose Work had gone.",
                stats.reports_dropped.get(),
            ),
            ("cluster_reports_total", "Cluster statuses written to the hub.", stats.cluster_reports.get()),
            ("lease_renewals_total", "Lease renewals.", stats.renewals.get()),
            ("lease_renewal_errors_total", "Lease renewals that failed.", stats.renewal_errors.get()),
            ("fence_stops_total", "Fenced workloads that were stopped.", stats.fence_stops.get()),
            ("events_dropped_total", "Events that were lost.", agent.events_dropped()),
        ];
        for (name, help, value) in counters {
            sheet.one_counter(&format!("karmada_agent_{name}"), help, value as f64)?;
        }
        let watches = [
            (
                "hub",
                "Watches of the hub, and lists that they begin with, that have failed.",
                &stats.hub_watches,
            ),
            (
                "member",
                "Watches of the member, and lists that they begin with, that have failed.",
                &stats.member_watches,
            ),
        ];
        for (of, help, failures) in watches {
            failures.write(&format!("karmada_agent_{of}_watch_failures_total"), help, sheet)?;
        }
        if let Some((left, hourly)) = agent.report_budget() {
            for (name, help, value) in [
                ("report_budget_bytes", "Bytes that reports may take in an hour.", hourly),
                ("report_budget_left_bytes", "Of these, what may be taken now.", left),
            ] {
                sheet.one_gauge(&format!("karmada_agent_{name}"), help, value as f64)?;
            }
        }
        let active = usize::from(*agent.phase().borrow() == Phase::Active);
        let gauges = [
            ("active", "1 while the agent is at work.", active),
            ("fenced", "Fenced workloads that are stopped now.", agent.fenced()),
            ("works", "Works that the hub wants here.", agent.works()),
            ("objects", "Objects on the member that are watched.", agent.objects()),
            ("works_queued", "Works that wait to be carried out.", agent.queued()),
            (
                "watches_failing",
                "Kinds whose watches the member has refused for long.",
                agent.watches_failing(),
            ),
            (
                "removals_held",
                "Objects to be removed that wait until it is confirmed.",
                agent.removals_held(),
            ),
            ("reports_pending", "Reports that the hub has not taken yet.", agent.unreported()),
        ];
        for (name, help, value) in gauges {
            sheet.one_gauge(&format!("karmada_agent_{name}"), help, value as f64)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use karmada_client::{Endpoint, link::client_for};
    use karmada_telemetry::metrics::{Kind, read};

    use super::*;
    use crate::{Agent, AgentConfig, State};

    /// Every family of an agent's page beside every process's own, with its labels. Once something was heard, there
    /// are `karmada_agent_hub_last_contact_age_seconds` and the same of the member, `karmada_agent_hub_clock_ahead_seconds` and,
    /// of a certificate, `karmada_agent_hub_certificate_expiration_timestamp_seconds`.
    const DOCUMENTED: [(&str, Kind, &[&str]); 52] = [
        ("cluster_cpu_allocatable_number", Kind::Gauge, &[]),
        ("cluster_cpu_allocated_number", Kind::Gauge, &[]),
        ("cluster_memory_allocatable_bytes", Kind::Gauge, &[]),
        ("cluster_memory_allocated_bytes", Kind::Gauge, &[]),
        ("cluster_node_number", Kind::Gauge, &[]),
        ("cluster_pod_allocatable_number", Kind::Gauge, &[]),
        ("cluster_pod_allocated_number", Kind::Gauge, &[]),
        ("cluster_ready_node_number", Kind::Gauge, &[]),
        ("cluster_ready_state", Kind::Gauge, &[]),
        ("cluster_sync_status_duration_seconds", Kind::Histogram, &["member_cluster"]),
        ("karmada_agent_active", Kind::Gauge, &[]),
        ("karmada_agent_applies", Kind::Counter, &[]),
        ("karmada_agent_cluster_reports", Kind::Counter, &[]),
        ("karmada_agent_corrections", Kind::Counter, &[]),
        ("karmada_agent_deletions", Kind::Counter, &[]),
        ("karmada_agent_events_dropped", Kind::Counter, &[]),
        ("karmada_agent_fence_stops", Kind::Counter, &[]),
        ("karmada_agent_fenced", Kind::Gauge, &[]),
        ("karmada_agent_hub_certificate_renewal_errors", Kind::Counter, &[]),
        ("karmada_agent_hub_certificate_renewals", Kind::Counter, &[]),
        ("karmada_agent_hub_connected", Kind::Gauge, &[]),
        ("karmada_agent_hub_connections", Kind::Counter, &[]),
        ("karmada_agent_hub_received_bytes", Kind::Counter, &[]),
        ("karmada_agent_hub_sent_bytes", Kind::Counter, &[]),
        // Their rows have the labels resource and reason.
        ("karmada_agent_hub_watch_failures", Kind::Counter, &[]),
        ("karmada_agent_lease_renewal_errors", Kind::Counter, &[]),
        ("karmada_agent_lease_renewals", Kind::Counter, &[]),
        ("karmada_agent_member_connected", Kind::Gauge, &[]),
        ("karmada_agent_member_connections", Kind::Counter, &[]),
        ("karmada_agent_member_received_bytes", Kind::Counter, &[]),
        ("karmada_agent_member_sent_bytes", Kind::Counter, &[]),
        ("karmada_agent_member_watch_failures", Kind::Counter, &[]),
        ("karmada_agent_objects", Kind::Gauge, &[]),
        ("karmada_agent_removals_held", Kind::Gauge, &[]),
        ("karmada_agent_reports_dropped", Kind::Counter, &[]),
        ("karmada_agent_reports_pending", Kind::Gauge, &[]),
        ("karmada_agent_sync_errors", Kind::Counter, &[]),
        ("karmada_agent_syncs", Kind::Counter, &[]),
        ("karmada_agent_watches_failing", Kind::Gauge, &[]),
        ("karmada_agent_work_reports", Kind::Counter, &[]),
        ("karmada_agent_works", Kind::Gauge, &[]),
        ("karmada_agent_works_queued", Kind::Gauge, &[]),
        ("karmada_build_info", Kind::Gauge, &["compiler", "git_version", "platform"]),
        ("karmada_workqueue_delayed", Kind::Gauge, &["name"]),
        ("work_sync_workload_duration_seconds", Kind::Histogram, &["result"]),
        ("workqueue_adds", Kind::Counter, &["name"]),
        ("workqueue_depth", Kind::Gauge, &["name"]),
        ("workqueue_longest_running_processor_seconds", Kind::Gauge, &["name"]),
        ("workqueue_queue_duration_seconds", Kind::Histogram, &["name"]),
        ("workqueue_retries", Kind::Counter, &["name"]),
        ("workqueue_unfinished_work_seconds", Kind::Gauge, &["name"]),
        ("workqueue_work_duration_seconds", Kind::Histogram, &["name"]),
    ];

    #[tokio::test]
    async fn an_agent_that_has_reached_nobody_has_a_page_all_the_same() {
        let env = Env::system();
        let nowhere = || Endpoint {
            server: http::Uri::from_static("http://127.0.0.1:1"),
            tls: None,
            credentials: karmada_client::kubeconfig::Credentials::None,
            namespace: "default".to_owned(),
            proxy: None,
            others: Vec::new(),
        };
        let ((hub, hub_link), (member, member_link)) =
            (client_for(nowhere(), "test", env.clone()), client_for(nowhere(), "test", env.clone()));
        let state = State::fresh(&env);
        let agent = Agent::new(AgentConfig::new("shop-17"), hub, member, env.clone(), state);
        let text = page(agent.handle(), hub_link, member_link, Arc::default(), &env)();
        let page = read(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let own = page.families.iter().filter(|(name, _)| !name.starts_with("process_"));
        let families = own.map(|(name, (kind, _))| {
            (name.as_str(), (*kind, page.labels_of(name).into_iter().collect::<Vec<_>>()))
        });
        let documented = DOCUMENTED.iter().map(|(name, kind, labels)| (*name, (*kind, labels.to_vec())));
        assert_eq!(families.collect::<BTreeMap<_, _>>(), documented.collect::<BTreeMap<_, _>>());
        assert_eq!(page.value("karmada_agent_active", &[]), Some(0.0));
        assert_eq!(page.value("karmada_agent_hub_connected", &[]), Some(0.0));
    }
}
