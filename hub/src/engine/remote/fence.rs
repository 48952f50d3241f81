//! A client that writes only while this hub leads.

use http::{Method, Request};
use karmada_client::Fence;
use kube::{Client, client::Body};

/// A write that was held back.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("this hub does not lead any more")]
struct NotLeading;

/// The same client, which refuses to send anything but GETs once the fence is shut. Controllers are stopped when
/// leadership is lost; what they have under way, or a process that was stopped and goes on, is held back by this.
pub(super) fn fenced(client: Client, fence: Fence) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, fence) = (client.clone(), fence.clone());
        async move {
            if *request.method() != Method::GET && !fence.is_open() {
                return Err(tower::BoxError::from(NotLeading));
            }
            client.send(request).await.map_err(tower::BoxError::from)
        }
    });
    Client::new(service, namespace)
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use karmada_apiserver::{ApiServer, Registration, authn::UserInfo, open_store};
    use karmada_client::{Leader, LeaderConfig, Rest};
    use karmada_env::{Clock, Env};
    use karmada_store::engine::memory::Memory;
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::*;

    struct Paused(tokio::time::Instant);

    impl Clock for Paused {
        fn now(&self) -> Duration {
            self.0.elapsed()
        }

        fn wall(&self) -> std::time::SystemTime {
            std::time::UNIX_EPOCH + self.0.elapsed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_leader_writes() {
        let env = Env::seeded(Paused(tokio::time::Instant::now()), 1);
        let store = open_store(Memory::new(), &env).unwrap();
        let server = ApiServer::new(store, env.clone(), Registration::default(), CancellationToken::new());
        let _tasks = server.start().await;
        let client = server.client(UserInfo::system("hub"), "hub");
        let leader = Leader::new(client.clone(), LeaderConfig::new("default", "hub", "a"), env);
        let (mut leading, fence) = (leader.leading(), leader.fence());
        let rest = Rest::new(fenced(client, fence));
        let count = AtomicUsize::new(0);
        let map = || {
            let name = format!("m{}", count.fetch_add(1, Ordering::Relaxed));
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
        };
        let maps = "/api/v1/namespaces/default/configmaps";

        rest.post(maps, &map()).await.expect_err("nobody leads yet");
        rest.get(maps).await.expect("reading is free");
        let election = tokio::spawn(leader.run(CancellationToken::new()));
        leading.wait_for(|leading| *leading).await.unwrap();
        rest.post(maps, &map()).await.expect("it leads");
        election.abort();
        tokio::time::sleep(Duration::from_secs(11)).await;
        let held_back = rest.post(maps, &map()).await.expect_err("its claim has run out");
        assert!(held_back.to_string().contains("does not lead any more"), "{held_back}");
        assert_eq!(rest.get(maps).await.unwrap()["items"].as_array().map(Vec::len), Some(1));
    }
}
