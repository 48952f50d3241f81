//! The options of a request: query parameters (and for DELETE a body), read and checked as Kubernetes does.

use karmada_meta::{
    fields::FieldSelector,
    labels::{InvalidSelector, Selector},
    path::{FieldError, Path},
    query::is_yes,
    status::Status,
};
use serde_json::Value;

use crate::{
    bounds,
    kinds::Kind,
    request::{Query, RequestInfo},
    sums::Within,
};

/// What becomes of fields that a schema does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Nothing.
    Ignore,
    /// A Warning header each.
    #[default]
    Warn,
    /// A 400.
    Strict,
}

/// Options of create, update and patch.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Run all steps, store nothing.
    pub dry_run: bool,
    /// Who the fields belong to; absent: from the User-Agent.
    pub field_manager: Option<String>,
    /// Unknown and duplicate fields.
    pub validation: FieldValidation,
    /// Take conflicting fields; server-side apply only.
    pub force: bool,
}

/// Which options a request has; names them in errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// `CreateOptions`
    Create,
    /// `UpdateOptions`
    Update,
    /// `PatchOptions`
    Patch {
        /// Server-side apply.
        apply: bool,
    },
}

fn invalid(kind: &str, errors: Vec<FieldError>) -> Status {
    Status::invalid(kind, "meta.k8s.io", "", errors)
}

/// A boolean parameter, if it is there.
fn boolean(query: &Query, key: &str) -> Option<bool> {
    query.get(key).map(is_yes)
}

fn dry_run_errors<'a>(values: impl Iterator<Item = &'a str>) -> (bool, Vec<FieldError>) {
    // An empty value is none of them: who writes `?dryRun` means to change nothing.
    let values: Vec<&str> = values.collect();
    if values.iter().all(|v| *v == "All") {
        return (!values.is_empty(), Vec::new());
    }
    (true, vec![FieldError::not_supported(&Path::new("dryRun"), Value::from(values), &["All"])])
}

/// Checks a field manager's name.
fn manager_errors(name: &str) -> Vec<FieldError> {
    let path = Path::new("fieldManager");
    let mut errors = Vec::new();
    if name.len() > 128 {
        errors.push(FieldError::too_long(&path, 128));
    }
    for (at, c) in name.chars().enumerate() {
        if c.is_control() {
            let detail = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
            errors.push(FieldError::invalid(&path, name, detail));
        }
    }
    errors
}

impl WriteOptions {
    /// Reads the query.
    ///
    /// # Errors
    /// 422 that names the options' kind.
    pub(crate) fn parse(query: &Query, write: Write) -> Result<Self, Status> {
        let mut errors = Vec::new();
        let force = boolean(query, "force");
        let manager = query.get("fieldManager").filter(|m| !m.is_empty());
        if let Write::Patch { apply } = write {
            if !apply && force.is_some() {
                errors.push(FieldError::forbidden(
                    &Path::new("force"),
                    "may not be specified for non-apply patch",
                ));
            }
            if apply && manager.is_none() {
                errors.push(FieldError::required(&Path::new("fieldManager"), "is required for apply patch"));
            }
        }
        errors.extend(manager.map(manager_errors).unwrap_or_default());
        let (dry_run, dry_run_errors) = dry_run_errors(query.all("dryRun"));
        errors.extend(dry_run_errors);
        let validation = match query.get("fieldValidation") {
            None | Some("" | "Warn") => FieldValidation::Warn,
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                let path = Path::new("fieldValidation");
                errors.push(FieldError::not_supported(&path, other, &["", "Ignore", "Strict", "Warn"]));
                FieldValidation::Warn
            }
        };
        if !errors.is_empty() {
            let kind = match write {
                Write::Create => "CreateOptions",
                Write::Update => "UpdateOptions",
                Write::Patch { .. } => "PatchOptions",
            };
            return Err(invalid(kind, errors));
        }
        Ok(Self {
            dry_run,
            field_manager: manager.map(str::to_owned),
            validation,
            force: force == Some(true),
        })
    }
}

/// What happens to the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They lose their owner and stay.
    Orphan,
    /// They go after it.
    Background,
    /// They go before it.
    Foreground,
}

/// Options of delete and deletecollection.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Run all steps, delete nothing.
    pub dry_run: bool,
    /// Only an object of this uid.
    pub uid: Option<String>,
    /// Only an object at this version.
    pub resource_version: Option<String>,
    /// What happens to dependents; absent: what the object's finalizers or its kind say.
    pub propagation: Option<Propagation>,
    /// Seconds a Pod gets to end.
    pub grace_period: Option<i64>,
}

impl DeleteOptions {
    /// Reads options out of a body.
    ///
    /// # Errors
    /// 400 for a value of the wrong type, 422 for one that is not supported.
    pub fn from_body(body: &Value) -> Result<Self, Status> {
        let wrong = |field: &str| Status::bad_request(format!("DeleteOptions: {field} has the wrong type"));
        let text = |value: &Value, field: &str| match value {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text.clone())),
            _ => Err(wrong(field)),
        };
        let preconditions = &body["preconditions"];
        let grace_period = match &body["gracePeriodSeconds"] {
            Value::Null => None,
            value => Some(value.as_i64().ok_or_else(|| wrong("gracePeriodSeconds"))?),
        };
        let orphan = match &body["orphanDependents"] {
            Value::Null => None,
            value => Some(value.as_bool().ok_or_else(|| wrong("orphanDependents"))?),
        };
        let dry_run: Vec<&str> = match &body["dryRun"] {
            Value::Null => Vec::new(),
            Value::Array(list) => {
                let values: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
                values.ok_or_else(|| wrong("dryRun"))?
            }
            _ => return Err(wrong("dryRun")),
        };
        let policy = text(&body["propagationPolicy"], "propagationPolicy")?;
        let options = Self {
            uid: text(&preconditions["uid"], "preconditions.uid")?,
            resource_version: text(&preconditions["resourceVersion"], "preconditions.resourceVersion")?,
            grace_period,
            ..Self::default()
        };
        options.checked(policy.as_deref(), orphan, dry_run.into_iter())
    }

    /// Reads options out of the query.
    ///
    /// # Errors
    /// 400 for a value of the wrong type, 422 for one that is not supported.
    pub(crate) fn from_query(query: &Query) -> Result<Self, Status> {
        let options = Self { grace_period: number(query, "gracePeriodSeconds")?, ..Self::default() };
        let policy = query.get("propagationPolicy").filter(|p| !p.is_empty());
        options.checked(policy, boolean(query, "orphanDependents"), query.all("dryRun"))
    }

    fn checked<'a>(
        mut self,
        policy: Option<&str>,
        orphan: Option<bool>,
        dry_run: impl Iterator<Item = &'a str>,
    ) -> Result<Self, Status> {
        let path = Path::new("propagationPolicy");
        let mut errors = Vec::new();
        if policy.is_some() && orphan.is_some() {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid(&path, policy.unwrap_or_default(), detail));
        }
        self.propagation = match (policy, orphan) {
            (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
            (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
            (Some("Foreground"), _) => Some(Propagation::Foreground),
            (Some(other), _) => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported(&path, other, &supported));
                None
            }
            (None, None) => None,
        };
        let (dry_run, dry_run_errors) = dry_run_errors(dry_run);
        self.dry_run = dry_run;
        errors.extend(dry_run_errors);
        if errors.is_empty() { Ok(self) } else { Err(invalid("DeleteOptions", errors)) }
    }
}

fn number(query: &Query, key: &str) -> Result<Option<i64>, Status> {
    match query.get(key).filter(|text| !text.is_empty()) {
        None => Ok(None),
        Some(text) => text
            .parse()
            .map(Some)
            .map_err(|_| Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))),
    }
}

/// What is said of a selector that cannot be read.
fn unread(error: InvalidSelector) -> Status {
    Status::bad_request(match error {
        InvalidSelector::Unreadable(why) => why,
        InvalidSelector::TooLarge { .. } => format!(
            "labelSelector: {error}; name several values of one key with \"in\", or ask several times"
        ),
    })
}

/// How a list relates to the version it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// At that version.
    Exact,
    /// At that version or any later one.
    NotOlderThan,
}

/// Options of list, watch and deletecollection.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// Most objects in one answer; 0: all.
    pub limit: usize,
    /// Where an earlier page ended.
    pub continue_token: Option<String>,
    /// The version named; absent: the latest. Not checked yet to be a number.
    pub resource_version: Option<String>,
    /// How to read it.
    pub version_match: Option<Match>,
    /// Labels.
    pub labels: Selector,
    /// Fields; all of them are known for the kind.
    pub fields: FieldSelector,
    /// End of a watch.
    pub timeout_seconds: Option<i64>,
    /// Bookmarks wanted.
    pub bookmarks: bool,
    /// The state first, then a bookmark.
    pub send_initial_events: Option<bool>,
    /// Of a list, only what lies in these buckets.
    pub(crate) within: Option<Within>,
}

impl ListOptions {
    /// Reads the query for a list or, if `watch`, a watch of the kind. Which objects is what the request was judged by.
    ///
    /// # Errors
    /// 400 for what cannot be read, 422 for what does not go together.
    pub(crate) fn parse(query: &Query, info: &RequestInfo, kind: &Kind, watch: bool) -> Result<Self, Status> {
        let text = |key: &str| query.get(key).filter(|v| !v.is_empty()).map(str::to_owned);
        let limit = number(query, "limit")?.unwrap_or(0);
        let timeout_seconds = number(query, "timeoutSeconds")?;
        let labels = Selector::parse_within(query.get("labelSelector").unwrap_or_default(), bounds::LABELS)
            .map_err(unread)?;
        if let Some(status) = &info.bad_fields {
            return Err(status.clone());
        }
        let fields = info.fields.clone();
        let named_match = text("resourceVersionMatch");
        let mut options = Self {
            limit: usize::try_from(limit).unwrap_or(0),
            continue_token: text("continue"),
            resource_version: text("resourceVersion"),
            version_match: None,
            labels,
            fields,
            timeout_seconds,
            bookmarks: boolean(query, "allowWatchBookmarks") == Some(true),
            send_initial_events: boolean(query, "sendInitialEvents"),
            within: if info.verb == "list" { Within::parse(query)? } else { None },
        };
        let errors = if watch {
            options.watch_errors(named_match.as_deref())
        } else {
            options.list_errors(named_match.as_deref())
        };
        if !errors.is_empty() {
            return Err(invalid("ListOptions", errors));
        }
        options.version_match = match named_match.as_deref() {
            Some("Exact") => Some(Match::Exact),
            Some("NotOlderThan") => Some(Match::NotOlderThan),
            _ => None,
        };
        check_fields(&options.fields, kind)?;
        Ok(options)
    }

    /// About how many bytes of memory the selectors take.
    pub(crate) fn selectors(&self) -> usize {
        self.labels.size() + self.fields.size()
    }

    fn list_errors(&self, version_match: Option<&str>) -> Vec<FieldError> {
        let path = Path::new("resourceVersionMatch");
        let mut errors = Vec::new();
        if let Some(named) = version_match {
            if self.resource_version.is_none() {
                let detail = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                errors.push(FieldError::forbidden(&path, detail));
            }
            if self.continue_token.is_some() {
                errors.push(FieldError::forbidden(
                    &path,
                    "resourceVersionMatch is forbidden when continue is provided",
                ));
            }
            if !matches!(named, "Exact" | "NotOlderThan") {
                errors.push(FieldError::not_supported(&path, named, &["Exact", "NotOlderThan", ""]));
            }
            if named == "Exact" && self.resource_version.as_deref() == Some("0") {
                let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                errors.push(FieldError::forbidden(&path, detail));
            }
        }
        if self.send_initial_events.is_some() {
            let path = Path::new("sendInitialEvents");
            errors.push(FieldError::forbidden(&path, "sendInitialEvents is forbidden for list"));
        }
        errors
    }

    fn watch_errors(&self, version_match: Option<&str>) -> Vec<FieldError> {
        let path = Path::new("resourceVersionMatch");
        let mut errors = Vec::new();
        if self.send_initial_events.is_some() && version_match != Some("NotOlderThan") {
            let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(FieldError::forbidden(&path, detail));
        }
        if let Some(named) = version_match {
            if self.send_initial_events.is_none() {
                let detail =
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                errors.push(FieldError::forbidden(&path, detail));
            }
            if named != "NotOlderThan" {
                errors.push(FieldError::not_supported(&path, named, &["NotOlderThan"]));
            }
            if self.continue_token.is_some() {
                errors.push(FieldError::forbidden(
                    &path,
                    "resourceVersionMatch is forbidden when continue is provided",
                ));
            }
        }
        errors
    }
}

/// Refuses a selector on a field that the kind does not offer.
fn check_fields(selector: &FieldSelector, kind: &Kind) -> Result<(), Status> {
    for requirement in selector.requirements() {
        let path = requirement.path.as_str();
        if matches!(path, "metadata.name" | "metadata.namespace")
            || kind.rules.selectable.iter().any(|f| f == path)
        {
            continue;
        }
        return Err(Status::bad_request(if kind.custom.is_some() || !kind.rules.selectable.is_empty() {
            format!("field label not supported: {path}")
        } else {
            format!("{path:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        }));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_refused_in_kubernetes_words() {
        for (query, write, want) in [
            (
                "fieldManager=a%0Ab",
                Write::Create,
                "CreateOptions.meta.k8s.io \"\" is invalid: fieldManager: Invalid value: \"a\\nb\": invalid character U+000A (at position 1)",
            ),
            (
                "fieldValidation=strict",
                Write::Patch { apply: false },
                "PatchOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"strict\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
            ),
            (
                "force=true",
                Write::Patch { apply: false },
                "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch",
            ),
            (
                "",
                Write::Patch { apply: true },
                "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
            ),
        ] {
            let error = WriteOptions::parse(&Query::parse(query), write).unwrap_err();
            assert_eq!((error.code, error.message.as_str()), (422, want), "{query}");
        }
        assert!(WriteOptions::parse(&Query::parse("dryRun=All"), Write::Create).unwrap().dry_run);
    }

    #[test]
    fn booleans_are_yes_unless_they_say_no() {
        for (text, want) in [
            ("", None),
            ("force", Some(true)),
            ("force=", Some(true)),
            ("force=1", Some(true)),
            ("force=t", Some(true)),
            ("force=no", Some(true)),
            ("force=0", Some(false)),
            ("force=false", Some(false)),
            ("force=False", Some(false)),
            ("force=false&force=true", Some(false)),
            ("force=&force=false", Some(true)),
        ] {
            let query = Query::parse(text);
            assert_eq!(boolean(&query, "force"), want, "{text}");
            let query = Query::parse(&format!("{text}&fieldManager=m"));
            let applied = WriteOptions::parse(&query, Write::Patch { apply: true }).unwrap();
            assert_eq!(applied.force, want == Some(true), "{text}");
            let patched = WriteOptions::parse(&query, Write::Patch { apply: false });
            assert_eq!(patched.is_err(), want.is_some(), "{text}: whatever it says");
            let orphan = DeleteOptions::from_query(&Query::parse(&text.replace("force", "orphanDependents")));
            let wanted = want.map(|yes| if yes { Propagation::Orphan } else { Propagation::Background });
            assert_eq!(orphan.unwrap().propagation, wanted, "{text}");
        }
    }

    #[test]
    fn a_dry_run_is_asked_for_in_one_way() {
        for (text, want) in [
            ("", Some(false)),
            ("dryRun=All", Some(true)),
            ("dryRun=All&dryRun=All", Some(true)),
            ("dryRun", None),
            ("dryRun=", None),
            ("dryRun=all", None),
            ("dryRun=All&dryRun=", None),
            ("dryRun=true", None),
        ] {
            let query = Query::parse(text);
            let refused = |error: Status| {
                let said = "dryRun: Unsupported value";
                assert!(error.code == 422 && error.message.contains(said), "{text}: {}", error.message);
            };
            let written = WriteOptions::parse(&query, Write::Create).map_err(refused);
            assert_eq!(written.ok().map(|options| options.dry_run), want, "{text}");
            let deleted = DeleteOptions::from_query(&query).map_err(refused);
            assert_eq!(deleted.ok().map(|options| options.dry_run), want, "{text}");
        }
        for (body, code) in [
            (serde_json::json!({"dryRun": []}), None),
            (serde_json::json!({"dryRun": ["All"]}), None),
            (serde_json::json!({"dryRun": [""]}), Some(422)),
            (serde_json::json!({"dryRun": [1]}), Some(400)),
            (serde_json::json!({"dryRun": ["All", null]}), Some(400)),
            (serde_json::json!({"dryRun": "All"}), Some(400)),
        ] {
            let refused = DeleteOptions::from_body(&body).err();
            assert_eq!(refused.map(|error| error.code), code, "{body}");
        }
    }

    #[test]
    fn delete_options_come_from_body_or_query() {
        let options = DeleteOptions::from_query(&Query::parse("propagationPolicy=Orphan")).unwrap();
        assert_eq!(options.propagation, Some(Propagation::Orphan));
        let body = serde_json::json!({"orphanDependents": false, "preconditions": {"uid": "u"}});
        let options = DeleteOptions::from_body(&body).unwrap();
        assert_eq!((options.propagation, options.uid.as_deref()), (Some(Propagation::Background), Some("u")));
        let error = DeleteOptions::from_query(&Query::parse("propagationPolicy=Sideways")).unwrap_err();
        assert_eq!(error.code, 422);
    }
}
