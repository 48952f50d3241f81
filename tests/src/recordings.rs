//! Recordings of a stock Karmada, and a fleet's own objects beside them.
//!
//! A recording is a stream of YAML documents, each under the kubectl command that read it. [`Document::path`] turns the
//! command into a request, and [`differences`] compares what was recorded with what is answered now, field by field,
//! without what no two servers have in common: uids, versions, generations, times.

use std::{collections::BTreeMap, path::Path};

use serde_json::Value;

/// What stands for every uid, and for every time.
const UID: &str = "<uid>";
const TIME: &str = "<time>";

/// What one command has shown.
#[derive(Clone, Debug)]
pub struct Document {
    /// `hub`, or a member's name.
    pub server: String,
    /// `get deploy nginx -n shop`, without the verb.
    pub asked: String,
    /// The object, or those of a list.
    pub objects: Vec<Value>,
}

/// The documents of a recording; nothing (and a line that says so) where it is not at hand.
///
/// # Panics
/// When it is no YAML.
pub fn recording(name: &str) -> Option<Vec<Document>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/karmada/recordings");
    let Ok(text) = std::fs::read_to_string(folder.join(name)) else {
        eprintln!("skipped: there is no {}", folder.join(name).display());
        return None;
    };
    let document = |document: &str| {
        let (title, body) = document.split_once('\n').expect("a title line");
        let (server, asked) = title.trim_start_matches("# ").split_once(": get ").expect("SERVER: get …");
        let value: Value = serde_saphyr::from_str(body).expect("a YAML document");
        let objects = value["items"].as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
        Document { server: server.to_owned(), asked: asked.to_owned(), objects }
    };
    Some(text.split("\n---\n").skip(1).map(document).collect())
}

impl Document {
    /// Where the same is to be read; nothing for a kind that is not compared.
    pub fn path(&self) -> Option<String> {
        let (mut namespace, mut selector, mut names) = ("default", None, Vec::new());
        let mut words = self.asked.split(' ');
        while let Some(word) = words.next() {
            match word {
                "-n" => namespace = words.next()?,
                "-l" => selector = words.next(),
                word if word.starts_with('-') => return None,
                name => names.push(name),
            }
        }
        let within = |root: &str, plural: &str| format!("{root}/namespaces/{namespace}/{plural}");
        let mut path = match *names.first()? {
            "deploy" => within("/apis/apps/v1", "deployments"),
            "cm" => within("/api/v1", "configmaps"),
            "pp" => within("/apis/policy.karmada.io/v1alpha1", "propagationpolicies"),
            "op" => within("/apis/policy.karmada.io/v1alpha1", "overridepolicies"),
            "rb" => within("/apis/work.karmada.io/v1alpha2", "resourcebindings"),
            "work" => within("/apis/work.karmada.io/v1alpha1", "works"),
            "crb" => "/apis/work.karmada.io/v1alpha2/clusterresourcebindings".to_owned(),
            "cpp" => "/apis/policy.karmada.io/v1alpha1/clusterpropagationpolicies".to_owned(),
            "clusterrole" => "/apis/rbac.authorization.k8s.io/v1/clusterroles".to_owned(),
            "ns" => "/api/v1/namespaces".to_owned(),
            _ => return None,
        };
        if let Some(name) = names.get(1) {
            path = format!("{path}/{name}");
        }
        if let Some(selector) = selector {
            path = format!("{path}?labelSelector={selector}");
        }
        Some(path)
    }

    /// What users gave for the objects that are in it, or in the Works that are: kubectl keeps it in an annotation.
    pub fn applied(&self) -> Vec<Value> {
        let manifests = |object: &Value| match object.pointer("/spec/workload/manifests") {
            Some(Value::Array(manifests)) => manifests.clone(),
            _ => vec![object.clone()],
        };
        self.objects.iter().flat_map(manifests).filter_map(|object| applied(&object)).collect()
    }
}

/// The object that `kubectl apply` was given for another, with the annotation by which it remembers that.
fn applied(object: &Value) -> Option<Value> {
    const LAST: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let last = &object["metadata"]["annotations"][LAST];
    let mut given: Value = serde_json::from_str(last.as_str()?).ok()?;
    given["metadata"]["annotations"][LAST] = last.clone();
    Some(given)
}

/// Where two objects differ: a path, what was recorded there and what is there.
pub type Differences = BTreeMap<String, (Option<Value>, Option<Value>)>;

/// Where what is there now differs from what was recorded: objects by name, list entries by what names them.
pub fn differences(recorded: &[Value], live: &[Value]) -> Differences {
    let all = |objects: &[Value]| {
        let mut leaves = BTreeMap::new();
        for object in objects {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let mut object = object.clone();
            // A list says it once for all.
            for field in ["apiVersion", "kind"] {
                object.as_object_mut().map(|fields| fields.shift_remove(field));
            }
            flatten(&mut leaves, &name.replace('/', "~1"), &object);
        }
        leaves
    };
    let (recorded, live) = (all(recorded), all(live));
    let paths = recorded.keys().chain(live.keys());
    let differing = paths.filter(|path| recorded.get(*path) != live.get(*path));
    differing.map(|path| (path.clone(), (recorded.get(path).cloned(), live.get(path).cloned()))).collect()
}

/// The fields that servers give as they please.
const BOOKKEEPING: [&str; 6] =
    ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink"];

fn flatten(leaves: &mut BTreeMap<String, Value>, path: &str, value: &Value) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let metadata = path.ends_with("/metadata") || path.ends_with("/spec/resource");
            for (name, field) in fields {
                let kept = !(metadata && BOOKKEEPING.contains(&name.as_str()));
                if kept {
                    flatten(leaves, &format!("{path}/{}", name.replace('/', "~1")), field);
                }
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (at, item) in items.iter().enumerate() {
                let text = |field: &str| item[field].as_str().map(str::to_owned);
                // Clusters stand in the order of the room that they had, which is theirs.
                let named = |list: &str, field: &str| text(field).filter(|_| path.ends_with(list));
                let key = text("clusterName")
                    .or_else(|| named("/conditions", "type"))
                    .or_else(|| named("/clusters", "name"));
                flatten(leaves, &format!("{path}/{}", key.unwrap_or_else(|| at.to_string())), item);
            }
        }
        Value::String(text) => drop(leaves.insert(path.to_owned(), plain(text).into())),
        other => drop(leaves.insert(path.to_owned(), other.clone())),
    }
}

/// A text without what is made up anew each time.
fn plain(text: &str) -> String {
    let uid = |text: &str| {
        let parts: Vec<_> = text.split('-').map(str::len).collect();
        parts == [8, 4, 4, 4, 12] && text.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit())
    };
    if uid(text) {
        UID.to_owned()
    } else if text.parse::<jiff::Timestamp>().is_ok() {
        TIME.to_owned()
    } else {
        text.to_owned()
    }
}

/// Whether a path is one that a pattern means: `*` stands for one step, `**` at the end for all that follow.
pub fn means(pattern: &str, path: &str) -> bool {
    let (mut pattern, mut path) = (pattern.split('/'), path.split('/'));
    loop {
        match (pattern.next(), path.next()) {
            (Some("**"), Some(_)) | (None, None) => return true,
            (Some("*"), Some(_)) => {}
            (Some(wanted), Some(step)) if wanted == step => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn commands_are_requests() {
        let path =
            |asked: &str| Document { server: "hub".into(), asked: asked.into(), objects: Vec::new() }.path();
        let table = [
            ("deploy nginx", Some("/apis/apps/v1/namespaces/default/deployments/nginx")),
            ("-n shop cm web", Some("/api/v1/namespaces/shop/configmaps/web")),
            ("crb", Some("/apis/work.karmada.io/v1alpha2/clusterresourcebindings")),
            (
                "-n a work -l x.y/z",
                Some("/apis/work.karmada.io/v1alpha1/namespaces/a/works?labelSelector=x.y/z"),
            ),
            ("events -A --field-selector type=Warning", None),
            ("cluster member1", None),
        ];
        for (asked, want) in table {
            assert_eq!(path(asked).as_deref(), want, "{asked}");
        }
    }

    #[test]
    fn only_what_is_decided_is_compared() {
        let object = |uid: &str, at: &str, reason: &str| {
            json!({"metadata": {"name": "a", "uid": uid, "labels": {"id": uid}},
                   "status": {"conditions": [{"type": "Ready", "lastTransitionTime": at, "reason": reason}]}})
        };
        let (one, other) = ("4488d93a-a84e-43a6-b017-caaa38754f37", "293b8a6b-549b-4efa-b8c9-6ff36f0286c9");
        let recorded = object(one, "2026-11-20T10:35:31Z", "Good");
        let same = object(other, "2027-01-01T00:00:00Z", "Good");
        assert_eq!(differences(std::slice::from_ref(&recorded), &[same]), Differences::new());
        let differing = differences(&[recorded], &[object(other, "2027-01-01T00:00:00Z", "Bad")]);
        let path = "a/status/conditions/Ready/reason";
        assert_eq!(differing.keys().collect::<Vec<_>>(), [path]);
        for (pattern, want) in
            [(path, true), ("*/status/**", true), ("a/*/conditions/*/reason", true), ("a/status", false)]
        {
            assert_eq!(means(pattern, path), want, "{pattern}");
        }
    }
}
