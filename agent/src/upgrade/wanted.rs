//! What the hub offers, and whether a program that is being fetched is still wanted.

use std::sync::Arc;

use karmada_api::consts::extension;
use karmada_client::latest;
use karmada_core::upgrade::{Offer, withdrawal::Fetch};
use karmada_env::Env;
use karmada_meta::object;
use serde_json::Value;

use crate::hub::cluster::Kept;

/// What the hub offers in the Cluster.
pub(super) fn offered(cluster: &Value) -> Option<Offer> {
    let text = object::annotation(cluster, extension::AGENT_OFFER)?;
    Offer::read(text).inspect_err(|error| tracing::warn!(%error, "the hub's offer cannot be read")).ok()
}

/// Comes back when the program of an offer need not be fetched any more: the hub offers something else, or nothing for a while.
pub(super) async fn is_unwanted(offer: &Offer, mut cluster: latest::Receiver<Option<Arc<Kept>>>, env: &Env) {
    let mut fetch = Fetch::of(offer);
    loop {
        let known = cluster.borrow_and_update().clone();
        // Of a Cluster that is not known nobody can say what is offered.
        let left = known.and_then(|known| fetch.left(offered(&known).as_ref(), env.now()));
        if left.is_some_and(|left| left.is_zero()) {
            return;
        }
        let over = async {
            match left {
                Some(left) => tokio::time::sleep(left).await,
                None => std::future::pending().await,
            }
        };
        let closed = tokio::select! {
            biased;
            changed = cluster.changed() => changed.is_err(),
            () = over => false,
        };
        if closed {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        time::{Duration, SystemTime},
    };

    use karmada_env::Clock;
    use serde_json::json;
    use tokio::time::{Instant, timeout};

    use super::*;

    const OFFER: &str = extension::AGENT_OFFER;
    const MINUTE: Duration = Duration::from_secs(60);

    struct Tokio(Instant);

    impl Clock for Tokio {
        fn now(&self) -> Duration {
            self.0.elapsed()
        }

        fn wall(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_000_000) + self.now()
        }
    }

    fn cluster(annotations: &Value) -> Option<Arc<Kept>> {
        Some(Arc::new(Kept::of(json!({"metadata": {"name": "m1", "annotations": annotations}}))))
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_is_fetched_on_while_nothing_is_offered_for_a_while() {
        let env = Env::seeded(Tokio(Instant::now()), 1);
        let offer = Offer {
            version: "0.6.0".to_owned(),
            begun: "2026-11-26T01:00:00Z".parse().unwrap(),
            image: String::new(),
            programs: Vec::new(),
            returns: false,
            downgrade: false,
            spread: 0,
        };
        let offers = |offer: &Offer| cluster(&json!({OFFER: offer.write()}));
        let nothing = || cluster(&json!({}));
        let current = latest::Sender::new(offers(&offer));
        let mut unwanted = pin!(is_unwanted(&offer, current.subscribe(), &env));
        assert!(timeout(MINUTE * 600, unwanted.as_mut()).await.is_err(), "it is offered");
        // What nobody can read says no more than nothing.
        for (says, minutes) in
            [(nothing(), 6), (offers(&offer), 60), (cluster(&json!({OFFER: "?"})), 9), (None, 60)]
        {
            current.send_replace(says);
            assert!(timeout(MINUTE * minutes, unwanted.as_mut()).await.is_err(), "{minutes}");
        }
        current.send_replace(offers(&offer));
        assert!(timeout(MINUTE, unwanted.as_mut()).await.is_err(), "it is offered again");
        current.send_replace(nothing());
        assert!(timeout(MINUTE * 9, unwanted.as_mut()).await.is_err(), "it may be offered again");
        timeout(MINUTE * 2, unwanted).await.expect("nothing is offered for long");
        // Something else is no matter of time.
        let back = Offer { returns: true, ..offer.clone() };
        let current = latest::Sender::new(offers(&offer));
        let mut unwanted = pin!(is_unwanted(&offer, current.subscribe(), &env));
        assert!(timeout(MINUTE, unwanted.as_mut()).await.is_err(), "it is offered");
        current.send_replace(offers(&back));
        timeout(Duration::from_secs(1), unwanted).await.expect("it is to go back");
    }
}
