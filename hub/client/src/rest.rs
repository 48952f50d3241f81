//! One request, one deadline, one error type.
//!
//! Objects stay JSON here: what is propagated may hold fields newer than any struct we know. Paths are built by
//! [`Resource`], so that nothing else concatenates them.

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, header};
use http_body::Body as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::{
    Client,
    client::Body,
    core::{Status, response::StatusDetails},
};
use serde::Serialize;
use serde_json::Value;
use tokio::time;

use crate::{
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
}

impl Default for Bounds {
    fn default() -> Self {
        Self { answer: ANSWER_LIMIT, kept: KEPT_LIMIT }
    }
}

/// What a server's own shelf is called.
const OF_SERVER: &str = "this member";

/// No server is left alone for longer, whatever it asks for.
const LONGEST_PAUSE: Duration = Duration::from_secs(10 * 60);

/// What to accept where of an object only the metadata are wanted; a server that does not know how sends all of it.
pub const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// The same of a list.
pub const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// A kind as it is addressed: where its objects live.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: String,
    /// API version within the group.
    pub version: String,
    /// The name in paths: `deployments`.
    pub plural: String,
    /// The kind in objects: `Deployment`.
    pub kind: String,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
}

impl Resource {
    /// A resource of the given names.
    pub fn new(group: &str, version: &str, plural: &str, kind: &str, namespaced: bool) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            plural: plural.into(),
            kind: kind.into(),
            namespaced,
        }
    }

    /// `apps/v1`, or `v1` for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The path of all objects, in one namespace if one is given and the kind is namespaced.
    pub fn collection(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", self.group) };
        match namespace.filter(|n| self.namespaced && !n.is_empty()) {
            Some(namespace) => {
                format!("{root}/{}/namespaces/{}/{}", self.version, segment(namespace), self.plural)
            }
            None => format!("{root}/{}/{}", self.version, self.plural),
        }
    }

    /// The path of one object.
    pub fn object(&self, namespace: Option<&str>, name: &str) -> String {
        format!("{}/{}", self.collection(namespace), segment(name))
    }

    /// The path of a subresource of one object.
    pub fn subresource(&self, namespace: Option<&str>, name: &str, subresource: &str) -> String {
        format!("{}/{}/{subresource}", self.collection(namespace), segment(name))
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.plural)
        } else {
            write!(f, "{}.{}", self.plural, self.group)
        }
    }
}

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

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server answered with a failure.
    #[error("{}", .0.message)]
    Api(Box<Status>),
    /// The server could not be reached, or the answer broke off.
    #[error("{method} {path}: {cause}")]
    Transport {
        /// The request's method.
        method: Method,
        /// The request's path.
        path: String,
        /// What the transport said.
        cause: String,
    },
    /// No complete answer within the deadline.
    #[error("{method} {path}: no answer within {}s", .after.as_secs())]
    Timeout {
        /// The request's method.
        method: Method,
        /// The request's path.
        path: String,
        /// How long was waited.
        after: Duration,
    },
    /// The answer has more bytes than are read.
    #[error("{method} {path}: the answer is larger than {limit} bytes")]
    TooLarge {
        /// The request's method.
        method: Method,
        /// The request's path.
        path: String,
        /// How many are.
        limit: usize,
    },
    /// The answer is longer than there is room for beside the answers of others ([`Room`](crate::Room)).
    #[error(
        "{method} {path}: the answer has more than {bytes} bytes, and long answers of others take the memory for that"
    )]
    NoRoom {
        /// The request's method.
        method: Method,
        /// The request's path.
        path: String,
        /// How many were read.
        bytes: usize,
    },
    /// The answer was not what the API promises.
    #[error("{method} {path}: cannot read the answer: {cause}")]
    Answer {
        /// The request's method.
        method: Method,
        /// The request's path.
        path: String,
        /// What is wrong with it.
        cause: String,
    },
}

impl Error {
    /// The server's answer, if there was one.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Api(status) => Some(status),
            _ => None,
        }
    }

    /// The HTTP status code, if there was an answer.
    pub fn code(&self) -> Option<u16> {
        self.status().map(|s| s.code)
    }

    /// Kubernetes' machine-readable reason, empty without an answer.
    pub fn reason(&self) -> &str {
        self.status().map_or("", |s| s.reason.as_str())
    }

    /// 404: the object, or its kind, is not there.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// 404, by a server that has looked for the object of this name: not by one that does not serve its kind (yet), and not
    /// by whatever else is on the way.
    pub fn is_absence_of(&self, name: &str) -> bool {
        let details = self.status().and_then(|status| status.details.as_ref());
        self.is_not_found()
            && self.reason() == "NotFound"
            && details.is_some_and(|details| details.name == name && !details.kind.is_empty())
    }

    /// 409 because the object has changed or an apply met another owner.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409) && self.reason() != "AlreadyExists"
    }

    /// 409 because the object is there already.
    pub fn is_already_exists(&self) -> bool {
        self.code() == Some(409) && self.reason() == "AlreadyExists"
    }

    /// 403.
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// 422: the server understood and will not have it.
    pub fn is_invalid(&self) -> bool {
        self.code() == Some(422)
    }

    /// 410: the revision is too old.
    pub fn is_gone(&self) -> bool {
        self.code() == Some(410)
    }

    /// No answer was had: the server is away or the link is.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Transport { .. } | Self::Timeout { .. })
    }

    /// Less of it would be taken.
    pub fn is_too_much(&self) -> bool {
        matches!(self, Self::TooLarge { .. } | Self::NoRoom { .. })
    }

    /// Trying the very same request again may help.
    pub fn is_transient(&self) -> bool {
        self.is_unreachable()
            || matches!(self, Self::NoRoom { .. })
            || self.code().is_some_and(|code| code == 429 || code >= 500)
    }

    /// How long the server asks to be left alone, in its Status or in the header of whatever it answered with.
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.status()?.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)).min(LONGEST_PAUSE))
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
        Self { client, deadline: DEADLINE, bounds, corner: None, shelf, lacks: Arc::default() }
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
        let answer = self.bounds.answer.min(SMALL);
        self.clone().bounded(Bounds { answer, ..self.bounds })
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

    /// GET of a path whose answer may be any text: `/readyz`.
    pub async fn get_text(&self, path: &str) -> Result<String, Error> {
        let (_, bytes) = self.bytes(request(&Method::GET, path, "*/*", "", None)?).await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// GET of a path as it was sent, for an answer of the `accept`ed media type.
    pub async fn get_bytes(&self, path: &str, accept: &str) -> Result<Bytes, Error> {
        self.bytes(request(&Method::GET, path, accept, "", None)?).await.map(|(_, bytes)| bytes)
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
        let (parts, bytes) = self.whole(request).await?;
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

    /// DELETE with options (`{}` for none); the answer is the object or a Status.
    pub async fn delete<B: Serialize + ?Sized + Sync>(
        &self,
        path: &str,
        options: &B,
    ) -> Result<Value, Error> {
        self.send(Method::DELETE, path, "application/json", options).await
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
        self.whole(request).await.map(|(parts, bytes)| (parts.status, bytes))
    }

    /// Sends a request and reads all of its answer.
    async fn whole(&self, request: Request<Body>) -> Result<(http::response::Parts, Bytes), Error> {
        let method = request.method().clone();
        let path = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
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
            if is_dense(&answer) {
                let cause = "it has more values than its length lets expect".to_owned();
                return Err(Error::Answer { method: method.clone(), path: path.clone(), cause });
            }
            Ok((parts, answer.freeze()))
        };
        let longest = self.deadline * DEADLINES;
        time::timeout(longest, answer).await.unwrap_or_else(|_| Err(timeout(longest)))
    }
}

fn encode<B: Serialize + ?Sized>(method: &Method, path: &str, body: &B) -> Result<Bytes, Error> {
    serde_json::to_vec(body).map(Bytes::from).map_err(|error| Error::Answer {
        method: method.clone(),
        path: path.into(),
        cause: format!("the body cannot be written as JSON: {error}"),
    })
}

/// Whether JSON is made of so many values for its length that they would take much more than that.
pub(crate) fn is_dense(json: &[u8]) -> bool {
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

fn decode(method: Method, path: &str, answer: &[u8]) -> Result<Value, Error> {
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

/// The Status of a failure answer; one is made up when the answer is something else (a proxy's page, a plain text). `pause`
/// is the seconds that its header asks for.
fn failure(code: StatusCode, pause: Option<u32>, body: &[u8]) -> Status {
    let parsed =
        serde_json::from_slice::<Status>(body).ok().filter(|s| !s.message.is_empty() || !s.reason.is_empty());
    let mut status = parsed.unwrap_or_else(|| {
        let text: String = String::from_utf8_lossy(body).trim().chars().take(200).collect();
        let name = code.canonical_reason().unwrap_or("unknown status");
        let message = if text.is_empty() { format!("{} {name}", code.as_u16()) } else { text };
        Status { status: None, code: 0, message, metadata: None, reason: String::new(), details: None }
    });
    status.code = code.as_u16();
    let details = status.details.get_or_insert_with(|| StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    });
    if details.retry_after_seconds == 0 {
        details.retry_after_seconds = pause.unwrap_or_default();
    }
    status
}

/// An error with all of its causes, on one line: the outermost alone is usually "error sending request".
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// Percent-encodes a value for a query.
pub fn query_value(value: &str) -> String {
    encode_but(value, b"-._~")
}

/// Percent-encodes a name of which it is not known whether a server would accept it, as a segment of a path.
pub fn path_segment(name: &str) -> String {
    segment(name).into_owned()
}

/// Percent-encodes a segment of a path. Names are not always what a server would accept.
fn segment(name: &str) -> Cow<'_, str> {
    const PLAIN: &[u8] = b"-._~:@!$&'()*+,;=";
    if name == "." || name == ".." {
        return Cow::Owned(encode_but(name, b""));
    }
    if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || PLAIN.contains(&byte)) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(encode_but(name, PLAIN))
}

/// Percent-encodes all but letters, digits and these.
fn encode_but(text: &str, plain: &[u8]) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let deployments = Resource::new("apps", "v1", "deployments", "Deployment", true);
        let nodes = Resource::new("", "v1", "nodes", "Node", false);
        let rows = [
            (deployments.collection(None), "/apis/apps/v1/deployments"),
            (deployments.collection(Some("shop")), "/apis/apps/v1/namespaces/shop/deployments"),
            (deployments.object(Some("shop"), "web"), "/apis/apps/v1/namespaces/shop/deployments/web"),
            (
                deployments.subresource(Some("shop"), "web", "status"),
                "/apis/apps/v1/namespaces/shop/deployments/web/status",
            ),
            (nodes.object(None, "n1"), "/api/v1/nodes/n1"),
            (nodes.object(Some("ignored"), "n1"), "/api/v1/nodes/n1"),
            (nodes.object(None, "system:node"), "/api/v1/nodes/system:node"),
            (nodes.object(None, "n1/status?a#b%c"), "/api/v1/nodes/n1%2Fstatus%3Fa%23b%25c"),
            (nodes.object(None, ".."), "/api/v1/nodes/%2E%2E"),
            (deployments.collection(Some("a/b")), "/apis/apps/v1/namespaces/a%2Fb/deployments"),
            (deployments.api_version(), "apps/v1"),
            (nodes.api_version(), "v1"),
            (deployments.to_string(), "deployments.apps"),
        ];
        for (got, want) in rows {
            assert_eq!(got, want);
        }
    }

    #[test]
    fn a_failure_without_a_status_is_still_told() {
        let rows = [
            (503, &b"upstream connect error"[..], "upstream connect error"),
            (502, b"", "502 Bad Gateway"),
            (
                404,
                br#"{"kind":"Status","message":"pods \"x\" not found","reason":"NotFound","code":404}"#,
                "pods \"x\" not found",
            ),
            (500, br#"{"some":"json"}"#, r#"{"some":"json"}"#),
        ];
        for (code, body, message) in rows {
            let status = failure(StatusCode::from_u16(code).unwrap(), None, body);
            assert_eq!((status.code, status.message.as_str()), (code, message));
        }
    }

    #[test]
    fn only_a_server_that_has_looked_says_that_an_object_is_absent() {
        let absent = |code, body: &str| {
            let status = failure(StatusCode::from_u16(code).unwrap(), None, body.as_bytes());
            Error::Api(Box::new(status)).is_absence_of("x")
        };
        let said = r#"{"kind":"Status","status":"Failure","message":"pods \"x\" not found","reason":"NotFound","code":404,
            "details":{"name":"x","kind":"pods"}}"#;
        assert!(absent(404, said));
        assert!(!absent(404, &said.replace("\"name\":\"x\"", "\"name\":\"y\"")));
        assert!(!absent(403, said));
        for text in [
            "404 page not found\n",
            r#"{"kind":"Status","message":"the server could not find the requested resource","reason":"NotFound","code":404,"details":{}}"#,
            "<html>nginx</html>",
        ] {
            assert!(!absent(404, text), "{text}");
        }
    }

    #[test]
    fn a_pause_is_heard_from_the_header_and_from_the_status() {
        let status = br#"{"kind":"Status","reason":"TooManyRequests","message":"m","details":{"retryAfterSeconds":3},"code":429}"#;
        let bare = br#"{"kind":"Status","reason":"TooManyRequests","message":"m","code":429}"#;
        // (header, body, pause in seconds)
        let rows: [(Option<u32>, &[u8], Option<u64>); 6] = [
            (Some(7), b"Too many requests, please try again later.\n", Some(7)),
            (Some(7), status, Some(3)),
            (Some(7), bare, Some(7)),
            (None, bare, None),
            (None, b"", None),
            (Some(u32::MAX), b"", Some(600)),
        ];
        for (header, body, want) in rows {
            let error = Error::Api(Box::new(failure(StatusCode::TOO_MANY_REQUESTS, header, body)));
            let got = error.retry_after().map(|pause| pause.as_secs());
            assert_eq!(got, want, "{header:?} {}", String::from_utf8_lossy(body));
        }
    }

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
    async fn no_more_is_taken_of_an_answer_than_was_said() {
        let service = tower::service_fn(|request: Request<Body>| async move {
            let length = request.uri().query().and_then(|query| query.parse().ok()).unwrap_or(0);
            Ok::<_, std::io::Error>(http::Response::new(Body::from(
                format!("{:?}", "x".repeat(length)).into_bytes(),
            )))
        });
        let rest = Rest::new(Client::new(service, "default"));
        let hosted = rest.clone().bounded(Bounds { answer: 2 << 20, kept: 1 });
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

    #[test]
    fn query_values_are_encoded() {
        assert_eq!(
            query_value("karmada.io/managed=true,a in (b)"),
            "karmada.io%2Fmanaged%3Dtrue%2Ca%20in%20%28b%29"
        );
    }
}
