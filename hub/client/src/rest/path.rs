//! The paths of the API: nothing else concatenates them.

use std::{borrow::Cow, fmt};

/// A kind as it is addressed: where its objects live.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: String,
    /// API version within the group.
    pub version: String,
    /// The name in paths: `deployments`.
    pub plural: String,
    /// The kind in objects: `Deployment`.
    pub kind: String,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
}

impl Resource {
    /// A resource of the given names.
    pub fn new(group: &str, version: &str, plural: &str, kind: &str, namespaced: bool) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            plural: plural.into(),
            kind: kind.into(),
            namespaced,
        }
    }

    /// `apps/v1`, or `v1` for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The path of all objects, in one namespace if one is given and the kind is namespaced.
    pub fn collection(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", self.group) };
        match namespace.filter(|n| self.namespaced && !n.is_empty()) {
            Some(namespace) => {
                format!("{root}/{}/namespaces/{}/{}", self.version, segment(namespace), self.plural)
            }
            None => format!("{root}/{}/{}", self.version, self.plural),
        }
    }

    /// The path of one object.
    pub fn object(&self, namespace: Option<&str>, name: &str) -> String {
        format!("{}/{}", self.collection(namespace), segment(name))
    }

    /// The path of a subresource of one object.
    pub fn subresource(&self, namespace: Option<&str>, name: &str, subresource: &str) -> String {
        format!("{}/{}/{subresource}", self.collection(namespace), segment(name))
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.plural)
        } else {
            write!(f, "{}.{}", self.plural, self.group)
        }
    }
}

/// Percent-encodes a value for a query.
pub fn query_value(value: &str) -> String {
    encode_but(value, b"-._~")
}

/// Percent-encodes a name of which it is not known whether a server would accept it, as a segment of a path.
pub fn path_segment(name: &str) -> String {
    segment(name).into_owned()
}

/// Percent-encodes a segment of a path. Names are not always what a server would accept.
fn segment(name: &str) -> Cow<'_, str> {
    const PLAIN: &[u8] = b"-._~:@!$&'()*+,;=";
    if name == "." || name == ".." {
        return Cow::Owned(encode_but(name, b""));
    }
    if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || PLAIN.contains(&byte)) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(encode_but(name, PLAIN))
}

/// Percent-encodes all but letters, digits and these.
fn encode_but(text: &str, plain: &[u8]) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let deployments = Resource::new("apps", "v1", "deployments", "Deployment", true);
        let nodes = Resource::new("", "v1", "nodes", "Node", false);
        let rows = [
            (deployments.collection(None), "/apis/apps/v1/deployments"),
            (deployments.collection(Some("shop")), "/apis/apps/v1/namespaces/shop/deployments"),
            (deployments.object(Some("shop"), "web"), "/apis/apps/v1/namespaces/shop/deployments/web"),
            (
                deployments.subresource(Some("shop"), "web", "status"),
                "/apis/apps/v1/namespaces/shop/deployments/web/status",
            ),
            (nodes.object(None, "n1"), "/api/v1/nodes/n1"),
            (nodes.object(Some("ignored"), "n1"), "/api/v1/nodes/n1"),
            (nodes.object(None, "system:node"), "/api/v1/nodes/system:node"),
            (nodes.object(None, "n1/status?a#b%c"), "/api/v1/nodes/n1%2Fstatus%3Fa%23b%25c"),
            (nodes.object(None, ".."), "/api/v1/nodes/%2E%2E"),
            (deployments.collection(Some("a/b")), "/apis/apps/v1/namespaces/a%2Fb/deployments"),
            (deployments.api_version(), "apps/v1"),
            (nodes.api_version(), "v1"),
            (deployments.to_string(), "deployments.apps"),
        ];
        for (got, want) in rows {
            assert_eq!(got, want);
        }
    }

    #[test]
    fn query_values_are_encoded() {
        assert_eq!(
            query_value("karmada.io/managed=true,a in (b)"),
            "karmada.io%2Fmanaged%3Dtrue%2Ca%20in%20%28b%29"
        );
    }
}
