//! Keys and values at the edges of everything that counts bytes: limits, blocks, log blocks, powers of two.

use crate::support::{open_in, tiny};
use siftdb::vfs::{CrashVariant, MemoryFileSystem};
use siftdb::{Compression, Db, ErrorKind, MAX_KEY_BYTES, Options};
use std::collections::BTreeMap;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Bytes that neither compress nor repeat, so that a piece of another value would show.
fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..len.div_ceil(8)).flat_map(|_| next()).take(len).collect()
}

fn options(compression: Compression) -> Options {
    let mut options = tiny();
    options.keyspace.memtable_bytes = 256 << 20;
    options.keyspace.block_bytes = 4096;
    options.keyspace.compression = [compression; 7];
    options
}

fn check(db: &Db, model: &Model) {
    for (key, value) in model {
        let found = db.get(key).unwrap().unwrap_or_else(|| panic!("a key of {} bytes is absent", key.len()));
        let (found, expected) = (found.len(), found == *value);
        assert!(expected, "key of {} bytes, value of {}: found {found} others", key.len(), value.len());
    }
    // Neighbours of what is there are not.
    for key in model.keys() {
        let mut longer = key.clone();
        longer.push(0);
        for near in [longer, key.get(1..).unwrap_or_default().to_vec()] {
            assert_eq!(db.contains_key(&near).unwrap(), model.contains_key(&near), "{} bytes", near.len());
        }
    }
}

/// Through the memtable, the log, level 0 and the last level.
fn through_everything(options: &Options, model: &Model) {
    let fs = MemoryFileSystem::new();
    let db = open_in(&fs, options.clone()).unwrap();
    for (key, value) in model {
        db.put(key, value).unwrap();
    }
    check(&db, model);
    fs.start_recording();
    let killed = fs.crash_image(0, CrashVariant::KeepAll, 0);
    check(&open_in(&killed, options.clone()).unwrap(), model);
    db.flush().unwrap();
    check(&db, model);
    db.compact().unwrap();
    db.close().unwrap();
    let db = open_in(&fs, options.clone()).unwrap();
    check(&db, model);
    db.verify().unwrap();
    for key in model.keys() {
        db.delete(key).unwrap();
    }
    db.compact().unwrap();
    assert!(model.keys().all(|key| !db.contains_key(key).unwrap()));
    assert!(db.tables().is_empty());
}

#[test]
fn keys_of_every_length_at_an_edge_are_stored_exactly() {
    let mut model = Model::new();
    for len in [0, 1, 2, 7, 8, 9, 127, 128, 255, 256, 16_383, 16_384, 65_534, 65_535] {
        for byte in [0x00, 0x01, 0x7f, 0xfe, 0xff] {
            // All of one byte: each is a prefix of the longer ones.
            model.insert(vec![byte; len], bytes(20, len as u64 + u64::from(byte)));
        }
        model.insert(bytes(len, 7), bytes(20, len as u64));
    }
    // What looks like an internal key: a tag of eight bytes behind another key.
    for tag in [0, 1, 0xff, 1 << 8, u64::MAX, u64::MAX - 0xff] {
        for key in [&b""[..], b"\0", b"k", b"\xff"] {
            for tag in [tag.to_le_bytes(), tag.to_be_bytes()] {
                model.insert([key, &tag].concat(), bytes(3, tag[0].into()));
            }
        }
    }
    for codec in [Compression::None, Compression::Lz4] {
        through_everything(&options(codec), &model);
    }
    // One entry a block, and every key whole in it, or a hash index over all.
    for (block_bytes, interval, index) in [(1, 1, false), (4096, 1024, false), (64 << 10, 1, true)] {
        let mut options = options(Compression::None);
        options.keyspace.block_bytes = block_bytes;
        options.keyspace.block_restart_interval = interval;
        options.keyspace.block_hash_index = index;
        options.keyspace.align_blocks = index;
        through_everything(&options, &model);
    }
}

#[test]
fn values_around_every_block_size_are_stored_exactly() {
    let mut model = Model::new();
    // Chunk headers, batch headers and trailers are at most some 60 bytes: every length around the log's block is tried,
    // so that a record ends at each place near its end.
    let around = |middle: usize, by: usize| middle.saturating_sub(by)..=middle + by;
    let lengths = (0..=9)
        .chain(around(512, 24))
        .chain(around(4096, 40))
        .chain(around(32 << 10, 72))
        .chain(around(64 << 10, 24))
        .chain(around(96 << 10, 8));
    for len in lengths {
        model.insert(format!("{len:06}").into_bytes(), bytes(len, len as u64));
    }
    for codec in [Compression::None, Compression::Lz4] {
        through_everything(&options(codec), &model);
    }
}

#[test]
fn a_record_that_ends_anywhere_near_a_log_blocks_end_is_followed_by_the_next() {
    for filler in 32_600..=32_800_usize {
        let fs = MemoryFileSystem::new();
        let db = open_in(&fs, options(Compression::None)).unwrap();
        db.put("filler", bytes(filler - 100, 1)).unwrap();
        db.put("", "").unwrap();
        db.put("k", "2").unwrap();
        fs.start_recording();
        let killed = fs.crash_image(0, CrashVariant::KeepAll, 0);
        let after = open_in(&killed, Options { read_only: true, ..options(Compression::None) }).unwrap();
        assert_eq!(after.get("filler").unwrap().unwrap(), bytes(filler - 100, 1), "{filler}");
        assert_eq!(after.get("").unwrap().as_deref(), Some(&b""[..]), "{filler}");
        assert_eq!(after.get("k").unwrap().as_deref(), Some(&b"2"[..]), "{filler}");
    }
}

#[test]
fn values_of_megabytes_are_stored_exactly() {
    let mut model = Model::new();
    // A block over 16 MiB is stored plain whatever the codec.
    for len in [(1 << 16) - 1, (1 << 16) + 1, (1 << 20) - 1, 1 << 20, (1 << 24) - 1, 1 << 24, (1 << 24) + 1] {
        let mut value = bytes(1 << 16, len as u64);
        value.resize(len, 7);
        model.insert(len.to_string().into_bytes(), value);
    }
    let mut options = options(Compression::Lz4);
    options.cache_bytes = 0;
    through_everything(&options, &model);
}

#[test]
fn a_key_over_the_limit_is_refused_before_anything_is_written() {
    let fs = MemoryFileSystem::recording();
    let db = open_in(&fs, tiny()).unwrap();
    db.put("k", "1").unwrap();
    let (operations, operations_counted) = (fs.operation_count(), db.statistics().writes.operations);
    let long = vec![b'k'; MAX_KEY_BYTES + 1];
    assert_eq!(MAX_KEY_BYTES, 65_535);
    let kind = |result: siftdb::Result<()>| result.unwrap_err().kind();
    assert_eq!(kind(db.put(&long, "v")), ErrorKind::InvalidArgument);
    assert_eq!(kind(db.delete(&long)), ErrorKind::InvalidArgument);
    let mut batch = db.batch();
    batch.put("k", "2").put(&long, "v").put("k", "3");
    assert_eq!(kind(batch.commit().map(drop)), ErrorKind::InvalidArgument);
    let mut batch = db.batch();
    batch.put("k", "2").delete(&long);
    assert_eq!(kind(batch.commit().map(drop)), ErrorKind::InvalidArgument);
    assert_eq!(fs.operation_count(), operations);
    assert_eq!(db.statistics().writes.operations, operations_counted);
    // To read it is to find nothing.
    assert_eq!(db.get(&long).unwrap(), None);
    assert_eq!(db.multi_get([&long[..], b"k"]).unwrap()[1].as_deref(), Some(&b"1"[..]));
}
