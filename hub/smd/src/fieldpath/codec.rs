//! `fieldsV1`: a set of paths as JSON.

use serde_json::{Map, Value};

use super::PathElement;
use super::set::{Node, Set};

/// `fieldsV1` that is not a set of paths.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("managed fields: {0}")]
pub struct DecodeError(pub String);

impl Set {
    /// The set as `fieldsV1`, in canonical order: what is owned itself (`.`) first, then fields, keys, values, indexes.
    pub fn to_fields_v1(&self) -> Value {
        Value::Object(self.nodes.iter().map(|n| (n.element.encode(), node_to_json(n))).collect())
    }

    /// Reads `fieldsV1`. Elements of a kind this version does not know are left out, as Kubernetes does.
    ///
    /// # Errors
    /// The value is not an object all the way down, or an element cannot be read.
    pub fn from_fields_v1(value: &Value) -> Result<Self, DecodeError> {
        let Value::Object(map) = value else {
            return Err(DecodeError(format!("expected an object, got {value}")));
        };
        from_map(map).map(|(_, set)| set)
    }
}

fn node_to_json(node: &Node) -> Value {
    let mut map = Map::with_capacity(node.children.nodes.len() + 1);
    if node.member && !node.children.is_empty() {
        map.insert(".".to_owned(), Value::Object(Map::new()));
    }
    for child in &node.children.nodes {
        map.insert(child.element.encode(), node_to_json(child));
    }
    Value::Object(map)
}

/// The set below an object, and whether the object says that its own node is a member.
fn from_map(map: &Map<String, Value>) -> Result<(bool, Set), DecodeError> {
    let mut itself = map.is_empty();
    let mut nodes = Vec::with_capacity(map.len());
    for (key, value) in map {
        if key == "." {
            itself = true;
            continue;
        }
        let Some(element) = PathElement::decode(key).map_err(DecodeError)? else {
            continue;
        };
        let Value::Object(below) = value else {
            return Err(DecodeError(format!("expected an object under {key}, got {value}")));
        };
        let (member, children) = from_map(below)?;
        if member || !children.is_empty() {
            nodes.push(Node { element, member, children });
        }
    }
    Ok((itself, Set::from_nodes(nodes)))
}

impl Set {
    /// Every path as text, one a line, for messages and tests.
    pub fn to_lines(&self) -> String {
        let mut out = String::new();
        self.for_each(&mut |path| {
            out.push_str(&super::Path(path.to_vec()).to_string());
            out.push('\n');
        });
        out
    }
}
