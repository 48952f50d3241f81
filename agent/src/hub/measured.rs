//! How much there is of a kind on a member, before the hub is told of it.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use karmada_client::Rest;
use karmada_core::search::{
    Followed,
    told::{self, KEPT},
};
use serde_json::value::RawValue;
use tokio::time::timeout;

/// Objects that are asked for at a time.
const PAGE: usize = 100;

/// How many bytes there are of a kind at least: as many as are counted in this time, and before the member answers no more. What is
/// more than a hub keeps is not counted to its end.
pub(super) async fn at_least(member: &Rest, what: &Followed, collection: &str, within: Duration) -> u64 {
    let counted = AtomicUsize::new(0);
    match timeout(within, count(member, what, collection, &counted)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::debug!(?what, error, "the member does not tell how much there is of a kind");
        }
        Err(_) => tracing::debug!(?what, "how much there is of a kind takes long to count"),
    }
    u64::try_from(counted.into_inner()).unwrap_or(u64::MAX)
}

async fn count(
    member: &Rest,
    what: &Followed,
    collection: &str,
    counted: &AtomicUsize,
) -> Result<(), String> {
    let mut pages = member.pages(collection, PAGE);
    while let Some(page) = pages.next::<Box<RawValue>>().await.map_err(|error| error.to_string())? {
        let read = page.items.iter().filter_map(|item| told::essence(item.get(), what).ok());
        let bytes: usize = read.map(|(named, text)| told::size(&named, &text)).sum();
        let all = counted.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if all > KEPT {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use karmada_client::rest::Bounds;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    const LARGE: usize = 10_000;

    /// What becomes of a member of so many large objects after the first so many.
    #[derive(Clone, Copy)]
    enum After {
        Nothing,
        Gone(usize),
        Silence(usize),
    }

    /// A member with 25 large objects, of which an answer may have 10.
    fn member(after: After) -> Rest {
        let service = tower::service_fn(move |request: Request<Body>| async move {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let of = |name: &str| {
                let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
                value.map_or(0, |value| value.parse::<usize>().expect("a number"))
            };
            let (limit, from) = (of("limit"), of("continue"));
            let until = (from + limit).min(25);
            match after {
                After::Gone(most) if from >= most => {
                    let gone =
                        json!({"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410});
                    return Response::builder().status(410).body(Body::from(gone.to_string().into_bytes()));
                }
                After::Silence(most) if from >= most => std::future::pending().await,
                _ => {}
            }
            let items: Vec<_> = (from..until)
                .map(|n| json!({"metadata": {"name": format!("o{n}")}, "data": {"k": "x".repeat(LARGE)}}))
                .collect();
            let next = if until < 25 { until.to_string() } else { String::new() };
            let list = json!({"metadata": {"continue": next}, "items": items});
            Ok::<_, http::Error>(Response::new(Body::from(list.to_string().into_bytes())))
        });
        let bounds = Bounds { answer: 10 * (LARGE + 100), ..Bounds::default() };
        Rest::new(kube::Client::new(service, "default")).bounded(bounds)
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_large_is_counted_in_small_pages_and_as_far_as_possible() {
        let what =
            Followed { api_version: "v1".to_owned(), kind: "ConfigMap".to_owned(), namespace: String::new() };
        for (after, objects) in [(After::Nothing, 25), (After::Gone(8), 8), (After::Silence(12), 12)] {
            let path = "/api/v1/configmaps";
            let bytes = at_least(&member(after), &what, path, Duration::from_secs(10)).await;
            let objects = objects * LARGE as u64;
            assert!((objects..objects * 21 / 20).contains(&bytes), "{bytes} of {objects}");
        }
    }
}
