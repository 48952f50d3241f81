use std::{future::ready, net::IpAddr, time::SystemTime};

use karmada_apiserver::carried::Held;
use karmada_client::LeaderConfig;
use karmada_env::ManualClock;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    super::{LEASE, RemoteConfig},
    *,
};
use crate::HubConfig;

/// Goes on until it is to end.
struct Lasts;

impl Carrier for Lasts {
    fn carry(&self, call: Call) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        Box::pin(async move {
            call.ends.await;
            Ok(Response::new(Body::from("ended")))
        })
    }
}

fn call() -> Call {
    let held: Held = Arc::new(());
    Call {
        user: UserInfo::new("jane", ["dev"]),
        asked_by: "jane".to_owned(),
        name: "m".to_owned(),
        path: "/api".to_owned(),
        request: Request::new(Body::empty()),
        audit_id: "a".to_owned(),
        held,
        ends: Box::pin(std::future::pending()),
    }
}

#[tokio::test]
async fn only_the_hub_that_leads_carries_and_what_it_has_open_ends_with_that() {
    let phase = latest::Sender::new(Phase::Reaching("no route".to_owned()));
    let carrier = WhileLeading { phase: phase.subscribe(), by: Arc::new(Lasts) };
    for (standing, says) in [
        (Phase::Reaching("no route".to_owned()), "cannot reach the API server: no route"),
        (Phase::Installing, "installing definitions"),
        (Phase::StandingBy(String::new()), "who leads is not known"),
        (Phase::StandingBy("hub-2_7".to_owned()), "standing by, hub-2_7 leads"),
    ] {
        phase.send_replace(standing);
        let status = carrier.carry(call()).await.unwrap_err();
        assert!(status.code() == 503 && status.message.contains(says), "{status}");
    }
    for leads in [Phase::Starting, Phase::Working] {
        phase.send_replace(leads);
        let mut lasting = carrier.carry(call());
        tokio::select! {
            biased;
            ended = &mut lasting => panic!("it goes on: {ended:?}"),
            () = tokio::task::yield_now() => {}
        }
        phase.send_replace(Phase::Working);
        tokio::select! {
            biased;
            ended = &mut lasting => panic!("it goes on: {ended:?}"),
            () = tokio::task::yield_now() => {}
        }
        phase.send_replace(Phase::StandingBy("hub-2".to_owned()));
        lasting.await.unwrap();
    }
}

fn env() -> Env {
    Env::seeded(ManualClock::new(SystemTime::UNIX_EPOCH), 1)
}

/// A server that answers with empty objects, and by which methods it was asked.
fn server(asked: &Arc<Mutex<Vec<String>>>) -> kube::Client {
    let asked = asked.clone();
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        asked.lock().push(format!("{} {}", request.method(), request.uri().path()));
        ready(Ok::<_, std::convert::Infallible>(Response::new(Body::from("{}"))))
    });
    kube::Client::new(service, "default")
}

#[tokio::test]
async fn a_hub_that_does_not_lead_asks_no_agent() {
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let config = RemoteConfig {
        hub: HubConfig::default(),
        election: Some(LeaderConfig::new("karmada-system", LEASE, "hub-1")),
        beside_foreign: false,
        webhooks: None,
    };
    for elected in [true, false] {
        let election = config.election.clone().filter(|_| elected);
        let remote = Remote::new(server(&asked), RemoteConfig { election, ..config.clone() }, env()).unwrap();
        let known = Known {
            rest: Rest::new(server(&asked)),
            writes: Rest::new(remote.fenced()),
            followed: Followed::default(),
            clusters: Answers::new("what a Cluster is", KEPT),
        };
        let called = known.call("m", "1").await;
        if elected {
            let status = called.unwrap_err();
            assert!(status.code() == 503 && status.message.contains("does not lead any more"), "{status}");
            assert!(asked.lock().is_empty());
        } else {
            called.unwrap();
            assert_eq!(*asked.lock(), ["PATCH /apis/cluster.karmada.io/v1alpha1/clusters/m"]);
        }
    }
}

/// Says what there is to say next, and the last for ever.
struct Says(Mutex<Vec<Result<Decision, Status>>>, Mutex<Vec<Question>>);

impl Delegate for Says {
    fn whose<'a>(&'a self, _: &'a str, _: Option<IpAddr>) -> BoxFuture<'a, Result<Option<UserInfo>, Status>> {
        Box::pin(ready(Ok(None)))
    }

    fn judge<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Result<(Decision, String), Status>> {
        self.1.lock().push(question.clone());
        let mut left = self.0.lock();
        let said = if left.len() > 1 { left.remove(0) } else { left[0].clone() };
        Box::pin(ready(said.map(|decision| (decision, String::new()))))
    }
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_ends_when_the_server_says_that_it_may_not_be() {
    let silent = || Err(Status::service_unavailable("no answer"));
    for (last, looks) in [(Decision::NoOpinion, 5), (Decision::Deny("revoked".to_owned()), 5)] {
        let said = vec![Ok(Decision::Allow), silent(), Ok(Decision::Allow), silent(), Ok(last)];
        let says = Arc::new(Says(Mutex::new(said), Mutex::default()));
        let known = known(&Arc::default());
        let carrier = WhileAllowed { delegate: says.clone(), known, env: env(), by: Arc::new(Lasts) };
        let begun = Instant::now();
        carrier.carry(call()).await.unwrap();
        let took = begun.elapsed();
        assert!(took >= looks * LOOK && took <= looks * 2 * LOOK, "{took:?}");
        let asked = says.1.lock();
        assert_eq!(asked.len(), looks as usize);
        assert!(asked.iter().all(|one| one.user.name == "jane"
            && one.verb == "get"
            && one.about == About::Path(TUNNEL.to_owned())));
    }
    // What ends it besides ends it as before.
    let says = Arc::new(Says(Mutex::new(vec![Ok(Decision::Allow)]), Mutex::default()));
    let known = known(&Arc::default());
    let carrier = WhileAllowed { delegate: says, known, env: env(), by: Arc::new(Lasts) };
    let begun = Instant::now();
    let ends = Box::pin(sleep(Duration::from_secs(3600)));
    carrier.carry(Call { ends, ..call() }).await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 3600);
}

/// Clusters as a server has them that has this one, or says nothing.
fn known(cluster: &Arc<Mutex<Option<Value>>>) -> Arc<Known> {
    let cluster = cluster.clone();
    let service = tower::service_fn(move |_: Request<kube::client::Body>| {
        let (code, body) = match &*cluster.lock() {
            Some(Value::Null) => {
                (404, json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}))
            }
            Some(cluster) => (200, cluster.clone()),
            None => (503, json!({"kind": "Status", "status": "Failure", "code": 503})),
        };
        let answer = Response::builder().status(code).body(Body::from(body.to_string())).unwrap();
        ready(Ok::<_, std::convert::Infallible>(answer))
    });
    let rest = Rest::new(kube::Client::new(service, "default"));
    let clusters = Answers::new("what a Cluster is", KEPT);
    Arc::new(Known { rest: rest.clone(), writes: rest, followed: Followed::default(), clusters })
}

fn agent() -> UserInfo {
    UserInfo::new("system:karmada:agent:m", ["system:karmada:agents"])
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_ends_when_its_cluster_is_another() {
    let named =
        |uid: &str| Some(json!({"metadata": {"name": "m", "uid": uid}, "spec": {"syncMode": "Pull"}}));
    for (case, later, ends) in [
        ("it was deleted and made anew", named("2"), true),
        ("it was deleted", Some(Value::Null), true),
        ("nobody says anything", None, false),
        ("it is the same", named("1"), false),
    ] {
        let cluster = Arc::new(Mutex::new(named("1")));
        let says = Arc::new(Says(Mutex::new(vec![Ok(Decision::Allow)]), Mutex::default()));
        let carrier =
            WhileAllowed { delegate: says, known: known(&cluster), env: env(), by: Arc::new(Lasts) };
        let begun = Instant::now();
        let user = agent();
        let hour = Duration::from_secs(3600);
        let ended = carrier.carry(Call { user, ends: Box::pin(sleep(hour)), ..call() });
        let changes = async {
            sleep(5 * LOOK).await;
            *cluster.lock() = later;
        };
        let (answer, ()) = tokio::join!(ended, changes);
        answer.unwrap();
        let took = begun.elapsed();
        let soon = took >= 5 * LOOK && took <= 7 * LOOK;
        assert_eq!((soon, took >= hour), (ends, !ends), "{case}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_tunnel_is_opened_for_nobody_knows_which_cluster() {
    let says = Arc::new(Says(Mutex::new(vec![Ok(Decision::Allow)]), Mutex::default()));
    let known = known(&Arc::default());
    let carrier = WhileAllowed { delegate: says, known, env: env(), by: Arc::new(Lasts) };
    let user = agent();
    let status = carrier.carry(Call { user, ..call() }).await.unwrap_err();
    assert_eq!(status.code(), 503, "{status}");
}
