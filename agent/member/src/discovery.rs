//! What a member serves: for finding a kind's path, and for the Cluster's `apiEnablements`.
//!
//! Two requests for aggregated discovery, or one per group where a server does not know that. Most of the time they are
//! answered with "not modified": see [`Tags`]. An answer that the server calls stale (an aggregated API that is away) is
//! kept with what it says and makes the list "partial".

pub(crate) mod apis;

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, future, stream};
use http::{HeaderValue, Method};
use karmada_client::{Error, Resource, Rest, Wake, wake::Listener};
use karmada_env::Env;
use parking_lot::Mutex;
use serde::Deserialize;

pub use apis::Apis;

use apis::Found;

use super::served::{Registered, Served, judge};

/// Aggregated discovery in the newest form the server has, else the legacy form.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                      application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// A kind that is missing makes us look again, but not more often than this.
const LOOK_AGAIN: Duration = Duration::from_millis(700);

/// Requests under way at a time in legacy discovery.
const PARALLEL: usize = 4;

/// Either form of an answer to `/api` or `/apis`.
#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    kind: String,
    /// Aggregated: the groups.
    #[serde(default)]
    items: Vec<AggregatedGroup>,
    /// Legacy `/api`.
    #[serde(default)]
    versions: Vec<String>,
    /// Legacy `/apis`.
    #[serde(default)]
    groups: Vec<LegacyGroup>,
}

#[derive(Deserialize)]
struct AggregatedGroup {
    #[serde(default)]
    metadata: Name,
    #[serde(default)]
    versions: Vec<AggregatedVersion>,
}

#[derive(Default, Deserialize)]
struct Name {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct AggregatedVersion {
    version: String,
    #[serde(default)]
    resources: Vec<AggregatedResource>,
    #[serde(default)]
    freshness: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AggregatedResource {
    resource: String,
    #[serde(default)]
    response_kind: Option<Kind>,
    #[serde(default)]
    scope: String,
}

#[derive(Deserialize)]
struct Kind {
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LegacyGroup {
    name: String,
    #[serde(default)]
    versions: Vec<LegacyVersion>,
    #[serde(default)]
    preferred_version: Option<LegacyVersion>,
}

#[derive(Deserialize)]
struct LegacyVersion {
    version: String,
}

#[derive(Deserialize)]
struct LegacyList {
    #[serde(default)]
    resources: Vec<LegacyResource>,
}

#[derive(Deserialize)]
struct LegacyResource {
    name: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    namespaced: bool,
}

fn aggregated(apis: &mut Apis, groups: Vec<AggregatedGroup>) {
    for group in groups {
        for version in group.versions {
            if version.freshness == "Stale" {
                apis.missing.insert(format!("{}/{}", group.metadata.name, version.version));
            }
            let resources = version.resources.into_iter().map(|r| Found {
                namespaced: r.scope == "Namespaced",
                kind: r.response_kind.map(|k| k.kind).unwrap_or_default(),
                plural: r.resource,
            });
            apis.add(&group.metadata.name, &version.version, &resources.collect::<Vec<_>>());
        }
    }
}

async fn ask<T: for<'de> Deserialize<'de>>(member: &Rest, path: &str, accept: &str) -> Result<T, Error> {
    read(path, &member.get_bytes(path, accept).await?)
}

fn read<T: for<'de> Deserialize<'de>>(path: &str, bytes: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|error| wrong(path, &error.to_string()))
}

fn wrong(path: &str, cause: &str) -> Error {
    Error::Answer { method: Method::GET, path: path.to_owned(), cause: cause.to_owned() }
}

/// Where discovery begins.
const ROOTS: [&str; 2] = ["/api", "/apis"];

/// What both roots were answered with, for which nothing else was asked.
type Tags = [HeaderValue; 2];

/// An answer and its tag.
type Tagged = (Bytes, Option<HeaderValue>);

/// Asks a member's roots. None if both are what they were when they had these tags.
async fn roots(member: &Rest, tags: Option<&Tags>) -> Result<Option<[Tagged; 2]>, Error> {
    // At once, for they are answered at once: whoever looks every few seconds is woken once instead of twice.
    let [core, groups] =
        [0, 1].map(|at| member.get_bytes_unless(ROOTS[at], ACCEPT, tags.map(|tags| &tags[at])));
    let (core, groups) = future::try_join(core, groups).await?;
    let mut answers = [core, groups];
    if answers.iter().all(Option::is_none) && tags.is_some() {
        return Ok(None);
    }
    for (answer, path) in answers.iter_mut().zip(ROOTS) {
        if answer.is_none() {
            *answer = member.get_bytes_unless(path, ACCEPT, None).await?;
        }
    }
    match answers {
        [Some(core), Some(groups)] => Ok(Some([core, groups])),
        _ => Err(wrong(ROOTS[0], "not modified, without a condition")),
    }
}

/// Asks a member what it serves, with the tags if they stand for all of it. None if that is what had these tags before.
async fn discover(member: &Rest, before: Option<&Tags>) -> Result<Option<(Apis, Option<Tags>)>, Error> {
    let Some(roots) = roots(member, before).await? else { return Ok(None) };
    let mut apis = Apis::default();
    let mut legacy: Vec<(String, String)> = Vec::new();
    let mut tags = Vec::new();
    for (path, (bytes, tag)) in ROOTS.into_iter().zip(roots) {
        tags.extend(tag);
        let answer: Answer = read(path, &bytes)?;
        if answer.kind == "APIGroupDiscoveryList" {
            aggregated(&mut apis, answer.items);
            continue;
        }
        legacy.extend(answer.versions.into_iter().map(|version| (String::new(), version)));
        for group in answer.groups {
            let preferred = group.preferred_version.map(|v| v.version).unwrap_or_default();
            let mut versions: Vec<_> = group.versions.into_iter().map(|v| v.version).collect();
            versions.sort_by_key(|version| *version != preferred);
            legacy.extend(versions.into_iter().map(|version| (group.name.clone(), version)));
        }
    }
    let tags = tags.try_into().ok().filter(|_| legacy.is_empty());
    let lists = stream::iter(legacy.into_iter().map(|(group, version)| async move {
        let root = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
        let list = ask::<LegacyList>(member, &format!("{root}/{version}"), "application/json").await;
        (group, version, list)
    }))
    .buffered(PARALLEL)
    .collect::<Vec<_>>()
    .await;
    for (group, version, list) in lists {
        match list {
            Ok(list) => {
                let found =
                    |r: LegacyResource| Found { plural: r.name, kind: r.kind, namespaced: r.namespaced };
                apis.add(&group, &version, &list.resources.into_iter().map(found).collect::<Vec<_>>());
            }
            Err(error) if error.is_unreachable() => return Err(error),
            Err(_) => {
                apis.missing.insert(format!("{group}/{version}"));
            }
        }
    }
    Ok(Some((apis.finish(), tags)))
}

/// What members serve, for whoever has many: kept once where it is the same. Most of a fleet serve what others of it do.
#[derive(Clone, Debug, Default)]
pub struct Alike(Arc<Mutex<Vec<Weak<Apis>>>>);

/// Different ones that are kept: each new one is held against all of them.
const DIFFERENT: usize = 64;

impl Alike {
    fn share(&self, apis: Apis) -> Arc<Apis> {
        let mut known = self.0.lock();
        known.retain(|apis| apis.strong_count() > 0);
        if let Some(same) = known.iter().filter_map(Weak::upgrade).find(|known| **known == apis) {
            return same;
        }
        let apis = Arc::new(apis);
        if known.len() < DIFFERENT {
            known.push(Arc::downgrade(&apis));
        }
        apis
    }
}

/// What a member serves, kept and looked up.
#[derive(Debug)]
pub struct Discovery {
    member: Rest,
    env: Env,
    alike: Alike,
    known: Mutex<Known>,
    changed: Wake,
}

#[derive(Debug, Default)]
struct Known {
    apis: Option<Arc<Apis>>,
    /// [`Env::now`] of the last look.
    looked: Option<Duration>,
    /// What the last answer was tagged with.
    tags: Option<Tags>,
}

impl Discovery {
    pub fn new(member: Rest, env: Env) -> Self {
        Self::among(Alike::default(), member, env)
    }

    /// That of one of many members.
    pub fn among(alike: Alike, member: Rest, env: Env) -> Self {
        Self { member, env, alike, known: Mutex::default(), changed: Wake::new() }
    }

    /// An ear for looks that found something else than the one before.
    pub fn changes(&self) -> Listener {
        self.changed.listen()
    }

    /// Looks now. Answers what there is and whether it differs from what was known.
    pub async fn look(&self) -> Result<(Arc<Apis>, bool), Error> {
        let before = {
            let known = self.known.lock();
            known.tags.clone().zip(known.apis.clone())
        };
        let (apis, tags) =
            match (discover(&self.member, before.as_ref().map(|(tags, _)| tags)).await?, before) {
                (Some(found), _) => found,
                (None, Some((_, apis))) => {
                    self.known.lock().looked = Some(self.env.now());
                    return Ok((apis, false));
                }
                (None, None) => return Err(wrong(ROOTS[0], "not modified, without a condition")),
            };
        let apis = self.alike.share(apis);
        let mut known = self.known.lock();
        known.looked = Some(self.env.now());
        known.tags = tags;
        if let Some(old) = &known.apis
            && **old == *apis
        {
            return Ok((Arc::clone(old), false));
        }
        if known.apis.replace(Arc::clone(&apis)).is_some() {
            self.changed.wake();
        }
        Ok((apis, true))
    }

    /// The last look, if there was one.
    pub fn known(&self) -> Option<Arc<Apis>> {
        self.known.lock().apis.clone()
    }

    /// Where objects of a kind live; looks anew if that is not known, unless it did just now.
    pub async fn resource(&self, group: &str, version: &str, kind: &str) -> Result<Option<Resource>, Error> {
        let find = |apis: &Apis| apis.resource(group, version, kind).cloned();
        {
            let known = self.known.lock();
            if let Some(found) = known.apis.as_deref().and_then(find) {
                return Ok(Some(found));
            }
            let just_now = known.looked.is_some_and(|at| self.env.now().saturating_sub(at) < LOOK_AGAIN);
            if known.apis.is_some() && just_now {
                return Ok(None);
            }
        }
        Ok(find(&self.look().await?.0))
    }

    /// Where an object is that is to go, whatever its version.
    pub(crate) async fn locate(&self, group: &str, kind: &str) -> Result<Served, Error> {
        if let Some(found) = self.known().and_then(|apis| apis.preferred(group, kind).cloned()) {
            return Ok(Served::At(found));
        }
        let (apis, _) = self.look().await?;
        let unsaid = apis.preferred(group, kind).is_none() && apis.silent(|of| of == group).is_none();
        let registered = if unsaid { Some(Registered::ask(&self.member, &apis).await?) } else { None };
        Ok(judge(&apis, registered.as_ref(), group, kind))
    }

    /// Whether the member serves this for sure, now: only then a missing object is gone.
    pub(crate) async fn confirms(&self, resource: &Resource) -> Result<bool, Error> {
        let known = {
            let known = self.known.lock();
            let just_now = known.looked.is_some_and(|at| self.env.now().saturating_sub(at) < LOOK_AGAIN);
            known.apis.clone().filter(|_| just_now)
        };
        let apis = match known {
            Some(apis) => apis,
            None => self.look().await?.0,
        };
        let (group, version) = (&resource.group, &resource.version);
        Ok(apis.answers(group, version) && apis.resource(group, version, &resource.kind) == Some(resource))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A member whose answers have a tag, until that is another; counts what it sends.
    fn member(tag: &Arc<Mutex<&'static str>>, sent: &Arc<AtomicUsize>) -> Rest {
        let (tag, sent) = (Arc::clone(tag), Arc::clone(sent));
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (tag, sent) = (*tag.lock(), Arc::clone(&sent));
            async move {
                let answer = http::Response::builder().header("etag", tag);
                if request.headers().get("if-none-match").is_some_and(|known| known == tag) {
                    return answer.status(304).body(kube::client::Body::empty());
                }
                sent.fetch_add(1, Ordering::SeqCst);
                let group = if request.uri().path() == "/api" { "" } else { "apps" };
                let plural = tag.trim_matches('"');
                let list = serde_json::json!({"kind": "APIGroupDiscoveryList", "items": [{
                    "metadata": {"name": group}, "versions": [{"version": "v1", "resources": [
                        {"resource": plural, "responseKind": {"kind": "K"}, "scope": "Namespaced"}]}]}]});
                answer.body(kube::client::Body::from(list.to_string().into_bytes()))
            }
        });
        Rest::new(kube::Client::new(service, "default"))
    }

    #[test]
    fn what_members_have_in_common_is_kept_once() {
        let (alike, pods) = (Alike::default(), Resource::new("", "v1", "pods", "Pod", true));
        let serves = |missing: &[String]| alike.share(Apis::of(&[&pods], missing));
        let [one, other] = [serves(&[]), serves(&[])];
        assert!(Arc::ptr_eq(&one, &other));
        let another = serves(&["apps/v1".to_owned()]);
        assert!(!Arc::ptr_eq(&one, &another) && *one != *another);
        drop((one, other));
        assert_eq!(*serves(&[]), Apis::of(&[&pods], &[]));
        assert_eq!(alike.0.lock().len(), 2, "what nobody serves any more is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_modified_is_not_sent_again() {
        let (tag, sent) = (Arc::new(Mutex::new("\"first\"")), Arc::new(AtomicUsize::new(0)));
        let env = Env::seeded(karmada_env::ManualClock::new(std::time::SystemTime::UNIX_EPOCH), 0);
        let discovery = Discovery::new(member(&tag, &sent), env);
        for (name, changed, bodies) in [
            ("\"first\"", true, 2),
            ("\"first\"", false, 2),
            ("\"second\"", true, 4),
            ("\"second\"", false, 4),
        ] {
            *tag.lock() = name;
            let (apis, differs) = discovery.look().await.unwrap();
            assert_eq!((differs, sent.load(Ordering::SeqCst)), (changed, bodies), "{name}");
            assert!(apis.serves("apps", name.trim_matches('"')));
        }
    }

    #[test]
    fn aggregated_answers_are_read_and_sorted() {
        let text = r#"{"kind":"APIGroupDiscoveryList","items":[
            {"metadata":{"name":"apps"},"versions":[{"version":"v1","freshness":"Current","resources":[
                {"resource":"deployments","responseKind":{"group":"","version":"","kind":"Deployment"},"scope":"Namespaced",
                 "subresources":[{"subresource":"status"}]},
                {"resource":"daemonsets","responseKind":{"kind":"DaemonSet"},"scope":"Namespaced"}]}]},
            {"metadata":{},"versions":[{"version":"v1","resources":[
                {"resource":"namespaces","responseKind":{"kind":"Namespace"},"scope":"Cluster"}]}]},
            {"metadata":{"name":"metrics.k8s.io"},"versions":[{"version":"v1beta1","freshness":"Stale"}]}]}"#;
        let answer: Answer = serde_json::from_str(text).unwrap();
        let mut apis = Apis::default();
        aggregated(&mut apis, answer.items);
        let apis = apis.finish();
        let enablements = apis.enablements();
        let versions: Vec<_> = enablements.iter().map(|e| e.group_version.as_str()).collect();
        assert_eq!(versions, ["apps/v1", "v1"]);
        let names: Vec<_> = enablements[0].resources.iter().map(|r| r.name.as_str()).collect();
        assert_eq!(names, ["daemonsets", "deployments"]);
        assert!(apis.missing.contains("metrics.k8s.io/v1beta1"));
        let namespaces = apis.resource("", "v1", "Namespace").unwrap();
        assert_eq!(namespaces.object(None, "a"), "/api/v1/namespaces/a");
        assert!(apis.resource("apps", "v1beta1", "Deployment").is_none());
        assert!(apis.preferred("apps", "Deployment").unwrap().namespaced);
    }
}
