//! What is kept of a member's Pods: a few bytes of each, since there may be many that are not the hub's business. Most Pods ask
//! for what others ask for, too, and many are on one node: such values are kept once.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use karmada_client::kept;
use karmada_meta::{object, quantity::Quantity};
use parking_lot::Mutex;
use serde_json::Value;

type Quantities = BTreeMap<String, Quantity>;

/// So many values that nobody has any more may be kept.
const UNUSED: usize = 64;

/// What is kept of a pod that takes or wants room.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pod {
    /// Empty while it has none.
    pub(crate) node: Arc<str>,
    pub(crate) requests: Arc<Quantities>,
    /// It has run to its end and takes no room any more.
    pub(crate) ended: bool,
}

/// Which Pod it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodId(u128);

/// Reads Pods, and keeps once what many have.
#[derive(Debug, Default)]
pub(crate) struct Pods {
    nodes: Mutex<Pool<str>>,
    requests: Mutex<Pool<Quantities>>,
    hash: (RandomState, RandomState),
}

impl Pods {
    /// Which it is, and what is kept of it.
    pub(crate) fn read(&self, pod: &Value) -> (PodId, Pod) {
        (self.id(pod), self.pod(pod))
    }

    /// By its uid, or by its name where that is none.
    fn id(&self, pod: &Value) -> PodId {
        let uid = object::uid(pod);
        let digits: String = uid.chars().filter(|&c| c != '-').collect();
        let number = (digits.len() == 32).then(|| u128::from_str_radix(&digits, 16).ok()).flatten();
        PodId(number.unwrap_or_else(|| {
            let name = (uid, object::namespace(pod), object::name(pod));
            u128::from(self.hash.0.hash_one(name)) << 64 | u128::from(self.hash.1.hash_one(name))
        }))
    }

    fn pod(&self, pod: &Value) -> Pod {
        let phase = pod.pointer("/status/phase").and_then(Value::as_str);
        let ended = matches!(phase, Some("Succeeded" | "Failed"));
        let (node, requests) = match ended {
            true => ("", Quantities::new()),
            false => (
                pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default(),
                pod.get("spec").map(karmada_interpreter::pod_requests).unwrap_or_default(),
            ),
        };
        let mut spelt = String::new();
        for (name, quantity) in &requests {
            // Writing to a text cannot fail.
            let _ = write!(spelt, "{name}={quantity},");
        }
        Pod {
            node: self.nodes.lock().shared(node, || node.into()),
            requests: self.requests.lock().shared(&spelt, || Arc::new(requests)),
            ended,
        }
    }
}

impl Pod {
    /// Bytes beyond itself, as if nobody shared them: those who do may go.
    pub(crate) fn elsewhere(&self) -> usize {
        kept::text(&self.node) + kept::quantities(&*self.requests)
    }
}

/// Values by how they are spelt, each once.
#[derive(Debug)]
struct Pool<T: ?Sized> {
    values: HashMap<Box<str>, Arc<T>>,
    /// With so many it is looked which nobody has any more.
    full: usize,
}

impl<T: ?Sized> Default for Pool<T> {
    fn default() -> Self {
        Self { values: HashMap::new(), full: UNUSED }
    }
}

impl<T: ?Sized> Pool<T> {
    fn shared(&mut self, spelt: &str, new: impl FnOnce() -> Arc<T>) -> Arc<T> {
        if let Some(value) = self.values.get(spelt) {
            return Arc::clone(value);
        }
        if self.values.len() >= self.full {
            self.values.retain(|_, value| Arc::strong_count(value) > 1);
            self.values.shrink_to(2 * self.values.len());
            self.full = 2 * self.values.len() + UNUSED;
        }
        let value = new();
        self.values.insert(spelt.into(), Arc::clone(&value));
        value
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, node: &str, cpu: &str) -> Value {
        json!({
            "metadata": {"uid": uid, "namespace": "n", "name": "p"},
            "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]},
            "status": {"phase": "Running"},
        })
    }

    #[test]
    fn what_many_have_is_kept_once() {
        let pods = Pods::default();
        let [(_, a), (_, b), (_, c)] =
            [("a", "1"), ("a", "1"), ("b", "2")].map(|(node, cpu)| pods.read(&pod("", node, cpu)));
        assert!(Arc::ptr_eq(&a.node, &b.node) && Arc::ptr_eq(&a.requests, &b.requests));
        assert_ne!((&a.node, &a.requests), (&c.node, &c.requests));
        // The same amount, spelt in another way, is told as it was spelt.
        let (_, d) = pods.read(&pod("", "a", "1000m"));
        assert_eq!(d, a);
    }

    #[test]
    fn what_nobody_has_any_more_goes() {
        let pods = Pods::default();
        let (_, stays) = pods.read(&pod("", "stays", "7"));
        for n in 0..1000 {
            pods.read(&pod("", &format!("node-{n}"), &format!("{n}")));
        }
        assert!(pods.nodes.lock().values.len() <= 2 * UNUSED + 2);
        assert!(pods.requests.lock().values.len() <= 2 * UNUSED + 2);
        assert!(Arc::ptr_eq(&stays.node, &pods.read(&pod("", "stays", "7")).1.node));
    }

    #[test]
    fn a_pod_is_known_by_its_uid() {
        let pods = Pods::default();
        let id = |uid: &str, name: &str| {
            pods.read(&json!({"metadata": {"uid": uid, "namespace": "n", "name": name}})).0
        };
        let uid = "0195d1a6-7c1e-7a80-8f4e-0123456789ab";
        assert_eq!(id(uid, "a"), PodId(0x0195_d1a6_7c1e_7a80_8f4e_0123_4567_89ab));
        assert_eq!(id("", "a"), id("", "a"));
        assert_ne!(id("", "a"), id("", "b"));
        assert_ne!(id("x", "a"), id("y", "a"), "one that is made anew is another");
        assert_eq!(
            pods.read(&json!({"status": {"phase": "Failed"}, "spec": {"nodeName": "a"}})).1.node.as_ref(),
            ""
        );
    }
}
