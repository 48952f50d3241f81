//! `search.karmada.io`: the kinds that ResourceRegistries name, on the clusters that these mean.
//!
//! ```text
//!   search/cache/{api,apis}/…  ──▶ such a kind? ──▶ lists of it from all of them
//!   proxying/NAME/proxy/…      ──▶ such a kind? ──▶ lists; what has a name where it is · no: the hub's own API
//! ```
//!
//! Members are asked themselves, in the user's name, and their own roles say what comes of it, as with the cluster `*`
//! ([`everywhere`]). So what is found is as new as it can be, Secrets stay where they are, and a cluster speaks for itself alone;
//! one that cannot be reached is named in a Warning. A list's resourceVersion holds that of each cluster.
//!
//! Of some members the hub has copies ([`Registry::copied`](crate::Registry::copied)). No member's roles were asked about these, so
//! they are for `system:masters` alone. What is followed at present stands for its member behind `cache`, and where a client is
//! content with any version (`resourceVersion=0`); what is older, where the member does not answer. How old says the answer.

use std::sync::Arc;

use axum::body::Body;
use futures::future::BoxFuture;
use http::{Method, Response};
use karmada_api::consts::subject;
use karmada_apiserver::carried::{Call, Carried, Carrier};
use karmada_meta::status::Status;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    Shared,
    everywhere::{self, Among, Copies},
};

const GROUP: &str = "search.karmada.io";
/// The name behind which Karmada has its cache.
const CACHE: &str = "cache";

/// So many requests at a time are held against ResourceRegistries and Clusters.
const LOOKS: usize = 4;
/// So many more wait for that; others are sent away.
const WAITS: usize = 64;

/// Whose turn it is to be held against ResourceRegistries and Clusters.
struct Looks {
    at_once: Arc<Semaphore>,
    /// Those that are looked at, and those that wait.
    all: Arc<Semaphore>,
}

/// A turn. It lasts for as long as something is looked at, whether anybody still waits for the answer or not.
#[derive(Debug)]
pub struct Turn {
    _held: [OwnedSemaphorePermit; 2],
}

impl Looks {
    fn new() -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Self { at_once: places(LOOKS), all: places(LOOKS + WAITS) }
    }

    /// Waits for a turn, unless too many do.
    async fn turn(&self) -> Result<Turn, Status> {
        let full = |_| Status::too_many_requests("too many requests of search.karmada.io wait", 1);
        let waits = self.all.clone().try_acquire_owned().map_err(full)?;
        // It is never closed.
        let looks = self.at_once.clone().acquire_owned().await.map_err(Status::internal)?;
        Ok(Turn { _held: [waits, looks] })
    }
}

/// Answers what is searched for.
struct Search {
    shared: Arc<Shared>,
    front: Front,
    looks: Arc<Looks>,
}

/// Under which resource.
#[derive(Clone, Copy)]
enum Front {
    /// `search`, with what stands before the paths behind it.
    Cache(&'static str),
    Proxying,
}

/// The subresources of the group.
pub(super) fn subresources(shared: &Arc<Shared>) -> [Carried; 3] {
    let looks = Arc::new(Looks::new());
    let carried = |resource, subresource, kind, front| Carried {
        group: GROUP,
        version: "v1alpha1",
        resource,
        subresource,
        kind,
        by: Arc::new(Search { shared: shared.clone(), front, looks: looks.clone() }),
    };
    [
        carried("search", "api", "Search", Front::Cache("/api")),
        carried("search", "apis", "Search", Front::Cache("/apis")),
        carried("proxying", "proxy", "Proxying", Front::Proxying),
    ]
}

impl Carrier for Search {
    fn carry(&self, call: Call) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        let (shared, front, looks) = (self.shared.clone(), self.front, self.looks.clone());
        Box::pin(async move { Box::pin(carry(&shared, front, &looks, call)).await })
    }
}

async fn carry(
    shared: &Arc<Shared>,
    front: Front,
    looks: &Looks,
    mut call: Call,
) -> Result<Response<Body>, Status> {
    if let Front::Cache(root) = front {
        if call.name != CACHE {
            return Err(Status::no_such_resource());
        }
        if call.request.method() != Method::GET {
            return Err(Status::method_not_allowed_here());
        }
        call.path.insert_str(0, root);
    }
    let place = everywhere::place(&call.path);
    // Whatever is sent on here must not come back here.
    let comes_back = |place: &everywhere::Place| {
        place.group == GROUP && matches!(place.resource.as_str(), "search" | "proxying")
    };
    if place.as_ref().is_some_and(comes_back) {
        return Err(Status::bad_request("what is searched for is no search itself"));
    }
    let names = match &place {
        Some(place) => {
            let turn = looks.turn().await?;
            shared.registry.searched(place, turn).await?
        }
        None => None,
    };
    match (front, names) {
        (_, Some(names)) => {
            let copies = place.filter(|_| call.user.in_group(subject::MASTERS)).and_then(|place| {
                let any = matches!(front, Front::Cache(_));
                Copies::by(place, call.request.uri().query(), call.request.headers(), any)
            });
            everywhere::carry(shared, call, Among::These(names, copies)).await
        }
        (Front::Proxying, None) => everywhere::own(shared, call).await,
        (Front::Cache(_), None) => {
            let what = place.map_or_else(|| call.path.clone(), |place| place.resource);
            Err(Status {
                message: format!("no ResourceRegistry has {what} searched"),
                ..Status::no_such_resource()
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn no_more_wait_than_have_a_chance() {
        let looks = Looks::new();
        let turn = || Box::pin(looks.turn());
        let mut under_way: Vec<_> = (0..LOOKS).map(|_| turn().now_or_never().unwrap().unwrap()).collect();
        let mut waiting: Vec<_> = (0..WAITS).map(|_| turn()).collect();
        assert!(waiting.iter_mut().all(|turn| turn.now_or_never().is_none()));
        assert_eq!(turn().now_or_never().unwrap().unwrap_err().code(), 429);
        under_way.pop();
        under_way.push(waiting.remove(0).now_or_never().unwrap().unwrap());
        assert!(turn().now_or_never().is_none(), "it waits in the place of that one");
    }
}
