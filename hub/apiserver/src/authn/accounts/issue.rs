//! A TokenRequest: from what is asked for to a token.

use std::time::{Duration, SystemTime};

use karmada_meta::{
    GroupResource, object,
    path::{FieldError, Path},
    status::Status,
    time::Time,
};
use karmada_store::Snapshot;
use serde_json::{Value, json};

use super::{
    ServiceAccounts,
    bonds::{ACCOUNTS, NODES, PODS, SECRETS},
    claims::{Claims, LEGACY_ISSUER, LegacyClaims, Own, Reference, user_name},
};
use crate::storage::{Header, Object};

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";
/// How long a token holds that says nothing of it.
const DEFAULT_SECONDS: i64 = 3600;
const LEAST_SECONDS: i64 = 600;
const MOST_SECONDS: i64 = 1 << 32;
/// A token is for so many at most, of names so long: each request with it brings them along. kube-apiserver has no such
/// limits, and what is longer than a token may be would be of no use.
const MOST_AUDIENCES: usize = 32;
const LONGEST_AUDIENCE: usize = 256;

/// Who asks for a token, of whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

/// What a request is answered with beside the answer.
#[derive(Debug)]
pub(crate) struct Issued {
    pub(crate) review: Value,
    pub(crate) warning: Option<String>,
}

impl ServiceAccounts {
    /// Answers a TokenRequest, which has been decoded. `id` is of the new token.
    ///
    /// # Errors
    /// 404 without the account or what the token is to be bound to, 422 and 400 for what cannot be asked so.
    pub(crate) fn issue(
        &self,
        asked: Asked<'_>,
        mut review: Value,
        there: &Snapshot<Header>,
        now: SystemTime,
        id: String,
    ) -> Result<Issued, Status> {
        let Asked { namespace, name } = asked;
        let named = object::name(&review);
        if !named.is_empty() && named != name {
            let path = Path::new("metadata").child("name");
            let error = FieldError::invalid(&path, named, "must match the service account name if specified");
            return Err(Status::invalid(KIND, GROUP, name, vec![error]));
        }
        let account = find(there, ACCOUNTS, namespace, name)?;
        let spec = object::ensure_map(&mut review, "spec");
        if spec.get("audiences").is_none_or(|list| list.as_array().is_none_or(Vec::is_empty)) {
            spec.insert("audiences".to_owned(), json!(self.audiences()));
        }
        spec.entry("expirationSeconds").and_modify(default_seconds).or_insert(DEFAULT_SECONDS.into());
        // Go writes it out.
        spec.entry("boundObjectRef").or_insert(Value::Null);
        let audiences: Vec<String> = texts(&spec["audiences"]);
        let mut seconds = spec["expirationSeconds"].as_i64().unwrap_or_default();
        let errors = spec_errors(seconds, &audiences);
        if !errors.is_empty() {
            return Err(Status::invalid(KIND, GROUP, "", errors));
        }
        let mut warning = None;
        let longest = self.settings.longest.and_then(|longest| i64::try_from(longest.as_secs()).ok());
        if let Some(longest) = longest.filter(|longest| seconds > *longest) {
            warning =
                Some(format!("requested expiration of {seconds} seconds shortened to {longest} seconds"));
            seconds = longest;
            spec.insert("expirationSeconds".to_owned(), seconds.into());
        }
        let own = Own {
            namespace: namespace.to_owned(),
            serviceaccount: Reference { name: name.to_owned(), uid: account.header.uid.to_string() },
            ..Own::default()
        };
        let own = bind(own, &spec["boundObjectRef"], there)?;
        let begins = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let begins = i64::try_from(begins).unwrap_or_default();
        let claims = Claims {
            aud: audiences,
            exp: begins + seconds,
            iat: begins,
            iss: self.issuer().to_owned(),
            jti: id,
            own,
            nbf: begins,
            sub: user_name(namespace, name),
        };
        let token = self.sign(&claims).map_err(Status::internal)?;
        if let Some((key, _)) = self.keys.first() {
            self.settings.ends.note(key.id(), claims.exp);
        }
        let ends = now + Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        object::set_meta(&mut review, "name", name);
        object::set_meta(&mut review, "namespace", namespace);
        object::set_meta(&mut review, "uid", &*account.header.uid);
        object::set_meta(&mut review, "creationTimestamp", Time::from_system(now).to_string());
        review["status"] =
            json!({"token": token, "expirationTimestamp": Time::from_system(ends).to_string()});
        Ok(Issued { review, warning })
    }

    /// The token that stands in a Secret.
    pub(crate) fn issue_secret(
        &self,
        namespace: &str,
        secret: &str,
        account: &Object,
    ) -> Result<String, String> {
        let name = account.key.name.to_string();
        self.sign_secret(&LegacyClaims {
            iss: LEGACY_ISSUER.to_owned(),
            namespace: namespace.to_owned(),
            secret: secret.to_owned(),
            sub: user_name(namespace, &name),
            name,
            uid: account.header.uid.to_string(),
        })
    }
}

fn default_seconds(seconds: &mut Value) {
    if seconds.is_null() {
        *seconds = DEFAULT_SECONDS.into();
    }
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn spec_errors(seconds: i64, audiences: &[String]) -> Vec<FieldError> {
    let spec = Path::new("spec");
    let (path, mut errors) = (spec.child("expirationSeconds"), Vec::new());
    if seconds < LEAST_SECONDS {
        let detail = "may not specify a duration less than 10 minutes";
        errors.push(FieldError::invalid(&path, seconds, detail));
    }
    if seconds > MOST_SECONDS {
        let detail = "may not specify a duration larger than 2^32 seconds";
        errors.push(FieldError::invalid(&path, seconds, detail));
    }
    let path = spec.child("audiences");
    if audiences.len() > MOST_AUDIENCES {
        errors.push(FieldError::too_many(&path, audiences.len(), MOST_AUDIENCES));
    }
    if audiences.iter().any(|audience| audience.len() > LONGEST_AUDIENCE) {
        errors.push(FieldError::too_long(&path, LONGEST_AUDIENCE));
    }
    errors
}

/// An object that is there.
fn find<'a>(
    there: &'a Snapshot<Header>,
    resource: &str,
    namespace: &str,
    name: &str,
) -> Result<&'a Object, Status> {
    let kind = resource.trim_start_matches("core/").to_owned();
    let not_found = || Status::not_found(&GroupResource { group: String::new(), resource: kind }, name);
    there.find(resource, namespace, name).map(|object| &**object).ok_or_else(not_found)
}

/// Binds a token to what `spec.boundObjectRef` names.
fn bind(mut own: Own, reference: &Value, there: &Snapshot<Header>) -> Result<Own, Status> {
    if reference.is_null() {
        return Ok(own);
    }
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let (api_version, kind, name, uid) = (text("apiVersion"), text("kind"), text("name"), text("uid"));
    let object = match (api_version, kind) {
        ("v1", "Pod") => find(there, PODS, &own.namespace, name)?,
        ("v1", "Secret") => find(there, SECRETS, &own.namespace, name)?,
        ("v1", "Node") => find(there, NODES, "", name)?,
        _ => {
            let (group, version) = karmada_meta::gvk::parse_api_version(api_version).unwrap_or_default();
            return Err(Status::bad_request(format!(
                "cannot bind token to object of type {group}/{version}, Kind={kind}"
            )));
        }
    };
    let found = Reference { name: name.to_owned(), uid: object.header.uid.to_string() };
    let node = match kind {
        "Pod" => check_pod(object, &own.serviceaccount.name, there)?,
        _ => None,
    };
    if !uid.is_empty() && uid != found.uid {
        let resource = GroupResource { group: String::new(), resource: kind.to_owned() };
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        );
        return Err(Status::conflict(&resource, name, &why));
    }
    match kind {
        "Pod" => (own.pod, own.node) = (Some(found), node),
        "Secret" => own.secret = Some(found),
        _ => own.node = Some(found),
    }
    Ok(own)
}

/// Whether a Pod runs as an account, and the node that it is on.
fn check_pod(pod: &Object, account: &str, there: &Snapshot<Header>) -> Result<Option<Reference>, Status> {
    let pod: Value = serde_json::from_slice(&pod.value.get()).map_err(Status::internal)?;
    if pod["spec"]["serviceAccountName"].as_str().unwrap_or_default() != account {
        return Err(Status::bad_request(format!(
            "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
        )));
    }
    let name = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if name.is_empty() {
        return Ok(None);
    }
    let uid = there.find(NODES, "", name).map(|node| node.header.uid.to_string()).unwrap_or_default();
    Ok(Some(Reference { name: name.to_owned(), uid }))
}
