//! A renewal of a cluster's Lease in few bytes: what an idle link carries is renewals and nothing else.
//!
//! ```text
//!   PATCH /karmada/renewals/shop-17?v=4711&t=1795170972886356
//!     stands for
//!   PATCH /apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/shop-17    application/merge-patch+json
//!     {"metadata":{"resourceVersion":"4711"},"spec":{"renewTime":"2026-11-20T10:36:12.886356Z"}}
//! ```
//!
//! The short form has no body, so that it crosses in one record of TLS. The answer to one that was carried out is 204 with
//! the new resourceVersion as its ETag; any other is that of the long form. Servers that do not know it say that there is no
//! such path.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{names, time::MicroTime};

/// What the path of one begins with.
pub const PREFIX: &str = "/karmada/renewals/";

/// A renewal of the Lease of a cluster, under the resourceVersion that it is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal<'a> {
    /// The cluster's name.
    pub name: &'a str,
    /// The Lease's resourceVersion.
    pub version: u64,
    /// When it is renewed.
    pub time: MicroTime,
}

impl<'a> Renewal<'a> {
    /// The path with its query.
    pub fn path(&self) -> String {
        let time = self.time.timestamp().as_microsecond();
        format!("{PREFIX}{}?v={}&t={time}", self.name, self.version)
    }

    /// Reads a path and its query; none where it is the path of something else.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(path: &'a str, query: &str) -> Option<Result<Self, String>> {
        let name = path.strip_prefix(PREFIX)?;
        Some(Self::read(name, query))
    }

    fn read(name: &'a str, query: &str) -> Result<Self, String> {
        if names::dns1123_subdomain(name).is_err() {
            return Err(format!("{PREFIX}NAME: {name:?} is no name of a Lease"));
        }
        let value = |key: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let mut values = pairs.filter(|(name, _)| *name == key).map(|(_, value)| value);
            values.next().unwrap_or_default()
        };
        let (version, time) = (value("v"), value("t"));
        let micros = time.parse().ok().and_then(|micros| Timestamp::from_microsecond(micros).ok());
        Ok(Self {
            name,
            version: version.parse().map_err(|_| format!("v: {version:?} is no resourceVersion"))?,
            time: micros
                .map(MicroTime::from_timestamp)
                .ok_or_else(|| format!("t: {time:?} is no time in microseconds since 1970"))?,
        })
    }

    /// The merge patch that it stands for.
    pub fn patch(&self) -> Value {
        json!({"metadata": {"resourceVersion": self.version.to_string()}, "spec": {"renewTime": self.time}})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let time: MicroTime = "2026-11-20T10:36:12.886356Z".parse().unwrap();
        let renewal = Renewal { name: "shop-17", version: 4711, time };
        let text = renewal.path();
        assert_eq!(text, "/karmada/renewals/shop-17?v=4711&t=1795170972886356");
        let (path, query) = text.split_once('?').unwrap();
        assert_eq!(Renewal::parse(path, query), Some(Ok(renewal.clone())));
        assert_eq!(
            renewal.patch().to_string(),
            r#"{"metadata":{"resourceVersion":"4711"},"spec":{"renewTime":"2026-11-20T10:36:12.886356Z"}}"#
        );
    }

    #[test]
    fn nothing_else_is_taken_for_one() {
        assert_eq!(Renewal::parse("/karmada/history", "v=1&t=1"), None);
        for (path, query, why) in [
            ("/karmada/renewals/", "v=1&t=1", "no name"),
            ("/karmada/renewals/a/status", "v=1&t=1", "no name"),
            ("/karmada/renewals/a%2Fb", "v=1&t=1", "no name"),
            ("/karmada/renewals/..", "v=1&t=1", "no name"),
            ("/karmada/renewals/a", "", "v: \"\" is no"),
            ("/karmada/renewals/a", "v=-1&t=1", "v: \"-1\" is no"),
            ("/karmada/renewals/a", "v=1", "t: \"\" is no"),
            ("/karmada/renewals/a", "v=1&t=1.5", "t: \"1.5\" is no"),
            ("/karmada/renewals/a", "v=1&t=9223372036854775807", "is no time"),
        ] {
            let error = Renewal::parse(path, query).unwrap().unwrap_err();
            assert!(error.contains(why), "{path}?{query}: {error}");
        }
    }
}
