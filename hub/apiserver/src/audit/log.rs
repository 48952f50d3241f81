//! The file that audit events are written to, and those that it was before: kube-apiserver's, and so lumberjack's.
//!
//! `audit.log` becomes `audit-2026-01-02T03-04-05.678.log` (UTC) before it would become too large, and a new one is begun.
//! What is old, or too many, is deleted then and at the start. A line is never in two files, and one that was written in part
//! is cut off again: by the next write, or after a crash by the next start, which ends it.

use std::{
    ffi::OsStr,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use karmada_env::Env;

use super::queue::{Lines, Lost};

/// How the time stands in the names of files.
const TIME: &str = "%Y-%m-%dT%H-%M-%S%.3f";
const DAY: Duration = Duration::from_secs(24 * 3600);

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// The size at which a file is ended, in bytes; a line that is longer alone has one of its own.
    pub size: u64,
    /// How many files are kept that were ended; 0: all.
    pub backups: usize,
    /// For how many days they are kept; 0: for ever.
    pub days: u64,
}

/// Where events are written.
#[derive(Debug)]
pub struct Log(To);

#[derive(Debug)]
enum To {
    Stdout,
    File(Rotated),
}

impl Log {
    /// Standard output.
    pub fn stdout() -> Self {
        Self(To::Stdout)
    }

    /// A file, and its folder, which are made if they are not there. Only their owner may read them.
    ///
    /// # Errors
    /// When it cannot be written to.
    pub fn file(path: impl Into<PathBuf>, rotation: Rotation, env: Env) -> io::Result<Self> {
        let path = path.into();
        if path.file_name().is_none() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it names no file"));
        }
        let mut rotated = Rotated { path, rotation, env, open: None, stuck: false };
        rotated.open()?;
        rotated.prune();
        Ok(Self(To::File(rotated)))
    }
}

impl Lines for Log {
    fn write(&mut self, lines: &[u8]) -> Result<(), Lost> {
        match &mut self.0 {
            To::Stdout => {
                let mut out = io::stdout().lock();
                let written = out.write_all(lines).and_then(|()| out.flush());
                written.map_err(|why| Lost { lines: count(lines), why })
            }
            To::File(file) => file.write(lines),
        }
    }

    fn end(&mut self) {
        if let To::File(Rotated { open: Some(open), .. }) = &self.0
            && let Err(error) = open.file.sync_all()
        {
            tracing::warn!(%error, "the end of the audit log may not be on the disk");
        }
    }
}

/// How many lines there are.
fn count(lines: &[u8]) -> usize {
    lines.iter().filter(|byte| **byte == b'\n').count()
}

#[derive(Debug)]
struct Rotated {
    path: PathBuf,
    rotation: Rotation,
    env: Env,
    open: Option<Open>,
    /// It could not be ended when it was large enough.
    stuck: bool,
}

#[derive(Debug)]
struct Open {
    file: File,
    /// Its bytes, all of them whole lines.
    size: u64,
}

impl Open {
    /// Writes lines, all of them or, as far as the disk lets us, none.
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        match self.file.write_all(lines) {
            Ok(()) => {
                self.size += lines.len() as u64;
                Ok(())
            }
            Err(error) => {
                self.file.set_len(self.size)?;
                Err(error)
            }
        }
    }
}

impl Rotated {
    fn write(&mut self, mut lines: &[u8]) -> Result<(), Lost> {
        while !lines.is_empty() {
            let written = self.write_some(lines).map_err(|why| {
                // It is opened anew for the next ones.
                self.open = None;
                Lost { lines: count(lines), why }
            })?;
            lines = &lines[written..];
        }
        Ok(())
    }

    /// Writes as many of the lines as one file takes, one at least.
    fn write_some(&mut self, lines: &[u8]) -> io::Result<usize> {
        let most = self.rotation.size;
        let size = self.open()?.size;
        let room = usize::try_from(most.saturating_sub(size)).unwrap_or(usize::MAX);
        let fit = match lines.len() <= room {
            true => lines.len(),
            false => lines[..room].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1),
        };
        if fit > 0 {
            self.open()?.append(&lines[..fit])?;
            return Ok(fit);
        }
        if size > 0 {
            match self.rotate() {
                Ok(()) => {
                    self.stuck = false;
                    return Ok(0);
                }
                // A file that is too large is better than events that are lost.
                Err(why) => {
                    if !std::mem::replace(&mut self.stuck, true) {
                        tracing::error!(file = %self.path.display(), %why,
                            "the audit log cannot be ended and grows beyond its size; it is tried again");
                    }
                    self.open()?.append(lines)?;
                    return Ok(lines.len());
                }
            }
        }
        let first = lines.iter().position(|byte| *byte == b'\n').map_or(lines.len(), |at| at + 1);
        self.open()?.append(&lines[..first])?;
        Ok(first)
    }

    /// The file that is written to.
    fn open(&mut self) -> io::Result<&mut Open> {
        let open = match self.open.take() {
            // Somebody else may have cut it.
            Some(open) => Open { size: open.file.metadata()?.len(), ..open },
            None => open(&self.path)?,
        };
        Ok(self.open.insert(open))
    }

    /// Ends the file; the next write begins another.
    fn rotate(&mut self) -> io::Result<()> {
        self.open = None;
        let mut at = Timestamp::try_from(self.env.wall()).unwrap_or(Timestamp::UNIX_EPOCH);
        let name = loop {
            let name = backup(&self.path, at);
            // Two within a millisecond, or a clock that was set back: nothing is written over.
            match fs::symlink_metadata(&name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => break name,
                Err(error) => return Err(error),
                Ok(_) => at += Duration::from_millis(1),
            }
        };
        fs::rename(&self.path, name)?;
        self.prune();
        Ok(())
    }

    /// Deletes what is too old or too many. What cannot be deleted is tried again at the next time.
    fn prune(&self) {
        let Rotation { backups, days, .. } = self.rotation;
        let now = Timestamp::try_from(self.env.wall()).unwrap_or(Timestamp::UNIX_EPOCH);
        let deleted = self.backups().map(|mut ended| {
            ended.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
            for (i, (at, path)) in ended.iter().enumerate() {
                let old = days > 0 && at.saturating_add(age(days)).is_ok_and(|end| end < now);
                if old || (backups > 0 && i >= backups) {
                    match fs::remove_file(path) {
                        Err(error) if error.kind() != io::ErrorKind::NotFound => {
                            tracing::warn!(file = %path.display(), %error, "cannot delete an old audit log");
                        }
                        _ => {}
                    }
                }
            }
        });
        if let Err(error) = deleted {
            tracing::warn!(file = %self.path.display(), %error, "cannot look for old audit logs");
        }
    }

    /// The files that were ended, and when.
    fn backups(&self) -> io::Result<Vec<(Timestamp, PathBuf)>> {
        let mut ended = Vec::new();
        for entry in fs::read_dir(folder(&self.path))? {
            let entry = entry?;
            if let Some(at) = entry.file_name().to_str().and_then(|name| ended_at(&self.path, name)) {
                ended.push((at, entry.path()));
            }
        }
        Ok(ended)
    }
}

/// So many days; the longest time there is, if that is less.
fn age(days: u64) -> jiff::SignedDuration {
    let seconds = days.saturating_mul(DAY.as_secs());
    jiff::SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX))
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// What stands before and after the time in the names of files.
fn affixes(path: &Path) -> (String, String) {
    let text = |part: Option<&OsStr>| part.map(|part| part.to_string_lossy().into_owned());
    let name = text(path.file_name()).unwrap_or_default();
    // As Go's filepath.Ext: from the last dot on, also when it is the first character.
    let dot = name.rfind('.').unwrap_or(name.len());
    (format!("{}-", &name[..dot]), name[dot..].to_owned())
}

/// What a file is called that was ended then.
fn backup(path: &Path, at: Timestamp) -> PathBuf {
    let (prefix, extension) = affixes(path);
    path.with_file_name(format!("{prefix}{}{extension}", at.strftime(TIME)))
}

/// When a file of this name was ended, if it is one of those.
fn ended_at(path: &Path, name: &str) -> Option<Timestamp> {
    let (prefix, extension) = affixes(path);
    let time = name.strip_prefix(&*prefix)?.strip_suffix(&*extension)?;
    let time = DateTime::strptime(TIME, time).ok()?;
    time.to_zoned(TimeZone::UTC).ok().map(|time| time.timestamp())
}

/// Opens a file to go on with it. A line that a crash has cut off gets its end.
fn open(path: &Path) -> io::Result<Open> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder(path))?;
    let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    let mut size = file.metadata()?.len();
    if size > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
            size += 1;
        }
    }
    Ok(Open { file, size })
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use karmada_env::ManualClock;

    use super::*;

    struct Folder {
        dir: tempfile::TempDir,
        clock: ManualClock,
    }

    impl Folder {
        fn new() -> Self {
            let clock = ManualClock::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_750_000_000));
            Self { dir: tempfile::TempDir::new().unwrap(), clock }
        }

        fn log(&self, rotation: Rotation) -> Log {
            let env = Env::seeded(self.clock.clone(), 1);
            Log::file(self.dir.path().join("deep/audit.log"), rotation, env).unwrap()
        }

        /// Names and contents.
        fn files(&self) -> Vec<(String, String)> {
            let entries = fs::read_dir(self.dir.path().join("deep")).unwrap().map(Result::unwrap);
            let mut files: Vec<_> = entries
                .map(|entry| {
                    (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap())
                })
                .collect();
            files.sort();
            files
        }
    }

    fn rotation(size: u64, backups: usize, days: u64) -> Rotation {
        Rotation { size, backups, days }
    }

    fn named(files: &[(&str, &str)]) -> Vec<(String, String)> {
        files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn a_file_is_ended_between_lines_and_old_ones_go() {
        let folder = Folder::new();
        let mut log = folder.log(rotation(8, 2, 0));
        log.write(b"11\n22\n33\n44\n").unwrap();
        let first = "audit-2025-06-15T15-06-40.000.log";
        assert_eq!(folder.files(), named(&[(first, "11\n22\n"), ("audit.log", "33\n44\n")]));
        // A line that no file has room for has one alone; two files ended at one time have two names.
        log.write(b"123456789\n55\n").unwrap();
        assert_eq!(
            folder.files(),
            named(&[
                ("audit-2025-06-15T15-06-40.001.log", "33\n44\n"),
                ("audit-2025-06-15T15-06-40.002.log", "123456789\n"),
                ("audit.log", "55\n"),
            ]),
            "two are kept"
        );
        // It goes on after a new start.
        drop(log);
        folder.log(rotation(8, 2, 0)).write(b"66\n").unwrap();
        assert_eq!(folder.files()[2].1, "55\n66\n");
    }

    #[test]
    fn old_ones_go_by_their_age_and_others_files_stay() {
        let folder = Folder::new();
        let mut log = folder.log(rotation(4, 0, 2));
        log.write(b"1\n2\n").unwrap();
        let theirs = ["audit-notes.log", "other.log", "audit-2020-01-01T00-00-00.000.log.gz"];
        for name in theirs {
            fs::write(folder.dir.path().join("deep").join(name), "x").unwrap();
        }
        log.write(b"3\n4\n").unwrap();
        folder.clock.advance(DAY);
        log.write(b"5\n").unwrap();
        let names = || folder.files().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names().len(), theirs.len() + 3);
        folder.clock.advance(DAY + Duration::from_secs(1));
        folder.log(rotation(4, 0, 2));
        let kept = names();
        assert!(!kept.iter().any(|name| name.starts_with("audit-2025-06-15")), "{kept:?}");
        assert!(kept.iter().any(|name| name.starts_with("audit-2025-06-16")), "{kept:?}");
        assert!(theirs.iter().all(|name| kept.iter().any(|kept| kept == name)), "{kept:?}");
    }

    #[test]
    fn a_line_that_was_cut_off_spoils_no_other() {
        let folder = Folder::new();
        folder.log(rotation(100, 0, 0)).write(b"1\n{\"half").unwrap();
        folder.log(rotation(100, 0, 0)).write(b"2\n").unwrap();
        assert_eq!(folder.files(), named(&[("audit.log", "1\n{\"half\n2\n")]));
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_tried_again() {
        let folder = Folder::new();
        let mut log = folder.log(rotation(4, 0, 0));
        log.write(b"1\n").unwrap();
        // The folder goes, with the file in it, and something else takes its place.
        let deep = folder.dir.path().join("deep");
        fs::remove_dir_all(&deep).unwrap();
        fs::write(&deep, "in the way").unwrap();
        let lost = log.write(b"2\n3\n4\n").unwrap_err();
        assert_eq!(lost.lines, 2, "one went into the file that is gone: {lost:?}");
        fs::remove_file(&deep).unwrap();
        log.write(b"5\n").unwrap();
        assert_eq!(folder.files(), named(&[("audit.log", "5\n")]));
    }

    #[test]
    fn a_file_that_cannot_be_ended_is_written_on() {
        let folder = Folder::new();
        // With the time in its name it would be longer than a name may be.
        let path = folder.dir.path().join("a".repeat(250));
        let mut log = Log::file(&path, rotation(4, 0, 0), Env::seeded(folder.clock, 1)).unwrap();
        log.write(b"1\n2\n3\n").unwrap();
        log.write(b"4\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n3\n4\n");
    }

    #[test]
    fn somebody_else_may_cut_the_file() {
        let folder = Folder::new();
        let mut log = folder.log(rotation(8, 0, 0));
        log.write(b"1\n2\n3\n").unwrap();
        File::create(folder.dir.path().join("deep/audit.log")).unwrap();
        log.write(b"4\n").unwrap();
        log.write(b"5\n").unwrap();
        assert_eq!(folder.files(), named(&[("audit.log", "4\n5\n")]), "by its size of now");
    }

    #[test]
    fn only_its_owner_reads_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = Folder::new();
        folder.log(rotation(100, 0, 0));
        let mode =
            |path: &str| fs::metadata(folder.dir.path().join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("deep"), mode("deep/audit.log")), (0o700, 0o600));
    }
}
