//! The database: keyspaces, write queue, background work, snapshots.

mod background;
mod batch;
mod close;
mod engine;
mod install;
mod keyspace;
mod logs;
mod maintenance;
mod open;
mod queue;
mod read;
mod replay;
mod report;
mod room;
mod snapshot;
mod write;

#[cfg(test)]
mod tests;

pub use batch::{KeyspaceBatch, WriteBatch};
pub use keyspace::{Db, Keyspace, ReadOptions};
pub use open::Builder;
pub use report::{Status, TableInfo, VerifyReport};
pub use snapshot::Snapshot;
