//! Going back: replicas do not move to a cluster that they were evicted from by themselves, unless their policy says so
//! (`policy.karmada.io/failback-after: 10m`).
//!
#![doc = include_str!("failback.md")]
//!
//! A cluster that comes and goes has a NoSchedule taint while it is held out
//! ([`judge::flaps`](crate::judge::flaps)), and is not well; nor is one that is cordoned. When the time has come the
//! object is placed anew as `karmada-hub failback` has it placed, if it would get more on such a cluster than it has
//! there; the time begins anew whenever the cluster's Ready condition changes.

use std::time::Duration;

use karmada_api::{consts::extension::FAILBACK_AFTER, work::TargetCluster};
use karmada_meta::{
    duration, object,
    path::{FieldError, Path},
};
use serde_json::Value;

/// A cluster that an object was evicted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// Its condition Ready is True.
    pub ready: bool,
    /// It has a taint that the object does not tolerate.
    pub tainted: bool,
    /// For how long it has been ready.
    pub well: Duration,
}

/// Whether an object goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Return {
    /// Not as things are.
    No,
    /// Not before this has passed.
    In(Duration),
    /// Now.
    Now,
}

/// After how long a binding goes back, if its policy has it do so; what cannot be read asks for nothing.
pub fn failback_after(binding: &Value) -> Option<Duration> {
    duration::parse(object::annotation(binding, FAILBACK_AFTER)?).ok()
}

/// What is wrong with what a policy's annotation says about that, if something is.
pub fn failback_refusal(text: &str) -> Option<FieldError> {
    let path = Path::new("metadata").child("annotations").key(FAILBACK_AFTER);
    duration::parse(text).err().map(|why| FieldError::invalid(&path, text, why))
}

/// Whether an object goes back to one of the clusters that it was evicted from.
pub fn failback(homes: impl IntoIterator<Item = Home>, after: Duration) -> Return {
    let well = homes.into_iter().filter(|home| home.ready && !home.tainted);
    match well.map(|home| after.saturating_sub(home.well)).min() {
        None => Return::No,
        Some(Duration::ZERO) => Return::Now,
        Some(left) => Return::In(left),
    }
}

/// Whether a cluster gets the object, or more of it.
pub fn gains(before: &[TargetCluster], after: &[TargetCluster], cluster: &str) -> bool {
    let of = |list: &[TargetCluster]| {
        list.iter().find(|target| target.name == cluster).map(|target| target.replicas)
    };
    of(after) > of(before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::table;

    #[test]
    fn the_table_holds() {
        for [after, ready, taint, well, want] in table::rows(include_str!("failback.md")) {
            let seconds = |text: &str| Duration::from_secs(text.parse().unwrap());
            let home = Home { ready: ready == "yes", tainted: taint != "none", well: seconds(well) };
            let got = match failback([home], seconds(after)) {
                Return::No => "stays".to_owned(),
                Return::In(left) => format!("in {}", left.as_secs()),
                Return::Now => "goes back".to_owned(),
            };
            assert_eq!(got, want, "{after} {ready} {taint} {well}");
        }
    }

    #[test]
    fn the_first_of_several_decides() {
        let home = |ready, well| Home { ready, tainted: false, well: Duration::from_secs(well) };
        let ten = Duration::from_secs(10);
        assert_eq!(
            failback([home(false, 90), home(true, 4), home(true, 3)], ten),
            Return::In(ten - Duration::from_secs(4))
        );
        assert_eq!(failback([], ten), Return::No);
    }
}
