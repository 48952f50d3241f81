//! One request, one deadline, one error type.
//!
//! Objects stay JSON here: what is propagated may hold fields newer than any struct we know. Paths are built by
//! [`Resource`], so that nothing else concatenates them.

mod error;
mod pages;
mod path;

use std::{fmt, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, header};
use http_body::Body as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use karmada_meta::text;
use kube::{Client, client::Body};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use tokio::time;

pub(crate) use self::error::chain;
use self::error::failure;
pub use self::{
    error::Error,
    pages::{Page, Pages},
    path::{Resource, path_segment, query_value},
};
use crate::{
    failures::Failures,
    kept::{Lacks, Shelf},
    link::pace,
    room::{Corner, Taken, To},
};

/// How long a server may take to begin its answer, beyond what the request has to bring, and how long it may then say
/// nothing in the midst of it. Longer than the Link's wait for headers, so that the nearer limit speaks first.
pub const DEADLINE: Duration = Duration::from_secs(31);

/// How many deadlines an answer may take as long as it makes progress: ten minutes, in which a page of 100 objects of
/// 20 kB crosses a line of 4 kB/s. Broken off earlier, it would be asked for again, for ever.
const DEADLINES: u32 = 20;

/// The largest answer that is read into memory. etcd refuses objects over 1.5 MiB and pages hold 100 of them at most.
pub const ANSWER_LIMIT: usize = 160 << 20;

/// So much is kept of a server: a million Pods, of which figures are.
pub const KEPT_LIMIT: usize = 1 << 30;

/// The largest answer to a question about one small thing: a version, a Namespace, how a server is.
const SMALL: usize = 1 << 20;

/// An object of a hub's is not longer: what its store takes (5 MiB) and what is put around that.
pub const STORED: usize = 6 << 20;

/// What anybody's server sends is read whatever it holds up to so many bytes.
pub const STRANGE: usize = 2 * FEW;

/// An answer of fewer values is read however short they are.
const FEW: usize = 64 << 10;
/// An answer of more has so many bytes for each at least. What is read of one takes some 80 bytes, so that an answer of
/// nothing but zeros would take forty times its length.
const BYTES_PER_VALUE: usize = 5;

/// What is taken of a server that may be anybody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of one answer. A page of a list that has more is asked for in smaller ones.
    pub answer: usize,
    /// Bytes of what is kept of it. A collection for which there is no room is not known.
    pub kept: usize,
    /// Bytes of one object up to which it may hold any number of values. A longer one of which they would take much more than
    /// its length is not read: [`STORED`] of a hub, whose store takes whatever fits it; [`STRANGE`] of anybody else's server.
    pub dense: usize,
}

impl Default for Bounds {
    /// Those of a hub.
    fn default() -> Self {
        Self { answer: ANSWER_LIMIT, kept: KEPT_LIMIT, dense: STORED }
    }
}

/// What a server's own shelf is called.
const OF_SERVER: &str = "this member";

/// What to accept where of an object only the metadata are wanted; a server that does not know how sends all of it.
pub const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// The same of a list.
pub const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// The kinds of PATCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patch {
    /// JSON merge patch (RFC 7386).
    Merge,
    /// JSON patch (RFC 6902).
    Json,
    /// Strategic merge patch; built-in kinds only.
    Strategic,
    /// Server-side apply. The query must name a `fieldManager`.
    Apply,
}

impl Patch {
    fn media_type(self) -> &'static str {
        match self {
            Self::Merge => "application/merge-patch+json",
            Self::Json => "application/json-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            // JSON is YAML; servers older than 1.32 know apply only by this name.
            Self::Apply => "application/apply-patch+yaml",
        }
    }
}

/// Requests for JSON over a [`Client`], each with a deadline. Cheap to clone.
#[derive(Clone)]
pub struct Rest {
    client: Client,
    deadline: Duration,
    bounds: Bounds,
    corner: Option<Arc<Corner>>,
    shelf: Shelf,
    lacks: Arc<Lacks>,
    failures: Option<Failures>,
}

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rest").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

impl From<Client> for Rest {
    fn from(client: Client) -> Self {
        Self::new(client)
    }
}

impl Rest {
    /// Requests with the usual [`DEADLINE`].
    pub fn new(client: Client) -> Self {
        let bounds = Bounds::default();
        let shelf = Shelf::new(OF_SERVER, bounds.kept);
        let lacks = Arc::default();
        Self { client, deadline: DEADLINE, bounds, corner: None, shelf, lacks, failures: None }
    }

    /// The same client with another deadline.
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { deadline, ..self.clone() }
    }

    /// The same client of whose answers no more is taken.
    #[must_use]
    pub fn bounded(self, bounds: Bounds) -> Self {
        let shelf = match &self.corner {
            None if bounds.kept != self.bounds.kept => Shelf::new(OF_SERVER, bounds.kept),
            _ => self.shelf,
        };
        Self { bounds, shelf, ..self }
    }

    /// The same client, whose answers, and what is kept of them, take room that others want as well.
    #[must_use]
    pub fn within(self, corner: Option<Corner>) -> Self {
        let shelf = corner.as_ref().map_or(self.shelf, |corner| corner.shelf().clone());
        Self { corner: corner.map(Arc::new), shelf, ..self }
    }

    /// The same client, whose watches that fail are counted.
    #[must_use]
    pub fn counting(self, failures: &Failures) -> Self {
        Self { failures: Some(failures.clone()), ..self }
    }

    /// Where its watches that fail are counted.
    pub(crate) fn failures(&self) -> Option<&Failures> {
        self.failures.as_ref()
    }

    /// Where what is kept of the server has its place.
    pub fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    /// What is not known of it, since there is too much.
    pub fn lacks(&self) -> &Arc<Lacks> {
        &self.lacks
    }

    /// Whose room its answers take.
    pub(crate) fn corner(&self) -> Option<&Corner> {
        self.corner.as_deref()
    }

    /// The same for questions whose answers are small.
    pub fn small(&self) -> Self {
        let (answer, dense) = (self.bounds.answer.min(SMALL), self.bounds.dense.min(STRANGE));
        self.clone().bounded(Bounds { answer, dense, ..self.bounds })
    }

    /// What is taken of its answers.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// The client underneath.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// GET of a path (with its query), as JSON.
    pub async fn get(&self, path: &str) -> Result<Value, Error> {
        self.json(Method::GET, path, "", None).await.map(|(_, object)| object)
    }

    /// GET of an object of which only the metadata are wanted, with the kind that it has. A server that does not know how sends all
    /// of it.
    pub async fn get_metadata(&self, resource: &Resource, path: &str) -> Result<Value, Error> {
        let answer = self.get_bytes(path, METADATA).await?;
        let mut object: Map<String, Value> = decode(Method::GET, path, &answer)?;
        let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
        if kind != resource.kind && kind != "PartialObjectMetadata" {
            let cause = format!("its kind is {:?}, wanted is {}", text::line(kind, 64), resource.kind);
            return Err(Error::Answer { method: Method::GET, path: path.into(), cause });
        }
        object.insert("apiVersion".into(), resource.api_version().into());
        object.insert("kind".into(), resource.kind.as_str().into());
        Ok(object.into())
    }

    /// GET of a path whose answer may be any text: `/readyz`.
    pub async fn get_text(&self, path: &str) -> Result<String, Error> {
        let (_, bytes) = self.bytes(request(&Method::GET, path, "*/*", "", None)?).await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// GET of a path as it was sent, for an answer of the `accept`ed media type.
    pub async fn get_bytes(&self, path: &str, accept: &str) -> Result<Bytes, Error> {
        self.bytes(request(&Method::GET, path, accept, "", None)?).await.map(|(_, bytes)| bytes)
    }

    /// The same of a page of a list, whose objects are looked at one by one: each is to be asked about
    /// ([`Rest::not_too_dense`]) before it is read, so that one alone is not read.
    pub async fn get_page(&self, path: &str, accept: &str) -> Result<Bytes, Error> {
        self.whole(request(&Method::GET, path, accept, "", None)?).await.map(|(_, bytes)| bytes)
    }

    /// That an object is not made of so many values that it would take much more than its length.
    ///
    /// # Errors
    /// It is: in words for a log.
    pub fn not_too_dense(&self, object: &[u8]) -> Result<(), &'static str> {
        match object.len() > self.bounds.dense && is_dense(object) {
            true => Err("it has more values than its length lets expect"),
            false => Ok(()),
        }
    }

    /// The same, unless what the server has is what was answered with this tag before: then none. With the answer's tag.
    pub async fn get_bytes_unless(
        &self,
        path: &str,
        accept: &str,
        tag: Option<&HeaderValue>,
    ) -> Result<Option<(Bytes, Option<HeaderValue>)>, Error> {
        let mut request = request(&Method::GET, path, accept, "", None)?;
        if let Some(tag) = tag {
            request.headers_mut().insert(header::IF_NONE_MATCH, tag.clone());
        }
        let (parts, bytes) = self.sparse(request).await?;
        let known = parts.status == StatusCode::NOT_MODIFIED;
        Ok((!known).then(|| (bytes, parts.headers.get(header::ETAG).cloned())))
    }

    /// POST: creates an object in a collection.
    pub async fn post<B: Serialize + ?Sized + Sync>(&self, path: &str, body: &B) -> Result<Value, Error> {
        self.send(Method::POST, path, "application/json", body).await
    }

    /// PUT: replaces an object.
    pub async fn put<B: Serialize + ?Sized + Sync>(&self, path: &str, body: &B) -> Result<Value, Error> {
        self.send(Method::PUT, path, "application/json", body).await
    }

    /// PATCH of the given kind.
    pub async fn patch<B: Serialize + ?Sized + Sync>(
        &self,
        path: &str,
        kind: Patch,
        body: &B,
    ) -> Result<Value, Error> {
        self.send(Method::PATCH, path, kind.media_type(), body).await
    }

    /// POST of which only the object's new resourceVersion is wanted: see [`Rest::patch_for_revision`].
    pub async fn post_for_revision<B: Serialize + ?Sized + Sync>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<String, Error> {
        self.for_revision(Method::POST, path, "application/json", body).await
    }

    /// PUT of which only the object's new resourceVersion is wanted: see [`Rest::patch_for_revision`].
    pub async fn put_for_revision<B: Serialize + ?Sized + Sync>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<String, Error> {
        self.for_revision(Method::PUT, path, "application/json", body).await
    }

    /// PATCH of which only the object's new resourceVersion is wanted. Servers leave out what they can, which on an
    /// edge is most of what a write costs: kube-apiserver answers with the object's metadata, a hub of ours with the
    /// resourceVersion alone (RFC 7240's `return=minimal`).
    pub async fn patch_for_revision<B: Serialize + ?Sized + Sync>(
        &self,
        path: &str,
        kind: Patch,
        body: &B,
    ) -> Result<String, Error> {
        self.for_revision(Method::PATCH, path, kind.media_type(), body).await
    }

    /// PATCH of which only the object's new metadata is wanted.
    pub async fn patch_for_metadata<B: Serialize + ?Sized + Sync>(
        &self,
        path: &str,
        kind: Patch,
        body: &B,
    ) -> Result<Value, Error> {
        self.for_metadata(Method::PATCH, path, kind.media_type(), body, None).await
    }

    /// PATCH without a body, answered by 204 and the object's new resourceVersion as its ETag
    /// ([`karmada_meta::renewal`]).
    pub async fn renew(&self, path: &str) -> Result<String, Error> {
        let request = request(&Method::PATCH, path, METADATA, "", None)?;
        let (parts, _) = self.whole(request).await?;
        let tag = parts.headers.get(header::ETAG).and_then(|tag| tag.to_str().ok());
        match tag.filter(|_| parts.status == StatusCode::NO_CONTENT) {
            Some(tag) => Ok(tag.trim_matches('"').to_owned()),
            None => {
                let cause = "it is not that of a renewal".into();
                Err(Error::Answer { method: Method::PATCH, path: path.into(), cause })
            }
        }
    }

    async fn for_revision<B: Serialize + ?Sized + Sync>(
        &self,
        method: Method,
        path: &str,
        media_type: &str,
        body: &B,
    ) -> Result<String, Error> {
        let prefer = HeaderValue::from_static("return=minimal");
        let object = self.for_metadata(method.clone(), path, media_type, body, Some(prefer)).await?;
        match object.pointer("/metadata/resourceVersion").and_then(Value::as_str) {
            Some(revision) => Ok(revision.to_owned()),
            None => {
                Err(Error::Answer { method, path: path.into(), cause: "it has no resourceVersion".into() })
            }
        }
    }

    async fn for_metadata<B: Serialize + ?Sized + Sync>(
        &self,
        method: Method,
        path: &str,
        media_type: &str,
        body: &B,
        prefer: Option<HeaderValue>,
    ) -> Result<Value, Error> {
        let body = encode(&method, path, body)?;
        let mut request = request(&method, path, METADATA, media_type, Some(body))?;
        request.headers_mut().extend(prefer.map(|prefer| (HeaderName::from_static("prefer"), prefer)));
        let (_, answer) = self.bytes(request).await?;
        decode(method, path, &answer)
    }

    /// Server-side apply of `config` as `manager`. Answers whether the object was created, and the object.
    pub async fn apply(
        &self,
        path: &str,
        manager: &str,
        force: bool,
        config: &Value,
    ) -> Result<(bool, Value), Error> {
        let path = format!("{path}?fieldManager={}&force={force}", query_value(manager));
        let body = encode(&Method::PATCH, &path, config)?;
        let media_type = Patch::Apply.media_type();
        self.json(Method::PATCH, &path, media_type, Some(body))
            .await
            .map(|(code, object)| (code == 201, object))
    }

    /// DELETE with options (`{}` for none); the answer is the object's metadata or a Status.
    pub async fn delete<B: Serialize + ?Sized + Sync>(
        &self,
        path: &str,
        options: &B,
    ) -> Result<Value, Error> {
        self.for_metadata(Method::DELETE, path, "application/json", options, None).await
    }

    async fn send<B: Serialize + ?Sized + Sync>(
        &self,
        method: Method,
        path: &str,
        media_type: &str,
        body: &B,
    ) -> Result<Value, Error> {
        let body = encode(&method, path, body)?;
        self.json(method, path, media_type, Some(body)).await.map(|(_, object)| object)
    }

    async fn json(
        &self,
        method: Method,
        path: &str,
        media_type: &str,
        body: Option<Bytes>,
    ) -> Result<(StatusCode, Value), Error> {
        let request = request(&method, path, "application/json", media_type, body)?;
        let (code, answer) = self.bytes(request).await?;
        decode(method, path, &answer).map(|object| (code, object))
    }

    async fn bytes(&self, request: Request<Body>) -> Result<(StatusCode, Bytes), Error> {
        self.sparse(request).await.map(|(parts, bytes)| (parts.status, bytes))
    }

    /// All of an answer that may be read as it is.
    async fn sparse(&self, request: Request<Body>) -> Result<(http::response::Parts, Bytes), Error> {
        let (method, path) = (request.method().clone(), path_of(&request));
        let (parts, bytes) = self.whole(request).await?;
        match self.not_too_dense(&bytes) {
            Err(dense) => Err(Error::Answer { method, path, cause: dense.to_owned() }),
            Ok(()) => Ok((parts, bytes)),
        }
    }

    /// Sends a request and reads all of its answer. In a box, so that whoever may ask something at some time has room for it only
    /// meanwhile.
    fn whole(&self, request: Request<Body>) -> BoxFuture<'_, Result<(http::response::Parts, Bytes), Error>> {
        Box::pin(self.send_and_read(request))
    }

    async fn send_and_read(&self, request: Request<Body>) -> Result<(http::response::Parts, Bytes), Error> {
        let method = request.method().clone();
        let path = path_of(&request);
        let timeout = |after| Error::Timeout { method: method.clone(), path: path.clone(), after };
        let answer = async {
            let silent = |_| timeout(self.deadline);
            let begins = self.deadline + pace::crossing(request.body().size_hint().lower());
            let response = time::timeout(begins, open(&self.client, request));
            let (parts, body) = response.await.map_err(|_| timeout(begins))??.into_parts();
            let mut body = Limited::new(body, self.bounds.answer);
            let mut answer = BytesMut::new();
            let mut taken = Taken::of(self.corner());
            let to = if method == Method::GET { To::Read } else { To::Write };
            while let Some(frame) = time::timeout(self.deadline, body.frame()).await.map_err(silent)? {
                match frame {
                    Ok(frame) => {
                        let data = frame.data_ref().map_or(&[][..], |data| data);
                        if !taken.holds(answer.len() + data.len(), to).await {
                            return Err(Error::NoRoom {
                                method: method.clone(),
                                path: path.clone(),
                                bytes: answer.len(),
                            });
                        }
                        answer.extend_from_slice(data);
                    }
                    Err(error) if error.is::<LengthLimitError>() => {
                        return Err(Error::TooLarge {
                            method: method.clone(),
                            path: path.clone(),
                            limit: self.bounds.answer,
                        });
                    }
                    Err(error) => {
                        let cause = chain(&*error);
                        return Err(Error::Transport { method: method.clone(), path: path.clone(), cause });
                    }
                }
            }
            Ok((parts, answer.freeze()))
        };
        let longest = self.deadline * DEADLINES;
        time::timeout(longest, answer).await.unwrap_or_else(|_| Err(timeout(longest)))
    }
}

fn path_of(request: &Request<Body>) -> String {
    request.uri().path_and_query().map_or_else(String::new, ToString::to_string)
}

fn encode<B: Serialize + ?Sized>(method: &Method, path: &str, body: &B) -> Result<Bytes, Error> {
    serde_json::to_vec(body).map(Bytes::from).map_err(|error| Error::Answer {
        method: method.clone(),
        path: path.into(),
        cause: format!("the body cannot be written as JSON: {error}"),
    })
}

/// Whether JSON is made of so many values for its length that they would take much more than that.
fn is_dense(json: &[u8]) -> bool {
    if json.len() <= 2 * FEW {
        return false;
    }
    let (mut values, mut within, mut escaped) = (0_usize, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if within => escaped = true,
            b'"' => within = !within,
            b',' | b'[' | b'{' if !within => values += 1,
            _ => {}
        }
    }
    values > FEW && values > json.len() / BYTES_PER_VALUE
}

fn decode<T: DeserializeOwned>(method: Method, path: &str, answer: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(answer).map_err(|error| Error::Answer {
        method,
        path: path.into(),
        cause: error.to_string(),
    })
}

/// A request as [`open`] wants it.
pub(crate) fn request(
    method: &Method,
    path: &str,
    accept: &str,
    media_type: &str,
    body: Option<Bytes>,
) -> Result<Request<Body>, Error> {
    let mut request = Request::builder().method(method).uri(path).header(header::ACCEPT, accept);
    if body.is_some() {
        request = request.header(header::CONTENT_TYPE, media_type);
    }
    request.body(Body::from(body.unwrap_or_default())).map_err(|error| Error::Answer {
        method: method.clone(),
        path: path.into(),
        cause: format!("this is not a path one can ask for: {error}"),
    })
}

/// Sends a request and waits for headers; a failure answer is read and becomes [`Error::Api`].
pub(crate) async fn open(client: &Client, request: Request<Body>) -> Result<http::Response<Body>, Error> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = client.send(request).await.map_err(|error| Error::Transport {
        method: method.clone(),
        path: path.clone(),
        cause: chain(&error),
    })?;
    let code = response.status();
    if code.is_success() || code == StatusCode::NOT_MODIFIED {
        return Ok(response);
    }
    let pause =
        response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    /// More than this of a failure's text helps nobody.
    const FAILURE_LIMIT: usize = 1 << 20;
    let body = match Limited::new(response.into_body(), FAILURE_LIMIT).collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(_) => Bytes::new(),
    };
    Err(Error::Api(Box::new(failure(code, pause, &body))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_take_much_more_than_its_length_is_not_read() {
        let many = |one: &str| format!("[{}]", vec![one; 100_000].join(","));
        for (json, dense) in [
            (many("0"), true),
            (many("{}"), true),
            (many("[]"), true),
            (many("10"), true),
            (many(r#"{"":0}"#), true),
            (many("123456"), false),
            (many(r#"{"name":"a-pod","n":1}"#), false),
            (format!("[{}]", vec!["0"; FEW - 1].join(",")), false),
            // A text of commas is one value, whatever is quoted in it.
            (format!(r#"{{"data":"{}"}}"#, ",".repeat(300_000)), false),
            (format!(r#"{{"data":"{}"}}"#, r#"\",\\"#.repeat(100_000)), false),
        ] {
            assert_eq!(is_dense(json.as_bytes()), dense, "{}…", &json[..20]);
        }
    }

    #[tokio::test]
    async fn what_a_hub_can_store_is_read_whatever_it_holds_and_no_more_of_others() {
        let dense = |bytes: usize| format!("[{}0]", "0,".repeat(bytes / 2));
        let service = tower::service_fn(move |request: Request<Body>| async move {
            let length = request.uri().query().and_then(|query| query.parse().ok()).unwrap_or(0);
            Ok::<_, std::io::Error>(http::Response::new(Body::from(dense(length).into_bytes())))
        });
        let hub = Rest::new(Client::new(service, "default"));
        let member = hub.clone().bounded(Bounds { dense: STRANGE, ..Bounds::default() });
        for (rest, bytes, read) in [
            (&hub, 5 << 20, true),
            (&hub, 7 << 20, false),
            (&member, 1 << 17, false),
            (&member, 1 << 16, true),
        ] {
            let path = format!("/version?{bytes}");
            assert_eq!(rest.get(&path).await.is_ok(), read, "{bytes}");
            assert!(rest.get_page(&path, "application/json").await.is_ok(), "{bytes}");
        }
    }

    #[tokio::test]
    async fn metadata_come_with_the_kind_of_their_object_and_nothing_else_does() {
        let service = tower::service_fn(|request: Request<Body>| {
            assert_eq!(request.headers()[header::ACCEPT], METADATA);
            let kind = request.uri().path().trim_start_matches("/api/v1/namespaces/").to_owned();
            let answer = format!(r#"{{"kind":"{kind}","apiVersion":"x","metadata":{{"uid":"u"}}}}"#);
            std::future::ready(Ok::<_, std::io::Error>(http::Response::new(Body::from(answer.into_bytes()))))
        });
        let rest = Rest::new(Client::new(service, "default"));
        let namespaces = Resource::new("", "v1", "namespaces", "Namespace", false);
        let get = |kind: &str| {
            let path = namespaces.object(None, kind);
            let (rest, namespaces) = (&rest, &namespaces);
            async move { rest.get_metadata(namespaces, &path).await }
        };
        for kind in ["PartialObjectMetadata", "Namespace"] {
            let want = serde_json::json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"uid": "u"}});
            assert_eq!(get(kind).await.expect(kind), want);
        }
        for kind in ["Status", ""] {
            assert!(matches!(get(kind).await, Err(Error::Answer { .. })), "{kind}");
        }
    }

    #[tokio::test]
    async fn no_more_is_taken_of_an_answer_than_was_said() {
        let service = tower::service_fn(|request: Request<Body>| async move {
            let length = request.uri().query().and_then(|query| query.parse().ok()).unwrap_or(0);
            Ok::<_, std::io::Error>(http::Response::new(Body::from(
                format!("{:?}", "x".repeat(length)).into_bytes(),
            )))
        });
        let rest = Rest::new(Client::new(service, "default"));
        let hosted = rest.clone().bounded(Bounds { answer: 2 << 20, kept: 1, ..Bounds::default() });
        let length = |bytes: usize| format!("/version?{bytes}");
        assert!(rest.get(&length(3 << 20)).await.is_ok());
        for (asked, bytes, taken) in [
            (&hosted, 1 << 20, true),
            (&hosted, 2 << 20, false),
            (&hosted.small(), 1 << 19, true),
            (&hosted.small(), 1 << 20, false),
            (&hosted.with_deadline(DEADLINE).small(), 1 << 20, false),
        ] {
            match asked.get(&length(bytes)).await {
                Ok(_) => assert!(taken, "{bytes}"),
                Err(error) => assert!(!taken && matches!(error, Error::TooLarge { .. }), "{bytes}: {error}"),
            }
        }
    }
}
