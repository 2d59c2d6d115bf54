//! What an embedder may set. Plain data with defaults; always end a literal with `..Default::default()`, since new
//! fields are a minor change. Validated once, at open.

use crate::block::compression::Compression;
use crate::coding::{Decoder, put_bytes, put_u64, put_varint};
use crate::error::{Error, Result};
use crate::filter::{FilterKind, FilterOptions, FilterSize};
use crate::stats::LEVELS;

mod read_mode;
pub use read_mode::ReadMode;

/// Options of a database.
///
/// ```
/// use siftdb::{KeyspaceOptions, Options};
/// let options = Options {
///     cache_bytes: 256 << 20,
///     keyspace: KeyspaceOptions { memtable_bytes: 16 << 20, ..Default::default() },
///     ..Default::default()
/// };
/// # let dir = tempfile::tempdir()?;
/// let db = options.open(dir.path().join("db"))?;
/// # db.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Create the database if there is none. Default: true.
    pub create_if_missing: bool,
    /// Refuse to open a database that exists. Default: false.
    pub error_if_exists: bool,
    /// Open without changing one byte: no lock on a read-only medium, logs are replayed into memory, writes are
    /// refused (`ReadOnly`), flushes and compactions included. Default: false.
    pub read_only: bool,
    /// Capacity of the block cache in bytes, shared by all keyspaces. Greater: fewer reads of hot blocks. 0: no cache.
    /// Default: 64 MiB. May change on reopen.
    pub cache_bytes: u64,
    /// A ceiling, in bytes, over memtables, block cache, and the tables' filters and indexes of all keyspaces. The
    /// cache gets at most half of it; when the memtables reach what is left, the largest is flushed. None: memtables of
    /// all keyspaces together are kept under four times the largest `memtable_bytes`. Default: None. May change on reopen.
    pub memory_budget: Option<u64>,
    /// Open table files at most; filters and indexes stay in memory when a descriptor is closed. Default: 512.
    /// At least 16. May change on reopen.
    pub max_open_files: usize,
    /// Threads for flushes and compactions, of this database alone. 0: they run inline, on the writer, at fixed points,
    /// so that the same calls give the same files. Default: 2. May change on reopen.
    pub background_threads: usize,
    /// How tables are read. Default: [`ReadMode::pread`]. May change on reopen.
    pub read_mode: ReadMode,
    /// Fixes every random choice (hash key, table ids, filter tweaks) and the time stamps in files: with
    /// `background_threads: 0`, the same calls then give the same files, byte for byte. Everybody who knows the seed knows
    /// the hash key. Default: None, the operating system's entropy.
    pub seed: Option<u64>,
    /// Sync the log before every commit returns. Default: false. May change on reopen.
    pub sync_every_write: bool,
    /// Log bytes kept for recovery at most: when a write finds the logs over it, the
    /// keyspaces that pin the oldest are flushed (what is written until that is done comes on top).
    /// Default: 512 MiB. At least 64 KiB. May change on reopen.
    pub max_wal_bytes: u64,
    /// The options that new keyspaces get. For the default keyspace they are stored; opening again with
    /// `KeyspaceOptions::default()` keeps what is stored, opening with anything else replaces it
    /// (and `Db::keyspace_with("default", …)` replaces it with whatever is given).
    pub keyspace: KeyspaceOptions,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            create_if_missing: true,
            error_if_exists: false,
            read_only: false,
            cache_bytes: 64 << 20,
            memory_budget: None,
            max_open_files: 512,
            background_threads: 2,
            read_mode: ReadMode::pread(),
            seed: None,
            sync_every_write: false,
            max_wal_bytes: 512 << 20,
            keyspace: KeyspaceOptions::default(),
        }
    }
}

impl Options {
    pub(crate) fn validate(&self) -> Result<()> {
        at_least("max_open_files", self.max_open_files as u64, 16)?;
        at_least("max_wal_bytes", self.max_wal_bytes, 64 << 10)?;
        if self.background_threads > 64 {
            return Err(Error::invalid_argument("background_threads is over 64"));
        }
        if let Some(budget) = self.memory_budget {
            at_least("memory_budget", budget, 1 << 20)?;
        }
        self.keyspace.validate()
    }
}

/// Options of one keyspace. Stored in the database; all may change on reopen, and then hold for new tables.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyspaceOptions {
    /// A memtable is flushed when it holds this many bytes, nodes included. Greater: fewer, larger flushes, less write
    /// amplification, more memory, longer recovery. Default: 64 MiB. 1 B to 4 GiB.
    pub memtable_bytes: u64,
    /// Target size of a data block before compression, in bytes. Greater: a smaller index, more bytes per read.
    /// Default: 4096. 1 B to 16 MiB.
    pub block_bytes: usize,
    /// Entries between two whole keys in a block. Greater: smaller blocks, slower seeks. Default: 16. 1 to 1024.
    pub block_restart_interval: usize,
    /// Pad so that no block of at most 4 KiB crosses a 4 KiB boundary: one page per cold read, for some space.
    /// Default: false.
    pub align_blocks: bool,
    /// Put a hash index at the end of data blocks: faster point reads, about 3 % more space. Default: false.
    pub block_hash_index: bool,
    /// Target size of a table in bytes. Default: 64 MiB. 1 B to 4 GiB.
    pub table_bytes: u64,
    /// Tables in level 0 that start a compaction. Fewer: fewer probes per read, more write amplification. Default: 4.
    pub l0_compaction_trigger: usize,
    /// Tables in level 0 from which writes are slowed, more with each. Default: 20.
    pub l0_slowdown: usize,
    /// Tables in level 0 at which writes stop. Default: 36.
    pub l0_stop: usize,
    /// How many times larger each level is than the one above. Greater: fewer levels, more write amplification.
    /// Default: 10. 2 to 100.
    pub level_multiplier: u32,
    /// Target size in bytes of the first level below level 0. Default: 256 MiB.
    pub base_level_bytes: u64,
    /// Bytes waiting for compaction from which writes are slowed. Default: 64 GiB.
    pub soft_pending_compaction_bytes: u64,
    /// Bytes waiting for compaction at which writes stop. Default: 256 GiB.
    pub hard_pending_compaction_bytes: u64,
    /// Share of tombstones among a table's entries from which the table is compacted for their sake. Default: 0.5.
    /// Over 1: never.
    pub tombstone_density_trigger: f64,
    /// Codec of each level's blocks, level 0 first. Default: none for levels 0 and 1, LZ4 below (none without the
    /// feature `lz4`).
    pub compression: [Compression; LEVELS],
    /// The filter that new tables get. Default: cache-line Bloom, 10 bits per key.
    pub filter: FilterOptions,
    /// How tables are merged. Default: leveled.
    pub compaction: Compaction,
}

impl Default for KeyspaceOptions {
    fn default() -> Self {
        let mut compression = [if cfg!(feature = "lz4") { Compression::Lz4 } else { Compression::None }; LEVELS];
        compression[0] = Compression::None;
        compression[1] = Compression::None;
        KeyspaceOptions {
            memtable_bytes: 64 << 20,
            block_bytes: 4096,
            block_restart_interval: 16,
            align_blocks: false,
            block_hash_index: false,
            table_bytes: 64 << 20,
            l0_compaction_trigger: 4,
            l0_slowdown: 20,
            l0_stop: 36,
            level_multiplier: 10,
            base_level_bytes: 256 << 20,
            soft_pending_compaction_bytes: 64 << 30,
            hard_pending_compaction_bytes: 256 << 30,
            tombstone_density_trigger: 0.5,
            compression,
            filter: FilterOptions::default(),
            compaction: Compaction::leveled(),
        }
    }
}

/// How tables are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compaction {
    /// Each level below 0 is one sorted run, `level_multiplier` times larger than the one above; level targets follow
    /// the size of the last level, so that space amplification stays near 1 + 1/multiplier.
    Leveled,
}

impl Compaction {
    /// Leveled, with dynamic level targets.
    pub fn leveled() -> Self {
        Compaction::Leveled
    }
}

impl KeyspaceOptions {
    pub(crate) fn validate(&self) -> Result<()> {
        within("memtable_bytes", self.memtable_bytes, 1, 4 << 30)?;
        within("block_bytes", self.block_bytes as u64, 1, 16 << 20)?;
        within("block_restart_interval", self.block_restart_interval as u64, 1, 1024)?;
        within("table_bytes", self.table_bytes, 1, 4 << 30)?;
        within("level_multiplier", u64::from(self.level_multiplier), 2, 100)?;
        at_least("l0_compaction_trigger", self.l0_compaction_trigger as u64, 1)?;
        at_least("base_level_bytes", self.base_level_bytes, 1)?;
        if !(self.l0_compaction_trigger <= self.l0_slowdown && self.l0_slowdown < self.l0_stop) {
            return Err(Error::invalid_argument(
                "level 0 limits must rise: l0_compaction_trigger <= l0_slowdown < l0_stop",
            ));
        }
        if self.soft_pending_compaction_bytes >= self.hard_pending_compaction_bytes {
            return Err(Error::invalid_argument(
                "soft_pending_compaction_bytes must be below hard_pending_compaction_bytes",
            ));
        }
        if self.tombstone_density_trigger.is_nan() || self.tombstone_density_trigger <= 0.0 {
            return Err(Error::invalid_argument("tombstone_density_trigger must be over 0"));
        }
        for codec in self.compression {
            codec.require()?;
        }
        self.filter.validate()
    }

    /// As stored in the manifest: (tag, length, bytes)*, unknown tags ignored.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut field = |tag: u64, value: u64| {
            put_varint(&mut out, tag);
            let mut bytes = Vec::new();
            put_u64(&mut bytes, value);
            put_bytes(&mut out, &bytes);
        };
        for (tag, value) in self.numbers() {
            field(tag, value);
        }
        put_varint(&mut out, TAG_COMPRESSION);
        let codecs: Vec<u8> = self.compression.iter().map(|c| c.codec()).collect();
        put_bytes(&mut out, &codecs);
        out
    }

    fn numbers(&self) -> [(u64, u64); 17] {
        let (size_kind, size) = match self.filter.size {
            FilterSize::BitsPerKey(bits) => (1, bits),
            FilterSize::Rate(rate) => (2, rate),
        };
        [
            (1, self.memtable_bytes),
            (2, self.block_bytes as u64),
            (3, self.block_restart_interval as u64),
            (4, u64::from(self.align_blocks)),
            (5, u64::from(self.block_hash_index)),
            (6, self.table_bytes),
            (7, self.l0_compaction_trigger as u64),
            (8, self.l0_slowdown as u64),
            (9, self.l0_stop as u64),
            (10, u64::from(self.level_multiplier)),
            (11, self.base_level_bytes),
            (12, self.soft_pending_compaction_bytes),
            (13, self.hard_pending_compaction_bytes),
            (14, self.tombstone_density_trigger.to_bits()),
            (15, filter_kind_id(self.filter.kind)),
            (16, size_kind),
            (17, size.to_bits()),
        ]
    }

    /// Reads what [`encode`](Self::encode) wrote; what is not there keeps its default.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut options = KeyspaceOptions::default();
        let mut decoder = Decoder::new(bytes);
        let mut size_kind = 1;
        while !decoder.is_empty() {
            let tag = decoder.varint("keyspace option")?;
            let value = decoder.bytes("keyspace option")?;
            if tag == TAG_COMPRESSION {
                for (to, id) in options.compression.iter_mut().zip(value) {
                    *to = Compression::from_codec(*id)?;
                }
                continue;
            }
            if tag > 17 {
                continue;
            }
            let number = Decoder::new(value).u64("keyspace option")?;
            let size = || usize::try_from(number).map_err(|_| Error::corruption("keyspace option over usize"));
            match tag {
                1 => options.memtable_bytes = number,
                2 => options.block_bytes = size()?,
                3 => options.block_restart_interval = size()?,
                4 => options.align_blocks = number != 0,
                5 => options.block_hash_index = number != 0,
                6 => options.table_bytes = number,
                7 => options.l0_compaction_trigger = size()?,
                8 => options.l0_slowdown = size()?,
                9 => options.l0_stop = size()?,
                10 => options.level_multiplier = u32::try_from(number).unwrap_or(u32::MAX),
                11 => options.base_level_bytes = number,
                12 => options.soft_pending_compaction_bytes = number,
                13 => options.hard_pending_compaction_bytes = number,
                14 => options.tombstone_density_trigger = f64::from_bits(number),
                15 => options.filter.kind = filter_kind_from(number)?,
                16 => size_kind = number,
                17 => {
                    options.filter.size = match size_kind {
                        1 => FilterSize::BitsPerKey(f64::from_bits(number)),
                        2 => FilterSize::Rate(f64::from_bits(number)),
                        other => return Err(Error::unsupported(format!("filter size of unknown kind {other}"))),
                    };
                }
                _ => {}
            }
        }
        options.validate().map_err(|e| {
            if e.kind() == crate::error::ErrorKind::Unsupported {
                e
            } else {
                Error::corruption(format!("stored keyspace options: {e}"))
            }
        })?;
        Ok(options)
    }
}

const TAG_COMPRESSION: u64 = 32;

/// As stored.
fn filter_kind_id(kind: FilterKind) -> u64 {
    match kind {
        FilterKind::Bloom => 1,
        FilterKind::Blocked => 2,
        // `Empty` is refused by validation: it is not a choice.
        FilterKind::None | FilterKind::Empty => 0,
    }
}

fn filter_kind_from(id: u64) -> Result<FilterKind> {
    match id {
        0 => Ok(FilterKind::None),
        1 => Ok(FilterKind::Bloom),
        2 => Ok(FilterKind::Blocked),
        other => {
            Err(Error::unsupported(format!("filter kind {other} in the stored options is unknown to this version")))
        }
    }
}

fn at_least(name: &str, value: u64, least: u64) -> Result<()> {
    within(name, value, least, u64::MAX)
}

fn within(name: &str, value: u64, least: u64, most: u64) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let limit = if value < least { format!("at least {least}") } else { format!("at most {most}") };
    Err(Error::invalid_argument(format!("{name} is {value}, must be {limit}")))
}

/// How a batch is committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Wait until the batch is durable. Default: false (or `Options::sync_every_write`).
    pub sync: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_options_come_back_and_unknown_tags_are_ignored() {
        let options = KeyspaceOptions {
            memtable_bytes: 12_345,
            align_blocks: true,
            tombstone_density_trigger: 0.25,
            filter: FilterOptions { kind: FilterKind::Bloom, size: FilterSize::Rate(0.02) },
            ..Default::default()
        };
        let mut bytes = options.encode();
        put_varint(&mut bytes, 999);
        put_bytes(&mut bytes, b"from the future");
        assert_eq!(KeyspaceOptions::decode(&bytes).unwrap(), options);
        assert_eq!(KeyspaceOptions::decode(b"").unwrap(), KeyspaceOptions::default());
    }

    #[test]
    fn bad_options_are_refused_with_their_name() {
        let bad = KeyspaceOptions { level_multiplier: 1, ..Default::default() };
        assert!(bad.validate().unwrap_err().to_string().contains("level_multiplier"));
        let bad = KeyspaceOptions { l0_stop: 4, ..Default::default() };
        assert!(bad.validate().is_err());
        let bad = Options { max_open_files: 1, ..Default::default() };
        assert!(bad.validate().unwrap_err().to_string().contains("at least 16"));
    }
}
