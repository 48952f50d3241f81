//! What files looked like when something was read from them: while they look the same nothing in them is another.

use std::{
    fs::Metadata,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Clocks of file systems are coarse: what was changed so shortly before it was read may have been changed after that as well, and
/// look the same.
const COARSE: Duration = Duration::from_secs(3);

/// Of some files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamps(Vec<(PathBuf, Option<Stamp>)>);

/// Of one file. Whoever writes it changes at least the last, which nobody can set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    file: u64,
    size: u64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|found| Self::from(&found))
    }

    /// When it was changed last, if it can be told.
    fn changed(self) -> Option<SystemTime> {
        let (seconds, nanos) = self.changed;
        let since = Duration::new(seconds.try_into().ok()?, nanos.try_into().ok()?);
        SystemTime::UNIX_EPOCH.checked_add(since)
    }

    /// Whether it can be told by this from what was written after `now`.
    fn is_settled(self, now: SystemTime) -> bool {
        self.changed().and_then(|changed| changed.checked_add(COARSE)).is_some_and(|then| then <= now)
    }
}

impl From<&Metadata> for Stamp {
    fn from(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            file: found.ino(),
            size: found.size(),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

impl Stamps {
    /// Of files as they are, at the time of day `now`. Before they are read.
    pub fn of(files: impl IntoIterator<Item = PathBuf>, now: SystemTime) -> Self {
        let stamped = files.into_iter().map(|path| {
            let stamp = Stamp::of(&path).filter(|stamp| stamp.is_settled(now));
            (path, stamp)
        });
        Self(stamped.collect())
    }

    /// These and others.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Whether nothing in the files can be other than it was.
    pub fn hold(&self) -> bool {
        self.0.iter().all(|(path, stamp)| stamp.is_some() && *stamp == Stamp::of(path))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_may_have_changed_does_not_hold() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("file"), dir.path().join("other"));
        fs::write(&path, "one").unwrap();
        let changed = || Stamp::of(&path).and_then(Stamp::changed).unwrap();
        let later = || changed() + COARSE;
        let stamps = || Stamps::of([path.clone()], later());
        let (first, then) = (stamps(), fs::metadata(&path).unwrap().modified().unwrap());
        assert!(first.hold());
        // What was written a moment ago may be written again within the same tick.
        assert!(!Stamps::of([path.clone()], later() - Duration::from_nanos(1)).hold());
        // A clock that was set back.
        assert!(!Stamps::of([path.clone()], SystemTime::UNIX_EPOCH).hold());
        // Others that are not there, or go.
        assert!(!stamps().and(Stamps::of([other.clone()], later())).hold());
        fs::write(&other, "").unwrap();
        let both = stamps().and(Stamps::of([other.clone()], later() + COARSE));
        assert!(both.hold());
        fs::remove_file(&other).unwrap();
        assert!(!both.hold());
        // As long, and of the same time by what can be set.
        while changed() + COARSE == later() && first.hold() {
            fs::write(&path, "two").unwrap();
            fs::File::open(&path).unwrap().set_modified(then).unwrap();
        }
        assert!(!first.hold() && stamps().hold());
        // Put in its place, as volumes of Secrets are.
        let second = stamps();
        fs::write(&other, "two").unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(!second.hold() && stamps().hold());
    }
}
