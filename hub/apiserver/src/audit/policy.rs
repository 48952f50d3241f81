//! What is told of which request: `audit.k8s.io/v1` Policy.
//!
//! The first rule that a request matches decides; what matches none is not told.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::{
    authz::{ResourceTarget, Target},
    body,
    findings::Findings,
    identity::UserInfo,
};

/// The version that is read.
const VERSION: &str = "audit.k8s.io/v1";
/// The largest file that is read.
pub const LARGEST: usize = 1 << 20;

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Level {
    /// Nothing.
    None,
    /// Who, what, when and what came of it, without bodies.
    Metadata,
    /// That and what was sent.
    Request,
    /// That and what was answered.
    RequestResponse,
}

impl Level {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::None, Self::Metadata, Self::Request, Self::RequestResponse];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// When it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Stage {
    /// The request has come.
    RequestReceived,
    /// The head of an answer that goes on has been sent.
    ResponseStarted,
    /// The answer is made, or has ended if it goes on.
    ResponseComplete,
    /// Whoever was to answer broke.
    Panic,
}

impl Stage {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }
}

/// Stages at which nothing is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages(u8);

impl Stages {
    /// Whether a stage is one of them.
    pub fn contains(self, stage: Stage) -> bool {
        self.0 & (1 << stage as u8) != 0
    }

    fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl<'de> Deserialize<'de> for Stages {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let stages = Option::<Vec<Stage>>::deserialize(deserializer)?.unwrap_or_default();
        Ok(Self(stages.into_iter().fold(0, |bits, stage| bits | (1 << stage as u8))))
    }
}

/// What is told of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// How much.
    pub level: Level,
    /// When not.
    pub omitted: Stages,
    /// Whether objects are told without their managed fields.
    pub omit_managed_fields: bool,
}

/// Which requests are told, and how.
#[derive(Clone, Debug)]
pub struct Policy {
    rules: Vec<Rule>,
    omit_stages: Stages,
    omit_managed_fields: bool,
}

/// A file that is no policy. Says what, and where in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PolicyError(String);

/// A list that may be `null`, as in Go.
fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: Option<Value>,
    #[serde(default, deserialize_with = "nullable")]
    rules: Vec<Rule>,
    #[serde(default)]
    omit_stages: Stages,
    #[serde(default)]
    omit_managed_fields: bool,
}

/// One rule. What is empty matches everything.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    level: Level,
    #[serde(default, deserialize_with = "nullable")]
    users: Vec<String>,
    #[serde(default, deserialize_with = "nullable")]
    user_groups: Vec<String>,
    #[serde(default, deserialize_with = "nullable")]
    verbs: Vec<String>,
    #[serde(default, deserialize_with = "nullable")]
    resources: Vec<GroupResources>,
    #[serde(default, deserialize_with = "nullable")]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs", deserialize_with = "nullable")]
    non_resource_urls: Vec<String>,
    #[serde(default)]
    omit_stages: Stages,
    #[serde(default)]
    omit_managed_fields: Option<bool>,
}

/// Resources of one group.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GroupResources {
    #[serde(default)]
    group: String,
    #[serde(default, deserialize_with = "nullable")]
    resources: Vec<String>,
    #[serde(default, deserialize_with = "nullable")]
    resource_names: Vec<String>,
}

impl Policy {
    /// Reads a policy, in YAML or JSON.
    ///
    /// # Errors
    /// What is wrong with it: everything where it reads as a policy, the first of it where it does not.
    pub fn parse(bytes: &[u8]) -> Result<Self, PolicyError> {
        if bytes.len() > LARGEST {
            return Err(PolicyError(format!("it has more than {LARGEST} bytes")));
        }
        let mut findings = Findings::default();
        let value = body::yaml(bytes, &mut findings).map_err(PolicyError)?;
        if let Some(finding) = findings.0.first() {
            return Err(PolicyError(finding.clone()));
        }
        let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("apiVersion"), text("kind"));
        if (version, kind) != (VERSION, "Policy") {
            return Err(PolicyError(format!(
                "it is apiVersion {version:?}, kind {kind:?}; must be apiVersion {VERSION:?}, kind \"Policy\""
            )));
        }
        let file: File = serde_path_to_error::deserialize(value).map_err(|error| {
            let path = error.path().to_string();
            PolicyError(format!("{path}: {}", error.into_inner()))
        })?;
        let wrong = file.wrong();
        if !wrong.is_empty() {
            return Err(PolicyError(wrong.join("; ")));
        }
        let File { mut rules, omit_stages, omit_managed_fields, .. } = file;
        for rule in &mut rules {
            rule.omit_stages = rule.omit_stages.union(omit_stages);
        }
        Ok(Self { rules, omit_stages, omit_managed_fields })
    }

    /// What is told of a request. `user` is whoever has authenticated, if anybody has.
    pub fn judge(&self, user: Option<&UserInfo>, verb: &str, target: &Target<'_>) -> Verdict {
        match self.rules.iter().find(|rule| rule.matches(user, verb, target)) {
            Some(rule) => Verdict {
                level: rule.level,
                omitted: rule.omit_stages,
                omit_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
            },
            None => Verdict {
                level: Level::None,
                omitted: self.omit_stages,
                omit_managed_fields: self.omit_managed_fields,
            },
        }
    }
}

impl File {
    /// Everything that does not make sense in it.
    fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.rules.is_empty() {
            wrong.push("rules: there are none, so nothing would be told; at least one is needed".to_owned());
        }
        for (i, rule) in self.rules.iter().enumerate() {
            let mut say = |field: String, why: &str| wrong.push(format!("rules[{i}].{field}: {why}"));
            for (j, url) in rule.non_resource_urls.iter().enumerate() {
                let field = || format!("nonResourceURLs[{j}] {url:?}");
                if url != "*" && !url.starts_with('/') {
                    say(field(), "non-resource URL rules must begin with a '/' character");
                }
                if url.strip_suffix('*').unwrap_or(url).contains('*') {
                    say(field(), "non-resource URL wildcards '*' must be the final character of the rule");
                }
            }
            let of_resources = !rule.resources.is_empty() || !rule.namespaces.is_empty();
            if of_resources && !rule.non_resource_urls.is_empty() {
                say(
                    "nonResourceURLs".to_owned(),
                    "rules cannot apply to both regular resources and non-resource URLs",
                );
            }
            for (j, resources) in rule.resources.iter().enumerate() {
                let GroupResources { group, resources, resource_names } = resources;
                // Above all `apps/v1`, which would match nothing.
                let odd = |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-'));
                if group.contains(odd) || group.len() > 253 {
                    say(
                        format!("resources[{j}].group {group:?}"),
                        "must be the name of an API group without a version, or empty for the core group",
                    );
                }
                if resources.is_empty() && !resource_names.is_empty() {
                    say(
                        format!("resources[{j}].resourceNames"),
                        "using resourceNames requires at least one resource",
                    );
                }
            }
        }
        wrong
    }
}

impl Rule {
    fn matches(&self, user: Option<&UserInfo>, verb: &str, target: &Target<'_>) -> bool {
        let is_any = |list: &[String], one: &str| list.iter().any(|item| item == one);
        if !self.users.is_empty() && !user.is_some_and(|user| is_any(&self.users, &user.name)) {
            return false;
        }
        let of_group = |user: &UserInfo| user.groups.iter().any(|group| is_any(&self.user_groups, group));
        if !self.user_groups.is_empty() && !user.is_some_and(of_group) {
            return false;
        }
        if !self.verbs.is_empty() && !is_any(&self.verbs, verb) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            let Target::Resource(target) = target else { return false };
            return (self.namespaces.is_empty() || is_any(&self.namespaces, target.namespace))
                && (self.resources.is_empty() || self.resources.iter().any(|some| some.matches(target)));
        }
        match target {
            _ if self.non_resource_urls.is_empty() => true,
            Target::Path(path) => self.non_resource_urls.iter().any(|url| covers(url, path)),
            Target::Resource(_) => false,
        }
    }
}

impl GroupResources {
    fn matches(&self, target: &ResourceTarget<'_>) -> bool {
        let ResourceTarget { group, resource, subresource, name, .. } = *target;
        if self.group != group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !self.resource_names.is_empty() && !self.resource_names.iter().any(|one| one == name) {
            return false;
        }
        self.resources.iter().any(|one| match one.split_once('/') {
            None => one == "*" || (one == resource && subresource.is_empty()),
            Some(("*", sub)) if !subresource.is_empty() && sub == subresource => true,
            Some((of, "*")) => of == resource,
            Some((of, sub)) => of == resource && !sub.is_empty() && sub == subresource,
        })
    }
}

/// Whether a path is one of those that a rule names.
fn covers(url: &str, path: &str) -> bool {
    url == path || url.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(rules: &str) -> Policy {
        let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}");
        Policy::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    /// A request written as `VERB GROUP/RESOURCE[/SUBRESOURCE] NAMESPACE NAME`, or `VERB /path`; `-` is nothing.
    fn level(policy: &Policy, user: Option<&UserInfo>, request: &str) -> Level {
        let words: Vec<&str> = request.split(' ').map(|word| if word == "-" { "" } else { word }).collect();
        let target = match words[..] {
            [_, path] => Target::Path(path),
            [_, what, namespace, name] => {
                let mut parts = what.split('/');
                let mut part = || parts.next().unwrap_or_default();
                let (group, resource, subresource) = (part(), part(), part());
                Target::Resource(ResourceTarget {
                    group,
                    resource,
                    subresource,
                    namespace,
                    name,
                    fields: None,
                })
            }
            _ => panic!("{request}"),
        };
        policy.judge(user, words[0], &target).level
    }

    #[test]
    fn a_rule_is_about_what_it_says() {
        let alice = UserInfo::new("alice", ["dev"]);
        let table: &[(&str, &[(&str, bool)])] = &[
            ("{level: Metadata}", &[("get /pods n p", true), ("get /healthz", true)]),
            ("{level: Metadata, users: [alice]}", &[("get /pods n p", true)]),
            ("{level: Metadata, users: [bob]}", &[("get /pods n p", false)]),
            ("{level: Metadata, userGroups: [ops, dev]}", &[("get /pods n p", true)]),
            ("{level: Metadata, userGroups: [ops]}", &[("get /pods n p", false)]),
            ("{level: Metadata, users: [alice], userGroups: [ops]}", &[("get /pods n p", false)]),
            (
                "{level: Metadata, verbs: [get, list]}",
                &[("list /pods n -", true), ("watch /pods n -", false), ("get /healthz", true)],
            ),
            (
                "{level: Metadata, namespaces: [ns, '']}",
                &[
                    ("get /pods ns p", true),
                    ("get /pods m p", false),
                    ("get /nodes - x", true),
                    ("get /healthz", false),
                ],
            ),
            (
                "{level: Metadata, resources: [{group: apps}]}",
                &[
                    ("get apps/deployments n p", true),
                    ("get apps/deployments/scale n p", true),
                    ("get /pods n p", false),
                    ("get /apis", false),
                ],
            ),
            (
                "{level: Metadata, resources: [{resources: [pods, 'secrets/*', '*/status', 'nodes/proxy']}]}",
                &[
                    ("get /pods n p", true),
                    ("get /pods/log n p", false),
                    ("get /pods/status n p", true),
                    ("get /secrets n p", true),
                    ("get /secrets/x n p", true),
                    ("get /nodes - p", false),
                    ("get /nodes/proxy - p", true),
                    ("get apps/pods n p", false),
                ],
            ),
            (
                "{level: Metadata, resources: [{resources: ['*']}]}",
                &[("get /pods/log n p", true), ("get /pods n p", true)],
            ),
            (
                "{level: Metadata, resources: [{resources: [configmaps], resourceNames: [a, b]}]}",
                &[
                    ("get /configmaps n a", true),
                    ("get /configmaps n c", false),
                    ("list /configmaps n -", false),
                ],
            ),
            (
                "{level: Metadata, nonResourceURLs: ['/healthz*', /version]}",
                &[
                    ("get /healthz/etcd", true),
                    ("get /version", true),
                    ("get /version/", false),
                    ("get /pods n p", false),
                ],
            ),
            ("{level: Metadata, nonResourceURLs: ['*']}", &[("get /x", true), ("get /pods n p", false)]),
        ];
        for (rule, requests) in table {
            let policy = policy(&format!("rules: [{rule}]"));
            for (request, told) in *requests {
                let want = if *told { Level::Metadata } else { Level::None };
                assert_eq!(level(&policy, Some(&alice), request), want, "{rule}: {request}");
            }
        }
        // Whoever is not known is nobody's user, and of no group.
        for (rule, told) in [("users: [alice]", false), ("userGroups: [dev]", false), ("verbs: [get]", true)]
        {
            let want = if told { Level::Metadata } else { Level::None };
            let policy = policy(&format!("rules: [{{level: Metadata, {rule}}}]"));
            assert_eq!(level(&policy, None, "get /pods n p"), want, "{rule}");
        }
    }

    #[test]
    fn the_first_rule_decides_and_stages_add_up() {
        let policy = policy(
            "omitStages: [RequestReceived]\nomitManagedFields: true\nrules:\n\
             - {level: None, users: [quiet]}\n\
             - {level: Request, verbs: [create], omitStages: [Panic], omitManagedFields: false}\n\
             - {level: RequestResponse, verbs: [create, delete]}\n",
        );
        let target = Target::Path("/x");
        let judge = |name: &str, verb: &str| {
            let verdict = policy.judge(Some(&UserInfo::new(name, [""; 0])), verb, &target);
            let Verdict { level, omitted, omit_managed_fields } = verdict;
            assert!(omitted.contains(Stage::RequestReceived) && !omitted.contains(Stage::ResponseStarted));
            (level, omitted.contains(Stage::Panic), omit_managed_fields)
        };
        assert_eq!(judge("quiet", "create"), (Level::None, false, true));
        assert_eq!(judge("u", "create"), (Level::Request, true, false));
        assert_eq!(judge("u", "delete"), (Level::RequestResponse, false, true));
        assert_eq!(judge("u", "get"), (Level::None, false, true));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let table = [
            ("rules: [", "line"),
            ("rules: []", "rules: there are none"),
            (
                "rules: [{level: Everything}]",
                "rules[0].level: unknown variant `Everything`, expected one of `None`",
            ),
            ("rules: [{verbs: [get]}]", "missing field `level`"),
            ("rules: [{level: Metadata, verb: [get]}]", "unknown field `verb`"),
            ("rules: [{level: Metadata, verbs: get}]", "rules[0].verbs: invalid type: string \"get\""),
            ("omitStages: [Never]\nrules: [{level: None}]", "omitStages"),
            (
                "rules: [{level: None, nonResourceURLs: [healthz]}]",
                "rules[0].nonResourceURLs[0] \"healthz\": non-resource URL rules must begin with a '/' character",
            ),
            (
                "rules: [{level: None}, {level: None, nonResourceURLs: ['/a*b']}]",
                "rules[1].nonResourceURLs[0] \"/a*b\": non-resource URL wildcards",
            ),
            ("rules: [{level: None, nonResourceURLs: [/a], namespaces: [ns]}]", "both regular resources"),
            ("rules: [{level: None, resources: [{group: apps/v1}]}]", "without a version"),
            ("rules: [{level: None, resources: [{resourceNames: [a]}]}]", "requires at least one resource"),
            ("rules: [{level: None}]\nrules: [{level: None}]", "already set"),
        ];
        for (text, want) in table {
            let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{text}");
            let why = Policy::parse(text.as_bytes()).expect_err(&text).to_string();
            assert!(why.contains(want), "{text}\n{why}");
        }
        for (version, kind) in [("audit.k8s.io/v1beta1", "Policy"), ("audit.k8s.io/v1", "Event")] {
            let text = format!("apiVersion: {version}\nkind: {kind}\nrules: [{{level: None}}]");
            let why = Policy::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(why.contains("must be apiVersion \"audit.k8s.io/v1\", kind \"Policy\""), "{why}");
        }
        assert!(Policy::parse(&vec![b' '; LARGEST + 1]).is_err());
        let nulls =
            "metadata: {creationTimestamp: null}\nrules: [{level: None, users: null, omitStages: null}]";
        policy(nulls);
    }
}
