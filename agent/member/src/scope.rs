//! Where on the member an agent works: everywhere, or in some namespaces only.

use std::{collections::BTreeSet, sync::Arc};

use karmada_client::Resource;

use crate::works::desired::ObjectId;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// In all namespaces, and at cluster scope.
    #[default]
    Everywhere,
    /// In these, and nowhere at cluster scope.
    Namespaces(Arc<BTreeSet<String>>),
}

/// What an agent may do with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// Bring it to what is wanted.
    Apply,
    /// Look whether it is there: a Namespace in which it works is somebody else's to make.
    Look,
    /// Nothing, and why.
    Nothing(String),
}

impl Scope {
    /// The namespaces that were named; everywhere if none was.
    ///
    /// # Errors
    /// What is wrong with a name.
    pub fn named(names: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let names: BTreeSet<String> = names.into_iter().collect();
        let is_label = |name: &str| {
            let is_inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            (1..=63).contains(&name.len())
                && name.bytes().all(is_inner)
                && !name.starts_with('-')
                && !name.ends_with('-')
        };
        match names.iter().find(|name| !is_label(name)) {
            Some(wrong) => Err(format!("{wrong:?} is no name of a namespace")),
            None if names.is_empty() => Ok(Self::Everywhere),
            None => Ok(Self::Namespaces(names.into())),
        }
    }

    /// Whether there is anything that it leaves out.
    pub const fn is_narrow(&self) -> bool {
        matches!(self, Self::Namespaces(_))
    }

    /// Where a kind is watched: in these namespaces, in all by the empty name.
    pub(crate) fn places(&self, resource: &Resource) -> Vec<String> {
        match self {
            Self::Everywhere => vec![String::new()],
            Self::Namespaces(names) if resource.namespaced => names.iter().cloned().collect(),
            Self::Namespaces(_) => Vec::new(),
        }
    }

    /// The place of these in which an object of a namespace is.
    pub(crate) fn place_of<'a>(&self, namespace: &'a str) -> &'a str {
        match self {
            Self::Everywhere => "",
            Self::Namespaces(_) => namespace,
        }
    }

    /// Whether an object lies where the agent works.
    pub(crate) fn reaches(&self, id: &ObjectId) -> bool {
        let Self::Namespaces(names) = self else { return true };
        let is_namespace = id.group.is_empty() && id.kind == "Namespace";
        names.contains(if is_namespace { &id.name } else { &id.namespace })
    }

    /// Whether an object is a Namespace in which the agent works, and somebody else's to make.
    pub(crate) fn only_looks(&self, id: &ObjectId) -> bool {
        self.is_narrow() && id.group.is_empty() && id.kind == "Namespace" && self.reaches(id)
    }

    /// What may be done with an object.
    pub(crate) fn allows(&self, resource: &Resource, id: &ObjectId) -> Allowed {
        let Self::Namespaces(names) = self else { return Allowed::Apply };
        if self.reaches(id) {
            return if resource.namespaced { Allowed::Apply } else { Allowed::Look };
        }
        let only = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let why = match resource.namespaced {
            true => format!("namespace {} is none of them", id.namespace),
            false => "it is in no namespace".to_owned(),
        };
        Allowed::Nothing(format!(
            "{} {} is not applied here: the agent of this cluster works in the namespaces {only} alone (--namespaces), and {why}",
            id.kind,
            id.path()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_outside_is_named_and_refused() {
        let narrow = Scope::named(["shop".to_owned(), "till".to_owned()]).unwrap();
        let kind = |kind: &str, namespaced| Resource::new("", "v1", "x", kind, namespaced);
        let id = |kind: &str, namespace: &str, name: &str| ObjectId {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..ObjectId::default()
        };
        // (kind, whether it has namespaces, namespace, name, what is allowed)
        let rows = [
            ("ConfigMap", true, "shop", "c", Ok(Allowed::Apply)),
            ("Namespace", false, "", "till", Ok(Allowed::Look)),
            ("ConfigMap", true, "kube-system", "c", Err("namespace kube-system is none of them")),
            ("Namespace", false, "", "other", Err("it is in no namespace")),
            ("ClusterRole", false, "", "shop", Err("it is in no namespace")),
        ];
        for (name_of_kind, namespaced, namespace, name, want) in rows {
            let (resource, id) = (kind(name_of_kind, namespaced), id(name_of_kind, namespace, name));
            assert_eq!(Scope::Everywhere.allows(&resource, &id), Allowed::Apply);
            match (narrow.allows(&resource, &id), want) {
                (Allowed::Nothing(why), Err(want)) => {
                    assert!(why.contains(want) && why.contains("shop, till"), "{why}");
                }
                (got, want) => assert_eq!(Ok(got), want, "{id:?}"),
            }
        }
        assert_eq!(narrow.places(&kind("ConfigMap", true)), ["shop", "till"]);
        assert!(narrow.places(&kind("Node", false)).is_empty());
        assert_eq!(Scope::Everywhere.places(&kind("Node", false)), [""]);
        assert_eq!(Scope::named([]).unwrap(), Scope::Everywhere);
        for wrong in ["", "a b", "-a", "A", "a/b"] {
            assert!(Scope::named([wrong.to_owned()]).is_err(), "{wrong}");
        }
    }
}
