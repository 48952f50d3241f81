//! What a member serves, as of some time, and what may be asked of that.

use std::collections::{BTreeMap, BTreeSet};

use karmada_api::cluster::{ApiEnablement, ApiResource};
use karmada_client::Resource;

/// What a member serves, as of some time.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Apis {
    /// By group and kind; a kind's resources by version, the server's preferred version first.
    resources: Vec<Resource>,
    /// Group versions that could not be asked.
    pub missing: BTreeSet<String>,
}

impl Apis {
    /// Where objects of a kind live, in a version of its group; none if that version is not served.
    pub fn resource(&self, group: &str, version: &str, kind: &str) -> Option<&Resource> {
        self.of_kind(group, kind).iter().find(|r| r.version == version)
    }

    /// Where objects of a kind live, in the server's preferred version.
    pub fn preferred(&self, group: &str, kind: &str) -> Option<&Resource> {
        self.of_kind(group, kind).first()
    }

    fn of_kind(&self, group: &str, kind: &str) -> &[Resource] {
        let from = self.resources.partition_point(|resource| by_kind(resource) < (group, kind));
        let of_it = |resource: &&Resource| by_kind(resource) == (group, kind);
        let len = self.resources[from..].iter().take_while(of_it).count();
        &self.resources[from..from + len]
    }

    /// A group version that could not be asked, of a group that is meant.
    pub fn silent(&self, means: impl Fn(&str) -> bool) -> Option<&str> {
        let group = |missing: &&String| missing.rsplit_once('/').is_some_and(|(group, _)| means(group));
        self.missing.iter().find(group).map(String::as_str)
    }

    /// Whether a group version has answered, and has kinds.
    pub fn answers(&self, group: &str, version: &str) -> bool {
        let is_it = |resource: &Resource| resource.group == group && resource.version == version;
        !self.missing.contains(&format!("{group}/{version}")) && self.resources.iter().any(is_it)
    }

    /// Whether a group has a resource of this plural, in some version.
    pub fn serves(&self, group: &str, plural: &str) -> bool {
        let is_it = |resource: &Resource| resource.group == group && resource.plural == plural;
        self.resources.iter().any(is_it)
    }

    #[cfg(test)]
    pub(crate) fn of(resources: &[&Resource], missing: &[String]) -> Self {
        let resources = resources.iter().map(|resource| (*resource).clone()).collect();
        Self { resources, missing: missing.iter().cloned().collect() }.finish()
    }

    /// All kinds whose objects are in namespaces, each in the server's preferred version.
    pub fn namespaced(&self) -> impl Iterator<Item = &Resource> {
        let kinds = self.resources.chunk_by(|one, other| by_kind(one) == by_kind(other));
        kinds.filter_map(<[Resource]>::first).filter(|resource| resource.namespaced)
    }

    /// For the Cluster's status: by group version, resources by name.
    pub fn enablements(&self) -> Vec<ApiEnablement> {
        let mut versions: BTreeMap<String, Vec<ApiResource>> = BTreeMap::new();
        for resource in &self.resources {
            let named = ApiResource { name: resource.plural.clone(), kind: resource.kind.clone() };
            versions.entry(resource.api_version()).or_default().push(named);
        }
        let enablement = |(group_version, mut resources): (String, Vec<ApiResource>)| {
            resources.sort_by(|a, b| a.name.cmp(&b.name));
            ApiEnablement { group_version, resources }
        };
        versions.into_iter().map(enablement).collect()
    }

    pub(super) fn add(&mut self, group: &str, version: &str, resources: &[Found]) {
        let whole = resources.iter().filter(|found| !found.plural.contains('/') && !found.kind.is_empty());
        self.resources.extend(
            whole.map(|found| Resource::new(group, version, &found.plural, &found.kind, found.namespaced)),
        );
    }

    pub(super) fn finish(mut self) -> Self {
        // Of a kind the version that was told first stays first.
        self.resources.sort_by(|one, other| by_kind(one).cmp(&by_kind(other)));
        self.resources.shrink_to_fit();
        self
    }
}

fn by_kind(resource: &Resource) -> (&str, &str) {
    (&resource.group, &resource.kind)
}

/// A resource, as it was told.
pub(super) struct Found {
    pub(super) plural: String,
    pub(super) kind: String,
    pub(super) namespaced: bool,
}
