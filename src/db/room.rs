//! Room for writes: when a memtable or a log is exchanged, and how writers are slowed before they must stop.
//!
//! The delay grows with the square of how far compaction debt has come from the soft to the hard limit, per byte written,
//! from nothing up to a microsecond a byte, so that writers meet the hard limit rarely and never all at once. One delay is
//! at most 50 ms.

use crate::db::engine::Engine;
use crate::db::write::Writer;
use crate::error::{Error, ErrorKind, Result};
use crate::executor::Priority;
use crate::filename::FileNumber;
use crate::stats::Stalls;
use crate::sync::{Arc, Ordering};
use crate::version::edit::VersionEdit;
use crate::wal::{EMPTY_LOG_BYTES, LogWriter};
use std::time::Duration;

/// Immutable memtables that may wait for their flush before writers do.
pub(crate) const MAX_IMMUTABLE: usize = 3;

/// No delay is longer, unless a hard limit is reached.
const MAX_DELAY_MICROS: u64 = 50_000;

/// Shorter delays are saved up: a sleep costs about 60 microseconds more than it says.
const MIN_DELAY_MICROS: u64 = 1_000;

/// How often the limits over all keyspaces are looked at, in bytes written.
const CHECK_BYTES: u64 = 64 << 10;

/// A log is exchanged with a memtable once it has this many bytes.
const MIN_LOG_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    Memtables,
    Level0,
    Debt,
}

/// Somebody is making a log: the others wait until this is dropped, however that comes about. What was made ahead is
/// there at the same moment: a log made later must not be written before it.
pub(crate) struct LogInTheMaking<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) prepared: Option<LogWriter>,
}

impl Drop for LogInTheMaking<'_> {
    fn drop(&mut self) {
        let mut spare = self.engine.spare_log.lock();
        spare.making = false;
        if self.prepared.is_some() {
            spare.log = self.prepared.take();
        }
        self.engine.log_made.notify_all();
    }
}

impl Engine {
    /// Makes sure that `bytes` more can be written to `keyspaces`: delays, exchanges full memtables, waits at hard limits.
    pub(crate) fn make_room(self: &Arc<Self>, writer: &mut Writer, keyspaces: &[u32], bytes: u64) -> Result<()> {
        self.delay(writer, bytes);
        self.wait_while_stopped(|stopped| match stopped {
            0 => None,
            1 => Some(Stop::Level0),
            _ => Some(Stop::Debt),
        })?;
        for id in keyspaces {
            let Some(keyspace) = writer.keyspaces.get(id) else { continue };
            let limit = keyspace.tree.options().memtable_bytes;
            if keyspace.active.entry_bytes() as u64 >= limit && !keyspace.active.is_empty() {
                self.exchange_memtable(writer, *id)?;
            }
        }
        writer.unchecked_bytes += bytes;
        if writer.unchecked_bytes >= CHECK_BYTES.min(self.options.max_wal_bytes / 8) {
            writer.unchecked_bytes = 0;
            self.check_lock().map_err(|error| self.fail(&error))?;
            self.check_memory(writer)?;
            self.check_log_bytes(writer)?;
        }
        Ok(())
    }

    fn delay(&self, writer: &mut Writer, bytes: u64) {
        let severity = self.pressure.severity_millionths.load(Ordering::Relaxed) as f64 / 1e6;
        if severity <= 0.0 || self.executor.is_inline() {
            writer.owed_micros = 0;
            return;
        }
        let severity = severity.min(1.0);
        writer.owed_micros += (severity * severity * bytes as f64) as u64;
        if writer.owed_micros < MIN_DELAY_MICROS {
            return;
        }
        let micros = writer.owed_micros.min(MAX_DELAY_MICROS);
        writer.owed_micros = (writer.owed_micros - micros).min(MAX_DELAY_MICROS);
        let before = self.clock.monotonic_micros();
        self.clock.sleep(Duration::from_micros(micros));
        let waited = self.clock.monotonic_micros().saturating_sub(before);
        let mut stalls = self.work.stalls.lock();
        stalls.delays += 1;
        stalls.delay_micros += waited;
        stalls.longest_micros = stalls.longest_micros.max(waited);
    }

    /// Waits until `stopped` finds nothing any more. Every wait has a job behind it that will end it; where there is
    /// none, the writer gets the error that is in the way.
    fn wait_while_stopped(self: &Arc<Self>, stop: impl Fn(usize) -> Option<Stop>) -> Result<()> {
        let Some(cause) = stop(self.pressure.stopped.load(Ordering::Relaxed)) else { return Ok(()) };
        let before = self.clock.monotonic_micros();
        let result = loop {
            if let Err(error) = self.check_writable() {
                break Err(error);
            }
            if stop(self.pressure.stopped.load(Ordering::Relaxed)).is_none() {
                break Ok(());
            }
            if let Err(error) = self.wait_for_jobs() {
                break Err(error);
            }
        };
        self.count_stop(cause, self.clock.monotonic_micros().saturating_sub(before));
        result
    }

    /// Lets jobs go on; an error if there are none left that could change anything.
    fn wait_for_jobs(self: &Arc<Self>) -> Result<()> {
        self.schedule();
        if self.executor.is_inline() {
            self.executor.run_pending();
        }
        let mut state = self.state.lock();
        if state.closing {
            // No job runs any more, and whoever closes waits for this writer.
            return Err(Error::new(ErrorKind::Closed, "the database is being closed"));
        }
        if state.jobs == 0 && state.failure.is_none() {
            let suspended = state.keyspaces.values().find_map(|k| k.suspended.values().next());
            return match suspended {
                Some(error) => Err(error.clone()),
                None => Ok(()),
            };
        }
        if !self.executor.is_inline() {
            self.changed.wait_for(&mut state, Duration::from_millis(100));
        }
        Ok(())
    }

    fn count_stop(&self, cause: Stop, micros: u64) {
        let mut stalls = self.work.stalls.lock();
        let Stalls {
            memtable_stops,
            memtable_stop_micros,
            level0_stops,
            level0_stop_micros,
            debt_stops,
            debt_stop_micros,
            ..
        } = &mut *stalls;
        let (stops, total) = match cause {
            Stop::Memtables => (memtable_stops, memtable_stop_micros),
            Stop::Level0 => (level0_stops, level0_stop_micros),
            Stop::Debt => (debt_stops, debt_stop_micros),
        };
        *stops += 1;
        *total += micros;
        stalls.longest_micros = stalls.longest_micros.max(micros);
    }

    /// Makes the active memtable of a keyspace immutable and queues its flush; waits while too many wait for theirs.
    pub(crate) fn exchange_memtable(self: &Arc<Self>, writer: &mut Writer, id: u32) -> Result<()> {
        let Some(keyspace) = writer.keyspaces.get(&id) else { return Ok(()) };
        let tree = Arc::clone(&keyspace.tree);
        if keyspace.active.is_empty() {
            return Ok(());
        }
        let waiting = || tree.view().immutable.len() >= MAX_IMMUTABLE;
        if waiting() {
            let before = self.clock.monotonic_micros();
            while waiting() {
                self.check_writable()?;
                self.wait_for_jobs()?;
            }
            self.count_stop(Stop::Memtables, self.clock.monotonic_micros().saturating_sub(before));
        }
        let log_bytes = writer.log.as_ref().map_or(0, LogWriter::len);
        if log_bytes >= MIN_LOG_BYTES.min(tree.options().memtable_bytes / 4) {
            self.exchange_log(writer)?;
        }
        let fresh = {
            let _state = self.state.lock();
            tree.rotate()
        };
        if let Some(keyspace) = writer.keyspaces.get_mut(&id) {
            keyspace.active = fresh;
        }
        self.schedule();
        Ok(())
    }

    /// Goes on in a new log. The old one is closed by whoever syncs next. If none is ready, one is asked for and the old
    /// one goes on until then: making a log takes syncs, which no writer should wait for, unless the old one has become too
    /// large.
    pub(crate) fn exchange_log(self: &Arc<Self>, writer: &mut Writer) -> Result<()> {
        let Some(current) = &writer.log else { return Ok(()) };
        // A log that holds nothing stays: recovery stands on it that every log with a successor held something.
        if current.len() <= EMPTY_LOG_BYTES {
            return Ok(());
        }
        let must = self.executor.is_inline() || current.len() >= self.options.max_wal_bytes / 2;
        let spare = self.spare_log.lock().log.take();
        let log = match spare {
            Some(log) => log,
            None if must => self.next_log(Some(current.number())).map_err(|error| self.fail(&error))?,
            None => {
                self.request_log();
                return Ok(());
            }
        };
        let old = writer.log.take().map(|old| (old, writer.last_seqno));
        let switched = self.logs.switch_to(&log, old);
        writer.log = Some(log);
        switched.map_err(|error| self.fail(&error))
    }

    /// Has the next log made in the background.
    fn request_log(self: &Arc<Self>) {
        {
            let spare = self.spare_log.lock();
            if spare.making || spare.log.is_some() {
                return;
            }
        }
        self.state.lock().jobs += 1;
        let engine = Arc::clone(self);
        let job = move || {
            engine.prepare_log();
            engine.end_plain_job();
        };
        if !self.executor.spawn(Priority::High, Box::new(job)) {
            self.end_plain_job();
        }
    }

    fn end_plain_job(&self) {
        self.state.lock().jobs -= 1;
        self.changed.notify_all();
    }

    /// The prepared log, or a new one. One that is being made is waited for: it has a lower number than one made now, and
    /// would be written after it.
    fn next_log(&self, predecessor: Option<FileNumber>) -> Result<LogWriter> {
        {
            let mut spare = self.spare_log.lock();
            while spare.making {
                self.log_made.wait(&mut spare);
            }
            if let Some(log) = spare.log.take() {
                return Ok(log);
            }
            spare.making = true;
        }
        let _making = LogInTheMaking { engine: self, prepared: None };
        self.create_log(predecessor)
    }

    /// Creates a log and names it in the manifest, both durable: a log that recovery needs cannot go missing unseen.
    pub(crate) fn create_log(&self, predecessor: Option<FileNumber>) -> Result<LogWriter> {
        let _latch = self.latch_panics();
        let number = self.next_number();
        self.pause_point("log:numbered");
        let log = LogWriter::create(&*self.fs, &self.dir, number, 0, predecessor)?;
        let mut room = self.manifest.lock();
        let edit = VersionEdit {
            next_file_number: Some(self.next_file.load(Ordering::Relaxed)),
            logs_added: vec![number],
            ..Default::default()
        };
        self.append_edit(&mut room, &edit)?;
        self.logs.register(number);
        Ok(log)
    }

    /// Keeps all memtables together under their share of the memory budget: the largest is flushed.
    fn check_memory(self: &Arc<Self>, writer: &mut Writer) -> Result<()> {
        let share = self.memtable_share(writer);
        loop {
            let total: u64 = writer.keyspaces.values().map(|k| k.tree.memtable_bytes()).sum();
            if total < share {
                return Ok(());
            }
            let largest = writer
                .keyspaces
                .iter()
                .filter(|(_, k)| !k.active.is_empty())
                .max_by_key(|(_, k)| k.active.entry_bytes())
                .map(|(id, k)| (*id, k.active.entry_bytes() as u64));
            match largest {
                // Flushing crumbs would not help while larger ones are on their way out.
                Some((id, bytes)) if bytes >= share / 8 => self.exchange_memtable(writer, id)?,
                _ => return self.wait_for_flushes(share),
            }
            if self.executor.is_inline() {
                self.executor.run_pending();
            }
        }
    }

    /// Waits until the immutable memtables leave room; they are on their way out.
    fn wait_for_flushes(self: &Arc<Self>, share: u64) -> Result<()> {
        let over = || {
            let trees = self.trees();
            let total: u64 = trees.iter().map(|tree| tree.memtable_bytes()).sum();
            total >= share + share / 4 && trees.iter().any(|tree| !tree.view().immutable.is_empty())
        };
        if !over() {
            return Ok(());
        }
        let before = self.clock.monotonic_micros();
        while over() {
            self.check_writable()?;
            self.wait_for_jobs()?;
        }
        self.count_stop(Stop::Memtables, self.clock.monotonic_micros().saturating_sub(before));
        Ok(())
    }

    fn memtable_share(&self, writer: &Writer) -> u64 {
        match self.options.memory_budget {
            Some(budget) => {
                let cache = self.cache.as_ref().map_or(0, |cache| cache.capacity_bytes());
                let pinned: u64 = writer.keyspaces.values().map(|k| k.tree.pinned_bytes()).sum();
                budget.saturating_sub(cache).saturating_sub(pinned).max(budget / 8)
            }
            None => {
                let largest = writer.keyspaces.values().map(|k| k.tree.options().memtable_bytes).max().unwrap_or(0);
                largest.saturating_mul(4).max(1 << 20)
            }
        }
    }

    /// Keeps the logs under `max_wal_bytes`: flushes the keyspaces that pin the oldest.
    fn check_log_bytes(self: &Arc<Self>, writer: &mut Writer) -> Result<()> {
        let limit = self.options.max_wal_bytes;
        if writer.log.as_ref().map_or(0, LogWriter::len) >= limit / 4 {
            self.exchange_log(writer)?;
        }
        if self.logs.live_bytes() <= limit {
            return Ok(());
        }
        let Some(oldest) = self.logs.oldest_closed() else { return Ok(()) };
        let pinning: Vec<u32> = writer
            .keyspaces
            .iter()
            .filter(|(_, k)| k.active.seqnos().is_some_and(|(first, _)| first <= oldest))
            .map(|(id, _)| *id)
            .collect();
        for id in pinning {
            self.exchange_memtable(writer, id)?;
        }
        Ok(())
    }
}
