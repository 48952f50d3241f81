//! A durable, revisioned key-value store with watch.
//!
//! Keys are (resource, namespace, name), values are bytes. Every change gets a [`Revision`] from one counter, is
//! durable before anybody hears of it, and can be watched from any revision that history still reaches, also
//! across restarts.
//!
//! ```text
//!   commit ─┐  queue                       one batch                 under one lock
//!   commit ─┼────────▶ writer: check ────▶ engine: fsync ─────────▶ state, history ──▶ watchers in scope
//!   commit ─┘          preconditions       (redb, memory, crash)      │
//!                                                                     └─▶ get, snapshot, snapshot_at
//! ```
//!
//! - [`Store`] is the handle: read, commit, watch.
//! - The writer takes what is queued, checks each commit against what it has already taken, makes all of it
//!   durable with one fsync (group commit) and then publishes. Under load fsyncs stay as they are and batches grow.
//! - The state is a persistent map: a [`Snapshot`] is a copied root.
//! - The history is the recent events in order, found by scope, and trimmed resource by resource, and where it is too much part by part ([`HistoryLimits`]); a
//!   [`Watch`] is a cursor into it.
//! - An [`engine`] keeps batches. Engines that block get a thread; the others run in the committing task, so that
//!   a test under paused time is reproducible.
//!
//! # What a client may rely on
//!
//! - **Order.** Whoever sees a revision sees everything before it. A list at revision N followed by a watch from N
//!   misses nothing and sees nothing twice.
//! - **Durability.** When [`Store::commit`] returns, the change survives a crash; the exception are relaxed updates
//!   ([`Op::relaxed`]: renewals of Leases), of which the last value is written within [`Options::flush`].
//! - **Atomicity.** A commit of several operations happens as a whole or not at all, also if its caller is dropped
//!   and also if the machine dies.
//! - **Revisions never go back** and never repeat, also across crashes (see below).
//!
//! # What stands in the files
//!
//! `DIR/store.journal` takes every batch, one behind the other, and is what makes it durable: one write and one sync
//! of some KB, where a tree would write a page for every level of every table. When half of it is full, its batches
//! go into `DIR/store.redb` in one transaction, beside the writing of the other half. That is a redb file with five
//! tables; [`engine::redb`] has the layouts.
//!
//! | table | key | holds |
//! |---|---|---|
//! | objects | resource, namespace, name | the current value, with the revisions that made and created it |
//! | log | revision | an undo record: what the change did and the value that was there *before* |
//! | meta | name | format version; last revision; reserved revision; from where on the journal counts |
//! | forgotten | resource, or resource and part | revision up to which its log is dropped |
//! | boots | index | per run: random id, first, last durable and reserved revision |
//!
//! The log is an undo log because one thing is then stored once: what a change stored is the current value, or the
//! value that the next change of the key took away. Walking it backwards from the current values gives every event
//! with its value and the value before, which is also the check, at every opening, that log and values belong
//! together.
//!
//! # Why a crash does no harm
//!
//! Every batch is one record of the journal: values, log, numbers, a sequence and a checksum over all of it. A crash
//! leaves:
//!
//! - **Before the sync ended**: no record or a torn one, which its checksum tells. Nobody was told of the batch:
//!   answers and events follow the sync. (If everything happened to reach the disk, the batch is there; a commit
//!   without an answer may or may not have happened.)
//! - **After the sync ended**: the batch is there, whole. The next start brings it into the tables.
//! - **While a half went into the tables**: redb writes changed pages beside the old ones, then the commit's root
//!   with a checksum over everything below it, then syncs; it opens either state. With the values goes the number
//!   of the record behind them, and a half is written again only when the tables have what was in it.
//! - **While relaxed updates were unwritten**: they are gone, though watchers may have seen their revisions. The
//!   file says up to which revision anybody can have seen one (`reserved`, raised in blocks by an fsync of its
//!   own before a block is used). The next run begins behind it, so no revision means two things. A watch of a
//!   relaxed resource from an earlier run is answered [`Compacted`], and its client lists again; a
//!   watch of any other resource resumes, since nothing of it can have been lost.
//! - **While the file was being made**: it is made under another name and moved in place when whole. So an empty
//!   or torn `store.redb` is damage, reported as [`OpenError::Corrupt`], and never a reason to begin anew. So is
//!   a journal that counts and is missing.
//! - **While the log was trimmed**: trimming is part of a batch, with the numbers that say how far it went.
//!
//! The crash-image engine plays all of these: the test writes through a disk that remembers every step, and opens
//! what would be there after each of them, and after random losses among the unsynced ones.
//!
//! Damage that is no crash (bad sectors, a truncated copy) is found at opening: all checksums are verified through
//! a view that keeps writes to itself, before redb may repair anything, and a record that cannot be read although a
//! later one is there is no torn write. One case cannot be told from a crash: an unclean stop *and* damage in the
//! last record only, which is then as if it had never been written. Clients notice by the
//! [boot id](Store::knows): they remember a durable revision that this store does not have.
//!
//! # Relaxed updates
//!
//! A fleet that does nothing renews its Leases: 15 times a second with 150 agents. As any other change, each of them
//! would be a value, an undo record, a record that is forgotten, and the pages of the tables under all of these: 1 MB/s.
//! They are not worth that. A Lease that is a minute old after a crash does no harm: whoever holds it renews it within
//! seconds, and whoever watches it judges by changes seen on a clock of their own, from their own start. So a relaxed
//! update is kept in memory alone, and [`Options::flush`] after the first of them all values that were updated are written
//! in place, each once, however often it changed. A file of their own, to which each update is appended, would lose a
//! second instead of a minute, which is worth nothing here, and cost a sync each second.
//!
//! An undo log with gaps is none, so resources with relaxed updates have no log at all: nothing of them can be watched
//! from an earlier run. Within a run their history is as any other's. Whatever else happens to them (creation, deletion,
//! an update that is not relaxed) is durable before it is answered.
//!
//! # When the disk fails
//!
//! After an error of the engine (no space left, a bad sector) it is unknown whether its batch is on disk, and redb does
//! nothing more (it refuses all calls until it is opened again). Reads go on; the commits of the batch and all later ones
//! are refused, and say why. Every few seconds the writer tries to go on; nobody has to restart anything, and what was
//! shown but not durable is kept. A process that ends meanwhile is a crash like any other.
//!
//! - **A write for which there was no space** leaves what was written before as it was. The writer opens the file again,
//!   looks whether the batch is there (then it is shown to everybody, though its callers were refused: they were told that
//!   it is not known) or not (then it never happened), writes a batch to be sure, and takes commits again.
//! - **Any other error, and any of a sync**: what can be read proves nothing. When Linux cannot write pages it takes them for
//!   written, goes on showing them, and the next sync passes over them and succeeds. So everything is written anew,
//!   from memory, to a file beside the tables, which then takes their place in one step; it says that the journal does not
//!   count, which is made anew, too. The batch that failed never happened then. A crash meanwhile finds the old files, or
//!   the new ones. For the sake of a process that was killed after such an error, a start asks the system to read the
//!   files from the disk.
//! - **No answer**: [`Store::waits`] says for how long the writer has been waiting. Commits wait with it.
//!
//! # Backups
//!
//! [`Store::copy`] is everything at one revision, as a stream, beside whatever else goes on. A store is made of it by
//! [`Redb::restore`](engine::Redb::restore): [`copy`] says where that one begins and why.
//!
//! # Values that are sealed
//!
//! A store may be opened with a [`Seal`], which turns values of some resources into what stands in the files and copies,
//! and back: memory, watchers and projections have them as they are. It stands between writer and engine
//! ([`Store::open_sealed`]), so that there is no way around it: values, undo log, last values, journal and what is
//! written anew. [`Store::rewrite`] writes everything to a new file: in the file that it takes the place of, and in its
//! journal, would be left what stood there before. That is done beside the file that is kept, a megabyte at a time;
//! commits go on between, into both, so that nobody waits for more than a step. A crash finds the one or the other.
//!
//! # When there is too much
//!
//! [`Options::quota`] bounds what the current values take together, as etcd's backend quota does, and an [`Account`] what
//! counts for somebody in particular. A commit that would grow beyond is refused with [`CommitError::Quota`]; deletions
//! and whatever else is [`Purpose::Upkeep`] go on. A store that holds more than its quota, because that was lowered, opens
//! and takes what makes it smaller.
//!
//! # What it costs
//!
//! - **A batch** is one sync, whatever is in it (a test holds that). On a disk that syncs in 5 ms, 64 writers of
//!   2 kB values get 4,000 writes/s, one alone gets 200.
//! - **Memory** is the values, once, plus keys and headers, those of some resources packed ([`Options::packs`]); the history adds the values that were replaced, up to
//!   [`HistoryLimits::bytes`], or as much as the last minutes need up to [`HistoryLimits::most`]; and redb's cache 4 MiB.
//! - **A watcher** that waits costs about 0.6 kB with its task, and nothing while its scope is quiet.
//! - **Opening** reads the file three times (check, repair or not, load): 0.6 s for 20,000 values of 2 kB with as
//!   much history, on two busy cores. An unclean stop makes no difference in kind: redb walks its trees once more.

pub mod engine;

mod boot;
pub mod copy;
mod entry;
mod error;
mod figures;
mod history;
mod key;
mod load;
mod options;
mod quota;
mod scope;
mod seal;
mod shared;
mod state;
mod store;
mod value;
mod watch;
mod watchers;
mod writer;

pub use boot::Boot;
pub use copy::{Copy, CopyError, Incoming};
pub use entry::{
    Account, Action, Committed, Entry, Event, EventKind, Expect, Guard, Op, Project, VALUE_OVERHEAD,
};
pub use error::{CommitError, Compacted, Failure, OpenError, WatchEnd};
pub use figures::{Refused, SYNC_BOUNDS, Writes};
pub use history::HistoryLimits;
pub use key::{Key, Revision};
pub use options::Options;
pub use quota::{Exceeded, Purpose, Terms, Usage, Used};
pub use scope::Scope;
pub use seal::Seal;
pub use state::Snapshot;
pub use store::{Stats, Store};
pub use value::{Dictionary, Value, pack, unpack};
pub use watch::Watch;
