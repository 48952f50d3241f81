#![allow(clippy::unwrap_used, reason = "a failing step fails the test")]

use serde_json::json;

use super::{hook, place};

#[test]
fn services_lead_out_of_here_or_nowhere() {
    let hook = |client: serde_json::Value| {
        hook::read(
            &json!({"metadata": {"name": "c"}, "webhooks": [{"name": "a.b.c", "clientConfig": client}]}),
        )
        .unwrap()
        .remove(0)
    };
    let url = hook(json!({"url": "https://a.b/c", "caBundle": "UEVN"}));
    let found = place::find(&url, |_, _| panic!("it names no Service")).unwrap();
    assert_eq!(
        (found.url.as_str(), found.dial, found.authorities.as_deref()),
        ("https://a.b/c", None, Some(&b"PEM"[..]))
    );
    assert_eq!(found.timeout.as_secs(), 10);
    let service = hook(json!({"service": {"namespace": "n", "name": "s", "path": "/p", "port": 8443}}));
    let with = |spec: serde_json::Value| place::find(&service, |_, _| Some(json!({"spec": spec})));
    let found = with(json!({"type": "ExternalName", "externalName": "out.example"})).unwrap();
    assert_eq!(
        (found.url.as_str(), found.dial),
        ("https://s.n.svc:8443/p", Some(("out.example".to_owned(), 8443)))
    );
    assert_eq!(with(json!({"clusterIP": "10.0.0.7"})).unwrap().dial, Some(("10.0.0.7".to_owned(), 8443)));
    for nowhere in [
        with(json!({"type": "ClusterIP"})),
        with(json!({"clusterIP": "None"})),
        place::find(&service, |_, _| None),
    ] {
        let why = nowhere.unwrap_err();
        assert!(
            why.contains("clientConfig.url") && why.contains("n/s a Service of type ExternalName"),
            "{why}"
        );
    }
}
