//! The database of a run: opened with db_bench's options, and made anew before each fill workload.

use crate::args::{Codec, RunArgs};
use crate::failure::{Failure, Result};
use crate::workdir::{Contents, contents};
use siftdb::{Compression, Db, FilterKind, FilterOptions, FilterSize, Options};
use std::path::{Path, PathBuf};

pub(super) struct Database {
    dir: PathBuf,
    db: Option<Db>,
    /// Nothing was written since it was made.
    fresh: bool,
}

impl Database {
    /// Creates the database in `dir`, or opens the one there if --use-existing-db says so. Only what this run has
    /// created is ever removed by it.
    pub(super) fn open(args: &RunArgs, dir: &Path) -> Result<Database> {
        check(args, dir)?;
        let db = options(args)?.open(dir).map_err(|error| Failure::engine(&error, dir))?;
        Ok(Database { dir: dir.to_owned(), db: Some(db), fresh: true })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The open database. Whoever asks may write.
    pub(super) fn handle(&mut self) -> Result<&Db> {
        self.fresh = false;
        self.db.as_ref().ok_or_else(|| Failure::failed("the database is closed"))
    }

    /// An empty database in the same place. Never called on one that was there before.
    pub(super) fn renew(&mut self, args: &RunArgs) -> Result<()> {
        if self.fresh {
            return Ok(());
        }
        self.close()?;
        empty(&self.dir).map_err(|e| Failure::io("empty directory", &self.dir, &e))?;
        self.db = Some(options(args)?.open(&self.dir).map_err(|error| Failure::engine(&error, &self.dir))?);
        Ok(())
    }

    pub(super) fn close(&mut self) -> Result<()> {
        match self.db.take() {
            Some(db) => db.close().map_err(|error| Failure::engine(&error, &self.dir)),
            None => Ok(()),
        }
    }
}

/// Whether `dir` is what --use-existing-db, or its absence, says it is.
pub(super) fn check(args: &RunArgs, dir: &Path) -> Result<()> {
    match (contents(dir)?, args.use_existing_db) {
        (Contents::Nothing, true) => Err(Failure::failed(format!(
            "no database in {}: check --db, or leave out --use-existing-db to create one",
            dir.display()
        ))),
        (Contents::Database, false) => Err(Failure::failed(format!(
            "{} holds a database already: add --use-existing-db to use it, choose another directory, or remove it",
            dir.display()
        ))),
        _ => Ok(()),
    }
}

/// Removes what is in `dir`, not `dir`: it may be a mount point, or somebody else's to remove.
fn empty(dir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

pub(super) fn options(args: &RunArgs) -> Result<Options> {
    let mut options = Options { create_if_missing: !args.use_existing_db, ..Default::default() };
    options.cache_bytes = args.cache_size.unwrap_or(options.cache_bytes);
    let keyspace = &mut options.keyspace;
    keyspace.block_bytes = args.block_size.unwrap_or(keyspace.block_bytes);
    keyspace.memtable_bytes = args.write_buffer_size.unwrap_or(keyspace.memtable_bytes);
    keyspace.filter = filter(args.bloom_bits)?;
    if let Some(codec) = args.compression {
        if codec == Codec::Zstd && !cfg!(feature = "zstd") {
            return Err(Failure::usage(
                "this kvbench was built without zstd: build it with --features zstd, or choose --compression lz4",
            ));
        }
        keyspace.compression.fill(match codec {
            Codec::None => Compression::None,
            Codec::Lz4 => Compression::Lz4,
            Codec::Zstd => Compression::Zstd,
        });
    }
    Ok(options)
}

fn filter(bloom_bits: f64) -> Result<FilterOptions> {
    if bloom_bits == 0.0 {
        return Ok(FilterOptions { kind: FilterKind::None, ..Default::default() });
    }
    if bloom_bits < 0.0 {
        return Ok(FilterOptions::default());
    }
    if bloom_bits > 64.0 || bloom_bits.is_nan() {
        return Err(Failure::usage(format!("--bloom-bits {bloom_bits}: bits per key, at most 64")));
    }
    Ok(FilterOptions { kind: FilterKind::Blocked, size: FilterSize::BitsPerKey(bloom_bits) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bloom_bits_have_db_benchs_meaning() {
        assert_eq!(filter(-1.0).unwrap(), FilterOptions::default());
        assert_eq!(filter(0.0).unwrap().kind, FilterKind::None);
        assert_eq!(filter(9.9).unwrap().size, FilterSize::BitsPerKey(9.9));
        assert!(matches!(filter(65.0), Err(Failure::Usage(_))));
    }

    #[test]
    fn emptying_leaves_the_directory_itself() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(dir.path().join("sub/f"), "x").unwrap();
        std::fs::write(dir.path().join("f"), "x").unwrap();
        empty(dir.path()).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
