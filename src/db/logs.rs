//! The logs of a session, and what of them is durable.
//!
//! The leader appends; anybody syncs. A log that was replaced is closed by whoever syncs next, before anything in its
//! successor is called durable (*log before log*), so that a writer which only rotates never waits for a disk.

use crate::error::{Error, ErrorKind, Result};
use crate::filename::FileNumber;
use crate::key::SeqNo;
use crate::sync::{Arc, AtomicU64, Mutex, OnPanic, Ordering};
use crate::vfs::{Context, SyncHandle};
use crate::wal::LogWriter;
use std::collections::VecDeque;
use std::path::Path;

/// A replaced log that still has to be closed.
#[derive(Debug)]
struct Retired {
    log: LogWriter,
    last_seqno: SeqNo,
}

#[derive(Debug, Clone)]
struct Current {
    number: FileNumber,
    path: Arc<Path>,
    handle: Arc<dyn SyncHandle>,
    synced_offset: u64,
}

/// A log that recovery would need.
#[derive(Debug, Clone, Copy)]
struct Live {
    number: FileNumber,
    /// Nothing in it is newer. None: still written, or not yet begun.
    last_seqno: Option<SeqNo>,
    bytes: u64,
}

#[derive(Debug, Default)]
struct State {
    retired: VecDeque<Retired>,
    current: Option<Current>,
    live: Vec<Live>,
    /// Final lengths of logs that were closed and are still live.
    closed: Vec<(FileNumber, u64)>,
    failed: Option<Error>,
}

#[derive(Debug, Default)]
pub(crate) struct LogSet {
    /// Held during a sync: one at a time.
    syncing: Mutex<()>,
    state: Mutex<State>,
    appended_len: AtomicU64,
    appended_seqno: AtomicU64,
    persisted: AtomicU64,
    syncs: AtomicU64,
}

impl LogSet {
    /// Everything up to `seqno` is durable in tables; the first log starts behind it.
    pub(crate) fn start(&self, seqno: SeqNo) {
        self.persisted.store(seqno, Ordering::Release);
        self.appended_seqno.store(seqno, Ordering::Release);
    }

    /// `log` exists and is named in the manifest: recovery will look for it.
    pub(crate) fn register(&self, number: FileNumber) {
        self.state.lock().live.push(Live { number, last_seqno: None, bytes: 0 });
    }

    /// The log that is appended to from now on, in place of `replaced`, whose last entry is `last_seqno`.
    pub(crate) fn switch_to(&self, log: &LogWriter, replaced: Option<(LogWriter, SeqNo)>) -> Result<()> {
        let handle: Arc<dyn SyncHandle> = log.sync_handle()?.into();
        let mut state = self.state.lock();
        if let Some((old, last_seqno)) = replaced {
            let bytes = old.len();
            if let Some(live) = state.live.iter_mut().find(|live| live.number == old.number()) {
                live.last_seqno = Some(last_seqno);
                live.bytes = bytes;
            }
            state.retired.push_back(Retired { log: old, last_seqno });
        }
        self.appended_len.store(log.len(), Ordering::Release);
        let path = log.path().into();
        state.current = Some(Current { number: log.number(), path, handle, synced_offset: log.synced_offset() });
        Ok(())
    }

    /// The leader appended up to here. Everything up to `seqno` was handed to the operating system.
    pub(crate) fn appended(&self, len: u64, seqno: SeqNo) {
        self.appended_len.store(len, Ordering::Release);
        self.appended_seqno.store(seqno, Ordering::Release);
    }

    /// How much of log `number` is durable, for the promise in its next chunks.
    pub(crate) fn synced_offset(&self, number: FileNumber) -> Option<u64> {
        self.state.lock().current.as_ref().filter(|c| c.number == number).map(|c| c.synced_offset)
    }

    /// Everything up to the returned number is durable.
    pub(crate) fn persisted(&self) -> SeqNo {
        self.persisted.load(Ordering::Acquire)
    }

    /// Durable up to `seqno`, and every replaced log closed: one that is not cannot be removed.
    fn is_settled(&self, seqno: SeqNo) -> bool {
        self.persisted() >= seqno && self.state.lock().retired.is_empty()
    }

    /// The failure that ended the logs.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.state.lock().failed.clone()
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Makes everything up to `seqno`, which was appended before, durable. The first failure is final: nothing is ever
    /// called durable after it.
    pub(crate) fn sync_through(&self, seqno: SeqNo) -> Result<()> {
        if self.is_settled(seqno) {
            return Ok(());
        }
        let _one_at_a_time = self.syncing.lock();
        if self.is_settled(seqno) {
            return Ok(());
        }
        // The replaced logs that it took along are closed by nobody then.
        let _failed = OnPanic::new(|| {
            let error = || Error::new(ErrorKind::BackgroundFailure, "a thread panicked while it synced the log");
            self.state.lock().failed.get_or_insert_with(error);
        });
        let result = self.sync_all();
        if let Err(error) = &result {
            self.state.lock().failed.get_or_insert_with(|| error.clone());
        }
        result
    }

    fn sync_all(&self) -> Result<()> {
        let (retired, current, through, len) = {
            let mut state = self.state.lock();
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            // What is called durable is captured *before* the sync: what is appended during it may not be.
            let through = self.appended_seqno.load(Ordering::Acquire);
            let len = self.appended_len.load(Ordering::Acquire);
            (std::mem::take(&mut state.retired), state.current.clone(), through, len)
        };
        for retired in retired {
            self.close_one(retired)?;
        }
        if let Some(current) = current {
            self.syncs.fetch_add(1, Ordering::Relaxed);
            current.handle.sync().context("sync the log", &current.path)?;
            let mut state = self.state.lock();
            if let Some(now) = state.current.as_mut().filter(|now| now.number == current.number) {
                now.synced_offset = now.synced_offset.max(len);
            }
        }
        self.persisted.fetch_max(through, Ordering::AcqRel);
        Ok(())
    }

    fn close_one(&self, retired: Retired) -> Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        let number = retired.log.number();
        let len = retired.log.close()?;
        let mut state = self.state.lock();
        state.closed.push((number, len));
        if let Some(live) = state.live.iter_mut().find(|live| live.number == number) {
            live.bytes = len;
        }
        drop(state);
        self.persisted.fetch_max(retired.last_seqno, Ordering::AcqRel);
        Ok(())
    }

    /// Closes every log: the current one, given by the leader, and a prepared one. Returns the live logs' final lengths.
    pub(crate) fn close(&self, logs: Vec<(LogWriter, SeqNo)>) -> Result<Vec<(FileNumber, u64)>> {
        let _one_at_a_time = self.syncing.lock();
        let retired = {
            let mut state = self.state.lock();
            state.current = None;
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            std::mem::take(&mut state.retired)
        };
        for one in retired.into_iter().chain(logs.into_iter().map(|(log, last_seqno)| Retired { log, last_seqno })) {
            self.close_one(one)?;
        }
        let state = self.state.lock();
        let live = |number: FileNumber| state.live.iter().any(|l| l.number == number);
        Ok(state.closed.iter().copied().filter(|(number, _)| live(*number)).collect())
    }

    /// The logs that nothing needs any more once every unflushed entry is at what `oldest_unflushed` gives, or newer. It
    /// is asked *after* the closed logs were listed: a log closed later may hold entries that it does not know of.
    pub(crate) fn removable(&self, oldest_unflushed: impl FnOnce() -> Option<SeqNo>) -> Vec<FileNumber> {
        let closed: Vec<(FileNumber, SeqNo)> = {
            let state = self.state.lock();
            let retired = |number| state.retired.iter().any(|r| r.log.number() == number);
            state.live.iter().filter(|l| !retired(l.number)).filter_map(|l| Some((l.number, l.last_seqno?))).collect()
        };
        let oldest = oldest_unflushed();
        closed
            .into_iter()
            .filter(|(_, last)| oldest.is_none_or(|oldest| *last < oldest))
            .map(|(number, _)| number)
            .collect()
    }

    /// The log that is written now.
    pub(crate) fn current_number(&self) -> Option<FileNumber> {
        self.state.lock().current.as_ref().map(|c| c.number)
    }

    /// The manifest does not name these any more.
    pub(crate) fn forget(&self, numbers: &[FileNumber]) {
        let mut state = self.state.lock();
        state.live.retain(|live| !numbers.contains(&live.number));
        state.closed.retain(|(number, _)| !numbers.contains(number));
    }

    /// Bytes in live logs.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.state.lock().live.iter().map(|live| live.bytes).sum::<u64>() + self.appended_len.load(Ordering::Relaxed)
    }

    /// The last sequence number of the oldest live log that is not written any more.
    pub(crate) fn oldest_closed(&self) -> Option<SeqNo> {
        self.state.lock().live.iter().find_map(|live| live.last_seqno)
    }
}
