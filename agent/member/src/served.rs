//! Whether a kind is served by the member, is not, or cannot be told for now.
//!
//! Discovery says what is served, and of what it does not name nothing: an aggregated API may be away, a kube-apiserver
//! that has just started installs definitions one after another, and a version that was dropped is gone before the next
//! one is there. So a kind is only taken for absent when nothing that is registered is missing: every definition
//! (CustomResourceDefinition) and every version (APIService) of its group is there.

use std::collections::BTreeSet;

use karmada_client::{Error, Resource, Rest, rest::METADATA_LIST};
use karmada_meta::object;
use serde_json::Value;

use super::discovery::apis::Apis;

/// Objects per page.
const PAGE: usize = 500;

/// Where objects of a kind are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// Here.
    At(Resource),
    /// Nowhere: the member has no such kind.
    Absent,
    /// That is not known for now, for this reason.
    Unknown(String),
}

/// What a member is to serve beside what is built in.
#[derive(Debug, Default)]
pub(crate) struct Registered {
    /// Definitions: group and plural.
    definitions: BTreeSet<(String, String)>,
    /// APIServices: group and version.
    services: BTreeSet<(String, String)>,
}

impl Registered {
    /// Asks the member. A text says why that is not known for now.
    ///
    /// # Errors
    /// The member does not answer.
    pub(crate) async fn ask(member: &Rest, apis: &Apis) -> Result<Result<Self, String>, Error> {
        let mut registered = Self::default();
        let Some(definitions) = apis.preferred("apiextensions.k8s.io", "CustomResourceDefinition") else {
            return Ok(Err("the member does not serve CustomResourceDefinitions for now".to_owned()));
        };
        let mut names = Vec::new();
        if let Err(why) =
            list(member, definitions, METADATA_LIST, |o| names.push(object::name(o).to_owned())).await?
        {
            return Ok(Err(why));
        }
        // A definition's name is the plural and the group.
        let named = names.iter().filter_map(|name| name.split_once('.'));
        registered.definitions = named.map(|(plural, group)| (group.to_owned(), plural.to_owned())).collect();
        // Those of the server itself are there, too, and stay while it starts. One without an aggregator has none.
        if let Some(services) = apis.preferred("apiregistration.k8s.io", "APIService") {
            let answered = list(member, services, "application/json", |o| {
                let text = |field: &str| o["spec"][field].as_str().unwrap_or_default().to_owned();
                registered.services.insert((text("group"), text("version")));
            });
            if let Err(why) = answered.await? {
                return Ok(Err(why));
            }
        }
        Ok(Ok(registered))
    }

    /// What is registered in the groups that count and is not served, if there is something.
    pub(crate) fn missing(&self, apis: &Apis, counts: impl Fn(&str) -> bool) -> Option<String> {
        let defined = self.definitions.iter().filter(|(group, _)| counts(group));
        let undefined = defined.filter(|(group, plural)| !apis.serves(group, plural));
        let mut all =
            undefined.map(|(group, plural)| format!("{plural}.{group} is defined, but not served for now"));
        let away = || {
            let counted = self.services.iter().filter(|(group, _)| counts(group));
            let mut away = counted.filter(|(group, version)| !apis.answers(group, version));
            away.next().map(|(group, version)| format!("{group}/{version} does not answer"))
        };
        all.next().or_else(away)
    }
}

/// Where objects of a kind are, by what the member has just said. `registered` is needed where it does not say where.
pub(crate) fn judge(
    apis: &Apis,
    registered: Option<&Result<Registered, String>>,
    group: &str,
    kind: &str,
) -> Served {
    if let Some(resource) = apis.preferred(group, kind) {
        return Served::At(resource.clone());
    }
    if let Some(silent) = apis.silent(|of| of == group) {
        return Served::Unknown(format!("{silent} does not answer"));
    }
    match registered {
        None => Served::Unknown("it was not asked what is registered".to_owned()),
        Some(Err(why)) => Served::Unknown(why.clone()),
        Some(Ok(registered)) => match registered.missing(apis, |of| of == group) {
            Some(why) => Served::Unknown(why),
            None => Served::Absent,
        },
    }
}

/// Lists all objects of a kind. A text says why it cannot be known for now what there is.
async fn list(
    member: &Rest,
    resource: &Resource,
    accept: &'static str,
    mut see: impl FnMut(&Value),
) -> Result<Result<(), String>, Error> {
    let mut pages = member.pages(resource.collection(None), PAGE).accept(accept).lists_alone();
    loop {
        match pages.next::<Value>().await {
            Ok(Some(page)) => page.items.iter().for_each(&mut see),
            Ok(None) => return Ok(Ok(())),
            Err(error) if error.is_not_found() || error.is_forbidden() => {
                return Ok(Err(format!("the member does not list {resource}: {error}")));
            }
            Err(Error::Answer { cause, .. }) => {
                return Ok(Err(format!("the list of {resource} cannot be read: {cause}")));
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_absent_only_when_nothing_of_its_group_is_missing() {
        let thing = Resource::new("example.com", "v1", "things", "Thing", true);
        let other = Resource::new("example.com", "v1", "others", "Other", true);
        let pairs = |all: &[(&str, &str)]| -> BTreeSet<(String, String)> {
            all.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
        };
        let registered = |definitions: &[(&str, &str)], services: &[(&str, &str)]| {
            Some(Ok(Registered { definitions: pairs(definitions), services: pairs(services) }))
        };
        let silent = |group: &str| vec![format!("{group}/v2")];
        let things = ("example.com", "things");
        let table = [
            ("served", vec![&thing], vec![], None, "at"),
            ("served, as far as is known, by what is away", vec![&thing], silent("example.com"), None, "at"),
            ("its group does not answer", vec![], silent("example.com"), registered(&[], &[]), "unknown"),
            ("another group does not", vec![], silent("a.example.com"), registered(&[], &[]), "absent"),
            ("defined, not served yet", vec![], vec![], registered(&[things], &[]), "unknown"),
            ("another kind of the group is not", vec![&other], vec![], registered(&[things], &[]), "unknown"),
            (
                "all of the group is served",
                vec![&other],
                vec![],
                registered(&[("example.com", "others")], &[]),
                "absent",
            ),
            (
                "somebody is to answer for the group",
                vec![],
                vec![],
                registered(&[], &[("example.com", "v1")]),
                "unknown",
            ),
            ("and have", vec![&other], vec![], registered(&[], &[("example.com", "v1")]), "absent"),
            ("it cannot be told", vec![], vec![], Some(Err("why".to_owned())), "unknown"),
            ("nobody has asked", vec![], vec![], None, "unknown"),
        ];
        for (what, served, silent, registered, want) in table {
            let apis = Apis::of(&served, &silent);
            let got = match judge(&apis, registered.as_ref(), "example.com", "Thing") {
                Served::At(_) => "at",
                Served::Absent => "absent",
                Served::Unknown(_) => "unknown",
            };
            assert_eq!(got, want, "{what}");
        }
    }
}
