//! Names that both sides compute: where a cluster's Works live, what a binding and a Work are called.
//!
//! They are part of the contract with a stock Karmada, whose agents and tools compute the same ones, so nothing
//! here may change by taste. Note that a Work's name holds neither group nor version of its manifest: two kinds
//! of one name in different groups collide, which the binding controller reports ([`work_name`]).

use std::hash::Hasher;

use fnv::FnvHasher;
use karmada_api::consts::{namespace::EXECUTION_PREFIX, subject};

/// The namespace on the hub that holds the Works of a cluster.
pub fn execution_namespace(cluster: &str) -> String {
    format!("{EXECUTION_PREFIX}{cluster}")
}

/// The cluster whose Works live in `namespace`, if it is an execution namespace.
pub fn cluster_of_namespace(namespace: &str) -> Option<&str> {
    namespace.strip_prefix(EXECUTION_PREFIX).filter(|cluster| !cluster.is_empty())
}

/// The user name of a cluster's agent.
pub fn agent_user(cluster: &str) -> String {
    format!("{}{cluster}", subject::AGENT_PREFIX)
}

/// The name of the (cluster) binding of a template: `nginx-deployment`. It lives in the template's namespace.
pub fn binding_name(kind: &str, name: &str) -> String {
    format!("{}-{kind}", name.replace(':', ".")).to_lowercase()
}

/// The name of the Work that carries an object: its name, made fit for a Work's, and a hash of namespace, name
/// and kind. `namespace` is empty for what is cluster scoped.
///
/// ```
/// assert_eq!(karmada_core::names::work_name("Deployment", "default", "nginx"), "nginx-687f7fb96f");
/// ```
pub fn work_name(kind: &str, namespace: &str, name: &str) -> String {
    let name = name.replace(':', ".").to_lowercase();
    let hashed = if namespace.is_empty() {
        format!("{name}-{kind}").to_lowercase()
    } else {
        format!("{namespace}-{name}-{kind}").to_lowercase()
    };
    format!("{name}-{}", safe_hash(&hashed))
}

/// The hash by which attached bindings name the binding they depend on, as a part of a label's key
/// (`resourcebinding.karmada.io/depended-by-<key>`).
pub fn binding_reference_key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { safe_hash(name) } else { safe_hash(&format!("{namespace}/{name}")) }
}

/// FNV-1a over 32 bits, as Go's `fnv.New32a`.
pub fn fnv32a(text: &str) -> u32 {
    // The 64-bit hasher of the crate is another function; the 32-bit one is four lines.
    text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// FNV-1a over 64 bits: for marks of content that stay within one process or one object of ours.
pub fn fnv64a(bytes: &[u8]) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

/// The decimal 32-bit hash of a text in Kubernetes' alphabet without vowels.
fn safe_hash(text: &str) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let decimal = fnv32a(text).to_string();
    decimal.bytes().map(|b| char::from(ALPHABET[usize::from(b) % ALPHABET.len()])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_names_are_karmadas() {
        let table = [
            ("Deployment", "default", "nginx", "nginx-687f7fb96f"),
            ("Service", "default", "nginx", "nginx-64b7849b5"),
            ("Namespace", "", "foo", "foo-5dbdc7b59c"),
            ("Namespace", "", "shop", "shop-55c4c4674c"),
            ("Deployment", "shop", "web", "web-56d6c779bb"),
            ("Service", "shop", "web", "web-b97f76f44"),
            ("ServiceAccount", "shop", "web", "web-5df57c5bf5"),
            ("ClusterRole", "", "edge-reader", "edge-reader-7b49c54475"),
        ];
        for (kind, namespace, name, want) in table {
            assert_eq!(work_name(kind, namespace, name), want, "{kind} {namespace}/{name}");
        }
    }

    #[test]
    fn colons_and_capitals_are_made_fit() {
        assert_eq!(binding_name("ClusterRole", "system:Node"), "system.node-clusterrole");
        assert!(work_name("ClusterRole", "", "system:Node").starts_with("system.node-"));
        assert_eq!(
            work_name("ClusterRole", "", "system:node"),
            work_name("ClusterRole", "", "system.node"),
            "the hash is taken of the name already made fit"
        );
    }

    #[test]
    fn reference_keys_are_karmadas() {
        assert_eq!(binding_reference_key("shop", "web-deployment"), "8546649456");
    }

    #[test]
    fn execution_namespaces_lead_back_to_their_cluster() {
        assert_eq!(execution_namespace("member1"), "karmada-es-member1");
        assert_eq!(cluster_of_namespace("karmada-es-member1"), Some("member1"));
        assert_eq!(cluster_of_namespace("karmada-es-"), None);
        assert_eq!(cluster_of_namespace("default"), None);
        assert_eq!(agent_user("m"), "system:karmada:agent:m");
    }
}
