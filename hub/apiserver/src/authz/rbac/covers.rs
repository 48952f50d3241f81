//! Whether rules amount to others: nobody gives away what they do not have.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fmt::Write as _,
};

use super::rule::{ALL, PolicyRule, path_covers};

/// Rights one by one, of rules that no single rule amounts to. More are not counted: a rule of thousands of verbs on
/// thousands of resources is short, and what it says is not.
pub const LIMIT: usize = 10_000;

/// What is not covered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Uncovered {
    /// These rights, one by one.
    Rights(Vec<PolicyRule>),
    /// It takes too many to tell.
    TooMany,
}

/// Whether everything that `wanted` allows is allowed by `owned`.
///
/// # Errors
/// What is not.
pub fn covers(owned: &[PolicyRule], wanted: &[PolicyRule]) -> Result<(), Uncovered> {
    let (mut missing, mut left) = (Vec::new(), LIMIT);
    for rule in wanted {
        let rule = &distinct(rule);
        if owned.iter().any(|ours| rule_covers(ours, rule)) {
            continue;
        }
        left = singles_count(rule).and_then(|count| left.checked_sub(count)).ok_or(Uncovered::TooMany)?;
        for single in singles(rule) {
            if !owned.iter().any(|ours| rule_covers(ours, &single)) {
                missing.push(single);
            }
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(Uncovered::Rights(missing)) }
}

/// A rule that says everything once. What is compared takes as long as it is long.
fn distinct(rule: &PolicyRule) -> PolicyRule {
    let mut rule = rule.clone();
    let PolicyRule { verbs, api_groups, resources, resource_names, non_resource_urls } = &mut rule;
    for list in [verbs, api_groups, resources, resource_names, non_resource_urls] {
        let mut seen = HashSet::new();
        list.retain(|text| seen.insert(text.clone()));
    }
    rule
}

/// How many rights a rule is.
fn singles_count(rule: &PolicyRule) -> Option<usize> {
    let resources = rule.api_groups.len().checked_mul(rule.resources.len())?;
    let resources = resources.checked_mul(rule.resource_names.len().max(1))?;
    rule.verbs.len().checked_mul(resources.checked_add(rule.non_resource_urls.len())?)
}

/// A rule as rights one by one.
fn singles(rule: &PolicyRule) -> Vec<PolicyRule> {
    let mut all = Vec::new();
    let one = |text: &String| vec![text.clone()];
    for (group, resource) in rule.api_groups.iter().flat_map(|g| rule.resources.iter().map(move |r| (g, r))) {
        for verb in &rule.verbs {
            let plain = PolicyRule {
                verbs: one(verb),
                api_groups: one(group),
                resources: one(resource),
                ..PolicyRule::default()
            };
            match rule.resource_names.is_empty() {
                true => all.push(plain),
                false => all.extend(
                    rule.resource_names
                        .iter()
                        .map(|name| PolicyRule { resource_names: one(name), ..plain.clone() }),
                ),
            }
        }
    }
    for (url, verb) in rule.non_resource_urls.iter().flat_map(|u| rule.verbs.iter().map(move |v| (u, v))) {
        all.push(PolicyRule { verbs: one(verb), non_resource_urls: one(url), ..PolicyRule::default() });
    }
    all
}

/// Whether one rule allows all that another one does.
fn rule_covers(ours: &PolicyRule, theirs: &PolicyRule) -> bool {
    let all = |ours: &[String], theirs: &[String]| {
        ours.iter().any(|one| one == ALL) || theirs.iter().all(|one| ours.contains(one))
    };
    let named = match (ours.resource_names.is_empty(), theirs.resource_names.is_empty()) {
        (true, _) => true,
        (false, true) => false,
        (false, false) => theirs.resource_names.iter().all(|name| ours.resource_names.contains(name)),
    };
    named
        && all(&ours.verbs, &theirs.verbs)
        && all(&ours.api_groups, &theirs.api_groups)
        && theirs.resources.iter().all(|resource| covers_resource(&ours.resources, resource))
        && theirs
            .non_resource_urls
            .iter()
            .all(|path| ours.non_resource_urls.iter().any(|ours| path_covers(ours, path)))
}

fn covers_resource(ours: &[String], resource: &str) -> bool {
    let subresource = resource.split_once('/').map(|(_, subresource)| subresource);
    let any_of = |one: &str| subresource.is_some() && one.strip_prefix("*/") == subresource;
    ours.iter().any(|one| one == ALL || one == resource || any_of(one))
}

/// Rights in Kubernetes' words, a line each: those that differ in nothing but the verb together.
pub fn describe(rights: &[PolicyRule]) -> String {
    let mut together: BTreeMap<(&[String], &[String]), PolicyRule> = BTreeMap::new();
    let mut lines = BTreeSet::new();
    for right in rights {
        if !right.resource_names.is_empty() || !right.non_resource_urls.is_empty() {
            lines.insert(compact(right));
            continue;
        }
        let (groups, resources) = (right.api_groups.as_slice(), right.resources.as_slice());
        match together.get_mut(&(groups, resources)) {
            Some(rule) => rule.verbs.extend_from_slice(&right.verbs),
            None => drop(together.insert((groups, resources), right.clone())),
        }
    }
    lines.extend(together.values().map(compact));
    lines.into_iter().collect::<Vec<_>>().join("\n")
}

/// A list of texts as Go prints it with `%q`.
pub fn quoted(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", texts.join(" "))
}

fn compact(rule: &PolicyRule) -> String {
    let mut text = String::new();
    let fields = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.non_resource_urls),
        ("ResourceNames", &rule.resource_names),
        ("Verbs", &rule.verbs),
    ];
    for (name, list) in fields.into_iter().filter(|(_, list)| !list.is_empty()) {
        let _ = write!(text, "{}{name}:{}", if text.is_empty() { "" } else { ", " }, quoted(list));
    }
    format!("{{{text}}}")
}
