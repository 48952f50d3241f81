//! Everything is written to a new file beside the one that is kept, a piece at a time. Between two pieces commits are carried
//! out, into both.

use std::{mem, sync::atomic::Ordering, time::Duration};

use tokio::sync::oneshot;

use super::{Draft, Writer};
use crate::{
    engine::{EngineError, Image, Marks},
    error::{CommitError, Failure},
};

type Reply<H> = oneshot::Sender<Result<(), CommitError<H>>>;

/// What is under way.
pub(super) struct Rewriting<H> {
    /// What was kept when it began.
    marks: Marks,
    /// Who waits for it; nobody who goes on with it themselves.
    reply: Option<Reply<H>>,
    /// Who has asked for it since, and means what is so by now.
    next: Vec<Reply<H>>,
}

impl<H: Send + Sync + 'static> Writer<H> {
    /// Somebody wants everything written anew.
    pub(super) fn rewrite(&mut self, reply: Reply<H>) {
        if let Some(under_way) = &mut self.rewriting {
            under_way.next.push(reply);
            return;
        }
        match self.begin() {
            Ok(marks) => self.rewriting = Some(Rewriting { marks, reply: Some(reply), next: Vec::new() }),
            Err(failure) => tell(reply, Err(failure)),
        }
    }

    /// The same for somebody who goes on with it: [`Writer::go_on`].
    pub(crate) fn begin_rewrite(&mut self) -> Result<(), CommitError<H>> {
        self.leave_rewrite();
        let marks = self.begin().map_err(CommitError::Io)?;
        self.rewriting = Some(Rewriting { marks, reply: None, next: Vec::new() });
        Ok(())
    }

    fn begin(&mut self) -> Result<Marks, Failure> {
        self.make_durable()?;
        let image: Image = self.image();
        let marks = image.marks;
        // An engine that has no other way writes all of it now.
        self.shared.rewriting.store(true, Ordering::Relaxed);
        let begun = self.at_disk(|engine| engine.begin_anew(image));
        self.shared.rewriting.store(false, Ordering::Relaxed);
        begun.map(|()| marks).map_err(|error| self.not_rewritten(&error))
    }

    /// Goes on for a short time, if it is under way. Whether there is more to do.
    pub(crate) fn go_on(&mut self) -> Result<bool, CommitError<H>> {
        let Some(Rewriting { marks, .. }) = self.rewriting else { return Ok(false) };
        match self.at_disk(|engine| engine.go_on()) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(error) => {
                let failure = self.not_rewritten(&error);
                self.end_rewrite(&Err(failure.clone()));
                return Err(CommitError::Io(failure));
            }
        }
        self.durable = self.durable.max(marks.revision);
        self.reserved = self.reserved.max(marks.reserved);
        self.shared.core.write().durable = self.durable;
        let shown = self.shared.core.read().state.revision();
        let proved = self.persist(Draft::default(), (self.durable, true), shown);
        if proved.is_err() {
            self.open_again();
        }
        self.end_rewrite(&proved);
        proved.map(|()| false).map_err(CommitError::Io)
    }

    /// It has ended so, if it was under way. Who has asked for it meanwhile is next.
    pub(super) fn end_rewrite(&mut self, how: &Result<(), Failure>) {
        let Some(Rewriting { reply, next, .. }) = self.rewriting.take() else { return };
        self.engine.give_up();
        if let Some(reply) = reply {
            tell(reply, how.clone());
        }
        let mut how = how.clone();
        for reply in next {
            match &mut self.rewriting {
                Some(under_way) => under_way.next.push(reply),
                None if how.is_ok() => match self.begin() {
                    Ok(marks) => {
                        self.rewriting = Some(Rewriting { marks, reply: Some(reply), next: Vec::new() });
                    }
                    Err(failure) => {
                        how = Err(failure);
                        tell(reply, how.clone());
                    }
                },
                None => tell(reply, how.clone()),
            }
        }
    }

    /// Nobody goes on with it.
    pub(super) fn leave_rewrite(&mut self) {
        if let Some(mut under_way) = self.rewriting.take() {
            self.engine.give_up();
            let waiting = under_way.reply.take().into_iter().chain(mem::take(&mut under_way.next));
            waiting.for_each(|reply| drop(reply.send(Err(CommitError::Closed))));
        }
    }

    /// It could not be done. The engine may have let go of its file: it is opened again at once then, and shows whether the
    /// new one took its place.
    fn not_rewritten(&mut self, error: &EngineError) -> Failure {
        let failure = self.failure(error);
        if !self.engine.stands() {
            self.shared.core.write().failed = Some(failure.clone());
            self.open_again();
        }
        failure
    }

    /// Does at once what is done after a failure: it is not one of the disk that is written to all the time.
    fn open_again(&mut self) {
        self.reopen_at = Some(Duration::ZERO);
        self.recover();
    }
}

fn tell<H>(reply: Reply<H>, how: Result<(), Failure>) {
    // A caller that is gone does not want it.
    let _ = reply.send(how.map_err(CommitError::Io));
}
