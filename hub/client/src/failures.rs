//! How often watches have failed, by what they watch and why.
//!
//! [`Watcher`](crate::Watcher)s of a server count in what stands at its [`Rest`](crate::Rest): a list that fails counts as its watch,
//! each time. What ends as it should does not.

use std::{fmt, sync::Arc};

use karmada_telemetry::metrics::{Counter, Family, Sheet};

/// So many series at most: members and users may have any number of kinds, and a page does not become longer for that.
const SERIES: usize = 256;

/// Why a watch has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// 410: the revision, or the place in a list, is too old.
    Expired,
    /// Any other answer from 400 to 499.
    Refused,
    /// From 500 on.
    ServerError,
    /// No answer, one that broke off, or one that is no list; or there is too much of it.
    Failed,
    /// Nothing was heard for too long.
    Silent,
    /// A revision came that the server had been at before.
    WentBack,
    /// A frame cannot be read.
    Unreadable,
}

impl Reason {
    fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Refused => "refused",
            Self::ServerError => "server_error",
            Self::Failed => "failed",
            Self::Silent => "silent",
            Self::WentBack => "went_back",
            Self::Unreadable => "unreadable",
        }
    }
}

/// See the module. Cheap to clone; clones count the same.
#[derive(Clone, Debug)]
pub struct Failures(Arc<Family<2, Counter>>);

impl Default for Failures {
    fn default() -> Self {
        Self(Arc::new(Family::new(["resource", "reason"], SERIES, Counter::default)))
    }
}

impl Failures {
    /// One more, of what is watched at this path.
    pub fn count(&self, path: &str, reason: Reason) {
        self.0.get([&resource(path), reason.as_str()]).inc();
    }

    /// Resource, reason and number of each.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> Vec<String> {
        let rows = self.0.rows();
        let rows =
            rows.iter().map(|(labels, count)| format!("{} {} {}", labels[0].1, labels[1].1, count.get()));
        rows.collect()
    }

    /// Writes them as a family of this name, which ends in `_total`.
    ///
    /// # Errors
    /// Those of the sheet.
    pub fn write(&self, name: &str, help: &str, sheet: &mut Sheet<'_>) -> fmt::Result {
        let rows = self.0.rows();
        sheet.counter(name, help, rows.iter().map(|(labels, count)| (labels.as_slice(), count.get() as f64)))
    }
}

/// A collection as kubectl writes it: `deployments.apps`.
fn resource(path: &str) -> String {
    let mut parts = path.trim_start_matches('/').split('/');
    let group = match parts.next() {
        Some("apis") => parts.next().unwrap_or_default(),
        _ => "",
    };
    let plural = path.rsplit('/').next().unwrap_or_default();
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

#[cfg(test)]
mod tests {
    use karmada_telemetry::metrics::{Page, Source, read};

    use super::*;

    #[derive(Debug)]
    struct Shown(Failures);

    impl Source for Shown {
        fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
            self.0.write("watch_failures_total", "Watches that have failed.", sheet)
        }
    }

    #[test]
    fn a_collection_is_named_whatever_namespace_it_is_of() {
        for (path, name) in [
            ("/api/v1/pods", "pods"),
            ("/api/v1/namespaces/apps/pods", "pods"),
            ("/api/v1/namespaces", "namespaces"),
            ("/apis/apps/v1/deployments", "deployments.apps"),
            ("/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m/works", "works.work.karmada.io"),
        ] {
            assert_eq!(resource(path), name, "{path}");
        }
    }

    #[test]
    fn however_many_kinds_fail_the_page_stays_short() {
        let failures = Failures::default();
        for n in 0..1000 {
            failures.count(&format!("/apis/g{n}/v1/things"), Reason::Refused);
        }
        failures.count("/apis/g1/v1/namespaces/n/things", Reason::Refused);
        let page = read(&Page::new().with(Shown(failures)).render()).expect("a page");
        let count = |resource: &str, reason: &str| {
            page.value("watch_failures_total", &[("resource", resource), ("reason", reason)])
        };
        assert_eq!((count("things.g0", "refused"), count("things.g1", "refused")), (Some(1.0), Some(2.0)));
        assert_eq!(count("other", "other"), Some((1000 - SERIES) as f64));
        assert_eq!(count("things.g999", "refused"), None);
    }
}
