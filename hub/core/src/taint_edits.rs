//! What people ask to be done to a cluster's taints, as `kubectl taint` takes it: `key=value:Effect`, `key:Effect`,
//! `key:Effect-`, `key-`.

use karmada_api::consts::taint::{NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE};
use karmada_meta::{names, object, time::Time};
use serde_json::{Value, json};

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Put a taint on.
    Add {
        /// Its key.
        key: String,
        /// Its value; may be empty.
        value: String,
        /// Its effect.
        effect: String,
    },
    /// Take a taint off.
    Remove {
        /// Its key.
        key: String,
        /// Its effect; without one, all of the key.
        effect: Option<String>,
    },
}

impl Edit {
    /// Puts a taint without a value on.
    pub fn add(key: &str, effect: &str) -> Self {
        Self::Add { key: key.to_owned(), value: String::new(), effect: effect.to_owned() }
    }

    /// Takes the taint of a key and an effect off.
    pub fn remove(key: &str, effect: &str) -> Self {
        Self::Remove { key: key.to_owned(), effect: Some(effect.to_owned()) }
    }

    /// Whether a word of a command line is an edit and no name.
    pub fn looks_like_one(word: &str) -> bool {
        word.contains(['=', ':']) || word.ends_with('-')
    }

    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = |why: String| format!("{text:?} is no taint: {why}");
        let (body, removes) = match text.strip_suffix('-') {
            Some(body) => (body, true),
            None => (text, false),
        };
        let (pair, effect) = match body.split_once(':') {
            Some((pair, effect)) => (pair, Some(effect)),
            None => (body, None),
        };
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        names::qualified_name(key).map_err(|why| bad(format!("key {key:?}: {why}")))?;
        if let Some(effect) = effect
            && ![NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE].contains(&effect)
        {
            return Err(bad(format!(
                "effect {effect:?} is none of {NO_SCHEDULE}, {PREFER_NO_SCHEDULE} and {NO_EXECUTE}"
            )));
        }
        if removes {
            return Ok(Self::Remove { key: key.to_owned(), effect: effect.map(str::to_owned) });
        }
        let Some(effect) = effect else {
            return Err(bad("it has no effect; write key=value:Effect".to_owned()));
        };
        if !value.is_empty() {
            names::label_value(value).map_err(|why| bad(format!("value {value:?}: {why}")))?;
        }
        Ok(Self::Add { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned() })
    }
}

/// Reads the edits of one command.
///
/// # Errors
/// What is wrong with one, or two that contradict each other.
pub fn parse_all<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Vec<Edit>, String> {
    let edits = texts.into_iter().map(Edit::parse).collect::<Result<Vec<_>, _>>()?;
    for edit in &edits {
        let Edit::Remove { key, effect } = edit else { continue };
        let contradicts = |other: &&Edit| match other {
            Edit::Add { key: added, effect: its, .. } => {
                added == key && effect.as_ref().is_none_or(|effect| effect == its)
            }
            Edit::Remove { .. } => false,
        };
        if edits.iter().any(|other| contradicts(&other)) {
            return Err(format!("taint {key:?} cannot be put on and taken off at once"));
        }
    }
    Ok(edits)
}

/// What was done to a cluster's taints, in karmadactl's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Nothing: they are as asked for.
    Unchanged,
    /// Some were put on.
    Tainted,
    /// Some were taken off.
    Untainted,
    /// Both, or values were replaced.
    Modified,
}

/// Does what is asked to the taints of a Cluster. Taints of other keys and effects stay in their places with fields
/// that are newer than these types. A NoExecute taint gets the time, which tolerations with seconds count from.
///
/// # Errors
/// A taint is there with another value and may not be overwritten, or one to take off is not there. Nothing is changed
/// then.
pub fn apply(cluster: &mut Value, edits: &[Edit], overwrite: bool, now: Time) -> Result<Done, String> {
    let before = cluster.pointer("/spec/taints").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut taints = before.clone();
    let (mut added, mut removed, mut replaced) = (false, false, false);
    for edit in edits {
        match edit {
            Edit::Add { key, value, effect } => {
                let same = |taint: &Value| taint["key"] == *key && taint["effect"] == *effect;
                if let Some(present) = taints.iter_mut().find(|taint| same(taint)) {
                    let other = present["value"].as_str().unwrap_or_default() != value;
                    if other && !overwrite {
                        return Err(format!(
                            "taint {key}:{effect} is there with another value; --overwrite replaces it"
                        ));
                    }
                    if other {
                        set_value(present, value);
                        replaced = true;
                    }
                } else {
                    let mut taint = json!({"key": key, "effect": effect});
                    set_value(&mut taint, value);
                    if effect == NO_EXECUTE {
                        taint["timeAdded"] = json!(now);
                    }
                    taints.push(taint);
                    added = true;
                }
            }
            Edit::Remove { key, effect } => {
                let held = taints.len();
                let same = |taint: &Value| {
                    taint["key"] == *key && effect.as_ref().is_none_or(|effect| taint["effect"] == *effect)
                };
                taints.retain(|taint| !same(taint));
                if taints.len() == held {
                    let effect = effect.as_ref().map(|effect| format!(":{effect}")).unwrap_or_default();
                    return Err(format!("taint {key}{effect} is not there"));
                }
                removed = true;
            }
        }
    }
    if taints != before {
        let spec = object::ensure_map(cluster, "spec");
        if taints.is_empty() {
            spec.remove("taints");
        } else {
            spec.insert("taints".to_owned(), taints.into());
        }
    }
    Ok(match (added, removed, replaced) {
        (false, false, false) => Done::Unchanged,
        (true, false, false) => Done::Tainted,
        (false, true, false) => Done::Untainted,
        _ => Done::Modified,
    })
}

fn set_value(taint: &mut Value, value: &str) {
    if let Some(map) = taint.as_object_mut() {
        if value.is_empty() {
            map.remove("value");
        } else {
            map.insert("value".to_owned(), value.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_kubectls() {
        let add = |key: &str, value: &str, effect: &str| {
            Ok(Edit::Add { key: key.into(), value: value.into(), effect: effect.into() })
        };
        let remove = |key: &str, effect: Option<&str>| {
            Ok(Edit::Remove { key: key.into(), effect: effect.map(str::to_owned) })
        };
        let table = [
            ("gpu=a100:NoSchedule", add("gpu", "a100", "NoSchedule")),
            ("gpu:NoExecute", add("gpu", "", "NoExecute")),
            ("example.com/gpu=:PreferNoSchedule", add("example.com/gpu", "", "PreferNoSchedule")),
            ("gpu:NoSchedule-", remove("gpu", Some("NoSchedule"))),
            ("gpu=a100:NoSchedule-", remove("gpu", Some("NoSchedule"))),
            ("gpu-", remove("gpu", None)),
            ("gpu=a100", Err("it has no effect")),
            ("gpu:Never", Err("effect \"Never\" is none of")),
            ("-gpu:NoSchedule", Err("key \"-gpu\"")),
            ("gpu=a b:NoSchedule", Err("value \"a b\"")),
            ("=a:NoSchedule", Err("key \"\"")),
        ];
        for (text, want) in table {
            match (Edit::parse(text), want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "{text}"),
                (Err(got), Err(want)) => assert!(got.contains(want), "{text}: {got}"),
                (got, want) => panic!("{text}: {got:?}, not {want:?}"),
            }
        }
        assert!(parse_all(["a:NoSchedule", "a-"]).is_err_and(|why| why.contains("at once")));
        assert!(parse_all(["a:NoSchedule", "a:NoExecute-"]).is_ok());
    }

    #[test]
    fn taints_are_edited_in_place() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let cluster = || {
            json!({"metadata": {"name": "a"}, "spec": {"syncMode": "Pull", "taints": [
                {"key": "k", "value": "v", "effect": "NoSchedule", "newer": 1}, {"key": "x", "effect": "NoExecute"},
            ]}})
        };
        let table: [(&[&str], bool, Result<Done, &str>, Value); 8] = [
            (&["k=v:NoSchedule"], false, Ok(Done::Unchanged), cluster()["spec"]["taints"].clone()),
            (&["k=w:NoSchedule"], false, Err("--overwrite"), cluster()["spec"]["taints"].clone()),
            (
                &["k=w:NoSchedule"],
                true,
                Ok(Done::Modified),
                json!([{"key": "k", "value": "w", "effect": "NoSchedule", "newer": 1}, {"key": "x", "effect": "NoExecute"}]),
            ),
            (
                &["y:NoExecute", "x-"],
                false,
                Ok(Done::Modified),
                json!([{"key": "k", "value": "v", "effect": "NoSchedule", "newer": 1},
                       {"key": "y", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]),
            ),
            (&["k:NoSchedule-"], false, Ok(Done::Untainted), json!([{"key": "x", "effect": "NoExecute"}])),
            (&["k-", "x:NoExecute-"], false, Ok(Done::Untainted), json!(null)),
            (&["z-"], false, Err("taint z is not there"), cluster()["spec"]["taints"].clone()),
            (
                &["k:NoExecute"],
                false,
                Ok(Done::Tainted),
                json!([{"key": "k", "value": "v", "effect": "NoSchedule", "newer": 1}, {"key": "x", "effect": "NoExecute"},
                       {"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]),
            ),
        ];
        for (texts, overwrite, want, taints) in table {
            let edits = parse_all(texts.iter().copied()).unwrap();
            let mut live = cluster();
            match (apply(&mut live, &edits, overwrite, now), want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "{texts:?}"),
                (Err(got), Err(want)) => assert!(got.contains(want), "{texts:?}: {got}"),
                (got, want) => panic!("{texts:?}: {got:?}, not {want:?}"),
            }
            assert_eq!(live["spec"]["taints"], taints, "{texts:?}");
            assert_eq!(live["spec"]["syncMode"], "Pull");
        }
    }
}
