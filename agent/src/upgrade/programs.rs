//! Replaces an agent that is a program on a machine: fetches the program of an offer, and tries it with the next start.

use std::{
    ffi::OsString,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use karmada_client::fetch::Fetcher;
use karmada_core::upgrade::{
    Offer, Program, Version, Way,
    slots::{Fits, Refused, Slots},
    trial::{Ended, Trial},
};
use karmada_meta::time::Time;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use super::{
    ask::{Unfit, asked},
    folder::{Folder, gone},
    received::{LARGEST, Received},
    trouble::Trouble,
};

/// A go of fetching a program takes no longer, over whatever link.
const FETCH: Duration = Duration::from_secs(2 * 3600);
/// The kind of machine that this is.
const ARCH: &str = std::env::consts::ARCH;

/// How an agent is replaced that is a program on a machine.
#[derive(Clone, Debug)]
pub struct Programs {
    /// Where its programs are.
    pub folder: Folder,
    /// What addresses begin with from which programs may be fetched.
    pub from: String,
    /// The authorities of those servers, a PEM file; the system's if there is none.
    pub authorities: Option<PathBuf>,
    /// The program that this process is, by its digest; none if it is the installed one.
    pub runs: Option<String>,
    /// What the agent was started with, which a new program has to take as well.
    pub arguments: Vec<OsString>,
    /// Whether what is on trial has proven itself: then its clock does not end it, whatever the disk does.
    pub proven: Arc<AtomicBool>,
    /// One writes a program at a time: what was given up may still be writing for a moment.
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
}

/// A program that is being fetched, and its turn.
type Going = Arc<Mutex<(Received, OwnedMutexGuard<()>)>>;

impl Programs {
    pub(crate) const WAY: Way = Way::Program;

    /// Those of a folder, which come from addresses that begin so.
    pub fn new(folder: Folder, from: String) -> Self {
        Self {
            folder,
            from,
            authorities: None,
            runs: None,
            arguments: Vec::new(),
            proven: Arc::default(),
            turn: Arc::default(),
        }
    }

    pub(crate) fn read(&self) -> Result<Slots, Trouble> {
        self.folder.read().map_err(|error| Trouble::disk(&error))
    }

    /// The program of an offer that is for this machine, and another than what runs.
    pub(crate) fn meant<'a>(&self, offer: &'a Offer) -> Result<&'a Program, Trouble> {
        let program = offer.programs.iter().find(|program| program.arch == ARCH).ok_or_else(|| {
            let named: Vec<_> = offer.programs.iter().map(|program| program.arch.as_str()).collect();
            Trouble::Lasting(format!(
                "no program is named for this machine ({ARCH}), only for {}",
                named.join(", ")
            ))
        })?;
        program.is_from(&self.from).map_err(Trouble::Lasting)?;
        if self.runs.as_ref() == Some(&program.sha256) {
            return Err(Trouble::Lasting(format!(
                "the program that is named for {} is the one that runs, which is another version",
                offer.version
            )));
        }
        Ok(program)
    }

    /// Whether the program of an offer is there, whole, and has said what it is. It takes a while.
    pub(crate) async fn has(&self, offer: &Offer) -> Result<bool, Trouble> {
        let fits = self.fits(offer)?;
        let folder = self.folder.clone();
        let has = aside(move || {
            let slots = folder.read()?;
            Ok(slots.asked_of.as_ref() == Some(&fits) && folder.is_whole(&fits.program))
        });
        has.await?.map_err(|error| Trouble::disk(&error))
    }

    fn fits(&self, offer: &Offer) -> Result<Fits, Trouble> {
        let mut arguments = DefaultHasher::new();
        self.arguments.hash(&mut arguments);
        let program = self.meant(offer)?.sha256.clone();
        Ok(Fits { program, version: offer.version.clone(), arguments: arguments.finish() })
    }

    /// Fetches the program of an offer, if it is not there, and asks it for its version, and whether it takes the agent's arguments.
    pub(crate) async fn fetch(&self, offer: &Offer, now: Time) -> Result<(), Trouble> {
        let (program, fits) = (self.meant(offer)?.clone(), self.fits(offer)?);
        let folder = self.folder.clone();
        let is_noexec = aside(move || folder.is_noexec()).await?;
        if is_noexec {
            return Err(self.cannot_run("the folder is mounted without the right to run programs"));
        }
        let (folder, digest) = (self.folder.clone(), program.sha256.clone());
        if !aside(move || folder.is_whole(&digest)).await? {
            self.download(&program, now).await?;
        }
        let path = self.folder.program(&program.sha256);
        let wanted = offer.version.parse::<Version>().map_err(|error| Trouble::Lasting(error.to_string()))?;
        let why = match asked(&path, &wanted, &self.arguments).await {
            Ok(()) => {
                return self.change(move |slots| (slots.asked_of, slots.partial) = (Some(fits), None)).await;
            }
            // Its owner can help that, and it need not be fetched again for it.
            Err(Unfit::Forbidden(why)) => return Err(self.cannot_run(&why)),
            Err(Unfit::Not(why)) => why,
        };
        aside(move || gone(&path)).await?.map_err(|error| Trouble::disk(&error))?;
        Err(Trouble::Lasting(why))
    }

    fn cannot_run(&self, why: &str) -> Trouble {
        Trouble::Fetch(format!(
            "programs cannot be run here: {why}. Under systemd ExecPaths has to name {dir} and NoExecPaths must not (hub/docs/upgrades.md#agents-under-systemd), and then the \
             agent has to be started again",
            dir = self.folder.parent().display()
        ))
    }

    async fn download(&self, program: &Program, now: Time) -> Result<(), Trouble> {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let (folder, authorities, digest) =
            (self.folder.clone(), self.authorities.clone(), program.sha256.clone());
        let begun = aside(move || {
            let read = |path: &PathBuf| {
                let error = |error| Trouble::Fetch(format!("--upgrade-ca: {}: {error}", path.display()));
                fs::read(path).map_err(error)
            };
            let authorities = authorities.as_ref().map(read).transpose()?;
            let received = Received::open(&folder, &digest).map_err(|error| Trouble::disk(&error))?;
            Ok::<_, Trouble>((authorities, received.have(), Arc::new(Mutex::new((received, turn)))))
        });
        let (authorities, have, going) = begun.await??;
        let fetcher = Fetcher::new(authorities.as_deref(), FETCH, LARGEST)
            .map_err(|why| Trouble::Fetch(format!("--upgrade-ca: {why}")))?;
        let begins = |begins| step(&going, move |received| received.begins(begins, now));
        let take = |bytes: Vec<u8>| step(&going, move |received| received.take(&bytes));
        let fetched = fetcher.each(&program.url, have.as_ref(), begins, take).await;
        if let Err(why) = fetched {
            let went_on = aside(move || going.lock().0.went_on()).await?;
            return Err(match went_on {
                true => Trouble::Broke(format!("{} broke off, and is gone on with: {why}", program.url)),
                false => Trouble::Fetch(format!("{} cannot be fetched: {why}", program.url)),
            });
        }
        let going = Arc::into_inner(going).map(Mutex::into_inner);
        let (received, turn) =
            going.ok_or_else(|| Trouble::Fetch("its program is still being written".to_owned()))?;
        let ended = aside(move || received.end()).await?;
        drop(turn);
        ended
    }

    /// Removes what is there of a program that is not wanted any more, as when the hub offers another one or none.
    pub(crate) async fn forget(&self, offer: Option<&Offer>, now: Time) {
        let offered = offer.and_then(|offer| self.meant(offer).ok()).map(|program| program.sha256.clone());
        match self.change(move |slots| slots.forget(offered.as_deref(), now)).await {
            Ok(_) => self.tidy().await,
            Err(error) => tracing::debug!(%error, "what is there of a program cannot be looked at"),
        }
    }

    /// Remembers that an offer's program is none for this agent, also after a restart.
    pub(crate) async fn refuse(&self, refused: Refused) -> Result<(), Trouble> {
        self.change(move |slots| slots.refused = Some(refused)).await
    }

    /// Begins a trial with the next start.
    pub(crate) async fn begin(&self, offer: &Offer, version: &Version, now: Time) -> Result<Trial, Trouble> {
        let (folder, program) = (self.folder.clone(), self.meant(offer)?.clone());
        let (version, offer) = (version.clone(), offer.clone());
        let begun = aside(move || {
            folder.change(|slots| {
                if slots.is_open() {
                    return None;
                }
                let old = slots.current.as_deref().unwrap_or_default();
                let trial = Trial::of(&offer, &version, old, &program.sha256, now);
                slots.begin(trial.clone());
                Some(trial)
            })
        });
        let begun = begun.await?.map_err(|error| Trouble::disk(&error))?;
        begun.ok_or_else(|| Trouble::Lasting("another version is still on trial".to_owned()))
    }

    /// Keeps what is known of a trial, and what follows where it is over.
    pub(crate) async fn settle(&self, trial: &Trial) -> Result<(), Trouble> {
        let trial = trial.clone();
        let ended = trial.ended;
        if ended == Some(Ended::Committed) {
            self.proven.store(true, Ordering::SeqCst);
        }
        let settle = move |slots: &mut Slots| {
            // Its time may have been over a moment ago.
            if !slots.trial.as_ref().is_some_and(|known| known.begun == trial.begun && known.new == trial.new)
            {
                return;
            }
            match trial.ended {
                Some(Ended::Committed) => slots.commit(),
                Some(Ended::Returned) => slots.go_back(&trial.why),
                None => slots.trial = Some(trial),
            }
        };
        self.change(settle).await?;
        if ended.is_some() {
            self.tidy().await;
        }
        Ok(())
    }

    /// What is on trial is started with the next start, if this one may end for that, which has run for so long. Where that cannot be
    /// kept it may not.
    pub(crate) async fn again(&self, after: Duration) -> Result<bool, Trouble> {
        self.change(move |slots| slots.again(after)).await
    }

    /// The hub takes back what it gave: whether that is what is to run.
    pub(crate) async fn take_back(&self, why: String) -> Result<bool, Trouble> {
        let took = self.change(move |slots| slots.take_back(&why)).await?;
        self.tidy().await;
        Ok(took)
    }

    /// Whether the program that is to run could be, which this one runs in the stead of.
    pub(crate) async fn is_back(&self, slots: &Slots) -> Result<bool, Trouble> {
        let (folder, current) = (self.folder.clone(), slots.current.clone());
        aside(move || current.is_some_and(|current| folder.is_whole(&current))).await
    }

    /// What is left over takes room, and harms nothing.
    async fn tidy(&self) {
        let folder = self.folder.clone();
        if let Ok(Err(error)) = aside(move || folder.tidy()).await {
            tracing::debug!(%error, "what is left of programs cannot be removed");
        }
    }

    async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Slots) -> T + Send + 'static,
    ) -> Result<T, Trouble> {
        let folder = self.folder.clone();
        aside(move || folder.change(change)).await?.map_err(|error| Trouble::disk(&error))
    }
}

/// Does a step of fetching elsewhere: the disk may be slow, and nobody waits for it but this.
async fn step(
    going: &Going,
    step: impl FnOnce(&mut Received) -> io::Result<()> + Send + 'static,
) -> Result<(), String> {
    let going = Arc::clone(going);
    let done = tokio::task::spawn_blocking(move || step(&mut going.lock().0)).await;
    done.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}

/// Does what blocks elsewhere.
async fn aside<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> Result<T, Trouble> {
    tokio::task::spawn_blocking(what).await.map_err(|error| Trouble::Fetch(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_runs_already_is_no_other_version() {
        let dir = tempfile::tempdir().unwrap();
        let at = |sha256: &str| Offer {
            version: "0.6.0".into(),
            begun: "2026-11-26T01:00:00Z".parse().unwrap(),
            image: String::new(),
            programs: vec![Program {
                arch: ARCH.into(),
                url: "https://h.example/a".into(),
                sha256: sha256.into(),
            }],
            returns: false,
            downgrade: false,
            spread: 0,
        };
        let (one, two) = ("1".repeat(64), "2".repeat(64));
        let programs = Programs {
            runs: Some(one.clone()),
            ..Programs::new(Folder::new(dir.path()), "https://h.example/".into())
        };
        assert_eq!(programs.meant(&at(&two)).unwrap().sha256, two);
        let error = programs.meant(&at(&one)).unwrap_err();
        assert!(matches!(&error, Trouble::Lasting(why) if why.contains("is the one that runs")), "{error}");
        let elsewhere = Programs { from: "https://i.example/".into(), ..programs };
        assert!(elsewhere.meant(&at(&two)).is_err());
    }
}
