//! `Version`: an immutable set of levels. Within a level below 0 tables are disjoint and ordered; a newer level never
//! holds an older version of a key than a deeper one. Levels that an edit does not touch are shared between versions.

pub(crate) mod edit;
mod fences;
mod level;

use crate::error::Result;
use crate::filename::FileNumber;
use crate::hash::HashKey;
use crate::stats::LEVELS;
use crate::sync::Arc;
use std::collections::HashSet;

pub(crate) use level::{Level, LiveTable};

#[derive(Debug, Clone)]
pub(crate) struct Version {
    levels: [Arc<Level>; LEVELS],
}

impl Version {
    pub(crate) fn empty() -> Self {
        Version { levels: std::array::from_fn(|_| Arc::new(Level::default())) }
    }

    pub(crate) fn level(&self, number: usize) -> &Level {
        &self.levels[number]
    }

    pub(crate) fn levels(&self) -> impl Iterator<Item = (usize, &Level)> {
        self.levels.iter().enumerate().map(|(number, level)| (number, &**level))
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = (usize, &Arc<LiveTable>)> {
        self.levels().flat_map(|(number, level)| level.tables().iter().map(move |t| (number, t)))
    }

    /// The version after taking `removed` (level, file) out and putting `added` in: a delta on *this* version, so that
    /// edits of different jobs compose in any order.
    pub(crate) fn apply(
        &self,
        removed: &[(u8, FileNumber)],
        added: &[(u8, Arc<LiveTable>)],
        hash_key: &HashKey,
    ) -> Result<Self> {
        let mut next = self.clone();
        let touched: HashSet<u8> = removed.iter().map(|r| r.0).chain(added.iter().map(|a| a.0)).collect();
        for number in touched {
            let gone: HashSet<FileNumber> = removed.iter().filter(|r| r.0 == number).map(|r| r.1).collect();
            let at = usize::from(number);
            let kept = self.levels[at].tables().iter().filter(|t| !gone.contains(&t.meta.number)).cloned();
            let new = added.iter().filter(|a| a.0 == number).map(|a| Arc::clone(&a.1));
            next.levels[at] = Arc::new(Level::new(at, kept.chain(new).collect(), hash_key)?);
        }
        Ok(next)
    }

    /// The deepest level that has tables.
    pub(crate) fn last_level(&self) -> Option<usize> {
        (0..LEVELS).rev().find(|&n| !self.levels[n].is_empty())
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.levels.iter().map(|l| l.heap_bytes() + size_of::<Level>()).sum::<usize>() + size_of::<Self>()
    }
}
