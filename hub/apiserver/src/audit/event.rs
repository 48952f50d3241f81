//! One `audit.k8s.io/v1` Event as a line of JSON.

use std::{
    borrow::Cow,
    net::IpAddr,
    time::{Duration, SystemTime},
};

use karmada_meta::{status::Status, time::MicroTime};
use serde::Serialize;
use serde_json::{Value, json};

use super::policy::{Level, Stage};
use crate::identity::UserInfo;

/// The longest User-Agent that is told, and what follows one that is longer: kube-apiserver's.
const AGENT: usize = 1024;
const TRUNCATED: &str = "...TRUNCATED";
/// The longest path with its query that is told, and the longest name and word of it. Nobody makes the log long by asking.
pub(super) const URI: usize = 4 * 1024;
const NAME: usize = 1024;
const VERB: usize = 64;
/// The longest message of a Status, and the longest details, which are left out beyond that.
const MESSAGE: usize = 4 * 1024;
const DETAILS: usize = 16 * 1024;

/// As much of a text as is told.
fn cut(text: &str, most: usize) -> Cow<'_, str> {
    match text.len() <= most {
        true => Cow::Borrowed(text),
        false => Cow::Owned(format!("{}{TRUNCATED}", &text[..text.floor_char_boundary(most)])),
    }
}

/// What an event says.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// How much it says.
    pub level: Level,
    /// The Audit-Id of the request and its answer.
    pub id: &'a str,
    /// When it is told.
    pub stage: Stage,
    /// Path and query, as they were sent.
    pub uri: &'a str,
    /// What was asked for.
    pub verb: &'a str,
    /// Who asked, if that is known.
    pub user: Option<&'a UserInfo>,
    /// As whom.
    pub impersonated: Option<&'a UserInfo>,
    /// From where: first what proxies say, last the connection.
    pub source_ips: &'a [IpAddr],
    /// User-Agent.
    pub agent: &'a str,
    /// What it is about.
    pub object: Option<&'a ObjectRef>,
    /// What came of it.
    pub status: Option<&'a Value>,
    /// What was sent, as JSON.
    pub request: Option<&'a [u8]>,
    /// What was answered, as JSON.
    pub response: Option<&'a [u8]>,
    /// When the request came.
    pub received: SystemTime,
    /// How long after that this is told.
    pub after: Duration,
    /// What else there is to say.
    pub annotations: &'a [(&'static str, String)],
}

/// The object or resource of a request. What is empty is not told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the fields of Kubernetes' ObjectReference of the same name")]
pub struct ObjectRef {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
}

impl ObjectRef {
    /// The same, of whose words none is longer than is told.
    #[must_use]
    pub fn cut(mut self) -> Self {
        let Self { resource, namespace, name, uid, api_group, api_version, resource_version, subresource } =
            &mut self;
        for text in [resource, namespace, name, uid, api_group, api_version, resource_version, subresource] {
            if let Cow::Owned(short) = cut(text, NAME) {
                *text = short;
            }
        }
        self
    }

    /// Takes over what an object says of itself and the path did not.
    pub fn fill(&mut self, object: &Value) {
        let Some(metadata) = object.get("metadata") else { return };
        let fields = [
            ("namespace", &mut self.namespace),
            ("name", &mut self.name),
            ("uid", &mut self.uid),
            ("resourceVersion", &mut self.resource_version),
        ];
        for (field, own) in fields {
            if let Some(text) = metadata.get(field).and_then(Value::as_str).filter(|_| own.is_empty()) {
                *own = cut(text, NAME).into_owned();
            }
        }
    }
}

impl Event<'_> {
    /// As a line, its end included.
    pub fn line(&self) -> Vec<u8> {
        let bodies = self.request.map_or(0, <[u8]>::len) + self.response.map_or(0, <[u8]>::len);
        let mut line = Line(Vec::with_capacity(1024 + bodies));
        line.0.extend_from_slice(br#"{"kind":"Event","apiVersion":"audit.k8s.io/v1""#);
        line.field("level", self.level.as_str());
        line.field("auditID", self.id);
        line.field("stage", self.stage.as_str());
        line.field("requestURI", &cut(self.uri, URI));
        line.field("verb", &cut(self.verb, VERB));
        line.field("user", &self.user.map_or_else(|| json!({}), UserInfo::info));
        if let Some(user) = self.impersonated {
            line.field("impersonatedUser", &user.info());
        }
        if !self.source_ips.is_empty() {
            line.field("sourceIPs", self.source_ips);
        }
        if !self.agent.is_empty() {
            line.field("userAgent", &cut(self.agent, AGENT));
        }
        if let Some(object) = self.object {
            line.field("objectRef", object);
        }
        if let Some(status) = self.status {
            line.field("responseStatus", status);
        }
        line.body("requestObject", self.request);
        line.body("responseObject", self.response);
        line.field("requestReceivedTimestamp", &MicroTime::from_system(self.received));
        line.field("stageTimestamp", &MicroTime::from_system(self.received + self.after));
        if !self.annotations.is_empty() {
            line.name("annotations");
            for (i, (name, text)) in self.annotations.iter().enumerate() {
                line.0.push(if i == 0 { b'{' } else { b',' });
                line.value(name);
                line.0.push(b':');
                line.value(text);
            }
            line.0.push(b'}');
        }
        line.0.extend_from_slice(b"}\n");
        line.0
    }
}

/// A line that is being written.
struct Line(Vec<u8>);

impl Line {
    fn name(&mut self, name: &str) {
        self.0.extend_from_slice(b",\"");
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
    }

    fn value<T: Serialize + ?Sized>(&mut self, value: &T) {
        let before = self.0.len();
        // Writing to memory does not fail, and neither do these types; a line stays JSON all the same.
        if serde_json::to_writer(&mut self.0, value).is_err() {
            self.0.truncate(before);
            self.0.extend_from_slice(b"null");
        }
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) {
        self.name(name);
        self.value(value);
    }

    /// JSON as it is. In JSON the ends of lines stand between values only.
    fn body(&mut self, name: &str, json: Option<&[u8]>) {
        let Some(json) = json else { return };
        self.name(name);
        let begin = self.0.len();
        self.0.extend_from_slice(json);
        for byte in &mut self.0[begin..] {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
    }
}

/// What came of a request that was answered with a code and what its body says.
pub fn answered(code: u16) -> Value {
    json!({"metadata": {}, "code": code})
}

/// What came of one that was answered with a Status.
pub fn refused(status: &Status) -> Value {
    let mut told = json!({"metadata": {}});
    if let (Some(told), Ok(Value::Object(status))) = (told.as_object_mut(), serde_json::to_value(status)) {
        let fields = status.into_iter().filter(|(field, _)| {
            matches!(field.as_str(), "status" | "message" | "reason" | "details" | "code")
        });
        told.extend(fields);
        if let Some(Value::String(message)) = told.get_mut("message")
            && let Cow::Owned(short) = cut(message, MESSAGE)
        {
            *message = short;
        }
        if told.get("details").is_some_and(|details| details.to_string().len() > DETAILS) {
            told.shift_remove("details");
        }
    }
    told
}

/// Takes managed fields out of an object, of the objects of a list, or of the rows of a Table.
pub fn strip_managed_fields(value: &mut Value) {
    fn strip(object: &mut Value) {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.shift_remove("managedFields");
        }
    }
    strip(value);
    for item in value.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        strip(item);
    }
    for row in value.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(object) = row.get_mut("object") {
            strip(object);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event<'static> {
        Event {
            level: Level::Metadata,
            id: "a-1",
            stage: Stage::RequestReceived,
            uri: "/api/v1/namespaces/n/pods?limit=5",
            verb: "list",
            user: None,
            impersonated: None,
            source_ips: &[],
            agent: "",
            object: None,
            status: None,
            request: None,
            response: None,
            received: SystemTime::UNIX_EPOCH + Duration::from_micros(1_750_000_000_000_001),
            after: Duration::ZERO,
            annotations: &[],
        }
    }

    #[test]
    fn an_event_is_kubernetes_own_on_one_line() {
        let text = |event: Event<'_>| String::from_utf8(event.line()).unwrap();
        assert_eq!(
            text(event()),
            "{\"kind\":\"Event\",\"apiVersion\":\"audit.k8s.io/v1\",\"level\":\"Metadata\",\"auditID\":\"a-1\",\
             \"stage\":\"RequestReceived\",\"requestURI\":\"/api/v1/namespaces/n/pods?limit=5\",\"verb\":\"list\",\
             \"user\":{},\"requestReceivedTimestamp\":\"2025-06-15T15:06:40.000001Z\",\
             \"stageTimestamp\":\"2025-06-15T15:06:40.000001Z\"}\n"
        );
        let (user, other) = (UserInfo::new("u", ["g"]), UserInfo::new("v\n", [""; 0]));
        let object = ObjectRef { resource: "pods".into(), api_version: "v1".into(), ..ObjectRef::default() };
        let full = text(Event {
            level: Level::RequestResponse,
            stage: Stage::ResponseComplete,
            user: Some(&user),
            impersonated: Some(&other),
            source_ips: &["10.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
            agent: "kubectl/v1.33",
            object: Some(&object),
            status: Some(&answered(200)),
            request: Some(b"{\n \"a\":\"\\n\"}"),
            response: Some(b"[]"),
            after: Duration::from_millis(3),
            annotations: &[("a/b", "x".to_owned()), ("c/d", String::new())],
            ..event()
        });
        assert_eq!(full.matches('\n').count(), 1, "{full}");
        let rest = full.split_once("\"verb\":\"list\",").unwrap().1;
        assert_eq!(
            rest.trim_end(),
            "\"user\":{\"username\":\"u\",\"groups\":[\"g\",\"system:authenticated\"]},\
             \"impersonatedUser\":{\"username\":\"v\\n\",\"groups\":[\"system:authenticated\"]},\
             \"sourceIPs\":[\"10.0.0.1\",\"::1\"],\"userAgent\":\"kubectl/v1.33\",\
             \"objectRef\":{\"resource\":\"pods\",\"apiVersion\":\"v1\"},\
             \"responseStatus\":{\"metadata\":{},\"code\":200},\
             \"requestObject\":{  \"a\":\"\\n\"},\"responseObject\":[],\
             \"requestReceivedTimestamp\":\"2025-06-15T15:06:40.000001Z\",\
             \"stageTimestamp\":\"2025-06-15T15:06:40.003001Z\",\"annotations\":{\"a/b\":\"x\",\"c/d\":\"\"}}"
        );
    }

    #[test]
    fn what_is_long_or_wrong_is_told_shortly() {
        let long = "é".repeat(2000);
        let line = Event { agent: &long, ..event() }.line();
        let told: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(told["userAgent"], format!("{}{TRUNCATED}", "é".repeat(AGENT / 2)));
        assert_eq!(
            refused(&Status::bad_request("no")),
            json!({"metadata": {}, "status": "Failure", "message": "no", "reason": "BadRequest", "code": 400})
        );
    }

    #[test]
    fn nobody_makes_a_line_long_by_what_they_ask_for() {
        let long = "x".repeat(60_000);
        let object = ObjectRef { resource: long.clone(), name: long.clone(), ..ObjectRef::default() }.cut();
        let status = refused(&Status::forbidden(
            &karmada_meta::gvk::GroupResource::new("", long.as_str()),
            &long,
            long.as_str(),
        ));
        let (uri, verb) = (format!("/{long}"), long.as_str());
        let line =
            Event { uri: &uri, verb, agent: &long, object: Some(&object), status: Some(&status), ..event() };
        let line = line.line();
        assert!(line.len() < 16 * 1024, "{}", line.len());
        let told: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(told["requestURI"], format!("/{}{TRUNCATED}", "x".repeat(URI - 1)));
        assert_eq!(told["responseStatus"]["code"], 403);
    }

    #[test]
    fn managed_fields_go_wherever_objects_are() {
        let object = |managed: bool| {
            let mut object = json!({"metadata": {"name": "a"}});
            if managed {
                object["metadata"]["managedFields"] = json!([1]);
            }
            object
        };
        for shape in [
            (|object: Value| object) as fn(Value) -> Value,
            |object| json!({"metadata": {}, "items": [object]}),
            |object| json!({"metadata": {}, "rows": [{"cells": [], "object": object}]}),
        ] {
            let mut value = shape(object(true));
            strip_managed_fields(&mut value);
            assert_eq!(value, shape(object(false)));
        }
    }

    #[test]
    fn a_reference_is_filled_up_and_not_changed() {
        let mut object = ObjectRef { name: "path".into(), ..ObjectRef::default() };
        object.fill(
            &json!({"metadata": {"name": "body", "namespace": "n", "uid": "u", "resourceVersion": "7"}}),
        );
        let want = ObjectRef {
            name: "path".into(),
            namespace: "n".into(),
            uid: "u".into(),
            resource_version: "7".into(),
            ..ObjectRef::default()
        };
        assert_eq!(object, want);
    }
}
