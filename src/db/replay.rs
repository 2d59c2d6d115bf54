//! Replaying the logs: into sorted vectors and tables of level 0, or, read-only, into memtables.
//!
//! The recovered state is a prefix of what was written. Sequence numbers have no gaps across logs, so a gap means that
//! something is missing: behind a log that was cut (nothing in its successor can have been synced, since a log is closed
//! and synced before that), replay ends; behind a log that ended cleanly, the database refuses to open.

use crate::batch::BatchRef;
use crate::db::engine::Engine;
use crate::error::{Error, Result};
use crate::filename::{FileName, FileNumber};
use crate::iter::VecIter;
use crate::key::{SeqNo, Tag};
use crate::sync::Arc;
use crate::tree::Tree;
use crate::version::LiveTable;
use crate::wal::replay;
use std::collections::{BTreeMap, HashMap};

/// An entry replayed costs so much beside its bytes: two vectors and a tag.
const ENTRY_OVERHEAD_BYTES: usize = 64;

#[derive(Default)]
pub(crate) struct Replayed {
    /// By keyspace: tables of level 0, in the order of their age.
    pub(crate) tables: Vec<(u32, Arc<LiveTable>)>,
    pub(crate) last_seqno: SeqNo,
}

#[derive(Default)]
struct Pile {
    entries: Vec<(Vec<u8>, Tag, Vec<u8>)>,
    bytes: usize,
}

struct Replay<'a> {
    engine: &'a Engine,
    trees: &'a BTreeMap<u32, Arc<Tree>>,
    flushed: HashMap<u32, SeqNo>,
    next_keyspace_id: u32,
    into_tables: bool,
    piles: HashMap<u32, Pile>,
    result: Replayed,
    expected: Option<SeqNo>,
    /// The last log did not end cleanly: a gap behind it is its lost tail.
    cut: bool,
    /// Replay ended at a gap.
    ended: bool,
}

/// Replays every log that the manifest names.
pub(crate) fn replay_logs(engine: &Engine, trees: &BTreeMap<u32, Arc<Tree>>, into_tables: bool) -> Result<Replayed> {
    let (logs, closed, flushed, next_keyspace_id) = {
        let room = engine.manifest.lock();
        let state = &room.state;
        let logs: Vec<FileNumber> = state.logs.iter().copied().collect();
        let closed: Option<HashMap<FileNumber, u64>> = state.clean_close.clone().map(|c| c.into_iter().collect());
        let flushed = state.keyspaces.iter().map(|(id, k)| (*id, k.flushed)).collect();
        (logs, closed, flushed, state.next_keyspace_id)
    };
    let mut run = Replay {
        engine,
        trees,
        flushed,
        next_keyspace_id,
        into_tables,
        piles: HashMap::new(),
        result: Replayed::default(),
        expected: None,
        cut: false,
        ended: false,
    };
    for number in logs {
        let path = FileName::Log(number).in_dir(&engine.dir);
        if !engine.fs.exists(&path).unwrap_or(true) {
            let message = "a log that the manifest names is missing; restore the file from a backup";
            return Err(Error::corruption(message).in_file(&path));
        }
        let clean_len = match &closed {
            None => None,
            Some(closed) => Some(*closed.get(&number).ok_or_else(|| {
                Error::corruption("the manifest names a log that its clean close does not").in_file(&path)
            })?),
        };
        let end = replay(&*engine.fs, &engine.dir, number, clean_len, |batch| run.take(batch))
            .map_err(|error| error.in_file(&path))?;
        if run.ended && end.promised_len > 0 {
            let message = "a log before this one has lost its end, though this one was synced after it; restore the logs \
                           from a backup";
            return Err(Error::corruption(message).in_file(&path));
        }
        run.cut |= !end.clean;
    }
    run.finish()
}

impl Replay<'_> {
    fn take(&mut self, batch: BatchRef<'_>) -> Result<()> {
        if self.ended || batch.is_empty() {
            return Ok(());
        }
        let first = batch.seqno();
        // Only a log with batches gets a successor: one before this lost them all.
        if self.expected.is_none() && self.cut {
            self.ended = true;
            return Ok(());
        }
        if let Some(expected) = self.expected.filter(|expected| *expected != first) {
            if first > expected && self.cut {
                self.ended = true;
                return Ok(());
            }
            return Err(Error::corruption(format!(
                "expected a batch that starts at sequence number {expected}, found {first}: a part of the log is missing"
            )));
        }
        let mut seqno = first;
        for operation in batch.iter() {
            let operation = operation?;
            if operation.keyspace >= self.next_keyspace_id {
                return Err(Error::corruption(format!(
                    "a batch names keyspace {}, which the manifest never heard of",
                    operation.keyspace
                )));
            }
            // Entries of a dropped keyspace, and what is in tables already, are passed over.
            if self.flushed.get(&operation.keyspace).is_some_and(|flushed| seqno > *flushed) {
                self.keep(operation.keyspace, operation.key, Tag::new(seqno, operation.kind), operation.value)?;
            }
            seqno = seqno.saturating_add(1);
        }
        self.expected = Some(seqno);
        self.result.last_seqno = self.result.last_seqno.max(seqno.saturating_sub(1));
        Ok(())
    }

    fn keep(&mut self, keyspace: u32, key: &[u8], tag: Tag, value: &[u8]) -> Result<()> {
        let Some(tree) = self.trees.get(&keyspace) else { return Ok(()) };
        if !self.into_tables {
            let hash = self.engine.hash_key.hash(key);
            tree.view().active.insert(hash, key, tag, value, &crossbeam_epoch::pin());
            return Ok(());
        }
        let pile = self.piles.entry(keyspace).or_default();
        pile.bytes += key.len() + value.len() + ENTRY_OVERHEAD_BYTES;
        pile.entries.push((key.to_vec(), tag, value.to_vec()));
        if pile.bytes as u64 >= tree.options().memtable_bytes.max(1 << 20) {
            self.write_table(keyspace)?;
        }
        Ok(())
    }

    fn write_table(&mut self, keyspace: u32) -> Result<()> {
        let Some(tree) = self.trees.get(&keyspace) else { return Ok(()) };
        let pile = self.piles.remove(&keyspace).unwrap_or_default();
        if pile.entries.is_empty() {
            return Ok(());
        }
        let mut input = VecIter::new(pile.entries);
        let built = self.engine.build(&tree.options(), 0, &[], &mut input, &mut |_| true)?;
        for meta in built.files {
            self.result.tables.push((keyspace, self.engine.live_table(keyspace, 0, meta)?));
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Replayed> {
        let mut keyspaces: Vec<u32> = self.piles.keys().copied().collect();
        keyspaces.sort_unstable();
        for keyspace in keyspaces {
            self.write_table(keyspace)?;
        }
        Ok(self.result)
    }
}
