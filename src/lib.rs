//! siftdb: an embeddable LSM-tree key-value store whose subject is *the read that never happens*.
//!
//! Every immutable table carries a filter; a point read asks the filter before it touches table data; and the engine
//! counts, exactly, what each read cost and what it avoided.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("shop.db");
//! use siftdb::Db;
//!
//! let db = Db::open(&path)?; // creates the directory; refuses a second opener at once
//! db.put("user:1", "ada")?; // keys and values are bytes
//! assert_eq!(db.get("user:1")?.as_deref(), Some(&b"ada"[..]));
//! db.delete("user:1")?;
//! assert!(!db.contains_key("user:1")?);
//!
//! let orders = db.keyspace("orders")?; // created, or opened with its stored options
//! let mut batch = db.batch(); // atomic, across keyspaces
//! batch.put("user:2", "grace");
//! batch.on(&orders).put("17", "2 apples");
//! batch.require("user:2", None); // only if it is still absent
//! batch.commit()?;
//!
//! db.flush()?; // the memtable becomes a table with a filter
//! assert_eq!(db.get("user:15")?, None); // here the filter says no: no table is read
//! println!("{}", db.statistics());
//! db.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Durability
//!
//! Without `sync`, an acknowledged write survives a crash of the process: it was handed to the operating system before
//! `put` returned. With `sync` it survives a power cut. After a crash the database is a prefix of what was written, batches
//! whole, across keyspaces. A write that returned an error may or may not be there after reopening, never in part.
//!
//! # What it is not
//!
//! Not a server, not relational, not encrypted. One process at a time has a database open for writing. Keys are at most
//! 65,535 bytes, values at most 4 GiB − 1 MiB − 1 B, batches under 4 GiB. Linux is the platform.
//!
//! # Features
//!
//! `lz4` (default, pure Rust), `zstd` (compiles C), `serde` (`Serialize` for statistics and reports).

mod batch;
mod block;
mod cache;
mod checksum;
mod clock;
mod coding;
mod compaction;
mod db;
mod entropy;
mod error;
mod executor;
mod filename;
mod filter;
mod hash;
mod iter;
mod key;
mod manifest;
mod memtable;
mod options;
mod record;
mod sstable;
mod stats;
mod sync;
mod tree;
mod value;
mod version;
pub mod vfs;
mod wal;

pub use block::compression::Compression;
pub use clock::{Clock, SystemClock};
pub use db::{
    Builder, Db, Keyspace, KeyspaceBatch, ReadOptions, Snapshot, Status, TableInfo, VerifyReport, WriteBatch,
};
pub use error::{Error, ErrorKind, Result};
pub use filter::params as filter_math;
pub use filter::{FilterKind, FilterOptions, FilterSize};
pub use key::{MAX_KEY_BYTES, MAX_VALUE_BYTES, SeqNo};
pub use options::{Compaction, KeyspaceOptions, Options, ReadMode, WriteOptions};
pub use stats::{
    BlockSource, CompactionStatistics, FilterStatistics, LevelReadStats, LevelStatistics, MemoryStatistics, Outcome,
    ReadStatistics, ReadStats, ResourceStatistics, SpaceStatistics, Stalls, Statistics, TableOutcome, WriteStatistics,
};
pub use value::Value;

/// A door for this crate's own tests and benches. No promise of stability.
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals {
    pub use crate::sync::pause::PausePoints;
}
