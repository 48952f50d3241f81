//! What the Karmada kinds have in common: a name in the API, metadata, spec and perhaps status.
//!
//! The macro `karmada_kind!` declares one. kube's derive is not used because four pairs of our kinds share one spec type,
//! which it cannot express, and because the definitions must match Karmada's to the letter.

use serde_json::Value;

/// A column that a server prints for a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Heading.
    pub name: &'static str,
    /// Where the cell stands in the object.
    pub path: &'static str,
    /// `string` or `date`.
    pub kind: &'static str,
    /// 0 is always shown, 1 only in wide output.
    pub priority: i64,
    /// What the cell says. Empty for none.
    pub description: &'static str,
}

impl Column {
    /// A text column that is always shown.
    pub const fn text(name: &'static str, path: &'static str) -> Self {
        Self { name, path, kind: "string", priority: 0, description: "" }
    }

    /// The object's age.
    pub const fn age(name: &'static str) -> Self {
        Self { name, path: ".metadata.creationTimestamp", kind: "date", priority: 0, description: "" }
    }

    /// How long ago something was that stands at a path.
    pub const fn since(name: &'static str, path: &'static str) -> Self {
        Self { name, path, kind: "date", priority: 0, description: "" }
    }

    /// The same column, in wide output only.
    pub const fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }

    /// The same column with a description.
    pub const fn about(self, description: &'static str) -> Self {
        Self { description, ..self }
    }
}

/// Which subresources a definition declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subresources {
    /// The stanza is absent.
    Absent,
    /// The stanza is there, and empty.
    Empty,
    /// `status`.
    Status,
}

/// A kind of ours, as its definition names it.
pub trait KarmadaKind: kube::Resource<DynamicType = ()> {
    /// API group.
    const GROUP: &'static str;
    /// The only version.
    const VERSION: &'static str;
    /// `GROUP/VERSION`.
    const API_VERSION: &'static str;
    /// CamelCase name.
    const KIND: &'static str;
    /// Name in URLs.
    const PLURAL: &'static str;
    /// Short name for command lines, if there is one.
    const SHORT: &'static [&'static str];
    /// kubectl's groups of resources.
    const CATEGORIES: &'static [&'static str];
    /// Whether objects live in a namespace.
    const NAMESPACED: bool;
    /// What the server prints.
    const COLUMNS: &'static [Column];
    /// What the definition declares beside the object itself.
    const SUBRESOURCES: Subresources;
    /// The field that says what is wanted: `spec`, but for a kind that has none.
    const BODY: &'static str;
    /// One sentence on the kind.
    const ABOUT: &'static str;

    /// The schema of `spec`, or of what stands in its place.
    fn spec_schema() -> Value;
    /// The schema of `status`, for kinds that have one.
    fn status_schema() -> Option<Value>;
}

/// Declares a kind: the struct with metadata, spec and perhaps status, its (de)serialisation with `apiVersion` and
/// `kind`, `kube::Resource` and [`KarmadaKind`].
macro_rules! karmada_kind {
    (
        $(#[doc = $doc:literal])+
        $name:ident ($group:literal / $version:literal, $plural:literal, $scope:ident) {
            $body:ident: $spec:ty,
            $(status: $status:ty,)?
        }
        short $short:expr, categories $categories:expr, subresources $sub:ident, columns $columns:expr
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
        pub struct $name {
            /// Name, labels, annotations and so on.
            #[serde(default)]
            pub metadata: kube::core::ObjectMeta,
            /// What is wanted.
            pub $body: $spec,
            $(
                /// What was observed.
                #[serde(default)]
                pub status: Option<$status>,
            )?
        }

        impl $name {
            /// An object of this name and spec. A namespaced kind still needs its namespace.
            #[allow(clippy::needless_update, reason = "kinds without a status")]
            pub fn new(name: impl Into<String>, $body: $spec) -> Self {
                let metadata = kube::core::ObjectMeta { name: Some(name.into()), ..Default::default() };
                Self { metadata, $body, ..Default::default() }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap;
                let mut map = serializer.serialize_map(None)?;
                map.serialize_entry("apiVersion", <Self as $crate::KarmadaKind>::API_VERSION)?;
                map.serialize_entry("kind", <Self as $crate::KarmadaKind>::KIND)?;
                map.serialize_entry("metadata", &self.metadata)?;
                map.serialize_entry(<Self as $crate::KarmadaKind>::BODY, &self.$body)?;
                $(
                    if let Some(status) = &self.status {
                        let status: &$status = status;
                        map.serialize_entry("status", status)?;
                    }
                )?
                map.end()
            }
        }

        impl kube::Resource for $name {
            type DynamicType = ();
            type Scope = $crate::kind::karmada_kind!(@scope $scope);

            fn kind(_: &()) -> std::borrow::Cow<'_, str> {
                <Self as $crate::KarmadaKind>::KIND.into()
            }

            fn group(_: &()) -> std::borrow::Cow<'_, str> {
                <Self as $crate::KarmadaKind>::GROUP.into()
            }

            fn version(_: &()) -> std::borrow::Cow<'_, str> {
                <Self as $crate::KarmadaKind>::VERSION.into()
            }

            fn api_version(_: &()) -> std::borrow::Cow<'_, str> {
                <Self as $crate::KarmadaKind>::API_VERSION.into()
            }

            fn plural(_: &()) -> std::borrow::Cow<'_, str> {
                <Self as $crate::KarmadaKind>::PLURAL.into()
            }

            fn meta(&self) -> &kube::core::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut kube::core::ObjectMeta {
                &mut self.metadata
            }
        }

        impl $crate::KarmadaKind for $name {
            const GROUP: &'static str = $group;
            const VERSION: &'static str = $version;
            const API_VERSION: &'static str = concat!($group, "/", $version);
            const KIND: &'static str = stringify!($name);
            const PLURAL: &'static str = $plural;
            const SHORT: &'static [&'static str] = &$short;
            const CATEGORIES: &'static [&'static str] = &$categories;
            const NAMESPACED: bool = $crate::kind::karmada_kind!(@namespaced $scope);
            const COLUMNS: &'static [$crate::kind::Column] = &$columns;
            const SUBRESOURCES: $crate::kind::Subresources = $crate::kind::Subresources::$sub;
            const BODY: &'static str = stringify!($body);
            const ABOUT: &'static str = concat!($($doc),+);

            fn spec_schema() -> serde_json::Value {
                $crate::schema::of::<$spec>()
            }

            #[allow(unreachable_code, reason = "kinds without a status")]
            fn status_schema() -> Option<serde_json::Value> {
                $(return Some($crate::schema::of::<$status>());)?
                None
            }
        }
    };
    (@scope Namespaced) => { kube::core::NamespaceResourceScope };
    (@scope Cluster) => { kube::core::ClusterResourceScope };
    (@namespaced Namespaced) => { true };
    (@namespaced Cluster) => { false };
}
pub(crate) use karmada_kind;

#[cfg(test)]
mod tests {
    use kube::Resource;
    use serde_json::json;

    use crate::{
        cluster::{Cluster, ClusterSpec, ClusterSyncMode},
        policy::PropagationPolicy,
    };

    #[test]
    fn an_object_says_what_it_is() {
        let spec = ClusterSpec { sync_mode: ClusterSyncMode::Push, ..Default::default() };
        let cluster = Cluster::new("east", spec);
        let written = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "east"},
            "spec": {"syncMode": "Push"},
        });
        assert_eq!(serde_json::to_value(&cluster).unwrap(), written);
        assert_eq!(serde_json::from_value::<Cluster>(written).unwrap(), cluster);
        assert_eq!(Cluster::url_path(&(), None), "/apis/cluster.karmada.io/v1alpha1/clusters");
        assert_eq!(
            PropagationPolicy::url_path(&(), Some("shop")),
            "/apis/policy.karmada.io/v1alpha1/namespaces/shop/propagationpolicies"
        );
    }

    #[test]
    fn defaults_are_filled_in_when_read() {
        let policy: PropagationPolicy = serde_json::from_value(json!({
            "metadata": {}, "spec": {"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}]},
        }))
        .unwrap();
        assert_eq!(
            serde_json::to_value(&policy.spec).unwrap(),
            json!({
                "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}], "priority": 0,
                "preemption": "Never", "schedulerName": "default-scheduler", "conflictResolution": "Abort",
            })
        );
    }
}
