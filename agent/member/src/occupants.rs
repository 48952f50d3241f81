//! What lives in a Namespace of the member: asked before the Namespace is deleted.

use karmada_client::{
    Error, Rest,
    rest::{METADATA_LIST, query_value},
};
use karmada_core::vacancy::{self, Occupants, Ours, Vacancy};
use serde_json::Value;

use super::{discovery::Discovery, served::Registered};

/// Objects per page.
const PAGE: usize = 200;

/// Looks through everything in a Namespace that can be listed. What the member does not let us list may be anything,
/// so that it counts as somebody else's.
///
/// # Errors
/// The member does not answer, or does not know itself what it has.
pub(crate) async fn vacancy(
    member: &Rest,
    discovery: &Discovery,
    namespace: &str,
    ours: Ours<'_>,
) -> Result<Vacancy, Error> {
    // Anew: a kind that came just now may have objects.
    let (apis, _) = discovery.look().await?;
    let counts = |group: &str| vacancy::counts(group, "");
    if let Some(group) = apis.silent(counts) {
        return Ok(Vacancy::Emptying(format!("{group} does not answer, and may have objects")));
    }
    let unserved = match Registered::ask(member, &apis).await? {
        Ok(registered) => registered.missing(&apis, counts),
        Err(why) => Some(why),
    };
    if let Some(why) = unserved {
        return Ok(Vacancy::Emptying(format!("{why}, and there may be objects of it")));
    }
    let mut found = Occupants::default();
    for resource in apis.namespaced().filter(|r| vacancy::counts(&r.group, &r.kind)) {
        let collection = resource.collection(Some(namespace));
        let mut next = String::new();
        loop {
            let mut path = format!("{collection}?limit={PAGE}");
            if !next.is_empty() {
                path.push_str("&continue=");
                path.push_str(&query_value(&next));
            }
            let bytes = match member.get_bytes(&path, METADATA_LIST).await {
                Ok(bytes) => bytes,
                // Not every kind can be listed.
                Err(error) if error.code() == Some(405) => break,
                // One that has gone is not named the next time.
                Err(error) if error.is_not_found() => {
                    let kind = &resource.kind;
                    return Ok(Vacancy::Emptying(format!(
                        "{kind} is not served for now, and may have objects"
                    )));
                }
                Err(error) if error.is_forbidden() => {
                    let kind = &resource.kind;
                    return Ok(Vacancy::Occupied(format!("what the agent may not list: {kind}")));
                }
                Err(error) => return Err(error),
            };
            let Ok(list) = serde_json::from_slice::<Value>(&bytes) else {
                let kind = &resource.kind;
                return Ok(Vacancy::Emptying(format!("the list of {kind} cannot be read")));
            };
            for object in list["items"].as_array().into_iter().flatten() {
                found.see(&resource.kind, object, ours);
            }
            if found.occupied() {
                return Ok(found.judge());
            }
            next = list["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            if next.is_empty() {
                break;
            }
        }
    }
    Ok(found.judge())
}
