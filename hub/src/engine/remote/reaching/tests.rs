use karmada_apiserver::carried::Held;

use super::*;

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
