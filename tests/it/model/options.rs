//! The option sets of the model test: from one byte of everything to more than a run fills.

use siftdb::{Compression, FilterKind, FilterOptions, FilterSize, KeyspaceOptions, Options, ReadMode};

/// A set of options and what a run with it is like.
pub struct OptionSet {
    pub name: &'static str,
    pub options: Options,
    /// On disk instead of in memory.
    pub on_disk: bool,
    /// Operations, of the 300,000 that all sets together make by default.
    pub operations: usize,
}

fn filter(kind: FilterKind, size: FilterSize) -> FilterOptions {
    FilterOptions { kind, size }
}

/// Small tables and levels, inline work.
fn small() -> Options {
    Options {
        background_threads: 0,
        seed: Some(11),
        cache_bytes: 64 << 10,
        max_wal_bytes: 1 << 20,
        keyspace: KeyspaceOptions {
            memtable_bytes: 8 << 10,
            block_bytes: 512,
            table_bytes: 8 << 10,
            base_level_bytes: 32 << 10,
            level_multiplier: 3,
            l0_compaction_trigger: 2,
            compression: [Compression::None; 7],
            ..Default::default()
        },
        ..Default::default()
    }
}

fn keyspace(change: impl FnOnce(&mut KeyspaceOptions)) -> Options {
    let mut options = small();
    change(&mut options.keyspace);
    options
}

fn in_memory(name: &'static str, options: Options) -> OptionSet {
    OptionSet { name, options, on_disk: false, operations: 23_000 }
}

/// One byte of everything, no cache, no filter: every write is a table, and every table a level's whole range or less.
pub fn one_byte() -> OptionSet {
    let mut options = keyspace(|k| {
        k.memtable_bytes = 1;
        k.block_bytes = 1;
        k.block_restart_interval = 1;
        k.table_bytes = 1;
        k.base_level_bytes = 1;
        k.level_multiplier = 2;
        k.l0_compaction_trigger = 1;
        k.l0_slowdown = 2;
        k.l0_stop = 3;
        k.filter = filter(FilterKind::None, FilterSize::BitsPerKey(10.0));
    });
    options.cache_bytes = 0;
    OptionSet { operations: 6_000, ..in_memory("one byte of everything", options) }
}

pub fn tiny_tables() -> OptionSet {
    let options = keyspace(|k| {
        k.memtable_bytes = 2 << 10;
        k.block_bytes = 64;
        k.block_restart_interval = 2;
        k.table_bytes = 4 << 10;
        k.base_level_bytes = 16 << 10;
        k.level_multiplier = 2;
    });
    OptionSet { operations: 18_000, ..in_memory("tiny tables, blocked filter", options) }
}

pub fn bloom_hash_index_lz4() -> OptionSet {
    let options = keyspace(|k| {
        k.block_restart_interval = 4;
        k.block_hash_index = true;
        k.filter = filter(FilterKind::Bloom, FilterSize::BitsPerKey(16.0));
        k.compression = [lz4(); 7];
    });
    in_memory("bloom filter, hash index, lz4", options)
}

pub fn aligned_rate() -> OptionSet {
    let mut options = keyspace(|k| {
        k.block_bytes = 4096;
        k.block_restart_interval = 32;
        k.align_blocks = true;
        k.filter = filter(FilterKind::Blocked, FilterSize::Rate(0.05));
    });
    options.cache_bytes = 0;
    in_memory("aligned blocks, blocked filter by rate, no cache", options)
}

pub fn tiny_cache() -> OptionSet {
    let mut options = keyspace(|k| {
        k.block_bytes = 256;
        k.filter = filter(FilterKind::Bloom, FilterSize::Rate(0.3));
        k.compression = KeyspaceOptions::default().compression;
    });
    options.cache_bytes = 4 << 10;
    in_memory("a cache of one page, bloom filter by a poor rate", options)
}

pub fn no_filter() -> OptionSet {
    let options = keyspace(|k| {
        k.block_bytes = 128;
        k.block_restart_interval = 3;
        k.align_blocks = true;
        k.block_hash_index = true;
        k.compression = [lz4(); 7];
        k.filter = filter(FilterKind::None, FilterSize::BitsPerKey(10.0));
        k.level_multiplier = 5;
    });
    in_memory("no filter, aligned, hash index, lz4", options)
}

pub fn large_blocks() -> OptionSet {
    let options = keyspace(|k| {
        k.memtable_bytes = 64 << 10;
        k.block_bytes = 64 << 10;
        k.table_bytes = 64 << 10;
        k.level_multiplier = 10;
        k.base_level_bytes = 64 << 10;
        k.l0_compaction_trigger = 4;
    });
    in_memory("blocks of 64 KiB", options)
}

pub fn large_memtable() -> OptionSet {
    let options = keyspace(|k| k.memtable_bytes = 1 << 20);
    in_memory("a memtable of 1 MiB", options)
}

pub fn small_budget() -> OptionSet {
    let mut options = keyspace(|k| k.memtable_bytes = 1 << 20);
    options.memory_budget = Some(1 << 20);
    options.cache_bytes = 1 << 20;
    in_memory("a memory budget of 1 MiB", options)
}

pub fn short_logs() -> OptionSet {
    let mut options = keyspace(|k| k.memtable_bytes = 1 << 20);
    options.max_wal_bytes = 64 << 10;
    in_memory("logs of 64 KiB", options)
}

pub fn poor_filter() -> OptionSet {
    let mut options = keyspace(|k| {
        k.filter = filter(FilterKind::Blocked, FilterSize::BitsPerKey(1.0));
        k.tombstone_density_trigger = 0.1;
        k.l0_compaction_trigger = 6;
    });
    options.sync_every_write = true;
    in_memory("one filter bit a key, eager tombstones, every write synced", options)
}

pub fn threads() -> OptionSet {
    let mut options = keyspace(|k| k.table_bytes = 4 << 10);
    options.background_threads = 2;
    in_memory("two threads", options)
}

pub fn threads_that_stall() -> OptionSet {
    let mut options = keyspace(|k| {
        k.memtable_bytes = 4 << 10;
        k.l0_compaction_trigger = 1;
        k.l0_slowdown = 2;
        k.l0_stop = 3;
        k.level_multiplier = 2;
        k.base_level_bytes = 4 << 10;
    });
    options.background_threads = 2;
    in_memory("two threads, stalls", options)
}

pub fn few_descriptors_on_disk() -> OptionSet {
    let mut options = keyspace(|k| k.table_bytes = 1 << 10);
    options.background_threads = 2;
    options.max_open_files = 16;
    OptionSet { on_disk: true, operations: 12_000, ..in_memory("16 descriptors, on disk", options) }
}

#[allow(unsafe_code)]
pub fn mapped_on_disk() -> OptionSet {
    let mut options = keyspace(|k| k.compression = KeyspaceOptions::default().compression);
    options.background_threads = 2;
    // SAFETY: the tables lie in a directory of the test's own, which nobody else changes.
    options.read_mode = unsafe { ReadMode::mmap() };
    OptionSet { on_disk: true, operations: 12_000, ..in_memory("mapped tables, on disk", options) }
}

/// Options that keyspaces are changed to in a run.
pub fn variants() -> Vec<KeyspaceOptions> {
    [tiny_tables(), bloom_hash_index_lz4(), aligned_rate(), no_filter(), large_blocks(), poor_filter()]
        .map(|set| set.options.keyspace)
        .into()
}

fn lz4() -> Compression {
    // What the default asks for below level 1: lz4 where the feature is on.
    KeyspaceOptions::default().compression[2]
}
