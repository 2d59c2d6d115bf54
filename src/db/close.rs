//! Closing: jobs end, logs and manifest end cleanly, the lock is released.

use crate::db::engine::Engine;
use crate::error::{Error, Result};
use crate::sync::{Arc, Ordering};
use crate::version::edit::VersionEdit;

impl Engine {
    /// Closes the database; a second call does nothing. Reports the first failure, an earlier one of the background
    /// included. In a forked child nothing happens: files, threads and lock are the parent's.
    pub(crate) fn close(self: &Arc<Self>) -> Result<()> {
        if self.is_forked() {
            return Ok(());
        }
        {
            let mut state = self.state.lock();
            if state.closing {
                return Ok(());
            }
            state.closing = true;
            self.changed.notify_all();
        }
        // Running jobs see `closing` and stop; what they did not finish is still in the log.
        self.executor.shutdown();
        let result = self.exclusively(|writer| {
            self.closed.store(true, Ordering::Release);
            let log = writer.log.take().map(|log| (log, writer.last_seqno));
            writer.keyspaces.clear();
            self.end_files(log)
        });
        self.closed.store(true, Ordering::Release);
        self.collect_garbage();
        *self.lock.lock() = None;
        self.changed.notify_all();
        result
    }

    fn end_files(&self, log: Option<(crate::wal::LogWriter, u64)>) -> Result<()> {
        let mut room = self.manifest.lock();
        let Some(manifest) = room.manifest.take() else { return Ok(()) };
        if let Some(cause) = self.state.lock().failure.clone() {
            // After a failure nothing is declared clean: the next open runs recovery.
            return Err(Error::background(&cause));
        }
        let last = self.visible.load(Ordering::Acquire);
        let prepared = self.spare_log.lock().log.take().map(|log| (log, last));
        let lengths = self.logs.close(log.into_iter().chain(prepared).collect())?;
        self.check_lock()?;
        manifest.close(&VersionEdit {
            next_file_number: Some(self.next_file.load(Ordering::Relaxed)),
            last_seqno: Some(last),
            clean_close: Some(lengths),
            ..Default::default()
        })?;
        Ok(())
    }
}
