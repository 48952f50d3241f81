//! A few short texts, in one piece of memory: each in a piece of its own takes several times what stands in it. There are as many
//! lists of them as objects. What stands in most of them is named by its number in [`WORDS`].

use std::fmt;

/// Of a number, in one byte: the rest is in the next. Most are small.
const MORE: u8 = 0x80;

/// What labels and selectable fields of many objects say, in order: keys of labels, and of Events the kinds and versions of what
/// they are about, their reasons and who writes them. Never more than 64, whose numbers take one byte. These numbers never reach a
/// file.
#[rustfmt::skip]
const WORDS: [&str; 63] = [
    "AggregateStatusFailed",
    "AggregateStatusSucceed",
    "ApplyOverridePolicySucceed",
    "ApplyPolicyFailed",
    "ApplyPolicySucceed",
    "CleanupWorkFailed",
    "Cluster",
    "ClusterResourceBinding",
    "ConfigMap",
    "CronJob",
    "DaemonSet",
    "Deployment",
    "InterpretHealthFailed",
    "InterpretHealthSucceed",
    "Job",
    "MultiClusterService",
    "Namespace",
    "Normal",
    "Pod",
    "ReflectStatusFailed",
    "ReflectStatusSucceed",
    "ResourceBinding",
    "ScheduleBindingFailed",
    "ScheduleBindingSucceed",
    "Secret",
    "Service",
    "ServiceAccount",
    "StatefulSet",
    "SyncFailed",
    "SyncSucceed",
    "SyncWorkFailed",
    "SyncWorkSucceed",
    "Warning",
    "Work",
    "WorkDispatching",
    "apps/v1",
    "batch/v1",
    "binding-controller",
    "cluster-resource-binding-controller",
    "cluster-resource-binding-status-controller",
    "cluster.karmada.io/v1alpha1",
    "clusterpropagationpolicy.karmada.io/permanent-id",
    "clusterresourcebinding.karmada.io/permanent-id",
    "default-scheduler",
    "endpointslice.karmada.io/managed-by",
    "execution-controller",
    "karmada.io/managed",
    "kubernetes.io/metadata.name",
    "kubernetes.io/service-name",
    "multiclusterservice.karmada.io/name",
    "multiclusterservice.karmada.io/namespace",
    "multiclusterservice.karmada.io/permanent-id",
    "override-manager",
    "propagationpolicy.karmada.io/permanent-id",
    "resource-binding-status-controller",
    "resource-detector",
    "resourcebinding.karmada.io/permanent-id",
    "true",
    "v1",
    "work-status-controller",
    "work.karmada.io/permanent-id",
    "work.karmada.io/v1alpha1",
    "work.karmada.io/v1alpha2",
];

/// Texts in their order: of each twice its length, seven bits to a byte, and itself; of a word twice its number and one.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Texts(Box<[u8]>);

impl Texts {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let mut rest: &[u8] = &self.0;
        std::iter::from_fn(move || {
            let (text, after) = first(rest)?;
            rest = after;
            Some(text)
        })
    }

    /// The one at a place.
    pub fn get(&self, at: usize) -> Option<&str> {
        self.iter().nth(at)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The first text, and what is behind it.
fn first(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (mut number, mut rest) = (0_usize, bytes);
    for shift in (0..usize::BITS).step_by(7) {
        let (byte, after) = rest.split_first()?;
        rest = after;
        number |= usize::from(byte & !MORE) << shift;
        if byte & MORE == 0 {
            break;
        }
    }
    if number % 2 == 1 {
        return Some((*WORDS.get(number / 2)?, rest));
    }
    let (text, rest) = rest.split_at_checked(number / 2)?;
    Some((std::str::from_utf8(text).ok()?, rest))
}

impl<T: AsRef<str>> FromIterator<T> for Texts {
    fn from_iter<I: IntoIterator<Item = T>>(texts: I) -> Self {
        let mut bytes = Vec::new();
        for text in texts {
            let text = text.as_ref();
            let word = WORDS.binary_search(&text);
            let mut number = word.map_or(text.len() * 2, |word| word * 2 + 1);
            while number >= usize::from(MORE) {
                bytes.push(number as u8 | MORE);
                number >>= 7;
            }
            bytes.push(number as u8);
            if word.is_err() {
                bytes.extend_from_slice(text.as_bytes());
            }
        }
        Self(bytes.into())
    }
}

impl fmt::Debug for Texts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_what_they_were_made_of() {
        let long = "x".repeat(70_000);
        let (edge, beyond) = ("y".repeat(63), "z".repeat(64));
        let all = ["b", "", "\u{e9}", "Work", long.as_str(), edge.as_str(), beyond.as_str(), "Works", "b"];
        let texts: Texts = all.into_iter().collect();
        assert_eq!(texts.iter().collect::<Vec<_>>(), all);
        assert_eq!((texts.get(2), texts.get(3), texts.get(9)), (Some("\u{e9}"), Some("Work"), None));
        assert!(!texts.is_empty());
        assert!(!Texts::from_iter([""]).is_empty(), "an empty text is one");
        let none = Texts::default();
        assert!(none.is_empty() && none.get(0).is_none() && none == Texts::from_iter(<[&str; 0]>::default()));
    }

    #[test]
    fn a_word_takes_one_byte() {
        assert!(WORDS.is_sorted() && WORDS.len() <= 64);
        let texts: Texts = WORDS.into_iter().collect();
        assert_eq!(texts.iter().collect::<Vec<_>>(), WORDS);
        assert_eq!(texts.0.len(), WORDS.len());
    }
}
