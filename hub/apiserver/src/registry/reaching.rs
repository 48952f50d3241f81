//! Where the hub sends the tokens by which it reaches members: the Secrets say what, the Cluster says where. Who may change the
//! one and not read the other would have it sent to themselves.

use serde_json::Value;

/// The kind as the store names it.
pub(super) const CLUSTERS: &str = "cluster.karmada.io/clusters";

/// What of a Cluster's spec says where, by what way and to whom.
const WHERE: [&str; 7] = [
    "syncMode",
    "apiEndpoint",
    "insecureSkipTLSVerification",
    "proxyURL",
    "proxyHeader",
    "secretRef",
    "impersonatorSecretRef",
];

/// The Secrets, by namespace and name, whose tokens go elsewhere by a change than before, or to somewhere for the first time.
pub(super) fn sent_elsewhere<'a>(old: Option<&Value>, new: &'a Value) -> Vec<(&'a str, &'a str)> {
    let said = |cluster: &Value, field: &str| {
        let value = cluster["spec"][field].clone();
        let nothing = match &value {
            Value::Null | Value::Bool(false) => true,
            Value::String(text) => text.is_empty(),
            Value::Object(map) => map.is_empty(),
            _ => false,
        };
        if nothing { Value::Null } else { value }
    };
    let nothing = Value::Null;
    let old = old.unwrap_or(&nothing);
    if WHERE.iter().all(|field| said(old, field) == said(new, field)) {
        return Vec::new();
    }
    let named = ["secretRef", "impersonatorSecretRef"].into_iter().filter_map(|field| {
        let place = &new["spec"][field];
        Some((place["namespace"].as_str()?, place["name"].as_str()?))
    });
    named.filter(|(_, name)| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_change_sends_elsewhere() {
        let spec = json!({
            "syncMode": "Push", "apiEndpoint": "https://m",
            "secretRef": {"namespace": "karmada-cluster", "name": "m"},
            "impersonatorSecretRef": {"namespace": "karmada-cluster", "name": "m-impersonator"},
        });
        let was = json!({"spec": spec});
        for (field, value, elsewhere) in [
            ("apiEndpoint", json!("https://m"), false),
            ("apiEndpoint", json!("https://evil"), true),
            ("insecureSkipTLSVerification", json!(true), true),
            ("insecureSkipTLSVerification", json!(false), false),
            ("proxyURL", json!("http://evil"), true),
            ("proxyURL", json!(""), false),
            ("proxyHeader", json!({"a": "b"}), true),
            ("proxyHeader", json!({}), false),
            ("syncMode", json!("Pull"), true),
            ("secretRef", json!({"namespace": "karmada-cluster", "name": "m2"}), true),
            ("taints", json!([{"key": "a"}]), false),
            ("region", json!("eu"), false),
        ] {
            let mut new = was.clone();
            new["spec"][field] = value;
            assert_eq!(!sent_elsewhere(Some(&was), &new).is_empty(), elsewhere, "{field}: {new}");
        }
        let both = [("karmada-cluster", "m"), ("karmada-cluster", "m-impersonator")];
        assert_eq!(sent_elsewhere(None, &was), both, "a new one");
        let agents = json!({"spec": {"syncMode": "Pull", "apiEndpoint": "https://m"}});
        assert_eq!(sent_elsewhere(None, &agents), [], "nothing is sent");
    }
}
