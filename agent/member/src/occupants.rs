//! What lives in a Namespace of the member: asked before the Namespace is deleted.

use karmada_client::{Error, Rest, rest::METADATA_LIST};
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
        let kind = &resource.kind;
        let collection = resource.collection(Some(namespace));
        let mut pages = member.pages(collection, PAGE).accept(METADATA_LIST).lists_alone();
        loop {
            let page = match pages.next::<Value>().await {
                Ok(Some(page)) => page,
                Ok(None) => break,
                // Not every kind can be listed.
                Err(error) if error.code() == Some(405) => break,
                // One that has gone is not named the next time.
                Err(error) if error.is_not_found() => {
                    return Ok(Vacancy::Emptying(format!(
                        "{kind} is not served for now, and may have objects"
                    )));
                }
                Err(error) if error.is_forbidden() => {
                    return Ok(Vacancy::Occupied(format!("what the agent may not list: {kind}")));
                }
                Err(Error::Answer { .. }) => {
                    return Ok(Vacancy::Emptying(format!("the list of {kind} cannot be read")));
                }
                Err(error) => return Err(error),
            };
            page.items.iter().for_each(|object| found.see(kind, object, ours));
            if found.occupied() {
                return Ok(found.judge());
            }
        }
    }
    Ok(found.judge())
}
