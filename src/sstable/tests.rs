//! Tests of whole tables: what was written is read, by every path; damage and hostile bytes end in errors.

use crate::block::testing::{MemoryFile, MemoryWriter};
use crate::block::{BlockBuilder, BlockCache, BlockHandle, Compression, TRAILER_BYTES, append_block};
use crate::checksum::checksum;
use crate::error::{Error, ErrorKind, Result};
use crate::filter::{FilterKind, FilterOptions, FilterUnusable};
use crate::hash::HashKey;
use crate::iter::InternalIterator;
use crate::key::{InternalKey, InternalKeyBuf, PointAnswer, Tag, ValueKind};
use crate::sstable::footer::{FOOTER_BYTES, Footer};
use crate::sstable::index::IndexBuilder;
use crate::sstable::metaindex::{FILTER, INDEX, Metaindex, PROPERTIES};
use crate::sstable::properties::Properties;
use crate::sstable::verify::VerifyReport;
use crate::sstable::{Purpose, Table, TableIdentity, TableIter, TableSummary, TableWriter, TableWriterOptions};
use crate::stats::{BlockSource, Outcome, Placement, Recorder};
use crate::sync::Arc;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const TABLE_ID: u64 = 0x7ab1_e1d0;
const HASH_KEY: HashKey = HashKey(*b"sixteen hash key");
const HERE: Placement = Placement { slot: 0, level: 1 };
const SCAN: Purpose = Purpose::Read { fill_cache: true };

type Entries = Vec<(InternalKeyBuf, Vec<u8>)>;

fn options() -> TableWriterOptions {
    TableWriterOptions {
        block_bytes: 4096,
        restart_interval: 16,
        compression: Compression::None,
        filter: FilterOptions::default(),
        hash_key: HASH_KEY,
        table_id: TABLE_ID,
        filter_tweak: 5,
        align_blocks: false,
        block_hash_index: false,
        created_at: 77,
    }
}

fn entry(user_key: &[u8], seqno: u64, value: &[u8]) -> (InternalKeyBuf, Vec<u8>) {
    (InternalKey::new(user_key, Tag::new(seqno, ValueKind::Put)).to_owned(), value.to_vec())
}

fn tombstone(user_key: &[u8], seqno: u64) -> (InternalKeyBuf, Vec<u8>) {
    (InternalKey::new(user_key, Tag::new(seqno, ValueKind::Delete)).to_owned(), Vec::new())
}

/// `count` entries whose keys end in consecutive numbers.
fn numbered(count: u32, value_bytes: usize) -> Entries {
    (0..count).map(|i| entry(format!("key{i:06}").as_bytes(), u64::from(i), &vec![i as u8; value_bytes])).collect()
}

fn writer(options: TableWriterOptions) -> (TableWriter, MemoryWriter) {
    let file = MemoryWriter::default();
    (TableWriter::new(Box::new(file.clone()), PathBuf::from("t.sst"), options).unwrap(), file)
}

fn build(entries: &Entries, options: TableWriterOptions) -> (Vec<u8>, TableSummary) {
    let (mut writer, file) = writer(options);
    for (key, value) in entries {
        writer.add(key.as_ref(), value).unwrap();
    }
    let summary = writer.finish().unwrap();
    let bytes = std::mem::take(&mut file.0.lock().bytes);
    (bytes, summary)
}

fn open_as(bytes: Vec<u8>, table_id: u64, cache: Option<Arc<BlockCache>>, mapped: bool) -> Result<Arc<Table>> {
    let expected = TableIdentity { table_id, file_bytes: bytes.len() as u64 };
    Table::open(MemoryFile::new(bytes), PathBuf::from("t.sst"), expected, cache, mapped).map(Arc::new)
}

fn open(bytes: Vec<u8>) -> Result<Arc<Table>> {
    open_as(bytes, TABLE_ID, None, false)
}

/// What a read told.
#[derive(Default)]
struct Trace(Vec<(BlockSource, u32)>);

impl Recorder for Trace {
    fn table(&mut self, _: Placement, _: Outcome) {
        unreachable!("a table does not know whether its filter was asked");
    }

    fn memtable(&mut self, _: bool) {
        unreachable!("a table reads no memtable");
    }

    fn out_of_range(&mut self, _: u8) {
        unreachable!("whoever asks a table has looked at its bounds");
    }

    fn block(&mut self, _: Placement, source: BlockSource, bytes: u32) {
        self.0.push((source, bytes));
    }
}

fn get_traced(table: &Table, user_key: &[u8], snapshot: u64) -> (Result<PointAnswer>, Vec<(BlockSource, u32)>) {
    let mut trace = Trace::default();
    let answer = table.get(user_key, snapshot, true, HERE, &mut trace);
    (answer, trace.0)
}

fn get(table: &Table, user_key: &[u8], snapshot: u64) -> Result<PointAnswer> {
    get_traced(table, user_key, snapshot).0
}

fn entries_from(iter: &mut TableIter, mut more: Result<bool>, forwards: bool) -> (Entries, Result<()>) {
    let mut entries = Entries::new();
    loop {
        match more {
            Ok(true) => entries.push((iter.key().to_owned(), iter.value().to_vec())),
            Ok(false) => return (entries, Ok(())),
            Err(e) => return (entries, Err(e)),
        }
        more = if forwards { iter.next() } else { iter.prev() };
    }
}

fn scan(table: &Arc<Table>, purpose: Purpose) -> (Entries, Result<()>) {
    let mut iter = table.iter(purpose);
    let first = iter.seek_to_first();
    entries_from(&mut iter, first, true)
}

fn scan_back(table: &Arc<Table>, purpose: Purpose) -> (Entries, Result<()>) {
    let mut iter = table.iter(purpose);
    let last = iter.seek_to_last();
    entries_from(&mut iter, last, false)
}

/// What a read must answer, by the definition.
fn expected(entries: &Entries, user_key: &[u8], snapshot: u64) -> PointAnswer {
    let mut newer = false;
    for (key, value) in entries.iter().filter(|(key, _)| key.user_key == user_key) {
        if key.tag.seqno() <= snapshot {
            let value = crate::value::Value::copy_of(value);
            return PointAnswer::Found { seqno: key.tag.seqno(), kind: key.tag.kind().unwrap(), value };
        }
        newer = true;
    }
    if newer { PointAnswer::Invisible } else { PointAnswer::Absent }
}

fn shown(answer: &PointAnswer) -> String {
    match answer {
        PointAnswer::Found { seqno, kind, value } => format!("{seqno} {kind:?} {}", value.escape_ascii()),
        PointAnswer::Invisible => "invisible".to_owned(),
        PointAnswer::Absent => "absent".to_owned(),
    }
}

fn compressions() -> Vec<Compression> {
    [Compression::None, Compression::Lz4, Compression::Zstd].into_iter().filter(|c| c.require().is_ok()).collect()
}

fn arbitrary_entries() -> impl Strategy<Value = Entries> {
    let key = prop_oneof![
        Just(vec![]),
        proptest::collection::vec(0_u8..3, 0..4),
        proptest::collection::vec(prop_oneof![Just(0_u8), Just(0xff), any::<u8>()], 0..12),
        (0_u8..20).prop_map(|n| [&[b'p'; 100][..], &[n]].concat()),
    ];
    let value = prop_oneof![
        20 => proptest::collection::vec(any::<u8>(), 0..30),
        4 => (0_usize..3000).prop_map(|len| vec![b'v'; len]),
        1 => (0_usize..70_000, any::<u8>()).prop_map(|(len, fill)| vec![fill; len]),
    ];
    let versions = (key, 0_u64..6, proptest::option::weighted(0.8, value));
    proptest::collection::vec(versions, 0..120).prop_map(|drawn| {
        let mut sorted = BTreeMap::new();
        for (user_key, inverted, value) in drawn {
            sorted.insert((user_key, inverted), value);
        }
        let of = |((user_key, inverted), value): ((Vec<u8>, u64), Option<Vec<u8>>)| match value {
            Some(value) => entry(&user_key, 10 - inverted, &value),
            None => tombstone(&user_key, 10 - inverted),
        };
        sorted.into_iter().map(of).collect()
    })
}

fn arbitrary_options() -> impl Strategy<Value = TableWriterOptions> {
    let block_bytes = prop_oneof![Just(1_usize), 2_usize..200, Just(4096), Just(1 << 20)];
    let compression = proptest::sample::select(compressions());
    (block_bytes, 1_usize..20, compression, any::<bool>(), any::<bool>()).prop_map(
        |(block_bytes, restart_interval, compression, align_blocks, block_hash_index)| TableWriterOptions {
            block_bytes,
            restart_interval,
            compression,
            align_blocks,
            block_hash_index,
            ..options()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn what_was_written_is_read_by_every_path(
        entries in arbitrary_entries(),
        options in arbitrary_options(),
        mapped: bool,
        cached: bool,
        probes in proptest::collection::vec((proptest::collection::vec(0_u8..3, 0..4), 0_u64..12), 12),
    ) {
        let (bytes, summary) = build(&entries, options);
        let cache = cached.then(|| Arc::new(BlockCache::new(100_000)));
        let table = open_as(bytes, TABLE_ID, cache, mapped).unwrap();
        prop_assert_eq!(table.properties(), &summary.properties);
        for purpose in [SCAN, Purpose::Read { fill_cache: false }, Purpose::Compaction] {
            let (forwards, end) = scan(&table, purpose);
            end.unwrap();
            prop_assert!(forwards == entries);
            let (mut backwards, end) = scan_back(&table, purpose);
            end.unwrap();
            backwards.reverse();
            prop_assert!(backwards == entries);
        }
        let mut iter = table.iter(SCAN);
        let stored = entries.iter().map(|(key, _)| (key.user_key.clone(), key.tag.seqno()));
        for (user_key, seqno) in probes.into_iter().chain(stored) {
            for snapshot in [seqno, seqno.saturating_sub(1)] {
                let answer = get(&table, &user_key, snapshot).unwrap();
                prop_assert_eq!(shown(&answer), shown(&expected(&entries, &user_key, snapshot)));
            }
            let target = InternalKey::new(&user_key, Tag::seek(seqno));
            let at = entries.partition_point(|(key, _)| key.as_ref() < target);
            prop_assert_eq!(iter.seek(target).unwrap(), at < entries.len());
            if at < entries.len() {
                prop_assert!(iter.key().to_owned() == entries[at].0 && iter.value() == entries[at].1);
                prop_assert_eq!(iter.prev().unwrap(), at > 0);
            }
        }
        let report = table.verify(&HASH_KEY).unwrap();
        prop_assert_eq!(report.entries, entries.len() as u64);
        prop_assert_eq!(report.filter_false_negatives, 0);
    }

    #[test]
    fn changed_bytes_under_recomputed_checksums_never_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..4),
        small: bool,
        mapped: bool,
    ) {
        let compression = if small { Compression::None } else { compressions().pop().unwrap() };
        let (mut bytes, _) = build(&versions_over_blocks(), TableWriterOptions {
            block_bytes: if small { 60 } else { 600 },
            block_hash_index: true,
            compression,
            ..options()
        });
        let blocks = all_blocks(&bytes);
        for (block, at, byte) in changes {
            let handle = blocks[block.index(blocks.len())];
            // The payload or its codec.
            bytes[handle.offset as usize + at.index(handle.len as usize + 1)] = byte;
            seal(&mut bytes, handle);
        }
        let Ok(table) = open_as(bytes, TABLE_ID, None, mapped) else { return Ok(()) };
        for purpose in [SCAN, Purpose::Compaction] {
            prop_assert!(scan(&table, purpose).0.len() < 20_000);
            prop_assert!(scan_back(&table, purpose).0.len() < 20_000);
        }
        for (key, _) in versions_over_blocks() {
            let _ = get(&table, &key.user_key, key.tag.seqno());
            let _ = table.iter(SCAN).seek(key.as_ref());
        }
        let _ = table.verify(&HASH_KEY);
    }
}

/// Keys of several versions, some over several blocks of 60 or 600 bytes.
fn versions_over_blocks() -> Entries {
    let mut entries = Entries::new();
    for key in 0_u8..12 {
        let versions = if key % 4 == 0 { 15 } else { 2 };
        let user_key = [b"prefix/", &[b'a' + key; 3][..]].concat();
        for version in 0..versions {
            let seqno = 100 - version;
            let is_tombstone = version == 1;
            entries.push(if is_tombstone { tombstone(&user_key, seqno) } else { entry(&user_key, seqno, b"value") });
        }
    }
    entries
}

/// The handles of a table's data blocks and named blocks.
fn all_blocks(bytes: &[u8]) -> Vec<BlockHandle> {
    let table = open(bytes.to_vec()).unwrap();
    let (metaindex_handle, metaindex) = table.source.read_metaindex().unwrap();
    let data = (0..table.index.len()).map(|number| table.handle(number).unwrap());
    data.chain(metaindex.handles()).chain([metaindex_handle]).collect()
}

/// Makes the checksum of a changed block right again.
fn seal(bytes: &mut [u8], handle: BlockHandle) {
    let (start, len) = (handle.offset as usize, handle.len as usize);
    let mut sum = crate::checksum::Checksum::for_block(TABLE_ID, handle.offset);
    sum.update(&bytes[start..=start + len]);
    bytes[start + len + 1..start + len + TRAILER_BYTES].copy_from_slice(&sum.finish().to_le_bytes());
}

/// A table of given blocks, with right checksums: data blocks first, then named ones.
struct Forge {
    bytes: Vec<u8>,
    metaindex: Metaindex,
}

impl Forge {
    fn new() -> Self {
        Forge { bytes: Vec::new(), metaindex: Metaindex::default() }
    }

    fn block(&mut self, payload: &[u8], codec: Compression) -> BlockHandle {
        let handle = BlockHandle { offset: self.bytes.len() as u64, len: payload.len() as u64 };
        append_block(&mut self.bytes, TABLE_ID, handle.offset, codec, payload);
        handle
    }

    fn named(mut self, name: &str, payload: &[u8]) -> Self {
        let handle = self.block(payload, Compression::None);
        self.metaindex.insert(name, handle);
        self
    }

    fn finish(mut self) -> Vec<u8> {
        let metaindex = self.metaindex.encode();
        let handle = self.block(&metaindex, Compression::None);
        self.finish_with(Footer::new(TABLE_ID, handle))
    }

    fn finish_with(mut self, footer: Footer) -> Vec<u8> {
        let len = (self.bytes.len() + FOOTER_BYTES).next_multiple_of(4096);
        self.bytes.resize(len - FOOTER_BYTES, 0);
        footer.append(&mut self.bytes);
        self.bytes
    }

    /// A table of one data block whose last key is `last`, stored under `codec`.
    fn of_block(payload: &[u8], codec: Compression, last: &[u8]) -> Vec<u8> {
        let mut forge = Forge::new();
        let handle = forge.block(payload, codec);
        let mut index = IndexBuilder::default();
        index.add(handle, last, None);
        let properties = properties_of_one(last);
        forge.named(INDEX, &index.finish().unwrap()).named(PROPERTIES, &properties).finish()
    }
}

fn properties_of_one(key: &[u8]) -> Vec<u8> {
    let bound = entry(key, 1, b"").0;
    let bounds = (Some(bound.clone()), Some(bound));
    Properties { entries: 1, smallest: bounds.0, largest: bounds.1, ..Properties::default() }.encode()
}

fn kind_of<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|e| e.kind())
}

#[test]
fn summary_counts_what_was_added() {
    let entries = vec![
        entry(b"a", 9, b"12"),
        tombstone(b"a", 4),
        entry(b"bb", 7, b"345"),
        tombstone(b"c", 8),
        entry(b"c", 3, b""),
    ];
    let (bytes, summary) = build(&entries, options());
    let properties = &summary.properties;
    assert_eq!(summary.file_bytes, bytes.len() as u64);
    assert_eq!((properties.entries, properties.distinct_user_keys, properties.tombstones), (5, 3, 2));
    assert_eq!((properties.smallest_seqno, properties.largest_seqno), (3, 9));
    assert_eq!((properties.raw_key_bytes, properties.raw_value_bytes), (6, 5));
    assert_eq!(
        (properties.smallest.clone(), properties.largest.clone()),
        (Some(entries[0].0.clone()), Some(entries[4].0.clone()))
    );
    assert_eq!((properties.data_blocks, properties.mean_block_bytes), (1, properties.data_bytes));
    assert_eq!((properties.created_at, properties.oldest_entry_time), (77, 0));
    assert_eq!((properties.filter.as_str(), properties.compression.as_str()), ("blocked, 10 bits per key", "none"));
}

#[test]
fn files_end_at_a_page_and_are_the_same_for_the_same_input() {
    for count in [0, 1, 30, 300] {
        let (bytes, _) = build(&numbered(count, 20), options());
        assert_eq!(bytes.len() % 4096, 0);
        assert_eq!(bytes, build(&numbered(count, 20), options()).0);
        let table = open(bytes).unwrap();
        assert_eq!(table.properties().entries, u64::from(count));
        assert_eq!(table.iter(SCAN).seek_to_first().unwrap(), count > 0);
        table.verify(&HASH_KEY).unwrap();
    }
}

#[test]
fn golden_bytes_of_a_small_table() {
    let without_filter = TableWriterOptions {
        filter: FilterOptions { kind: FilterKind::None, ..FilterOptions::default() },
        ..options()
    };
    let (bytes, _) = build(&vec![entry(b"k", 1, b"v")], without_filter);
    // The data block: entry, one restart point at 0, their count; then codec and checksum.
    assert_eq!(bytes[..16], *b"\0\x01\x01\x81\x02kv\0\0\0\0\x01\0\0\0\0");
    // Then the index: one block, whose separator is all prefix, so that head and heap are empty.
    let index = &bytes[20..];
    assert_eq!(index[..16], *b"\x01\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(index[16..41], *b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x0f\0\0\0\0\0\0\0k");
    assert_eq!(bytes.len(), 4096);
    assert_eq!(checksum(&bytes), 0xfd09_df43, "{:#010x}: the format of tables has changed", checksum(&bytes));
}

#[test]
fn appends_are_large_and_the_file_is_synced_whole_and_closed() {
    let (mut writer, file) = writer(options());
    for (key, value) in numbered(10_000, 100) {
        writer.add(key.as_ref(), &value).unwrap();
    }
    let estimate = writer.estimated_file_bytes();
    assert!(writer.memory_bytes() < 1 << 20);
    let summary = writer.finish().unwrap();
    let written = file.0.lock();
    assert!(written.closed);
    assert_eq!(written.synced, written.bytes.len());
    assert!(written.appends as u64 <= summary.file_bytes / (256 << 10) + 2);
    assert!(estimate.abs_diff(summary.file_bytes) < summary.file_bytes / 10 + 4096);
}

#[test]
fn keys_out_of_order_are_refused() {
    let (mut writer, _) = writer(options());
    let (key, _) = entry(b"b", 5, b"");
    writer.add(key.as_ref(), b"").unwrap();
    for (key, _) in [entry(b"a", 9, b""), entry(b"b", 5, b""), entry(b"b", 6, b"")] {
        assert_eq!(kind_of(writer.add(key.as_ref(), b"")), Some(ErrorKind::InvalidArgument));
    }
    writer.add(entry(b"b", 4, b"").0.as_ref(), b"").unwrap();
    let too_long = vec![0xff; 65_536];
    assert!(writer.add(entry(&too_long, 1, b"").0.as_ref(), b"").is_err());
    writer.add(entry(&too_long[1..], 1, b"").0.as_ref(), b"").unwrap();
    assert_eq!(writer.finish().unwrap().properties.entries, 3);
}

#[test]
fn blocks_stay_within_their_size_and_aligned_ones_within_a_page() {
    let (bytes, _) = build(&numbered(2000, 100), TableWriterOptions { align_blocks: true, ..options() });
    let table = open(bytes).unwrap();
    assert!(table.index.len() > 50);
    for number in 0..table.index.len() {
        let handle = table.handle(number).unwrap();
        assert!(handle.stored_bytes() <= 4096);
        assert_eq!(handle.offset / 4096, (handle.end().unwrap() - 1) / 4096, "block {number} crosses a page");
    }
    table.verify(&HASH_KEY).unwrap();
}

#[test]
fn a_point_read_looks_into_one_block_present_or_absent() {
    let entries = numbered(3000, 30);
    for block_hash_index in [false, true] {
        let table = open(build(&entries, TableWriterOptions { block_hash_index, ..options() }).0).unwrap();
        assert!(table.index.len() > 20);
        for (key, _) in &entries {
            let (answer, trace) = get_traced(&table, &key.user_key, 5000);
            assert!(matches!(answer.unwrap(), PointAnswer::Found { .. }));
            assert_eq!(trace.len(), 1);
            let absent = [&key.user_key[..], b"x"].concat();
            let (answer, trace) = get_traced(&table, &absent, 5000);
            assert!(matches!(answer.unwrap(), PointAnswer::Absent));
            assert!(trace.len() <= 1);
        }
        assert!(get_traced(&table, b"zzz", 1).1.is_empty(), "above every separator: no block");
    }
}

#[test]
fn versions_over_several_blocks_cost_a_block_each_only_while_all_are_newer() {
    let entries: Entries =
        (0..40).map(|i| entry(b"hot", 100 - i, b"0123456789")).chain([entry(b"z", 1, b"")]).collect();
    let table = open(build(&entries, TableWriterOptions { block_bytes: 100, ..options() }).0).unwrap();
    assert!(table.index.len() > 5);
    assert_eq!(get_traced(&table, b"hot", 1000).1.len(), 1);
    let (answer, trace) = get_traced(&table, b"hot", 61);
    assert!(matches!(answer.unwrap(), PointAnswer::Found { seqno: 61, .. }));
    assert_eq!(trace.len(), table.index.len());
    assert!(matches!(get(&table, b"hot", 60).unwrap(), PointAnswer::Invisible));
    assert!(matches!(get(&table, b"hos", 60).unwrap(), PointAnswer::Absent));
    assert!(matches!(get(&table, b"hou", 60).unwrap(), PointAnswer::Absent));
    let mut iter = table.iter(SCAN);
    assert!(iter.seek(InternalKey::new(b"hot", Tag::seek(60))).unwrap());
    assert_eq!(iter.key().user_key, b"z");
}

#[test]
fn blocks_come_from_the_file_then_the_cache_and_compaction_leaves_it_alone() {
    let (bytes, _) = build(&numbered(1000, 30), options());
    let cache = Arc::new(BlockCache::new(1 << 20));
    let table = open_as(bytes, TABLE_ID, Some(cache.clone()), false).unwrap();
    scan(&table, Purpose::Compaction).1.unwrap();
    scan(&table, Purpose::Read { fill_cache: false }).1.unwrap();
    let not_kept = table.get(b"key000000", 0, false, HERE, &mut Trace::default());
    assert!(matches!(not_kept.unwrap(), PointAnswer::Found { .. }));
    assert_eq!((cache.len(), cache.used_bytes()), (0, 0));

    let stored = table.handle(0).unwrap().stored_bytes() as u32;
    assert_eq!(get_traced(&table, b"key000000", 0).1, [(BlockSource::Read, stored)]);
    assert_eq!(get_traced(&table, b"key000000", 0).1, [(BlockSource::Cache, stored)]);
    scan(&table, SCAN).1.unwrap();
    assert_eq!(cache.len(), table.index.len());
    assert!(cache.used_bytes() > table.properties().data_bytes);
}

#[test]
fn compaction_reads_much_at_a_time() {
    let (bytes, _) = build(&numbered(20_000, 100), options());
    let expected = TableIdentity { table_id: TABLE_ID, file_bytes: bytes.len() as u64 };
    let file = MemoryFile::new(bytes);
    let table = Arc::new(Table::open(file.clone(), "t.sst".into(), expected, None, false).unwrap());
    let before = file.reads();
    assert_eq!(scan(&table, Purpose::Compaction).0.len(), 20_000);
    let most = expected.file_bytes / (250 << 10) + 1;
    assert!(((file.reads() - before) as u64) <= most, "{} blocks", table.index.len());
}

#[test]
fn mapped_blocks_are_used_in_place_and_compressed_ones_through_the_cache() {
    let entries = numbered(1000, 30);
    let cache = Arc::new(BlockCache::new(1 << 20));
    let plain = open_as(build(&entries, options()).0, TABLE_ID, Some(cache.clone()), true).unwrap();
    for _ in 0..2 {
        let (answer, trace) = get_traced(&plain, b"key000500", 999);
        assert!(matches!(answer.unwrap(), PointAnswer::Found { seqno: 500, .. }));
        assert_eq!(trace[0].0, BlockSource::Map);
    }
    assert_eq!(cache.len(), 0);

    if let Some(compression) = compressions().into_iter().find(|c| *c != Compression::None) {
        let bytes = build(&entries, TableWriterOptions { compression, ..options() }).0;
        let table = open_as(bytes, TABLE_ID, Some(cache), true).unwrap();
        let source = |_| get_traced(&table, b"key000500", 999).1[0].0;
        assert_eq!([0, 1].map(source), [BlockSource::Map, BlockSource::Cache]);
    }
}

#[test]
fn a_value_outlives_its_table_and_cache() {
    let table = open(build(&numbered(10, 30), options()).0).unwrap();
    let PointAnswer::Found { value, .. } = get(&table, b"key000003", 99).unwrap() else { unreachable!() };
    drop(table);
    assert_eq!(value, [3; 30]);
}

#[test]
fn another_table_or_length_is_corruption_that_names_both() {
    let (bytes, _) = build(&numbered(10, 30), options());
    let error = open_as(bytes.clone(), TABLE_ID + 1, None, false).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Corruption, Some(Path::new("t.sst"))));
    assert!(error.to_string().contains("000000007ab1e1d0") && error.to_string().contains("000000007ab1e1d1"));

    let expected = TableIdentity { table_id: TABLE_ID, file_bytes: bytes.len() as u64 + 4096 };
    let error = Table::open(MemoryFile::new(bytes), "t.sst".into(), expected, None, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.to_string().contains("4096") && error.to_string().contains("8192"));
}

#[test]
fn a_bad_filter_never_fails_the_open() {
    let entries = numbered(10, 30);
    let (mut writer, file) = writer(options());
    for (key, value) in &entries {
        writer.add(key.as_ref(), value).unwrap();
    }
    let summary = writer.finish_with(|_| Some(vec![0x5a; 256])).unwrap();
    assert_eq!(summary.properties.filter_bytes, 256);
    let good = std::mem::take(&mut file.0.lock().bytes);
    let mut damaged = good.clone();
    let filter = open(good.clone()).unwrap().source.read_metaindex().unwrap().1.get(FILTER).unwrap();
    assert_eq!(filter.offset % 64, 0);
    damaged[filter.offset as usize + 200] ^= 1;
    for bytes in [good, damaged] {
        let table = open(bytes).unwrap();
        assert!(table.filter().is_none());
        assert!(matches!(table.filter_info(), Err(Some(_))));
        assert!(scan(&table, SCAN).0 == entries);
        let report = table.verify(&HASH_KEY).unwrap();
        assert!(report.filter_unusable.is_some());
        assert_eq!(report.filter_false_negatives, 0);
    }
    // A handle that leads out of the file is no better reason to refuse.
    let mut forge = Forge::new();
    forge.metaindex.insert(FILTER, BlockHandle { offset: 1 << 50, len: u64::MAX });
    let index = IndexBuilder::default().finish().unwrap();
    let table = open(forge.named(INDEX, &index).named(PROPERTIES, b"").finish()).unwrap();
    assert_eq!(table.filter_info().err(), Some(Some(FilterUnusable::Damaged)));
    assert_eq!(table.verify(&HASH_KEY).unwrap().entries, 0);
}

#[test]
fn without_a_filter_there_is_no_reason() {
    let none = FilterOptions { kind: FilterKind::None, ..FilterOptions::default() };
    let table = open(build(&numbered(10, 30), TableWriterOptions { filter: none, ..options() }).0).unwrap();
    assert_eq!(table.filter_info().err(), Some(None));
    assert_eq!(table.properties().filter, "none");
    let report = table.verify(&HASH_KEY).unwrap();
    let expected = VerifyReport { entries: 10, blocks: 1, bytes: 4096, ..VerifyReport::default() };
    assert_eq!(report, expected);
}

#[test]
fn the_filter_that_was_built_admits_every_key() {
    let entries = versions_over_blocks();
    let table = open(build(&entries, options()).0).unwrap();
    for (key, _) in &entries {
        assert!(table.filter().may_contain(HASH_KEY.hash(&key.user_key)));
    }
    if let Ok(info) = table.filter_info() {
        assert_eq!(info.keys, 12, "each distinct user key once");
        assert!(info.hash_key == HASH_KEY);
    }
    assert!(table.pinned_bytes() >= table.filter().memory_bytes() + table.properties().index_bytes as usize);
}

/// Exact data, or `Corruption` or `Unsupported`.
fn check_damaged(bytes: &[u8], entries: &Entries, what: &str) {
    let accepted = |e: &Error| matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Unsupported);
    for mapped in [false, true] {
        let table = match open_as(bytes.to_vec(), TABLE_ID, None, mapped) {
            Ok(table) => table,
            Err(e) => {
                assert!(accepted(&e) && e.path().is_some(), "{what}: {e}");
                continue;
            }
        };
        for purpose in [SCAN, Purpose::Compaction] {
            let (found, end) = scan(&table, purpose);
            assert!(end.as_ref().err().is_none_or(accepted), "{what}");
            assert!(found[..] == entries[..found.len()], "{what}: other data");
            assert!(end.is_err() || found.len() == entries.len(), "{what}: missing data");
        }
        for (key, _) in entries {
            match get(&table, &key.user_key, key.tag.seqno()) {
                Ok(answer) => {
                    assert_eq!(shown(&answer), shown(&expected(entries, &key.user_key, key.tag.seqno())), "{what}");
                }
                Err(e) => assert!(accepted(&e) && e.path().is_some() && e.offset().is_some(), "{what}: {e}"),
            }
            assert!(table.filter().may_contain(HASH_KEY.hash(&key.user_key)), "{what}: filter");
        }
    }
}

#[test]
fn every_flipped_byte_is_found_or_changes_nothing() {
    let entries = versions_over_blocks();
    for (compression, block_bytes) in [(Compression::None, 200), (compressions().pop().unwrap(), 400)] {
        let options = TableWriterOptions { compression, block_bytes, block_hash_index: true, ..options() };
        let (good, _) = build(&entries, options);
        check_damaged(&good, &entries, "undamaged");
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << (at % 8);
            check_damaged(&bytes, &entries, &format!("byte {at}"));
            if at % 16 == 0 {
                let verified = open(bytes).and_then(|table| table.verify(&HASH_KEY));
                let found = verified.as_ref().map_or(true, |report| report.filter_unusable.is_some());
                assert!(found, "verify reads byte {at}, too");
            }
        }
    }
}

#[test]
fn every_truncation_is_corruption() {
    let (good, summary) = build(&versions_over_blocks(), options());
    for len in 0..good.len() {
        let expected = TableIdentity { table_id: TABLE_ID, file_bytes: summary.file_bytes };
        let cut = MemoryFile::new(good[..len].to_vec());
        let opened = Table::open(cut, "t.sst".into(), expected, None, false);
        assert_eq!(kind_of(opened), Some(ErrorKind::Corruption));
        // Also if the manifest has the wrong length.
        assert_eq!(kind_of(open(good[..len].to_vec())), Some(ErrorKind::Corruption));
    }
}

#[test]
fn swapped_blocks_are_corruption_within_a_table_and_between_tables() {
    // Two tables of the same shape, and in one of them two blocks of the same length.
    let entries = numbered(1000, 30);
    let (good, _) = build(&entries, options());
    let (other, _) = build(&entries, TableWriterOptions { table_id: TABLE_ID + 1, ..options() });
    let table = open(good.clone()).unwrap();
    let range = |number| {
        let handle = table.handle(number).unwrap();
        handle.offset as usize..handle.end().unwrap() as usize
    };
    let mut pairs = (1..table.index.len()).flat_map(|a| (a + 1..table.index.len()).map(move |b| (a, b)));
    let (a, b) = pairs.find(|&(a, b)| range(a).len() == range(b).len()).expect("two blocks of one length");
    let mut swapped = good.clone();
    swapped[range(a)].copy_from_slice(&good[range(b)]);
    swapped[range(b)].copy_from_slice(&good[range(a)]);
    let mut grafted = good.clone();
    grafted[range(1)].copy_from_slice(&other[range(1)]);
    for bytes in [swapped, grafted] {
        let table = open(bytes).unwrap();
        assert_eq!(kind_of(scan(&table, SCAN).1), Some(ErrorKind::Corruption));
        assert_eq!(kind_of(scan(&table, Purpose::Compaction).1), Some(ErrorKind::Corruption));
        assert_eq!(kind_of(table.verify(&HASH_KEY)), Some(ErrorKind::Corruption));
    }
}

#[test]
fn neighbouring_blocks_out_of_order_are_reported_in_both_directions() {
    let mut forge = Forge::new();
    let mut index = IndexBuilder::default();
    for key in [b"b", b"a"] {
        let mut builder = BlockBuilder::new(16, false);
        builder.add(entry(key, 1, b"").0.as_ref(), b"");
        let handle = forge.block(builder.finish(), Compression::None);
        index.add(handle, b"c", None);
    }
    let bytes = forge.named(INDEX, &index.finish().unwrap()).named(PROPERTIES, &properties_of_one(b"b")).finish();
    let table = open(bytes).unwrap();
    for (found, end) in [scan(&table, SCAN), scan_back(&table, SCAN)] {
        assert_eq!((found.len(), kind_of(end)), (1, Some(ErrorKind::Corruption)));
    }
    let mut iter = table.iter(SCAN);
    assert!(iter.seek_to_first().unwrap());
    let error = iter.next().unwrap_err();
    assert!(error.path().is_some() && error.offset().is_some());
    assert!(!iter.valid() && iter.next().is_err() && iter.prev().is_err(), "it sticks");
    assert!(iter.seek_to_first().unwrap() && iter.valid());
    assert!(table.verify(&HASH_KEY).is_err());
}

#[test]
fn huge_numbers_under_right_checksums_are_corruption() {
    let open_kind = |bytes| kind_of(open(bytes));
    // The metaindex, or a block it names, out of the file.
    for (offset, len) in [(0, u64::MAX), (u64::MAX, 1), (1 << 40, 10), (0, 4096)] {
        let outside = BlockHandle { offset, len };
        assert_eq!(open_kind(Forge::new().finish_with(Footer::new(TABLE_ID, outside))), Some(ErrorKind::Corruption));
        let mut forge = Forge::new();
        forge.metaindex.insert(INDEX, outside);
        assert_eq!(open_kind(forge.named(PROPERTIES, b"").finish()), Some(ErrorKind::Corruption));
    }
    // An index of four thousand million blocks; a property of as many bytes.
    let huge_index = Forge::new().named(INDEX, b"\xff\xff\xff\xff\0\0\0\0\0\0\0\0\0\0\0\0").named(PROPERTIES, b"");
    assert_eq!(open_kind(huge_index.finish()), Some(ErrorKind::Corruption));
    let index = IndexBuilder::default().finish().unwrap();
    let huge_property = Forge::new().named(INDEX, &index).named(PROPERTIES, b"\x13\xff\xff\xff\xff\x0f");
    assert_eq!(open_kind(huge_property.finish()), Some(ErrorKind::Corruption));
    // Data blocks: restart points without end, lengths beyond the block, a bomb.
    let read_kind = |bytes: Vec<u8>| kind_of(get(&open(bytes).unwrap(), b"k", 9));
    let entry_of_4_gib = b"\0\x01\xff\xff\xff\xff\x0f\x01k\0\0\0\0\x01\0\0\0";
    for payload in [&b"\xff\xff\xff\x7f"[..], b"\xff\xff\xff\xff", b"\0\0\0\0", entry_of_4_gib, b""] {
        assert_eq!(read_kind(Forge::of_block(payload, Compression::None, b"k")), Some(ErrorKind::Corruption));
    }
    for compression in compressions().into_iter().filter(|c| *c != Compression::None) {
        let bomb = b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f";
        assert_eq!(read_kind(Forge::of_block(bomb, compression, b"k")), Some(ErrorKind::Corruption));
    }
}

#[test]
fn unknown_kinds_are_unsupported_and_unknown_named_blocks_ignored() {
    let mut builder = BlockBuilder::new(16, false);
    builder.add(InternalKey::new(b"k", Tag(5 << 8 | 2)), b"merge operand");
    let table = open(Forge::of_block(builder.finish(), Compression::None, b"k")).unwrap();
    assert_eq!(kind_of(get(&table, b"k", 9)), Some(ErrorKind::Unsupported));
    assert_eq!(kind_of(table.verify(&HASH_KEY)), Some(ErrorKind::Unsupported));

    let index = IndexBuilder::default().finish().unwrap();
    let later = Forge::new().named("a later thing", b"?").named(INDEX, &index).named(PROPERTIES, b"").finish();
    assert_eq!(open(later).unwrap().verify(&HASH_KEY).unwrap().entries, 0);
    let missing = Forge::new().named(INDEX, &index).finish();
    assert_eq!(kind_of(open(missing)), Some(ErrorKind::Corruption));
    let newer = Footer { incompatible: 1, ..Footer::new(TABLE_ID, BlockHandle { offset: 0, len: 0 }) };
    assert_eq!(kind_of(open(Forge::new().finish_with(newer))), Some(ErrorKind::Unsupported));
}

#[test]
fn verify_finds_false_counts() {
    let mut builder = BlockBuilder::new(16, false);
    builder.add(entry(b"k", 1, b"").0.as_ref(), b"");
    let error =
        open(Forge::of_block(builder.finish(), Compression::None, b"k")).unwrap().verify(&HASH_KEY).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.to_string().contains("distinct user keys"), "{error}");
}
