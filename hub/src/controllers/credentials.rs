//! Agents whose certificates end soon are named, before they are not let in any more: in a condition of their Cluster, once in
//! the log, and by a metric ([`karmada_apiserver::authn::epochs::EndingFigures`]).
//!
//! A condition goes when the agent has shown a certificate that lasts longer. Of an agent that has not been here since the
//! hub started nothing new is known, and nothing is changed.

use std::{sync::Arc, time::Duration};

use karmada_api::{
    conditions::{self, Condition, ConditionStatus},
    consts::extension,
};
use karmada_apiserver::authn::epochs::Epochs;
use karmada_client::Error;
use karmada_meta::time::Time;
use karmada_objects::{
    Part,
    key::{self, Key},
    kinds::CLUSTERS,
};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::write::Writer;

/// How often it is looked at.
const EVERY: Duration = Duration::from_secs(600);
/// The condition's reason.
const REASON: &str = "CertificateEndsSoon";

/// Looks until told to stop.
pub(crate) async fn run(writer: Arc<Writer>, epochs: Option<Arc<Epochs>>, stop: CancellationToken) {
    writer.known.clusters.synced().await;
    let looking = async {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Some(epochs) = &epochs {
                look(&writer, epochs).await;
            }
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = looking => {}
    }
}

/// One look at the certificates that were shown.
async fn look(writer: &Writer, epochs: &Epochs) {
    let now = Time::now(&writer.env);
    for (cluster, until, soon) in epochs.ends(writer.env.wall()) {
        let said = soon.then(|| message(&cluster, Time::from_system(until)));
        let Some(head) = writer.known.clusters.get(&Key::cluster_scoped(&*cluster)) else { continue };
        if !show(&mut head.conditions().to_vec(), said.as_deref(), now) {
            continue;
        }
        match write(writer, &cluster, said.as_deref(), now).await {
            Err(error) => tracing::debug!(%cluster, %error, "what its certificate has left was not told"),
            Ok(()) => {
                if let Some(said) = &said {
                    tracing::warn!(%cluster, "{said}");
                }
            }
        }
    }
}

async fn write(writer: &Writer, cluster: &str, said: Option<&str>, now: Time) -> Result<(), Error> {
    let change = |live: &mut Value| {
        let Some(mut list) = key::conditions(live) else { return false };
        let changed = show(&mut list, said, now);
        if changed {
            live["status"]["conditions"] = json!(list);
        }
        changed
    };
    writer.objects.modify(&CLUSTERS, &Key::cluster_scoped(cluster), Part::Status, change).await.map(drop)
}

fn message(cluster: &str, until: Time) -> String {
    format!(
        "the certificate of the agent ends at {until}; give it a new one: karmada-hub credentials --data-dir DIR --cluster {cluster}"
    )
}

/// Makes a Cluster's conditions say it, or nothing. Answers whether anything changed.
fn show(list: &mut Vec<Condition>, said: Option<&str>, now: Time) -> bool {
    match said {
        None => conditions::remove(list, extension::CREDENTIAL_EXPIRING),
        Some(said) => {
            let new =
                Condition::new(extension::CREDENTIAL_EXPIRING, ConditionStatus::True, REASON, said, now);
            conditions::set(list, new, now)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_there_while_there_is_something_to_say() {
        let at = |seconds: u64| {
            Time::from_system(std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
        };
        let mut list = Vec::new();
        assert!(!show(&mut list, None, at(1)));
        let said = message("m1", at(100));
        assert!(show(&mut list, Some(&said), at(1)));
        assert!(!show(&mut list, Some(&said), at(2)), "said once");
        assert!(list[0].message.contains("--cluster m1") && list[0].message.contains("1970-01-01T00:01:40Z"));
        assert!(show(&mut list, Some(&message("m1", at(200))), at(3)), "another certificate that ends soon");
        assert!(show(&mut list, None, at(4)));
        assert!(list.is_empty());
    }
}
