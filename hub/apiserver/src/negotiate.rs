//! Which form an answer takes: what `Accept` asks for, and what we have.
//!
//! JSON and YAML are written. Protobuf is read ([`crate::builtin::protobuf`]) and not written: it is named among the media types,
//! as clients that prefer it also list JSON and take that. Lists and objects can be asked for as a Table or as metadata
//! alone (`as=`), lists as sums, and watches as news of what others have changed.

use http::{HeaderMap, header};
use karmada_meta::status::{Status, StatusDetails};

use crate::bounds::{self, MEDIA_TYPES, PARAMETERS};

/// The media types of a built-in kind.
const BUILT_IN: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
/// The media types of a custom resource.
const CUSTOM: &[&str] = &["application/json", "application/yaml"];

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// `application/json`.
    Json {
        /// Indented.
        pretty: bool,
    },
    /// `application/yaml`.
    Yaml,
}

/// What an answer shows of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// All of it.
    Object,
    /// `PartialObjectMetadata`, or a list of these; holds the meta version (`v1`).
    Partial {
        /// `PartialObjectMetadataList` was asked for.
        list: bool,
        /// `v1` or `v1beta1`.
        version: String,
    },
    /// A Table; holds the meta version.
    Table {
        /// `v1` or `v1beta1`.
        version: String,
    },
    /// Of a list, what tells it from others: see [`crate::sums`].
    Sums,
    /// Of a watch, all of each object, but not again where nothing but its status has changed: see [`crate::watch`].
    News,
}

/// The group of the forms that are ours.
const OURS: &str = "hub.karmada.io";

/// The outcome of negotiation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// How it is written.
    pub(crate) encoding: Encoding,
    /// What is shown.
    pub(crate) form: Form,
    /// The client wants no more than it must have (RFC 7240's `Prefer: return=minimal`): no managedFields, and of what
    /// it wrote itself the resourceVersion alone if it asks for metadata. kube-apiserver does not know this; our agents
    /// ask for it, for whom every byte crosses a narrow link.
    pub(crate) lean: bool,
}

impl Accepted {
    /// Plain JSON.
    #[cfg(test)]
    const JSON: Self = Self { encoding: Encoding::Json { pretty: false }, form: Form::Object, lean: false };

    /// The `Content-Type` of the answer.
    pub(crate) fn content_type(&self) -> &'static str {
        match self.encoding {
            Encoding::Json { .. } => "application/json",
            Encoding::Yaml => "application/yaml",
        }
    }
}

/// One clause of an `Accept` header.
pub(crate) struct Clause<'a> {
    /// `application/json`
    pub(crate) media: &'a str,
    /// What stands behind it, `q` aside.
    pub(crate) parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

/// Refuses an `Accept` header that names more than is read.
///
/// # Errors
/// 400.
pub(crate) fn check(headers: &HeaderMap) -> Result<(), Status> {
    let (mut types, mut parameters) = (0, 0);
    for value in headers.get_all(header::ACCEPT) {
        let count = |wanted: u8| value.as_bytes().iter().filter(|byte| **byte == wanted).count();
        types += 1 + count(b',');
        parameters += count(b';');
    }
    let advice = "name those that are wanted";
    bounds::check("Accept", "media types", types, MEDIA_TYPES, advice)?;
    bounds::check("Accept", "parameters of media types", parameters, PARAMETERS, advice)
}

/// The clauses of an `Accept` header, the most wanted first. Of more than there may be ([`check`]) the first are read: a
/// refusal has a form, too.
pub(crate) fn clauses(text: &str) -> Vec<Clause<'_>> {
    let mut left = PARAMETERS;
    let mut clauses: Vec<Clause<'_>> = text
        .split(',')
        .take(MEDIA_TYPES)
        .filter_map(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let media = parts.next().filter(|media| !media.is_empty())?;
            let mut quality = 1.0;
            let mut parameters = Vec::new();
            for (key, value) in parts.filter_map(|part| part.split_once('=')).take(left) {
                left -= 1;
                if key == "q" {
                    quality = value.parse().unwrap_or(1.0);
                } else {
                    parameters.push((key, value.trim_matches('"')));
                }
            }
            Some(Clause { media, parameters, quality })
        })
        .collect();
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses
}

/// What is being answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// One object.
    Object,
    /// A list.
    List,
    /// A watch.
    Watch,
}

/// The media types of a watch.
const STREAM: &[&str] =
    &["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];

/// Chooses the form of an answer.
///
/// # Errors
/// 406 when nothing of what is asked for can be had.
pub(crate) fn accept(
    headers: &HeaderMap,
    pretty: Option<&str>,
    custom: bool,
    endpoint: Endpoint,
) -> Result<Accepted, Status> {
    let agent = headers.get(header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let for_people = ["curl", "Wget", "Mozilla/5.0"].iter().any(|prefix| agent.starts_with(prefix));
    let pretty = match pretty {
        None | Some("") => for_people,
        Some(value) => matches!(value, "1" | "t" | "T" | "true" | "True" | "TRUE"),
    };
    let joined =
        headers.get_all(header::ACCEPT).iter().filter_map(|v| v.to_str().ok()).collect::<Vec<_>>().join(",");
    let lean = minimal(headers);
    if joined.trim().is_empty() {
        return Ok(Accepted { encoding: Encoding::Json { pretty }, form: Form::Object, lean });
    }
    let mut known = false;
    for clause in clauses(&joined) {
        let encoding = match clause.media {
            "*/*" | "application/json" => Encoding::Json { pretty },
            // Only whole documents are written as YAML.
            "application/yaml" if endpoint != Endpoint::Watch => Encoding::Yaml,
            "application/vnd.kubernetes.protobuf" | "application/yaml" => {
                known = true;
                continue;
            }
            _ => continue,
        };
        known = true;
        let of = |key: &str| clause.parameters.iter().find(|(k, _)| *k == key).map_or("", |(_, v)| *v);
        let pretty_here = of("pretty");
        let encoding = match encoding {
            Encoding::Json { pretty } => {
                Encoding::Json { pretty: pretty || matches!(pretty_here, "1" | "true") }
            }
            other => other,
        };
        let version = of("v").to_owned();
        let form = match (of("as"), of("g"), version.as_str()) {
            ("", _, _) => Form::Object,
            ("Table", "meta.k8s.io", "v1" | "v1beta1") => Form::Table { version },
            ("PartialObjectMetadata", "meta.k8s.io", "v1" | "v1beta1") => {
                Form::Partial { list: false, version }
            }
            ("PartialObjectMetadataList", "meta.k8s.io", "v1" | "v1beta1") => {
                Form::Partial { list: true, version }
            }
            ("Sums", OURS, "v1alpha1") if endpoint == Endpoint::List => Form::Sums,
            ("News", OURS, "v1alpha1") if endpoint == Endpoint::Watch => Form::News,
            _ => continue,
        };
        return Ok(Accepted { encoding, form, lean });
    }
    if known {
        return Err(Status::not_acceptable(match (endpoint, custom) {
            (Endpoint::Watch, _) => STREAM,
            (_, true) => CUSTOM,
            (_, false) => BUILT_IN,
        }));
    }
    // Words of the web framework below kube-apiserver, which refuses media types that it never heard of.
    let streams = if endpoint == Endpoint::Object { &[] } else { STREAM };
    let offered: Vec<&str> = BUILT_IN.iter().chain(streams).copied().collect();
    Err(Status {
        message: format!("406: Not Acceptable\n\nAvailable representations: {}", offered.join(", ")),
        details: Some(StatusDetails::default()),
        ..Status::not_acceptable(&[])
    })
}

/// Whether the least is preferred.
fn minimal(headers: &HeaderMap) -> bool {
    let wanted = |preference: &str| preference.trim().eq_ignore_ascii_case("return=minimal");
    headers.get_all("prefer").iter().filter_map(|v| v.to_str().ok()).any(|v| v.split(',').any(wanted))
}

/// The formats of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyType {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Kubernetes' protobuf envelope.
    Protobuf,
}

/// Kinds of patches, by media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// `application/json-patch+json`
    Json,
    /// `application/merge-patch+json`
    Merge,
    /// `application/strategic-merge-patch+json`
    Strategic,
    /// `application/apply-patch+yaml`
    Apply,
}

impl PatchType {
    /// The patch type of a media type.
    pub fn of(media_type: &str) -> Option<Self> {
        match media_type {
            "application/json-patch+json" => Some(Self::Json),
            "application/merge-patch+json" => Some(Self::Merge),
            "application/strategic-merge-patch+json" => Some(Self::Strategic),
            "application/apply-patch+yaml" => Some(Self::Apply),
            _ => None,
        }
    }
}

/// The media type of a header's value, without parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or(value).trim())
}

/// How the body of a create or update is written. A missing type is JSON.
///
/// # Errors
/// 415.
pub(crate) fn body_type(headers: &HeaderMap, custom: bool) -> Result<BodyType, Status> {
    match media_type(headers) {
        None | Some("" | "application/json") => Ok(BodyType::Json),
        Some("application/yaml") => Ok(BodyType::Yaml),
        Some("application/vnd.kubernetes.protobuf") if !custom => Ok(BodyType::Protobuf),
        Some(_) => Err(Status::unsupported_media_type(if custom { CUSTOM } else { BUILT_IN })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiate(text: &str) -> Result<Accepted, u16> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, text.parse().unwrap());
        accept(&headers, None, false, Endpoint::Object).map_err(|status| status.code())
    }

    #[test]
    fn no_more_is_read_than_there_may_be() {
        for (text, most, what) in [
            ("a/b,", MEDIA_TYPES, "65 media types"),
            ("a/b;c=d;", PARAMETERS, "257 parameters of media types"),
        ] {
            let each = text.matches([',', ';']).count();
            let of = |many: usize| {
                let mut headers = HeaderMap::new();
                // However many headers there are.
                headers
                    .append(header::ACCEPT, text.repeat(many / each).trim_end_matches(',').parse().unwrap());
                headers
            };
            assert!(check(&of(most)).is_ok(), "{text}");
            let mut more = of(most);
            more.append(header::ACCEPT, "a/b;".parse().unwrap());
            let why = check(&more).unwrap_err();
            assert!(
                why.code() == 400 && why.message.starts_with(&format!("Accept: it has {what}, ")),
                "{why}"
            );
        }
        assert_eq!(clauses(&"a/b,".repeat(10_000)).len(), MEDIA_TYPES);
        let read: usize = clauses(&"a/b;c=d;e=f,".repeat(10_000)).iter().map(|c| c.parameters.len()).sum();
        assert_eq!(read, 2 * MEDIA_TYPES);
        assert_eq!(clauses(&"a/b;c=d".repeat(10_000))[0].parameters.len(), PARAMETERS);
    }

    #[test]
    fn people_read_what_is_indented() {
        for (agent, asked, want) in [
            ("curl/8.0", None, true),
            ("kubectl/v1.36.0", None, false),
            ("curl/8.0", Some(""), true),
            ("kubectl/v1.36.0", Some(""), false),
            ("kubectl/v1.36.0", Some("1"), true),
            ("kubectl/v1.36.0", Some("True"), true),
            ("kubectl/v1.36.0", Some("yes"), false),
            ("curl/8.0", Some("no"), false),
            ("curl/8.0", Some("False"), false),
            ("curl/8.0", Some("0"), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::USER_AGENT, agent.parse().unwrap());
            let accepted = accept(&headers, asked, false, Endpoint::Object).unwrap();
            assert_eq!(accepted.encoding, Encoding::Json { pretty: want }, "{agent} {asked:?}");
        }
    }

    #[test]
    fn the_first_clause_that_can_be_served_wins() {
        let json = Accepted::JSON;
        let table = Accepted { form: Form::Table { version: "v1".to_owned() }, ..Accepted::JSON };
        for (text, want) in [
            ("*/*", Ok(json.clone())),
            ("application/vnd.none, application/json", Ok(json.clone())),
            ("text/plain, */*;q=0.1", Ok(json.clone())),
            ("application/vnd.kubernetes.protobuf,application/json", Ok(json.clone())),
            (
                "application/json;q=0.5,application/yaml",
                Ok(Accepted { encoding: Encoding::Yaml, ..Accepted::JSON }),
            ),
            ("application/json;as=Table;g=meta.k8s.io;v=v1,application/json", Ok(table)),
            ("application/json;as=Nothing;g=meta.k8s.io;v=v1,application/json", Ok(json)),
            ("application/json;as=Nothing;g=meta.k8s.io;v=v1", Err(406)),
            ("application/*", Err(406)),
            ("application/json;as=Sums;g=hub.karmada.io;v=v1alpha1", Err(406)),
        ] {
            assert_eq!(negotiate(text), want, "{text}");
        }
        let mut headers = HeaderMap::new();
        let both = "application/json;as=News;g=hub.karmada.io;v=v1alpha1, application/json;as=Sums;g=hub.karmada.io;v=v1alpha1, */*";
        headers.insert(header::ACCEPT, both.parse().unwrap());
        for (endpoint, want) in
            [(Endpoint::Object, Form::Object), (Endpoint::List, Form::Sums), (Endpoint::Watch, Form::News)]
        {
            assert_eq!(accept(&headers, None, true, endpoint).unwrap().form, want, "{endpoint:?}");
        }
    }
}
