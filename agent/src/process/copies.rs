//! What the hub has placed on a member, counted on the member itself before it leaves and after: whoever has taken it away, this
//! process or an agent that runs besides.

use std::{collections::BTreeSet, sync::Arc};

use futures::StreamExt as _;
use karmada_client::{Error, Resource, Rest};
use karmada_core::names;
use karmada_env::Env;
use karmada_member::{DesiredWork, discovery::Discovery};
use karmada_meta::object;
use serde_json::Value;

/// So many objects are looked at; of more it is said that there are more.
const LOOKED_AT: usize = 2_000;
/// So many at a time.
const AT_ONCE: usize = 16;
/// Works that are asked for at a time, which may be large.
const PAGE: usize = 20;

/// An object on the member: where its kind is served, and its name there.
type Placed = (Arc<Resource>, String, String);

/// What is there of what the hub has placed.
#[derive(Debug, Default)]
pub(super) struct Copies {
    there: Vec<Placed>,
    /// There are more than are looked at.
    pub(super) more: bool,
}

/// Where Works are.
fn works() -> Resource {
    Resource::new("work.karmada.io", "v1alpha1", "works", "Work", true)
}

impl Copies {
    /// Looks what is there now.
    pub(super) async fn look(hub: &Rest, member: &Rest, cluster: &str, env: &Env) -> Result<Self, Error> {
        let discovery = Discovery::new(member.clone(), env.clone());
        let place = works().collection(Some(&names::execution_namespace(cluster)));
        let (mut copies, mut at, mut listed) = (Self::default(), String::new(), BTreeSet::new());
        loop {
            let page = hub.get(&format!("{place}?limit={PAGE}{at}")).await?;
            for work in page["items"].as_array().into_iter().flatten() {
                // One that cannot be read was not applied either.
                let Ok(work) = DesiredWork::parse(&work.to_string()) else { continue };
                for manifest in work.manifests.iter().filter(|manifest| manifest.problem.is_none()) {
                    listed.insert((manifest.id.clone(), manifest.version.clone()));
                }
            }
            copies.more = listed.len() > LOOKED_AT;
            match page.pointer("/metadata/continue").and_then(Value::as_str).filter(|next| !next.is_empty()) {
                Some(next) if !copies.more => at = format!("&continue={next}"),
                more => {
                    copies.more |= more.is_some();
                    break;
                }
            }
        }
        let mut named = Vec::new();
        for (id, version) in listed.into_iter().take(LOOKED_AT) {
            if let Some(resource) = discovery.resource(&id.group, &version, &id.kind).await? {
                named.push((Arc::new(resource), id.namespace.clone(), id.name.clone()));
            }
        }
        copies.there = still_there(member, named).await?;
        Ok(copies)
    }

    /// How many of them have gone, or are about to, and how many are still there.
    pub(super) async fn compare(self, member: &Rest) -> Result<(usize, usize), Error> {
        let before = self.there.len();
        let kept = still_there(member, self.there).await?.len();
        Ok((before - kept, kept))
    }
}

/// Those that are there, and not on their way out.
async fn still_there(member: &Rest, copies: Vec<Placed>) -> Result<Vec<Placed>, Error> {
    let looks = copies.into_iter().map(|copy| async move {
        let (resource, namespace, name) = &copy;
        let namespace = Some(namespace.as_str()).filter(|_| resource.namespaced);
        match member.get_metadata(resource, &resource.object(namespace, name)).await {
            Ok(live) if object::deletion_timestamp(&live).is_none() => Ok(Some(copy)),
            Ok(_) => Ok(None),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    });
    let mut answers = futures::stream::iter(looks).buffer_unordered(AT_ONCE);
    let mut there = Vec::new();
    while let Some(answer) = answers.next().await {
        there.extend(answer?);
    }
    Ok(there)
}
