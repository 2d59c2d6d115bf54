//! A batch: operations on any keyspaces that take effect together. Its bytes in memory are its bytes in the log.
//!
//! ```text
//! batch:  seqno u64 | count u32 | operation × count
//! put:    1 u8 | keyspace id varint | key length varint | key | value length varint | value
//! delete: 0 u8 | keyspace id varint | key length varint | key
//! ```
//!
//! The i-th operation has the sequence number `seqno + i`; `seqno` is set when the batch's turn to be written comes.
//! Kinds are those of [`ValueKind`]; an unknown one is `Unsupported`, for what follows it can't be read.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use crate::coding::{Decoder, put_bytes, put_varint, varint_len};
use crate::error::{Error, Result};
use crate::key::{MAX_KEY_BYTES, MAX_SEQNO, MAX_VALUE_BYTES, SeqNo, ValueKind};

/// seqno 8, count 4.
const HEADER_BYTES: usize = 12;

/// A batch is smaller than 4 GiB: lengths fit 32 bits.
const MAX_BATCH_BYTES: u64 = u32::MAX as u64;

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Op<'a> {
    pub(crate) kind: ValueKind,
    pub(crate) keyspace: u32,
    pub(crate) key: &'a [u8],
    /// Empty for a delete.
    pub(crate) value: &'a [u8],
}

/// A batch under construction, or on its way to the log.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    count: u32,
}

impl Default for Batch {
    fn default() -> Self {
        Batch { bytes: vec![0; HEADER_BYTES], count: 0 }
    }
}

impl Batch {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a write of `value` under `key`. If a limit is exceeded nothing is added.
    pub(crate) fn put(&mut self, keyspace: u32, key: &[u8], value: &[u8]) -> Result<()> {
        self.add(ValueKind::Put, keyspace, key, Some(value))
    }

    /// Adds the removal of `key`. If a limit is exceeded nothing is added.
    pub(crate) fn delete(&mut self, keyspace: u32, key: &[u8]) -> Result<()> {
        self.add(ValueKind::Delete, keyspace, key, None)
    }

    fn add(&mut self, kind: ValueKind, keyspace: u32, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let added = added_bytes(keyspace, key.len() as u64, value.map(|value| value.len() as u64))?;
        check_batch_bytes(self.bytes.len() as u64, added)?;
        self.bytes.push(kind as u8);
        put_varint(&mut self.bytes, u64::from(keyspace));
        put_bytes(&mut self.bytes, key);
        if let Some(value) = value {
            put_bytes(&mut self.bytes, value);
        }
        // An operation takes three bytes at least, so a batch within its limit can't hold 2^32.
        self.count = self.count.saturating_add(1);
        self.set_header(8, &self.count.to_le_bytes());
        Ok(())
    }

    /// The number of operations.
    pub(crate) fn len(&self) -> u32 {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The size of [`as_bytes`](Self::as_bytes).
    pub(crate) fn byte_size(&self) -> usize {
        self.bytes.len()
    }

    /// The encoded batch.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes all operations, keeps the memory.
    #[cfg(test)]
    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(HEADER_BYTES);
        self.bytes.fill(0);
        self.count = 0;
    }

    /// Numbers the operations, from `seqno` on.
    pub(crate) fn set_seqno(&mut self, seqno: SeqNo) {
        self.set_header(0, &seqno.to_le_bytes());
    }

    pub(crate) fn seqno(&self) -> SeqNo {
        self.bytes.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// The operations, in the order they were added.
    pub(crate) fn iter(&self) -> Ops<'_> {
        Ops::new(self.bytes.get(HEADER_BYTES..).unwrap_or_default())
    }

    /// A view of an encoded batch, checked from end to end: its operations can be read without an error.
    pub(crate) fn decode(bytes: &[u8]) -> Result<BatchRef<'_>> {
        BatchRef::decode(bytes)
    }

    fn set_header(&mut self, at: usize, field: &[u8]) {
        for (to, from) in self.bytes.iter_mut().skip(at).zip(field) {
            *to = *from;
        }
    }
}

/// Shows sizes, never keys or values.
impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batch({} operations at {}, {} bytes)", self.count, self.seqno(), self.bytes.len())
    }
}

/// The encoded size of one operation, or which limit it exceeds.
fn added_bytes(keyspace: u32, key: u64, value: Option<u64>) -> Result<u64> {
    if key > MAX_KEY_BYTES as u64 {
        return Err(Error::invalid_argument(format!("a key of {key} bytes is over the limit of {MAX_KEY_BYTES}")));
    }
    if let Some(value) = value.filter(|value| *value > MAX_VALUE_BYTES as u64) {
        return Err(Error::invalid_argument(format!(
            "a value of {value} bytes is over the limit of {MAX_VALUE_BYTES}"
        )));
    }
    let with_length = |len: u64| len.saturating_add(varint_len(len) as u64);
    let head = 1_u64.saturating_add(varint_len(u64::from(keyspace)) as u64);
    Ok(head.saturating_add(with_length(key)).saturating_add(value.map_or(0, with_length)))
}

fn check_batch_bytes(present: u64, added: u64) -> Result<()> {
    let total = present.saturating_add(added);
    if total <= MAX_BATCH_BYTES {
        return Ok(());
    }
    let message =
        format!("the batch would grow to {total} bytes, over the limit of {MAX_BATCH_BYTES}; commit it in parts");
    Err(Error::invalid_argument(message))
}

/// A borrowed batch that was checked from end to end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchRef<'a> {
    seqno: SeqNo,
    count: u32,
    ops: &'a [u8],
}

impl<'a> BatchRef<'a> {
    fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut header = Decoder::new(bytes);
        let seqno = header.u64("batch sequence number")?;
        let count = header.u32("batch count")?;
        let last = seqno.checked_add(u64::from(count.saturating_sub(1))).filter(|last| *last <= MAX_SEQNO);
        if last.is_none() {
            return Err(Error::corruption(format!(
                "sequence numbers from {seqno} on, {count} of them, do not fit 56 bits"
            )));
        }
        let batch = BatchRef { seqno, count, ops: header.rest() };
        let mut found = 0_u32;
        for op in batch.iter() {
            op?;
            found = found.saturating_add(1);
        }
        if found != count {
            return Err(Error::corruption(format!("expected a batch of {count} operations, found {found}")));
        }
        Ok(batch)
    }

    /// The sequence number of the first operation.
    pub(crate) fn seqno(&self) -> SeqNo {
        self.seqno
    }

    /// The number of operations.
    #[cfg(test)]
    pub(crate) fn len(&self) -> u32 {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The operations, in order.
    pub(crate) fn iter(&self) -> Ops<'a> {
        Ops::new(self.ops)
    }
}

impl std::fmt::Debug for BatchRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BatchRef({} operations at {}, {} bytes)", self.count, self.seqno, self.ops.len())
    }
}

/// Reads operations one by one. After an error there are no more.
#[derive(Clone, Debug)]
pub(crate) struct Ops<'a> {
    rest: Decoder<'a>,
}

impl<'a> Ops<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Ops { rest: Decoder::new(bytes) }
    }

    fn op(&mut self) -> Result<Op<'a>> {
        let kind = ValueKind::from_u8(self.rest.u8("operation kind")?)?;
        let keyspace = self.rest.varint("keyspace id")?;
        let keyspace = u32::try_from(keyspace)
            .map_err(|_| Error::corruption(format!("expected a keyspace id of 32 bits, found {keyspace}")))?;
        let key = self.rest.bytes("key")?;
        if key.len() > MAX_KEY_BYTES {
            return Err(Error::corruption(format!("a key of {} bytes is over {MAX_KEY_BYTES}", key.len())));
        }
        let value = match kind {
            ValueKind::Put => self.rest.bytes("value")?,
            ValueKind::Delete => &[],
        };
        Ok(Op { kind, keyspace, key, value })
    }
}

impl<'a> Iterator for Ops<'a> {
    type Item = Result<Op<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let op = self.op();
        if op.is_err() {
            self.rest = Decoder::new(&[]);
        }
        Some(op)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use proptest::prelude::*;

    fn sample() -> Batch {
        let mut batch = Batch::new();
        batch.put(0, b"key", b"value").unwrap();
        batch.delete(300, b"").unwrap();
        batch.set_seqno(258);
        batch
    }

    const GOLDEN: &[u8] = b"\x02\x01\0\0\0\0\0\0\x02\0\0\0\
        \x01\x00\x03key\x05value\
        \x00\xac\x02\x00";

    #[test]
    fn golden_bytes() {
        assert_eq!(sample().as_bytes(), GOLDEN);
    }

    #[test]
    fn a_batch_reads_back_as_it_was_built() {
        let batch = sample();
        let decoded = Batch::decode(batch.as_bytes()).unwrap();
        assert_eq!((decoded.seqno(), decoded.len(), decoded.is_empty()), (258, 2, false));
        let ops: Vec<Op<'_>> = decoded.iter().map(|op| op.unwrap()).collect();
        assert_eq!(ops[0], Op { kind: ValueKind::Put, keyspace: 0, key: b"key", value: b"value" });
        assert_eq!(ops[1], Op { kind: ValueKind::Delete, keyspace: 300, key: b"", value: b"" });
        assert!(batch.iter().map(|op| op.unwrap()).eq(ops));
    }

    #[test]
    fn a_cleared_batch_is_a_new_one() {
        let mut batch = sample();
        batch.clear();
        assert!(batch.is_empty());
        assert_eq!(batch, Batch::new());
        assert_eq!(Batch::decode(batch.as_bytes()).unwrap().len(), 0);
    }

    #[test]
    fn a_key_over_the_limit_adds_nothing() {
        let mut batch = sample();
        let key = vec![0; MAX_KEY_BYTES + 1];
        assert_eq!(batch.put(0, &key, b"").unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(batch.delete(0, &key).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(batch, sample());
        batch.put(0, &key[1..], b"").unwrap();
        assert_eq!(Batch::decode(batch.as_bytes()).unwrap().len(), 3);
    }

    #[test]
    fn values_and_batches_stay_below_4_gib() {
        let limit = u64::from(u32::MAX);
        let refused = |outcome: Result<()>| outcome.is_err_and(|e| e.kind() == ErrorKind::InvalidArgument);
        // What a batch takes, a table takes: a value in between would be logged and then stop every flush.
        let value = MAX_VALUE_BYTES as u64;
        assert_eq!(added_bytes(0, 3, Some(value)).unwrap(), 1 + 1 + 1 + 3 + 5 + value);
        assert!(refused(added_bytes(0, 3, Some(value + 1)).map(|_| ())));
        check_batch_bytes(12, limit - 12).unwrap();
        assert!(refused(check_batch_bytes(12, limit - 11)));
        assert!(refused(check_batch_bytes(limit, u64::MAX)));
    }

    #[test]
    fn the_size_is_known_before_anything_is_added() {
        for (keyspace, key, value) in
            [(0, 0, None), (127, 127, Some(0)), (128, 128, Some(127)), (u32::MAX, 9, Some(300))]
        {
            let (mut batch, bytes) = (Batch::new(), [7; 300]);
            match value {
                Some(len) => batch.put(keyspace, &bytes[..key], &bytes[..len]).unwrap(),
                None => batch.delete(keyspace, &bytes[..key]).unwrap(),
            }
            let added = added_bytes(keyspace, key as u64, value.map(|len| len as u64)).unwrap();
            assert_eq!(batch.byte_size() as u64, HEADER_BYTES as u64 + added);
        }
    }

    #[test]
    fn an_encoding_that_is_off_is_refused() {
        let with = |at: usize, byte: u8| {
            let mut bytes = GOLDEN.to_vec();
            bytes[at] = byte;
            Batch::decode(&bytes).unwrap_err().kind()
        };
        assert_eq!(with(8, 1), ErrorKind::Corruption, "fewer counted than there are");
        assert_eq!(with(8, 3), ErrorKind::Corruption, "more counted than there are");
        assert_eq!(with(11, 0xff), ErrorKind::Corruption, "a count beyond any memory");
        assert_eq!(with(7, 1), ErrorKind::Corruption, "a sequence number over 56 bits");
        assert_eq!(with(12, 2), ErrorKind::Unsupported, "a reserved kind");
        assert_eq!(with(14, 0x7f), ErrorKind::Corruption, "a key longer than the batch");
        let mut trailing = GOLDEN.to_vec();
        trailing.push(0);
        assert_eq!(Batch::decode(&trailing).unwrap_err().kind(), ErrorKind::Corruption);
        for len in 0..GOLDEN.len() {
            assert!(Batch::decode(&GOLDEN[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn a_decoded_key_over_the_limit_is_corruption() {
        let mut bytes = GOLDEN[..12].to_vec();
        bytes[8] = 1;
        bytes.extend_from_slice(&[0, 0]);
        put_bytes(&mut bytes, &vec![0; MAX_KEY_BYTES + 1]);
        assert_eq!(Batch::decode(&bytes).unwrap_err().kind(), ErrorKind::Corruption);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn batches_round_trip(
            ops in prop::collection::vec(
                (any::<u32>(), prop::collection::vec(any::<u8>(), 0..200),
                 prop::option::of(prop::collection::vec(any::<u8>(), 0..200))),
                0..20,
            ),
            seqno in 0..MAX_SEQNO - 20,
        ) {
            let mut batch = Batch::new();
            for (keyspace, key, value) in &ops {
                match value {
                    Some(value) => batch.put(*keyspace, key, value).unwrap(),
                    None => batch.delete(*keyspace, key).unwrap(),
                }
            }
            batch.set_seqno(seqno);
            let decoded = Batch::decode(batch.as_bytes()).unwrap();
            prop_assert_eq!((decoded.seqno(), decoded.len() as usize), (seqno, ops.len()));
            for (op, (keyspace, key, value)) in decoded.iter().zip(&ops) {
                let op = op.unwrap();
                prop_assert_eq!((op.keyspace, op.key), (*keyspace, &key[..]));
                prop_assert_eq!(op.kind == ValueKind::Put, value.is_some());
                prop_assert_eq!(op.value, value.as_deref().unwrap_or_default());
            }
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(batch) = Batch::decode(&bytes) {
                prop_assert!(batch.iter().all(|op| op.is_ok()));
            }
        }
    }
}
