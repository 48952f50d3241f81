//! What members measure, as one: the groups of Kubernetes' metrics.
//!
//! ```text
//!   metrics.k8s.io ───────────▶ lists become one; an object is that of the one cluster which has it
//!   custom.metrics.k8s.io ────▶ what has one name in several clusters is added up, as with Karmada's metrics adapter
//!   external.metrics.k8s.io ──▶ the series of all: whoever scales by them adds them up
//! ```
//!
//! Members are asked in the user's name, like by the cluster `*`, within the same bounds. Those that do not answer are named in
//! a Warning. One that has no such API has nothing to say. Of one that cannot be asked what it has reported for a FederatedHPA
//! counts: that is one value for an object, or an external metric.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Method, Response, header};
use karmada_apiserver::{authn::UserInfo, carried::Call};
use karmada_meta::{gvk::GroupResource, labels::LabelSelector, quantity::Quantity, status::Status};
use serde::{
    Deserialize, Deserializer as _, Serialize,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Deserializer, json, value::RawValue};
use tokio::{sync::Semaphore, task::spawn_blocking};

use super::{
    super::{
        Shared, Told, Wanted,
        metrics::{NAME, OF_ONE},
    },
    Among, Asker, Missing, Question, Silent,
    asked::{self, Asked, Place},
    decoded::{Decoded, Stamp},
    list::{portions, whole},
    merge, nobody,
    room::Share,
    unheard, warn,
    within::{Most, Takes, draw, within},
};

/// The most of one answer that is taken apart, in KiB.
const APART: usize = 1 << 10;
/// And of all answers to one request.
const ALL_APART: usize = 8 << 10;
/// So many values of one member's are taken.
const VALUES: usize = 10_000;
/// So many are added up for one request at most.
const ALL_VALUES: usize = 50_000;

/// The form in which measurements are asked for.
const PLAIN: &str = "application/json";

/// Which of the groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measured {
    /// `metrics.k8s.io`
    Resources,
    /// `custom.metrics.k8s.io`
    Custom,
    /// `external.metrics.k8s.io`
    External,
}

/// Answers what is asked of such a group.
pub(crate) async fn carry(
    shared: &Arc<Shared>,
    mut call: Call,
    of: Measured,
) -> Result<Response<Body>, Status> {
    call.path = plain(&call.path);
    let query = call.request.uri().query().map(str::to_owned);
    let asked = asked::read(call.request.method(), &call.path, query.as_deref());
    let asked = asked.ok().filter(|_| call.request.method() == Method::GET);
    let asked = asked.ok_or_else(Status::method_not_allowed_here)?;
    let place = asked::place(&call.path).ok_or_else(Status::no_such_resource)?;
    let seat = shared.room.seat(&call.asked_by)?;
    let mut ends = std::mem::replace(&mut call.ends, Box::pin(std::future::pending()));
    let asker = Asker::of(&call, &seat);
    let (path, query) = (call.path.as_str(), query.as_deref());
    let accept = asked::form(call.request.headers());
    let asking = async {
        match (of, &asked) {
            (Measured::Resources, _) if !is_measured(&place) => Err(Status::no_such_resource()),
            (Measured::Resources, Asked::List) => usages(shared, &asker, &place, path, query, accept).await,
            (Measured::Resources, Asked::Object(object)) if object == path => {
                one(shared, &asker, &place, path).await
            }
            (Measured::External, Asked::List) if !place.namespace.is_empty() => {
                series(shared, &asker, &place, path, query).await
            }
            (Measured::Custom, Asked::Object(_)) => match Metric::of(&place, path) {
                Some(metric) => sums(shared, &asker, &metric, path, query).await,
                None => Err(Status::no_such_resource()),
            },
            _ => Err(Status::no_such_resource()),
        }
    };
    let answer = tokio::select! {
        answer = asking => answer,
        () = &mut ends => Err(Status::service_unavailable("the connection is ending")),
    };
    drop(seat);
    answer
}

/// Signs that mean themselves in a path, and that clients write as `%XX` all the same: Go does so with the star of all objects, and
/// with what stands in names of metrics. Agents take no `%XX` in what they judge.
const PLAIN_SIGNS: &[u8] = b"*|:@,+=!$&'()~_-";

/// A path with these signs as they are. What was judged is what it means: that does not change.
fn plain(path: &str) -> String {
    let mut plain = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        plain.push_str(&rest[..at]);
        let sign = rest.get(at + 1..at + 3).and_then(|two| match two.as_bytes() {
            [a, b] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => u8::from_str_radix(two, 16).ok(),
            _ => None,
        });
        match sign.filter(|sign| PLAIN_SIGNS.contains(sign)) {
            Some(sign) => {
                plain.push(char::from(sign));
                rest = &rest[at + 3..];
            }
            None => {
                plain.push('%');
                rest = &rest[at + 1..];
            }
        }
    }
    plain.push_str(rest);
    plain
}

fn is_measured(place: &Place) -> bool {
    match place.resource.as_str() {
        "pods" => true,
        "nodes" => place.namespace.is_empty(),
        _ => false,
    }
}

/// What is measured of all of a kind. Tables and the like are for people, and stay as they are.
async fn usages(
    shared: &Arc<Shared>,
    asker: &Asker,
    place: &Place,
    path: &str,
    query: Option<&str>,
    accept: &'static str,
) -> Result<Response<Body>, Status> {
    let decoded = (accept == PLAIN).then(|| Decoded::at(place));
    let form = (accept, decoded.as_ref());
    let portions = portions(shared, asker, &Among::All, path, query, form).await?;
    whole(shared, asker, &Among::All, portions).await
}

/// What is measured of an object, which one cluster has.
async fn one(
    shared: &Arc<Shared>,
    asker: &Asker,
    place: &Place,
    path: &str,
) -> Result<Response<Body>, Status> {
    let name = path.rsplit('/').next().unwrap_or_default();
    let room = Arc::new(Semaphore::new(ALL_APART));
    let question = question(shared, asker, path, None, String::new());
    let decoded = &Decoded::at(place);
    let read = |cluster: String, answer: Response<Body>| {
        let (room, all) = (room.clone(), asker.share.clone());
        async move {
            let (bytes, held) = apart(answer, &room, &all).await?;
            let marked = decoded.object(&bytes).and_then(|bytes| merge::object(&cluster, &bytes));
            let marked = marked.map_err(Missing::Unheard)?;
            Ok((marked, held))
        }
    };
    let (mut found, silent) = question.ask(read).await?;
    let kind = GroupResource { group: place.group.clone(), resource: place.resource.clone() };
    if found.len() > 1 {
        let what = place.resource.trim_end_matches('s');
        let of_core = GroupResource { group: String::new(), resource: place.resource.clone() };
        let why = format!("the {what}({name}) found in more than one clusters");
        return Err(Status::conflict(&of_core, name, why));
    }
    match found.pop() {
        Some((_, (bytes, _held))) => Ok(answer(shared, asker, bytes, &silent)),
        None => Err(absent(Status::not_found(&kind, name), &silent)),
    }
}

/// Reads an answer that is to be taken apart. One that is too long is its member's own matter.
async fn apart(
    answer: Response<Body>,
    room: &Arc<Semaphore>,
    all: &Share,
) -> Result<(Bytes, Takes), Missing> {
    let (bytes, mut takes) = within(answer.into_body(), Most::One(APART), all).await?;
    takes.of_request.push(draw(room, bytes.len().div_ceil(1 << 10), ALL_APART)?);
    Ok((bytes, takes))
}

/// That there is nothing, as far as those say that have answered.
fn absent(nothing: Status, silent: &Silent) -> Status {
    if silent.iter().any(|(_, missing)| matches!(missing, Missing::Refused(403, _))) {
        return nobody(silent);
    }
    match unheard(silent) {
        words if words.is_empty() => nothing,
        words => {
            let message = format!("{}; these clusters have not answered: {words}", nothing.message);
            Status { message, ..nothing }
        }
    }
}

fn question<'a>(
    shared: &'a Arc<Shared>,
    asker: &'a Asker,
    path: &str,
    other: Option<String>,
    query: String,
) -> Question<'a> {
    let path = path.to_owned();
    Question { other, query, ..Question::new(shared, asker, &Among::All, path, PLAIN) }
}

fn answer(shared: &Shared, asker: &Asker, bytes: Vec<u8>, silent: &Silent) -> Response<Body> {
    let bytes = Bytes::from(bytes);
    shared.figures.user(&asker.asked_by).inc_by(bytes.len() as u64);
    let mut answer = Response::new(Body::from(bytes));
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    warn(answer.headers_mut(), silent);
    answer
}

/// What clusters have reported of a metric that were not heard or are too busy: whoever scales by a sum must not take that for less.
/// Those are silent no more.
async fn reported(
    shared: &Shared,
    wanted: &Wanted,
    silent: &mut Silent,
) -> Result<Vec<(Told, Stamp)>, Status> {
    let unheard =
        silent.iter().filter(|(_, missing)| matches!(missing, Missing::Unheard(_) | Missing::Busy(_)));
    let unheard: Vec<String> = unheard.map(|(name, _)| name.clone()).collect();
    if unheard.is_empty() {
        return Ok(Vec::new());
    }
    let told = shared.registry.told(wanted, &unheard).await?;
    // A report whose time is none says nothing of when that was.
    let told = told.into_iter().filter_map(|told| {
        let at = Stamp::try_from(told.at.clone()).ok()?;
        Some((told, at))
    });
    let told: Vec<(Told, Stamp)> = told.collect();
    let times: HashMap<&str, Stamp> = told.iter().map(|(told, at)| (told.cluster.as_str(), *at)).collect();
    for (name, missing) in silent {
        if let Some(at) = times.get(name.as_str()) {
            *missing = Missing::Reported(at.text());
        }
    }
    Ok(told)
}

/// The value of a query's parameter, decoded.
fn parameter(query: Option<&str>, name: &str) -> String {
    let mut pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    pairs.find(|(key, _)| key == name).map_or_else(String::new, |(_, value)| value.into_owned())
}

/// The series of an external metric.
async fn series(
    shared: &Arc<Shared>,
    asker: &Asker,
    place: &Place,
    path: &str,
    query: Option<&str>,
) -> Result<Response<Body>, Status> {
    let form = (PLAIN, Some(&Decoded::at(place)));
    let mut portions = portions(shared, asker, &Among::All, path, query, form).await?;
    let wanted = Wanted {
        namespace: place.namespace.clone(),
        object: None,
        metric: place.resource.clone(),
        selector: parameter(query, "labelSelector"),
    };
    for (told, at) in reported(shared, &wanted, &mut portions.silent).await? {
        let item = json!({"metricName": wanted.metric, "metricLabels": {}, "timestamp": at,
            "value": milli(told.value)});
        let list = json!({"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1",
            "metadata": {}, "items": [item]});
        let portion = merge::read(&told.cluster, list.to_string().as_bytes()).map_err(Status::internal)?;
        portions.all.push((told.cluster, portion));
    }
    portions.all.sort_by(|(a, _), (b, _)| a.cmp(b));
    whole(shared, asker, &Among::All, portions).await
}

/// A metric as discovery names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(crate) struct MetricName {
    /// Of a custom one with what it is measured of: `services/hits`.
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) namespaced: bool,
}

/// What names of metrics are made of.
fn is_of_names(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_.:/-".contains(&byte)
}

/// Reads a document of discovery, name by name: a long one may be there in part.
struct Discovery<'a>(&'a mut Vec<MetricName>, Measured);

impl<'de> Visitor<'de> for Discovery<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of resources")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(found, of) = self;
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match &*key {
                "resources" => map.next_value_seed(Resources(&mut *found, of))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Reads the resources of one.
struct Resources<'a>(&'a mut Vec<MetricName>, Measured);

impl<'de> DeserializeSeed<'de> for Resources<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Resources<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("resources")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut resources: A) -> Result<(), A::Error> {
        let slashes = usize::from(self.1 == Measured::Custom);
        while let Some(metric) = resources.next_element::<MetricName>()? {
            let is_plain = metric.name.len() <= NAME && metric.name.bytes().all(is_of_names);
            let parts = metric.name.split('/');
            let is_one = parts.clone().count() == slashes + 1 && parts.clone().all(|part| !part.is_empty());
            if is_plain && is_one && self.0.len() < OF_ONE {
                self.0.push(metric);
            }
        }
        Ok(())
    }

    /// Go's servers write that there are none so.
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// The metrics that a member's discovery names, as far as that can be. Of a document that was read no further, those at its
/// beginning.
fn discovered(bytes: &[u8], of: Measured) -> Result<Vec<MetricName>, String> {
    let mut found = Vec::new();
    let read = Deserializer::from_slice(bytes).deserialize_map(Discovery(&mut found, of));
    match read {
        Err(error) if !(error.is_eof() && bytes.len() >= APART << 10) => {
            Err(format!("it is no discovery: {error}"))
        }
        _ => Ok(found),
    }
}

/// The metrics that each of these members names, of those that have answered.
pub(crate) async fn names(
    shared: &Arc<Shared>,
    user: &UserInfo,
    audit_id: &str,
    (paths, of): (&[String], Measured),
    members: Vec<String>,
) -> Result<Vec<(String, Vec<MetricName>)>, Status> {
    let (Some(path), other) = (paths.first(), paths.get(1)) else { return Ok(Vec::new()) };
    let seat = shared.room.seat(&user.name)?;
    let (asked_by, audit_id) = (user.name.clone(), audit_id.to_owned());
    let share = seat.share();
    let asker = Asker { user: user.clone(), asked_by, audit_id, held: Arc::new(()), share };
    let question = question(shared, &asker, path, other.cloned(), String::new());
    let read = |_, answer: Response<Body>| {
        let all = asker.share.clone();
        async move {
            // Only names are kept, and no more of them than the beginning has room for.
            let (bytes, _held) = within(answer.into_body(), Most::First(APART), &all).await?;
            discovered(&bytes, of).map_err(Missing::Unheard)
        }
    };
    let (mut heard, silent) = question.ask_these(members, &read).await?;
    // One that has no such API names nothing.
    let has_none = silent.into_iter().filter(|(_, missing)| matches!(missing, Missing::Refused(404, _)));
    heard.extend(has_none.map(|(name, _)| (name, Vec::new())));
    Ok(heard)
}

/// Thousandths, as a quantity has them.
fn milli(value: i64) -> String {
    match value % 1000 {
        0 => (value / 1000).to_string(),
        _ => format!("{value}m"),
    }
}

/// The versions of `custom.metrics.k8s.io`. A member may have either.
const CUSTOM: [&str; 2] = ["v1beta2", "v1beta1"];

/// A custom metric as a path names it.
#[derive(Debug, PartialEq, Eq)]
struct Metric<'a> {
    /// Whose: `pods`, `deployments.apps`, `namespaces`.
    of: &'a str,
    /// The object's name; a star is any.
    object: &'a str,
    namespace: &'a str,
    /// Its name.
    name: &'a str,
    version: &'a str,
}

impl<'a> Metric<'a> {
    fn of(place: &'a Place, path: &'a str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (of, object, name) = match parts.get(3..)? {
            ["namespaces", object, "metrics", name] => ("namespaces", *object, *name),
            ["namespaces", _, of, object, name] => (*of, *object, *name),
            [of, object, name] if *of != "namespaces" => (*of, *object, *name),
            _ => return None,
        };
        Some(Self { of, object, namespace: &place.namespace, name, version: &place.version })
    }
}

impl Metric<'_> {
    /// The namespace of what is described by name: a namespace is in none.
    fn describes_in(&self) -> &str {
        if self.of == "namespaces" { "" } else { self.namespace }
    }

    /// Those of a member's values that are asked for. Whoever is asked for one object has to answer for that.
    fn meant(&self, values: Vec<(Value, Quantity)>) -> Result<Vec<(Value, Quantity)>, String> {
        let mut meant = Vec::with_capacity(values.len());
        for (mut value, quantity) in values {
            let described = &mut value.described_object;
            if self.of == "namespaces" {
                described.namespace.clear();
            }
            let within = self.describes_in();
            let is_within = within.is_empty() || described.namespace == within;
            if self.object == "*" {
                if !is_within {
                    continue;
                }
            } else if described.name == self.object && (is_within || described.namespace.is_empty()) {
                within.clone_into(&mut described.namespace);
            } else {
                let Described { namespace, name, .. } = described;
                return Err(format!("it answers for {name:?} in the namespace {namespace:?}"));
            }
            meant.push((value, quantity));
        }
        Ok(meant)
    }
}

/// A value of a custom metric, in either version.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Value {
    described_object: Described,
    metric: Option<Named>,
    metric_name: String,
    timestamp: Option<Stamp>,
    #[serde(alias = "window")]
    window_seconds: Option<i64>,
    value: String,
    selector: Option<LabelSelector>,
}

impl Value {
    /// One that a cluster has reported.
    fn reported(metric: &Metric<'_>, at: Stamp, value: String) -> Self {
        let described_object = Described {
            namespace: metric.describes_in().to_owned(),
            name: metric.object.to_owned(),
            ..Described::default()
        };
        let metric_name = metric.name.to_owned();
        Self { described_object, metric_name, timestamp: Some(at), value, ..Self::default() }
    }
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Described {
    #[serde(skip_serializing_if = "String::is_empty")]
    kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    api_version: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Named {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    selector: Option<LabelSelector>,
}

#[derive(Deserialize)]
struct Values<'a> {
    #[serde(default)]
    kind: String,
    #[serde(borrow, default)]
    items: Option<&'a RawValue>,
}

/// What several clusters say of one object.
struct Sum {
    first: Value,
    value: Quantity,
}

/// Reads a member's values of a metric, of which there may be so many; why they cannot be read.
fn values(bytes: &[u8], most: usize) -> Result<Vec<(Value, Quantity)>, String> {
    let read: Result<Values<'_>, _> = serde_json::from_slice(bytes);
    let Values { kind, items } = read.map_err(|error| format!("it is no list: {error}"))?;
    if kind != "MetricValueList" {
        return Err(format!("it is no list of values, but of kind {kind:?}"));
    }
    let mut all = Vec::new();
    let mut add = |part: &RawValue| {
        if all.len() == most {
            return Err(format!("it has more than {most} values of this metric"));
        }
        let value: Value =
            serde_json::from_str(part.get()).map_err(|error| format!("a value cannot be read: {error}"))?;
        let quantity = value.value.parse::<Quantity>();
        let quantity =
            quantity.map_err(|error| format!("the value of {}: {error}", value.described_object.name))?;
        all.push((value, quantity));
        Ok(())
    };
    items.map_or(Ok(()), |items| merge::each(items, &mut add))?;
    Ok(all)
}

/// What all say of each object, added up: a metric is one in its cluster, and may be in several.
fn added(all: Vec<(Value, Quantity)>) -> Vec<Sum> {
    let mut sums: BTreeMap<(String, String), Sum> = BTreeMap::new();
    for (value, quantity) in all {
        let Described { namespace, name, .. } = value.described_object.clone();
        let described = (namespace, name);
        match sums.get_mut(&described) {
            Some(sum) => {
                sum.value += quantity;
                // It is as old as what is oldest of it.
                if value.timestamp.is_some_and(|new| sum.first.timestamp.is_none_or(|known| new < known)) {
                    sum.first.timestamp = value.timestamp;
                }
            }
            None => drop(sums.insert(described, Sum { first: value, value: quantity })),
        }
    }
    sums.into_values().collect()
}

/// The list as a version has it.
fn written(version: &str, sums: Vec<Sum>) -> Vec<u8> {
    let item = |Sum { first, value }: Sum| {
        let named = first.metric.unwrap_or(Named { name: first.metric_name, selector: first.selector });
        let mut item = match version {
            "v1beta1" => {
                json!({"metricName": named.name, "window": first.window_seconds, "selector": named.selector})
            }
            _ => json!({"metric": named, "windowSeconds": first.window_seconds}),
        };
        item["describedObject"] = json!(first.described_object);
        item["timestamp"] = json!(first.timestamp);
        item["value"] = json!(value.to_string());
        if let Some(item) = item.as_object_mut() {
            item.retain(|field, value| field == "timestamp" || !value.is_null());
        }
        item
    };
    let items: Vec<serde_json::Value> = sums.into_iter().map(item).collect();
    json!({"kind": "MetricValueList", "apiVersion": format!("custom.metrics.k8s.io/{version}"), "metadata": {}, "items": items})
        .to_string()
        .into_bytes()
}

/// A custom metric of all clusters.
async fn sums(
    shared: &Arc<Shared>,
    asker: &Asker,
    metric: &Metric<'_>,
    path: &str,
    query: Option<&str>,
) -> Result<Response<Body>, Status> {
    let query = asked::for_each(query);
    let other = CUSTOM.iter().find(|version| **version != metric.version);
    let before = format!("/{}/", metric.version);
    let other = other.map(|version| path.replacen(&before, &format!("/{version}/"), 1));
    let wanted = Wanted {
        namespace: metric.namespace.to_owned(),
        object: Some((metric.of.to_owned(), metric.object.to_owned())),
        metric: metric.name.to_owned(),
        selector: parameter(Some(&query), "metricLabelSelector"),
    };
    let question = question(shared, asker, path, other, query);
    let (room, left) = (Arc::new(Semaphore::new(ALL_APART)), Arc::new(AtomicUsize::new(ALL_VALUES)));
    let read = |_, answer: Response<Body>| {
        let (room, left, all) = (room.clone(), left.clone(), asker.share.clone());
        async move {
            let (bytes, held) = apart(answer, &room, &all).await?;
            let read = spawn_blocking(move || values(&bytes, VALUES)).await;
            let read = read.map_err(|error| Missing::Unheard(error.to_string()))?;
            let values = read.and_then(|values| metric.meant(values)).map_err(Missing::Unheard)?;
            let fits = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(values.len()));
            fits.map_err(|_| {
                Missing::TooMuch(Box::new(Status::too_large(format!(
                    "all clusters have more than {ALL_VALUES} values of this metric: ask for one namespace, or by labels"
                ))))
            })?;
            Ok((values, held))
        }
    };
    let (found, mut silent) = question.ask(read).await?;
    let (mut all, mut told_all, mut held) = (Vec::new(), Vec::new(), Vec::new());
    if metric.object != "*" {
        for (told, at) in reported(shared, &wanted, &mut silent).await? {
            let value = milli(told.value);
            let Ok(quantity) = value.parse::<Quantity>() else { continue };
            told_all.push((Value::reported(metric, at, value), quantity));
        }
    }
    if found.is_empty()
        && told_all.is_empty()
        && silent.iter().any(|(_, missing)| !matches!(missing, Missing::Refused(404, _)))
    {
        return Err(nobody(&silent));
    }
    // What is measured now says best whose it is.
    for (_, (values, permits)) in found {
        all.extend(values);
        held.push(permits);
    }
    all.append(&mut told_all);
    if all.is_empty() {
        let message = format!("the server could not find the metric {} for {}", metric.name, metric.of);
        return Err(absent(Status { message, ..Status::no_such_resource() }, &silent));
    }
    let version = metric.version.to_owned();
    let bytes = spawn_blocking(move || written(&version, added(all))).await;
    drop(held);
    let bytes = bytes.map_err(|error| Status::internal(error.to_string()))?;
    Ok(answer(shared, asker, bytes, &silent))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str) -> Place {
        asked::place(path).unwrap()
    }

    #[test]
    fn signs_that_mean_themselves_are_not_escaped() {
        for (path, want) in [
            ("/namespaces/n/pods/%2A/hits", "/namespaces/n/pods/*/hits"),
            ("/namespaces/n/pods/%2a/a%7Cb%3Ac", "/namespaces/n/pods/*/a|b:c"),
            ("/namespaces/n/%2e%2E/x%2Fy%25%20%", "/namespaces/n/%2e%2E/x%2Fy%25%20%"),
            ("/a%+2/%2\u{e4}", "/a%+2/%2\u{e4}"),
        ] {
            assert_eq!(plain(path), want);
        }
    }

    #[test]
    fn a_custom_metric_is_named_by_its_path() {
        for (path, want) in [
            ("/namespaces/n/pods/*/hits", Some(("pods", "hits"))),
            ("/namespaces/n/deployments.apps/web/hits", Some(("deployments.apps", "hits"))),
            ("/namespaces/n/metrics/hits", Some(("namespaces", "hits"))),
            ("/nodes/n1/load", Some(("nodes", "load"))),
            ("/namespaces/n/pods", None),
            ("/namespaces/n/pods/p", None),
            ("/nodes/n1", None),
        ] {
            let path = format!("/apis/custom.metrics.k8s.io/v1beta2{path}");
            let place = place(&path);
            let found = Metric::of(&place, &path).map(|metric| (metric.of, metric.name));
            assert_eq!(found, want, "{path}");
        }
    }

    #[test]
    fn a_discovery_of_any_length_names_what_it_begins_with() {
        let read = |text: &str, of| discovered(text.as_bytes(), of).map(|found| found.len());
        let of = |names: &[&str]| {
            let resources: Vec<_> =
                names.iter().map(|name| json!({"name": name, "namespaced": true})).collect();
            json!({"kind": "APIResourceList", "resources": resources, "groupVersion": "custom.metrics.k8s.io/v1beta2"})
                .to_string()
        };
        let names = of(&["pods/hits", "hits", "pods/", "pods/a b", "jobs.batch/http:rate_5m"]);
        assert_eq!(read(&names, Measured::Custom), Ok(2));
        assert_eq!(read(&names, Measured::External), Ok(1));
        assert_eq!(read(r#"{"kind":"APIResourceList","resources":null}"#, Measured::Custom), Ok(0));
        assert_eq!(read("{}", Measured::Custom), Ok(0));
        let many: Vec<String> = (0..20_000).map(|n| format!("pods/{n:0>100}")).collect();
        let many = of(&many.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(read(&many, Measured::Custom), Ok(OF_ONE));
        assert_eq!(
            read(&many[..APART << 10], Measured::Custom),
            Ok(OF_ONE),
            "that is all that was read of it"
        );
        let few = format!("{}{}", &of(&["pods/hits"])[..80], " ".repeat(APART << 10));
        assert_eq!(read(&few, Measured::Custom), Ok(1));
        for rubbish in
            [&names[..names.len() - 40], "[]", r#"{"resources":{"name":7}}"#, r#"{"resources":7}"#, ""]
        {
            assert!(read(rubbish, Measured::Custom).is_err(), "{rubbish}");
        }
    }

    #[test]
    fn a_namespace_is_described_in_none() {
        let path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/n/metrics/hits";
        let place = place(path);
        let metric = Metric::of(&place, path).unwrap();
        let of = |namespace: &str, name: &str| {
            let described_object =
                Described { namespace: namespace.to_owned(), name: name.to_owned(), ..Described::default() };
            (Value { described_object, value: "1".to_owned(), ..Value::default() }, Quantity::zero())
        };
        let mut all = metric.meant(vec![of("", "n"), of("n", "n")]).unwrap();
        let at = Stamp::try_from("2026-11-25T10:00:00Z".to_owned()).unwrap();
        all.push((Value::reported(&metric, at, "1".to_owned()), Quantity::zero()));
        assert_eq!(added(all).len(), 1, "one object, whoever tells of it");
        assert!(metric.meant(vec![of("", "m")]).is_err());
    }

    #[test]
    fn values_of_either_version_are_added_up_and_written_in_one() {
        let newer = json!({"kind": "MetricValueList", "apiVersion": "custom.metrics.k8s.io/v1beta2", "metadata": {}, "items": [
            {"describedObject": {"kind": "Pod", "namespace": "n", "name": "b", "apiVersion": "/v1"},
                "metric": {"name": "hits", "selector": {"matchLabels": {"a": "b"}}},
                "timestamp": "2026-11-25T10:00:05Z", "windowSeconds": 60, "value": "1500m"},
            {"describedObject": {"kind": "Pod", "namespace": "n", "name": "a", "apiVersion": "/v1"},
                "metric": {"name": "hits", "selector": null}, "timestamp": null, "value": "2"},
        ]});
        let older = json!({"kind": "MetricValueList", "apiVersion": "custom.metrics.k8s.io/v1beta1", "metadata": {}, "items": [
            {"describedObject": {"kind": "Pod", "namespace": "n", "name": "b", "apiVersion": "v1"}, "metricName": "hits",
                "timestamp": "2026-11-25T10:00:01Z", "window": 30, "value": "500m", "selector": {"matchLabels": {"a": "b"}}},
        ]});
        let all = |lists: [&serde_json::Value; 2]| {
            let read = lists.iter().map(|list| values(list.to_string().as_bytes(), VALUES));
            read.map(Result::unwrap).collect::<Vec<_>>().concat()
        };
        let read = |version: &str, sums| -> serde_json::Value {
            serde_json::from_slice(&written(version, sums)).unwrap()
        };
        let list = read("v1beta2", added(all([&newer, &older])));
        assert_eq!(list["apiVersion"], "custom.metrics.k8s.io/v1beta2");
        assert_eq!(list["items"].as_array().unwrap().len(), 2);
        let (a, b) = (&list["items"][0], &list["items"][1]);
        assert_eq!((&a["describedObject"]["name"], &a["value"]), (&json!("a"), &json!("2")));
        assert_eq!(a["metric"], json!({"name": "hits"}));
        assert_eq!((&b["value"], &b["timestamp"]), (&json!("2"), &json!("2026-11-25T10:00:01Z")));
        assert_eq!(b["metric"], json!({"name": "hits", "selector": {"matchLabels": {"a": "b"}}}));
        assert_eq!(b["windowSeconds"], 60);
        let list = read("v1beta1", added(all([&older, &newer])));
        let b = &list["items"][1];
        assert_eq!((&b["metricName"], &b["window"], &b["value"]), (&json!("hits"), &json!(30), &json!("2")));
        assert_eq!(b["selector"], json!({"matchLabels": {"a": "b"}}));
        assert!(b.get("metric").is_none() && list["items"][0].get("selector").is_none());
    }

    #[test]
    fn what_is_no_list_of_values_is_none_and_there_are_so_many() {
        let value = json!({"describedObject": {"name": "a"}, "value": "1"});
        let list = |kind: &str, items: serde_json::Value| json!({"kind": kind, "items": items}).to_string();
        let read = |text: String, most: usize| values(text.as_bytes(), most).map(|values| values.len());
        assert_eq!(read(list("MetricValueList", json!([value, value])), 2), Ok(2));
        assert_eq!(read(list("MetricValueList", json!(null)), 2), Ok(0));
        let many = read(list("MetricValueList", json!([value, value, value])), 2);
        assert!(many.is_err_and(|error| error.contains("more than 2 values")));
        for (text, why) in [
            (list("PodList", json!([])), "no list of values"),
            ("[".to_owned(), "no list"),
            (list("MetricValueList", json!([{"value": "much"}])), "the value of "),
            (list("MetricValueList", json!([{"value": 7}])), "cannot be read"),
        ] {
            assert!(read(text.clone(), 9).is_err_and(|error| error.contains(why)), "{text}");
        }
    }
}
