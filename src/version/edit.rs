//! Version edits: what the manifest is a list of. An edit says what changes: files, keyspaces, logs, counters. The
//! first edit of a manifest says everything, so that no older file is needed.
//!
//! ```text
//! edit:   field*
//! field:  tag varint | length varint | payload
//!
//!  2 database          id u64 | hash key 16 bytes
//!  4 incompatible      feature bits u64: an unknown one set is `Unsupported`
//!  5 compatible        feature bits u64: unknown ones do not matter
//!  6 next file number  varint
//!  8 last seqno        varint
//! 10 log added         number varint
//! 12 log removed       number varint
//! 14 clean close       (log number varint | final length varint)*
//! 16 keyspace created  id varint | field*:  2 name   4 options   6 flushed seqno varint
//! 18 options changed   keyspace id varint | options, to the end
//! 20 keyspace dropped  id varint
//! 22 flushed           keyspace id varint | seqno varint
//! 24 file added        keyspace id varint | level u8 | field*:
//!                        2 number varint     4 table id u64    6 file bytes varint
//!                        8 smallest, 10 largest: user key | tag u64
//!                       12 tombstone bounds: length varint | start | length varint | end
//!                       14 largest is exclusive (no payload)
//!                       16 smallest seqno varint | largest seqno varint
//!                       18 seqno override varint     20 filter side file number varint
//!                       21 created at varint   23 entries varint   25 tombstones varint
//! 26 file removed      keyspace id varint | level u8 | number varint
//! 28 next keyspace id  varint
//! ```
//!
//! An odd tag is safe to ignore: a reader that does not know it skips the field. An even one is not: the edit, and with
//! it the database, is `Unsupported`. The same holds for the fields inside a field.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use crate::coding::{Decoder, put_bytes, put_u64, put_varint};
use crate::error::{Error, Result};
use crate::filename::FileNumber;
use crate::hash::HashKey;
use crate::key::{InternalKey, InternalKeyBuf, MAX_KEY_BYTES, MAX_SEQNO, SeqNo, Tag};

/// The incompatible features that this version understands: none yet.
pub(crate) const KNOWN_INCOMPATIBLE_FEATURES: u64 = 0;

/// The longest keyspace name, in bytes.
pub(crate) const MAX_KEYSPACE_NAME_BYTES: usize = 255;

/// The number of a keyspace. Never used again, for a log may still hold batches of a keyspace that was dropped.
pub(crate) type KeyspaceId = u32;

const DATABASE: u64 = 2;
const INCOMPATIBLE_FEATURES: u64 = 4;
const COMPATIBLE_FEATURES: u64 = 5;
const NEXT_FILE_NUMBER: u64 = 6;
const LAST_SEQNO: u64 = 8;
const LOG_ADDED: u64 = 10;
const LOG_REMOVED: u64 = 12;
const CLEAN_CLOSE: u64 = 14;
const KEYSPACE_CREATED: u64 = 16;
const OPTIONS_CHANGED: u64 = 18;
const KEYSPACE_DROPPED: u64 = 20;
const FLUSHED: u64 = 22;
const FILE_ADDED: u64 = 24;
const FILE_REMOVED: u64 = 26;
const NEXT_KEYSPACE_ID: u64 = 28;

const KEYSPACE_NAME: u64 = 2;
const KEYSPACE_OPTIONS: u64 = 4;
const KEYSPACE_FLUSHED: u64 = 6;

const FILE_NUMBER: u64 = 2;
const FILE_TABLE_ID: u64 = 4;
const FILE_BYTES: u64 = 6;
const FILE_SMALLEST: u64 = 8;
const FILE_LARGEST: u64 = 10;
const FILE_TOMBSTONE_BOUNDS: u64 = 12;
const FILE_LARGEST_EXCLUSIVE: u64 = 14;
const FILE_SEQNOS: u64 = 16;
const FILE_SEQNO_OVERRIDE: u64 = 18;
const FILE_FILTER_SIDE_FILE: u64 = 20;
const FILE_CREATED_AT: u64 = 21;
const FILE_ENTRIES: u64 = 23;
const FILE_TOMBSTONES: u64 = 25;

/// What a database is born with and keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatabaseHeader {
    pub(crate) id: u64,
    pub(crate) hash_key: HashKey,
}

/// What is known of a table without opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileMeta {
    pub(crate) number: FileNumber,
    /// Stands in the table's footer, too.
    pub(crate) table_id: u64,
    pub(crate) file_bytes: u64,
    pub(crate) smallest: InternalKeyBuf,
    pub(crate) largest: InternalKeyBuf,
    /// The user keys from the first range tombstone's start to the last one's end.
    pub(crate) tombstone_bounds: Option<(Vec<u8>, Vec<u8>)>,
    /// The largest key is a bound that no entry reaches.
    pub(crate) largest_exclusive: bool,
    /// The smallest and the largest sequence number of its entries.
    pub(crate) seqnos: (SeqNo, SeqNo),
    /// Every entry has this sequence number instead of its own.
    pub(crate) seqno_override: Option<SeqNo>,
    /// Seconds since 1970.
    pub(crate) created_at: u64,
    /// The file of a filter that was built after the table.
    pub(crate) filter_side_file: Option<FileNumber>,
    pub(crate) entries: u64,
    pub(crate) tombstones: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyspaceCreated {
    pub(crate) id: KeyspaceId,
    pub(crate) name: String,
    /// Encoded by `options`.
    pub(crate) options: Vec<u8>,
    /// Everything up to here is in tables, and nothing of it is replayed.
    pub(crate) flushed: SeqNo,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileAdded {
    pub(crate) keyspace: KeyspaceId,
    pub(crate) level: u8,
    pub(crate) meta: FileMeta,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileRemoved {
    pub(crate) keyspace: KeyspaceId,
    pub(crate) level: u8,
    pub(crate) number: FileNumber,
}

/// A change of the database's state: all of it or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VersionEdit {
    /// In the first edit of a manifest, and only there.
    pub(crate) database: Option<DatabaseHeader>,
    pub(crate) incompatible_features: Option<u64>,
    pub(crate) compatible_features: Option<u64>,
    /// Every file number below has been given away.
    pub(crate) next_file_number: Option<FileNumber>,
    /// Every keyspace id below has been given away.
    pub(crate) next_keyspace_id: Option<KeyspaceId>,
    pub(crate) last_seqno: Option<SeqNo>,
    pub(crate) logs_added: Vec<FileNumber>,
    pub(crate) logs_removed: Vec<FileNumber>,
    /// The last edit of a session that ended with `close`: the live logs and their final lengths.
    pub(crate) clean_close: Option<Vec<(FileNumber, u64)>>,
    pub(crate) keyspaces_created: Vec<KeyspaceCreated>,
    pub(crate) options_changed: Vec<(KeyspaceId, Vec<u8>)>,
    pub(crate) keyspaces_dropped: Vec<KeyspaceId>,
    pub(crate) flushed: Vec<(KeyspaceId, SeqNo)>,
    pub(crate) files_added: Vec<FileAdded>,
    pub(crate) files_removed: Vec<FileRemoved>,
}

/// Refuses a keyspace name that is empty, too long or holds a NUL.
pub(crate) fn check_keyspace_name(name: &str) -> Result<()> {
    let fault = if name.is_empty() {
        "is empty"
    } else if name.len() > MAX_KEYSPACE_NAME_BYTES {
        "is over 255 bytes long"
    } else if name.contains('\0') {
        "holds a NUL"
    } else {
        return Ok(());
    };
    Err(Error::invalid_argument(format!("the keyspace name {fault}; expected 1 to 255 bytes without NUL")))
}

impl VersionEdit {
    /// The edit as a record of the manifest.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Fields::default();
        if let Some(database) = &self.database {
            out.field(DATABASE, |b| {
                put_u64(b, database.id);
                b.extend_from_slice(&database.hash_key.0);
            });
        }
        out.word(INCOMPATIBLE_FEATURES, self.incompatible_features);
        out.word(COMPATIBLE_FEATURES, self.compatible_features);
        out.varint(NEXT_FILE_NUMBER, self.next_file_number);
        out.varint(LAST_SEQNO, self.last_seqno);
        self.encode_logs(&mut out);
        self.encode_keyspaces(&mut out);
        self.encode_files(&mut out);
        out.0
    }

    fn encode_logs(&self, out: &mut Fields) {
        self.logs_added.iter().for_each(|number| out.varint(LOG_ADDED, Some(*number)));
        self.logs_removed.iter().for_each(|number| out.varint(LOG_REMOVED, Some(*number)));
        if let Some(logs) = &self.clean_close {
            out.field(CLEAN_CLOSE, |b| logs.iter().for_each(|(number, len)| put_varints(b, &[*number, *len])));
        }
    }

    fn encode_keyspaces(&self, out: &mut Fields) {
        for created in &self.keyspaces_created {
            let mut fields = Fields::default();
            fields.bytes(KEYSPACE_NAME, created.name.as_bytes());
            fields.bytes(KEYSPACE_OPTIONS, &created.options);
            fields.varint(KEYSPACE_FLUSHED, Some(created.flushed));
            out.field(KEYSPACE_CREATED, |b| {
                put_varint(b, u64::from(created.id));
                b.extend_from_slice(&fields.0);
            });
        }
        for (id, options) in &self.options_changed {
            out.field(OPTIONS_CHANGED, |b| {
                put_varint(b, u64::from(*id));
                b.extend_from_slice(options);
            });
        }
        self.keyspaces_dropped.iter().for_each(|id| out.varint(KEYSPACE_DROPPED, Some(u64::from(*id))));
        for (id, seqno) in &self.flushed {
            out.field(FLUSHED, |b| put_varints(b, &[u64::from(*id), *seqno]));
        }
        out.varint(NEXT_KEYSPACE_ID, self.next_keyspace_id.map(u64::from));
    }

    fn encode_files(&self, out: &mut Fields) {
        for added in &self.files_added {
            out.field(FILE_ADDED, |b| {
                put_varint(b, u64::from(added.keyspace));
                b.push(added.level);
                b.extend_from_slice(&added.meta.encode());
            });
        }
        for removed in &self.files_removed {
            out.field(FILE_REMOVED, |b| {
                put_varint(b, u64::from(removed.keyspace));
                b.push(removed.level);
                put_varint(b, removed.number);
            });
        }
    }

    /// Reads an edit back. Memory is bounded by the bytes given.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut edit = VersionEdit::default();
        for_each_field(bytes, "edit", |tag, payload| edit.decode_field(tag, payload))?;
        Ok(edit)
    }

    /// Takes one field; false if its tag is unknown.
    fn decode_field(&mut self, tag: u64, p: &mut Decoder<'_>) -> Result<bool> {
        match tag {
            DATABASE => set(&mut self.database, decode_database(p)?, "database")?,
            INCOMPATIBLE_FEATURES => {
                let features = known_features(p.u64("incompatible features")?)?;
                set(&mut self.incompatible_features, features, "incompatible features")?;
            }
            COMPATIBLE_FEATURES => {
                set(&mut self.compatible_features, p.u64("compatible features")?, "compatible features")?;
            }
            NEXT_FILE_NUMBER => set(&mut self.next_file_number, p.varint("next file number")?, "next file number")?,
            NEXT_KEYSPACE_ID => set(&mut self.next_keyspace_id, keyspace_id(p)?, "next keyspace id")?,
            LAST_SEQNO => set(&mut self.last_seqno, seqno(p)?, "last sequence number")?,
            LOG_ADDED => self.logs_added.push(p.varint("log added")?),
            LOG_REMOVED => self.logs_removed.push(p.varint("log removed")?),
            CLEAN_CLOSE => set(&mut self.clean_close, decode_clean_close(p)?, "clean close")?,
            KEYSPACE_CREATED => self.keyspaces_created.push(KeyspaceCreated::decode(p)?),
            OPTIONS_CHANGED => self.options_changed.push((keyspace_id(p)?, take_rest(p)?.to_vec())),
            KEYSPACE_DROPPED => self.keyspaces_dropped.push(keyspace_id(p)?),
            FLUSHED => self.flushed.push((keyspace_id(p)?, seqno(p)?)),
            FILE_ADDED => self.files_added.push(FileAdded {
                keyspace: keyspace_id(p)?,
                level: p.u8("level")?,
                meta: FileMeta::decode(take_rest(p)?)?,
            }),
            FILE_REMOVED => self.files_removed.push(FileRemoved {
                keyspace: keyspace_id(p)?,
                level: p.u8("level")?,
                number: p.varint("file removed")?,
            }),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl FileMeta {
    fn encode(&self) -> Vec<u8> {
        let mut out = Fields::default();
        out.varint(FILE_NUMBER, Some(self.number));
        out.word(FILE_TABLE_ID, Some(self.table_id));
        out.varint(FILE_BYTES, Some(self.file_bytes));
        out.internal_key(FILE_SMALLEST, self.smallest.as_ref());
        out.internal_key(FILE_LARGEST, self.largest.as_ref());
        if let Some((start, end)) = &self.tombstone_bounds {
            out.field(FILE_TOMBSTONE_BOUNDS, |b| {
                put_bytes(b, start);
                put_bytes(b, end);
            });
        }
        if self.largest_exclusive {
            out.bytes(FILE_LARGEST_EXCLUSIVE, &[]);
        }
        out.field(FILE_SEQNOS, |b| put_varints(b, &[self.seqnos.0, self.seqnos.1]));
        out.varint(FILE_SEQNO_OVERRIDE, self.seqno_override);
        out.varint(FILE_FILTER_SIDE_FILE, self.filter_side_file);
        out.varint(FILE_CREATED_AT, Some(self.created_at));
        out.varint(FILE_ENTRIES, Some(self.entries));
        out.varint(FILE_TOMBSTONES, Some(self.tombstones));
        out.0
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut found = FoundMeta::default();
        for_each_field(bytes, "file", |tag, payload| found.decode_field(tag, payload))?;
        found.finish()
    }
}

/// The fields of a file met so far.
#[derive(Default)]
struct FoundMeta {
    number: Option<FileNumber>,
    table_id: Option<u64>,
    file_bytes: Option<u64>,
    smallest: Option<InternalKeyBuf>,
    largest: Option<InternalKeyBuf>,
    tombstone_bounds: Option<(Vec<u8>, Vec<u8>)>,
    largest_exclusive: Option<()>,
    seqnos: Option<(SeqNo, SeqNo)>,
    seqno_override: Option<SeqNo>,
    created_at: Option<u64>,
    filter_side_file: Option<FileNumber>,
    entries: Option<u64>,
    tombstones: Option<u64>,
}

impl FoundMeta {
    fn decode_field(&mut self, tag: u64, p: &mut Decoder<'_>) -> Result<bool> {
        match tag {
            FILE_NUMBER => set(&mut self.number, p.varint("file number")?, "file number")?,
            FILE_TABLE_ID => set(&mut self.table_id, p.u64("table id")?, "table id")?,
            FILE_BYTES => set(&mut self.file_bytes, p.varint("file bytes")?, "file bytes")?,
            FILE_SMALLEST => set(&mut self.smallest, internal_key(take_rest(p)?)?, "smallest key")?,
            FILE_LARGEST => set(&mut self.largest, internal_key(take_rest(p)?)?, "largest key")?,
            FILE_TOMBSTONE_BOUNDS => {
                set(&mut self.tombstone_bounds, decode_tombstone_bounds(p)?, "tombstone bounds")?;
            }
            FILE_LARGEST_EXCLUSIVE => set(&mut self.largest_exclusive, (), "exclusive flag")?,
            FILE_SEQNOS => set(&mut self.seqnos, (seqno(p)?, seqno(p)?), "sequence numbers")?,
            FILE_SEQNO_OVERRIDE => set(&mut self.seqno_override, seqno(p)?, "sequence override")?,
            FILE_FILTER_SIDE_FILE => set(&mut self.filter_side_file, p.varint("filter file")?, "filter file")?,
            FILE_CREATED_AT => set(&mut self.created_at, p.varint("created at")?, "created at")?,
            FILE_ENTRIES => set(&mut self.entries, p.varint("entries")?, "entries")?,
            FILE_TOMBSTONES => set(&mut self.tombstones, p.varint("tombstones")?, "tombstones")?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn finish(self) -> Result<FileMeta> {
        let meta = FileMeta {
            number: required(self.number, "file number")?,
            table_id: required(self.table_id, "table id")?,
            file_bytes: required(self.file_bytes, "file bytes")?,
            smallest: required(self.smallest, "smallest key")?,
            largest: required(self.largest, "largest key")?,
            tombstone_bounds: self.tombstone_bounds,
            largest_exclusive: self.largest_exclusive.is_some(),
            seqnos: required(self.seqnos, "sequence numbers")?,
            seqno_override: self.seqno_override,
            created_at: self.created_at.unwrap_or(0),
            filter_side_file: self.filter_side_file,
            entries: self.entries.unwrap_or(0),
            tombstones: self.tombstones.unwrap_or(0),
        };
        let number = meta.number;
        if meta.smallest.as_ref() > meta.largest.as_ref() {
            return Err(Error::corruption(format!("file {number}: its smallest key is above its largest")));
        }
        if meta.seqnos.0 > meta.seqnos.1 {
            return Err(Error::corruption(format!("file {number}: its sequence numbers are in the wrong order")));
        }
        Ok(meta)
    }
}

impl KeyspaceCreated {
    fn decode(p: &mut Decoder<'_>) -> Result<Self> {
        let id = keyspace_id(p)?;
        let (mut name, mut options, mut flushed) = (None, None, None);
        for_each_field(take_rest(p)?, "keyspace", |tag, payload| {
            match tag {
                KEYSPACE_NAME => set(&mut name, keyspace_name(take_rest(payload)?)?, "keyspace name")?,
                KEYSPACE_OPTIONS => set(&mut options, take_rest(payload)?.to_vec(), "keyspace options")?,
                KEYSPACE_FLUSHED => set(&mut flushed, seqno(payload)?, "flushed sequence number")?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(KeyspaceCreated {
            id,
            name: required(name, "keyspace name")?,
            options: required(options, "keyspace options")?,
            flushed: required(flushed, "flushed sequence number")?,
        })
    }
}

/// Fields, encoded one behind the other.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn field(&mut self, tag: u64, put_payload: impl FnOnce(&mut Vec<u8>)) {
        let mut payload = Vec::new();
        put_payload(&mut payload);
        self.bytes(tag, &payload);
    }

    fn bytes(&mut self, tag: u64, payload: &[u8]) {
        put_varint(&mut self.0, tag);
        put_bytes(&mut self.0, payload);
    }

    fn varint(&mut self, tag: u64, value: Option<u64>) {
        if let Some(value) = value {
            self.field(tag, |b| put_varint(b, value));
        }
    }

    fn word(&mut self, tag: u64, value: Option<u64>) {
        if let Some(value) = value {
            self.bytes(tag, &value.to_le_bytes());
        }
    }

    fn internal_key(&mut self, tag: u64, key: InternalKey<'_>) {
        self.field(tag, |b| {
            b.extend_from_slice(key.user_key);
            put_u64(b, key.tag.0);
        });
    }
}

fn put_varints(out: &mut Vec<u8>, values: &[u64]) {
    values.iter().for_each(|value| put_varint(out, *value));
}

/// Shows each field to `take`, which says whether it knew the tag and must use up the payload if it did.
fn for_each_field<'a>(
    bytes: &'a [u8],
    what: &str,
    mut take: impl FnMut(u64, &mut Decoder<'a>) -> Result<bool>,
) -> Result<()> {
    let mut fields = Decoder::new(bytes);
    while !fields.is_empty() {
        let tag = fields.varint("tag")?;
        let mut payload = Decoder::new(fields.bytes("field")?);
        let is_known = take(tag, &mut payload)?;
        if is_known && !payload.is_empty() {
            return Err(Error::corruption(format!(
                "{what} field {tag}: expected its end, found {} more bytes",
                payload.rest().len()
            )));
        }
        let safe_to_ignore = tag & 1 == 1;
        if !is_known && !safe_to_ignore {
            return Err(Error::unsupported(format!(
                "{what} field {tag} is unknown to this version; open the database with the version that wrote it"
            )));
        }
    }
    Ok(())
}

fn set<T>(slot: &mut Option<T>, value: T, what: &str) -> Result<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::corruption(format!("{what}: expected once, found twice"))),
    }
}

fn required<T>(found: Option<T>, what: &str) -> Result<T> {
    found.ok_or_else(|| Error::corruption(format!("{what}: expected, found none")))
}

fn take_rest<'a>(p: &mut Decoder<'a>) -> Result<&'a [u8]> {
    p.take(p.rest().len(), "field")
}

fn keyspace_id(p: &mut Decoder<'_>) -> Result<KeyspaceId> {
    let id = p.varint("keyspace id")?;
    u32::try_from(id).map_err(|_| Error::corruption(format!("expected a keyspace id of 32 bits, found {id}")))
}

fn seqno(p: &mut Decoder<'_>) -> Result<SeqNo> {
    let seqno = p.varint("sequence number")?;
    if seqno > MAX_SEQNO {
        return Err(Error::corruption(format!("expected a sequence number of 56 bits, found {seqno}")));
    }
    Ok(seqno)
}

fn internal_key(bytes: &[u8]) -> Result<InternalKeyBuf> {
    let (user_key, tag) = bytes
        .split_last_chunk::<8>()
        .filter(|(user_key, _)| user_key.len() <= MAX_KEY_BYTES)
        .ok_or_else(|| Error::corruption(format!("expected a key and its tag, found {} bytes", bytes.len())))?;
    let tag = Tag(u64::from_le_bytes(*tag));
    tag.kind()?;
    Ok(InternalKeyBuf { user_key: user_key.to_vec(), tag })
}

fn keyspace_name(bytes: &[u8]) -> Result<String> {
    let name = std::str::from_utf8(bytes).map_err(|_| Error::corruption("keyspace name: expected UTF-8"))?;
    check_keyspace_name(name).map_err(|error| Error::corruption(error.to_string()))?;
    Ok(name.to_owned())
}

fn known_features(bits: u64) -> Result<u64> {
    let unknown = bits & !KNOWN_INCOMPATIBLE_FEATURES;
    if unknown != 0 {
        return Err(Error::unsupported(format!(
            "the database uses features {unknown:#x} that this version does not know; open it with the version that wrote it"
        )));
    }
    Ok(bits)
}

fn decode_database(p: &mut Decoder<'_>) -> Result<DatabaseHeader> {
    let id = p.u64("database id")?;
    let mut hash_key = HashKey([0; 16]);
    for (to, from) in hash_key.0.iter_mut().zip(p.take(16, "hash key")?) {
        *to = *from;
    }
    Ok(DatabaseHeader { id, hash_key })
}

fn decode_clean_close(p: &mut Decoder<'_>) -> Result<Vec<(FileNumber, u64)>> {
    let mut logs = Vec::new();
    while !p.is_empty() {
        logs.push((p.varint("log number")?, p.varint("final length")?));
    }
    Ok(logs)
}

fn decode_tombstone_bounds(p: &mut Decoder<'_>) -> Result<(Vec<u8>, Vec<u8>)> {
    let (start, end) = (p.bytes("tombstone start")?, p.bytes("tombstone end")?);
    if start > end {
        return Err(Error::corruption("tombstone bounds: the start is above the end"));
    }
    Ok((start.to_vec(), end.to_vec()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::key::ValueKind;
    use proptest::prelude::*;

    fn key(user_key: &[u8], seqno: SeqNo) -> InternalKeyBuf {
        InternalKey::new(user_key, Tag::new(seqno, ValueKind::Put)).to_owned()
    }

    fn meta() -> FileMeta {
        FileMeta {
            number: 7,
            table_id: 0x0102,
            file_bytes: 4096,
            smallest: key(b"a", 3),
            largest: key(b"b", 2),
            tombstone_bounds: None,
            largest_exclusive: false,
            seqnos: (2, 3),
            seqno_override: None,
            created_at: 5,
            filter_side_file: None,
            entries: 2,
            tombstones: 0,
        }
    }

    fn created(name: &str) -> KeyspaceCreated {
        KeyspaceCreated { id: 1, name: name.into(), options: b"opt".to_vec(), flushed: 9 }
    }

    fn edit_of_meta(meta: FileMeta) -> VersionEdit {
        VersionEdit { files_added: vec![FileAdded { keyspace: 0, level: 6, meta }], ..Default::default() }
    }

    #[test]
    fn golden_bytes_of_the_small_fields() {
        let edit = VersionEdit {
            database: Some(DatabaseHeader { id: 0x0a0b, hash_key: HashKey(*b"0123456789abcdef") }),
            incompatible_features: Some(0),
            compatible_features: Some(1),
            next_file_number: Some(300),
            next_keyspace_id: Some(2),
            last_seqno: Some(17),
            logs_added: vec![4, 5],
            logs_removed: vec![3],
            clean_close: Some(vec![(5, 128)]),
            keyspaces_created: vec![created("n")],
            options_changed: vec![(1, b"new".to_vec())],
            keyspaces_dropped: vec![8],
            flushed: vec![(1, 16)],
            files_added: vec![],
            files_removed: vec![FileRemoved { keyspace: 1, level: 2, number: 6 }],
        };
        let golden: &[u8] = b"\
            \x02\x18\x0b\x0a\0\0\0\0\0\x000123456789abcdef\
            \x04\x08\0\0\0\0\0\0\0\0\
            \x05\x08\x01\0\0\0\0\0\0\0\
            \x06\x02\xac\x02\
            \x08\x01\x11\
            \x0a\x01\x04\x0a\x01\x05\
            \x0c\x01\x03\
            \x0e\x03\x05\x80\x01\
            \x10\x0c\x01\x02\x01n\x04\x03opt\x06\x01\x09\
            \x12\x04\x01new\
            \x14\x01\x08\
            \x16\x02\x01\x10\
            \x1c\x01\x02\
            \x1a\x03\x01\x02\x06";
        assert_eq!(edit.encode(), golden);
        assert_eq!(VersionEdit::decode(golden).unwrap(), edit);
    }

    #[test]
    fn golden_bytes_of_a_file() {
        let full = FileMeta {
            tombstone_bounds: Some((b"a".to_vec(), b"cd".to_vec())),
            largest_exclusive: true,
            seqno_override: Some(1),
            filter_side_file: Some(9),
            ..meta()
        };
        let golden: &[u8] = b"\x18\x45\x00\x06\
            \x02\x01\x07\
            \x04\x08\x02\x01\0\0\0\0\0\0\
            \x06\x02\x80\x20\
            \x08\x09a\x01\x03\0\0\0\0\0\0\
            \x0a\x09b\x01\x02\0\0\0\0\0\0\
            \x0c\x05\x01a\x02cd\
            \x0e\x00\
            \x10\x02\x02\x03\
            \x12\x01\x01\
            \x14\x01\x09\
            \x15\x01\x05\
            \x17\x01\x02\
            \x19\x01\x00";
        let edit = edit_of_meta(full);
        assert_eq!(edit.encode(), golden);
        assert_eq!(VersionEdit::decode(golden).unwrap(), edit);
    }

    fn fault(bytes: &[u8]) -> ErrorKind {
        VersionEdit::decode(bytes).unwrap_err().kind()
    }

    #[test]
    fn unknown_odd_fields_are_skipped_and_unknown_even_ones_are_unsupported() {
        let known = VersionEdit { last_seqno: Some(17), ..Default::default() };
        let mut bytes = known.encode();
        bytes.extend_from_slice(b"\x7f\x02??");
        assert_eq!(VersionEdit::decode(&bytes).unwrap(), known);
        assert_eq!(fault(b"\x7e\x00"), ErrorKind::Unsupported);
        let with_inner = |field: &[u8]| {
            let mut payload = vec![0, 6];
            payload.extend_from_slice(&meta().encode());
            payload.extend_from_slice(field);
            let mut out = Fields::default();
            out.bytes(FILE_ADDED, &payload);
            out.0
        };
        assert_eq!(VersionEdit::decode(&with_inner(b"\x7f\x01?")).unwrap(), edit_of_meta(meta()));
        assert_eq!(fault(&with_inner(b"\x7e\x01?")), ErrorKind::Unsupported);
    }

    #[test]
    fn unknown_incompatible_features_are_unsupported_and_compatible_ones_kept() {
        assert_eq!(fault(b"\x04\x08\0\0\0\0\0\0\0\x80"), ErrorKind::Unsupported);
        let edit = VersionEdit::decode(b"\x05\x08\0\0\0\0\0\0\0\x80").unwrap();
        assert_eq!(edit.compatible_features, Some(1 << 63));
    }

    #[test]
    fn fields_that_are_off_are_corruption() {
        for bytes in [
            &b"\x06\x02\x01\x01"[..],                          // bytes behind a payload
            b"\x06\x00",                                       // none in it
            b"\x06\x01\x01\x06\x01\x02",                       // twice
            b"\x06\x7f\x01",                                   // a length over the end
            b"\x0e\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\0", // a length over any memory
            b"\x14\x05\xff\xff\xff\xff\x1f",                   // a keyspace id over 32 bits
            b"\x08\x09\xff\xff\xff\xff\xff\xff\xff\xff\x7f",   // a sequence number over 56 bits
            b"\x10\x01\x01",                                   // a keyspace without a name
            b"\x18\x02\x00\x00",                               // a file without anything
            b"\x80",
        ] {
            assert_eq!(fault(bytes), ErrorKind::Corruption, "{bytes:?}");
        }
    }

    #[test]
    fn keyspace_names_are_checked_when_given_and_when_read() {
        let long = "x".repeat(256);
        for name in ["", "a\0b", &long] {
            assert_eq!(check_keyspace_name(name).unwrap_err().kind(), ErrorKind::InvalidArgument);
            let edit = VersionEdit { keyspaces_created: vec![created(name)], ..Default::default() };
            assert_eq!(fault(&edit.encode()), ErrorKind::Corruption);
        }
        for name in ["a", "../b", "\u{fc}", &long[1..]] {
            check_keyspace_name(name).unwrap();
            let edit = VersionEdit { keyspaces_created: vec![created(name)], ..Default::default() };
            assert_eq!(VersionEdit::decode(&edit.encode()).unwrap(), edit);
        }
        assert_eq!(fault(b"\x10\x0b\x01\x02\x01\xff\x04\x00\x06\x01\x09\x05\x00"), ErrorKind::Corruption);
    }

    #[test]
    fn bounds_and_keys_of_files_must_make_sense() {
        let with = |change: fn(&mut FileMeta)| {
            let mut meta = meta();
            change(&mut meta);
            fault(&edit_of_meta(meta).encode())
        };
        assert_eq!(with(|m| m.smallest = key(b"c", 1)), ErrorKind::Corruption);
        assert_eq!(with(|m| m.seqnos = (4, 3)), ErrorKind::Corruption);
        assert_eq!(with(|m| m.largest = key(&[b'x'; MAX_KEY_BYTES + 1], 1)), ErrorKind::Corruption);
        assert_eq!(with(|m| m.tombstone_bounds = Some((b"b".to_vec(), b"a".to_vec()))), ErrorKind::Corruption);
        assert_eq!(with(|m| m.largest.tag = Tag(0x0103)), ErrorKind::Unsupported);
    }

    fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..max)
    }

    fn any_meta() -> impl Strategy<Value = FileMeta> {
        let keys = (bytes(20), bytes(20), any::<bool>(), prop::option::of((bytes(9), bytes(9))));
        let numbers = (any::<[u64; 6]>(), 0..MAX_SEQNO, 0..MAX_SEQNO);
        let options = (prop::option::of(0..MAX_SEQNO), prop::option::of(any::<u64>()));
        (keys, numbers, options).prop_map(|((a, b, largest_exclusive, bounds), (n, s, t), (over, side))| FileMeta {
            number: n[0],
            table_id: n[1],
            file_bytes: n[2],
            smallest: key((&a).min(&b), s),
            largest: key((&a).max(&b), s.min(t)),
            tombstone_bounds: bounds.map(|(x, y)| (x.clone().min(y.clone()), x.max(y))),
            largest_exclusive,
            seqnos: (s.min(t), s.max(t)),
            seqno_override: over,
            created_at: n[3],
            filter_side_file: side,
            entries: n[4],
            tombstones: n[5],
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn edits_round_trip(
            metas in prop::collection::vec(any_meta(), 0..4),
            logs in prop::collection::vec(any::<u64>(), 0..4),
            closed in prop::option::of(prop::collection::vec(any::<(u64, u64)>(), 0..4)),
            names in prop::collection::vec("[a-z/é]{1,60}", 0..4),
            ids in any::<(u32, u8, u64)>(),
        ) {
            let edit = VersionEdit {
                logs_added: logs.clone(),
                logs_removed: logs,
                clean_close: closed,
                keyspaces_created: names.iter().map(|name| created(name)).collect(),
                keyspaces_dropped: vec![ids.0],
                files_removed: vec![FileRemoved { keyspace: ids.0, level: ids.1, number: ids.2 }],
                files_added: metas
                    .into_iter()
                    .map(|meta| FileAdded { keyspace: ids.0, level: ids.1, meta })
                    .collect(),
                ..Default::default()
            };
            prop_assert_eq!(VersionEdit::decode(&edit.encode()).unwrap(), edit);
        }

        #[test]
        fn damaged_and_random_bytes_never_panic(
            meta in any_meta(),
            at: prop::sample::Index,
            byte: u8,
            random in bytes(200),
        ) {
            let _ = VersionEdit::decode(&random);
            let mut encoded = edit_of_meta(meta).encode();
            let at = at.index(encoded.len());
            encoded[at] = byte;
            let _ = VersionEdit::decode(&encoded);
            let _ = VersionEdit::decode(&encoded[..at]);
        }
    }
}
