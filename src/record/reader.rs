//! Reads records back from the bytes of a whole file, trusting none of them.
//!
//! A record is delivered only if all its chunks are good. Where the first bad chunk stands, reading stops, and the rest
//! of the file decides what that means:
//! - a good chunk further on promises that more than the records so far was synced: what is damaged here was safe once.
//!   That is corruption, and silently dropping it would lose acknowledged data;
//! - nothing but zeros: the file ends here (it was preallocated);
//! - anything else: a torn tail, which may be cut.
//!
//! The work is linear in the length of the file, whatever the bytes say.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use crate::coding::Decoder;
use crate::error::{Error, Result};
use crate::filename::FileNumber;
use crate::record::{BLOCK_BYTES, CLEAN_CLOSE, FIRST, FULL, HEADER_BYTES, LAST, MIDDLE, chunk_checksum, log_number_of};
use std::borrow::Cow;

/// How many bytes a search may put through the checksum, per block: what looks like a header at every turn must not
/// make it quadratic.
const SEARCH_BYTES_PER_BLOCK: usize = 4 * BLOCK_BYTES;

/// Why there are no more records.
#[allow(clippy::enum_variant_names)] // "End of file" is what it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The writer closed the file; it is whole.
    CleanClose,
    /// The file ends behind its last record, or goes on with zeros only.
    EndOfFile,
    /// A damaged or cut record begins at `offset`; nothing from there on was promised to be synced.
    Torn { offset: u64 },
}

/// What reading came upon.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step<'a> {
    Record(Cow<'a, [u8]>),
    End(End),
}

struct Header {
    crc: u32,
    length: usize,
    kind: u8,
    promised: u64,
}

struct Chunk<'a> {
    start: usize,
    end: usize,
    kind: u8,
    promised: u64,
    payload: &'a [u8],
}

/// The reading end of a file of records.
#[derive(Debug)]
pub(crate) struct RecordReader<'a> {
    bytes: &'a [u8],
    log_number: u32,
    /// Behind the last chunk taken.
    position: usize,
    /// Behind the last record delivered, or behind the clean close.
    valid_len: usize,
    /// The most that a chunk taken promised.
    promised: u64,
    done: Option<Result<End>>,
}

impl<'a> RecordReader<'a> {
    /// Over all bytes of the file with this number.
    pub(crate) fn new(bytes: &'a [u8], number: FileNumber) -> Self {
        RecordReader { bytes, log_number: log_number_of(number), position: 0, valid_len: 0, promised: 0, done: None }
    }

    /// The next record, or why there is none. The end and an error stay.
    pub(crate) fn read(&mut self) -> Result<Step<'a>> {
        if let Some(done) = &self.done {
            return done.clone().map(Step::End);
        }
        let step = self.read_record();
        match &step {
            Ok(Step::Record(_)) => {}
            Ok(Step::End(end)) => self.done = Some(Ok(*end)),
            Err(error) => self.done = Some(Err(error.clone())),
        }
        step
    }

    /// Where the valid part of the file ends: behind the last record delivered, or behind the clean close.
    pub(crate) fn valid_len(&self) -> u64 {
        self.valid_len as u64
    }

    /// How much of the file was synced, as far as its good chunks tell.
    pub(crate) fn promised(&self) -> u64 {
        self.promised
    }

    fn read_record(&mut self) -> Result<Step<'a>> {
        let mut joined: Option<Vec<u8>> = None;
        loop {
            let Some(chunk) = self.next_chunk() else { return self.stop(joined.is_some()).map(Step::End) };
            self.check(&chunk, joined.is_some())?;
            self.position = chunk.end;
            self.promised = self.promised.max(chunk.promised);
            match (chunk.kind, joined.as_mut()) {
                (FIRST, _) => joined = Some(chunk.payload.to_vec()),
                (MIDDLE, Some(record)) => record.extend_from_slice(chunk.payload),
                (LAST, Some(record)) => {
                    record.extend_from_slice(chunk.payload);
                    self.valid_len = chunk.end;
                    return Ok(Step::Record(Cow::Owned(std::mem::take(record))));
                }
                (CLEAN_CLOSE, _) => return self.clean_close(&chunk).map(Step::End),
                _ => {
                    self.valid_len = chunk.end;
                    return Ok(Step::Record(Cow::Borrowed(chunk.payload)));
                }
            }
        }
    }

    /// The chunk that comes next, if it is good; the zeros at the end of a block are skipped.
    fn next_chunk(&self) -> Option<Chunk<'a>> {
        let mut at = self.position;
        let left = left_in_block(at);
        if left < HEADER_BYTES {
            at = at.checked_add(left)?;
            let filler = self.bytes.get(self.position..at)?;
            if !all_zero(filler) {
                return None;
            }
        }
        self.chunk_at(at)
    }

    /// A chunk of this file at `start`: it fits its block and the file, and its checksum is right.
    fn chunk_at(&self, start: usize) -> Option<Chunk<'a>> {
        let header = self.header_at(start)?;
        let payload_start = start.checked_add(HEADER_BYTES)?;
        let end = payload_start.checked_add(header.length)?;
        let payload = self.bytes.get(payload_start..end)?;
        let covered = self.bytes.get(start.checked_add(4)?..end)?;
        let good = chunk_checksum(start as u64, covered) == header.crc;
        good.then_some(Chunk { start, end, kind: header.kind, promised: header.promised, payload })
    }

    /// What may be a header of this file, before any checksum.
    fn header_at(&self, start: usize) -> Option<Header> {
        let bytes = self.bytes.get(start..start.checked_add(HEADER_BYTES)?)?;
        let mut fields = Decoder::new(bytes);
        let crc = fields.u32("").ok()?;
        let length = usize::from(fields.u16("").ok()?);
        let kind = fields.u8("").ok()?;
        let log_number = fields.u32("").ok()?;
        let promised = fields.u64("").ok()?;
        let fits = HEADER_BYTES.checked_add(length)? <= left_in_block(start);
        (fits && log_number == self.log_number).then_some(Header { crc, length, kind, promised })
    }

    /// A good chunk must also make sense where it stands: no torn write can bring about one that does not.
    fn check(&self, chunk: &Chunk<'_>, in_record: bool) -> Result<()> {
        let continues = match chunk.kind {
            FULL | FIRST | CLEAN_CLOSE => false,
            MIDDLE | LAST => true,
            other => {
                let message = format!(
                    "chunk type {other} is unknown to this version; open the database with the version that wrote it"
                );
                return Err(Error::unsupported(message).at(chunk.start as u64));
            }
        };
        if continues != in_record {
            let message = "expected chunks in order (whole, or first, middles, last), found one out of order";
            return Err(corruption(message, chunk.start));
        }
        if chunk.promised > self.valid_len as u64 {
            let message = format!("a chunk promises {} synced bytes, more than stand before it", chunk.promised);
            return Err(corruption(message, chunk.start));
        }
        Ok(())
    }

    fn clean_close(&mut self, chunk: &Chunk<'_>) -> Result<End> {
        if !chunk.payload.is_empty() || chunk.promised != self.valid_len as u64 {
            let message = format!("expected an empty clean close behind {} synced bytes", self.valid_len);
            return Err(corruption(message, chunk.start));
        }
        if !self.bytes.get(chunk.end..).is_none_or(all_zero) {
            return Err(corruption("expected nothing behind the clean close, found more bytes", chunk.end));
        }
        self.valid_len = chunk.end;
        Ok(End::CleanClose)
    }

    /// No good chunk stands at the position: what does that mean?
    fn stop(&self, in_record: bool) -> Result<End> {
        if self.bytes.get(self.position..).is_none_or(all_zero) {
            let torn = End::Torn { offset: self.valid_len as u64 };
            return Ok(if in_record { torn } else { End::EndOfFile });
        }
        match self.promise_beyond() {
            None => Ok(End::Torn { offset: self.valid_len as u64 }),
            Some(promised) => {
                let message = format!(
                    "a record is damaged, though the first {promised} bytes of the file were synced; restore the file \
                     from a backup, or salvage what stands before"
                );
                Err(corruption(message, self.position))
            }
        }
    }

    /// A promise, in a good chunk behind the position, of more synced bytes than were delivered. The bad chunk's length
    /// can't be trusted, so every offset is tried.
    fn promise_beyond(&self) -> Option<u64> {
        let mut start = self.position;
        while start < self.bytes.len() {
            let end = start.saturating_add(left_in_block(start)).min(self.bytes.len());
            let block_is_used = self.bytes.get(start..end).is_some_and(|rest| !all_zero(rest));
            if let Some(promised) = block_is_used.then(|| self.promise_within(start, end)).flatten() {
                return Some(promised);
            }
            start = end;
        }
        None
    }

    fn promise_within(&self, start: usize, end: usize) -> Option<u64> {
        let mut budget = SEARCH_BYTES_PER_BLOCK;
        for at in start..end.saturating_sub(HEADER_BYTES.saturating_sub(1)) {
            // The cheapest test first: most bytes are no chunk type.
            let kind = *self.bytes.get(at.saturating_add(6))?;
            if !(FULL..=CLEAN_CLOSE).contains(&kind) {
                continue;
            }
            let Some(header) = self.header_at(at) else { continue };
            if header.promised <= self.valid_len as u64 || header.promised > at as u64 {
                continue;
            }
            budget = budget.checked_sub(header.length)?;
            if self.chunk_at(at).is_some() {
                return Some(header.promised);
            }
        }
        None
    }
}

fn left_in_block(at: usize) -> usize {
    BLOCK_BYTES.saturating_sub(at.checked_rem(BLOCK_BYTES).unwrap_or_default())
}

/// Piecewise, so that it runs at the speed of memory and still stops early.
fn all_zero(bytes: &[u8]) -> bool {
    bytes.chunks(4096).all(|piece| piece.iter().fold(0, |seen, byte| seen | byte) == 0)
}

fn corruption(message: impl Into<String>, at: usize) -> Error {
    Error::corruption(message).at(at as u64)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::panic)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::record::testing::{TestFs, writer};
    use proptest::prelude::*;

    const NUMBER: FileNumber = 9;

    /// What to do with a file: add a record of this length and fill, or sync.
    #[derive(Clone, Copy, Debug)]
    enum Do {
        Add(usize),
        Sync,
    }

    struct Written {
        bytes: Vec<u8>,
        records: Vec<Vec<u8>>,
        /// Where each record ends.
        ends: Vec<usize>,
        /// The last offset that a record, not only the clean close, promises.
        promised: usize,
    }

    impl Written {
        fn records_within(&self, len: usize) -> usize {
            self.ends.iter().filter(|end| **end <= len).count()
        }
    }

    fn write(script: &[Do], close: bool) -> Written {
        let fs = TestFs::default();
        let mut records = writer(&fs, "d/log", NUMBER);
        let mut written = Written { bytes: Vec::new(), records: Vec::new(), ends: Vec::new(), promised: 0 };
        for (index, step) in script.iter().enumerate() {
            match *step {
                Do::Sync => records.sync().unwrap(),
                Do::Add(len) => {
                    let record: Vec<u8> = (0..len).map(|i| (i * 7 + index * 13 + 1) as u8).collect();
                    written.promised = records.synced_offset() as usize;
                    records.add_record(&record);
                    written.ends.push(records.len() as usize);
                    written.records.push(record);
                }
            }
        }
        records.flush().unwrap();
        if close {
            records.close().unwrap();
        }
        written.bytes = fs.bytes("d/log");
        written
    }

    fn read(bytes: &[u8]) -> (Vec<Vec<u8>>, Result<End>) {
        read_as(bytes, NUMBER)
    }

    fn read_as(bytes: &[u8], number: FileNumber) -> (Vec<Vec<u8>>, Result<End>) {
        let mut reader = RecordReader::new(bytes, number);
        let mut records = Vec::new();
        loop {
            match reader.read() {
                Ok(Step::Record(record)) => records.push(record.into_owned()),
                Ok(Step::End(end)) => {
                    assert_eq!(reader.read().unwrap(), Step::End(end), "the end stays");
                    return (records, Ok(end));
                }
                Err(error) => {
                    assert!(reader.read().is_err(), "an error stays");
                    assert!(error.offset().is_some());
                    return (records, Err(error));
                }
            }
        }
    }

    #[track_caller]
    fn assert_corrupt(outcome: Result<End>) {
        assert!(matches!(&outcome, Err(e) if e.kind() == ErrorKind::Corruption), "{outcome:?}");
    }

    #[test]
    fn lengths_around_a_block_round_trip() {
        for base in [0, BLOCK_BYTES - HEADER_BYTES, BLOCK_BYTES, 2 * (BLOCK_BYTES - HEADER_BYTES), 5 * BLOCK_BYTES] {
            for len in base.saturating_sub(HEADER_BYTES + 8)..=base + HEADER_BYTES + 8 {
                let written = write(&[Do::Add(len), Do::Add(3), Do::Add(0)], true);
                let (records, end) = read(&written.bytes);
                assert!(records == written.records, "{len}");
                assert_eq!(end.unwrap(), End::CleanClose);
            }
        }
    }

    #[test]
    fn every_truncation_gives_a_prefix() {
        let written = write(&[Do::Add(5), Do::Sync, Do::Add(0), Do::Add(60), Do::Sync, Do::Add(9)], true);
        for len in 0..written.bytes.len() {
            let (records, end) = read(&written.bytes[..len]);
            let whole = written.records_within(len);
            assert!(records == written.records[..whole], "{len}");
            let valid = if whole == 0 { 0 } else { written.ends[whole - 1] };
            if len == valid {
                assert_eq!(end.unwrap(), End::EndOfFile);
            } else if written.bytes[valid..len].iter().any(|b| *b != 0) {
                assert_eq!(end.unwrap(), End::Torn { offset: valid as u64 });
            }
        }
    }

    #[test]
    fn a_truncated_record_of_several_blocks_is_torn_at_its_start() {
        let written = write(&[Do::Add(5), Do::Add(3 * BLOCK_BYTES)], false);
        for len in [BLOCK_BYTES, 2 * BLOCK_BYTES, 2 * BLOCK_BYTES + 5, written.bytes.len() - 1] {
            let (records, end) = read(&written.bytes[..len]);
            assert_eq!(records.len(), 1);
            assert_eq!(end.unwrap(), End::Torn { offset: written.ends[0] as u64 });
        }
    }

    #[test]
    fn a_flipped_byte_below_a_promise_is_corruption_and_beyond_it_cuts_there() {
        let script = [Do::Add(5), Do::Add(70), Do::Add(0), Do::Sync, Do::Add(30), Do::Add(8), Do::Add(20)];
        let written = write(&script, false);
        assert_eq!(written.promised, written.ends[2]);
        for at in 0..written.bytes.len() {
            let mut bytes = written.bytes.clone();
            bytes[at] ^= 0x40;
            let (records, end) = read(&bytes);
            if at < written.promised {
                assert_corrupt(end);
            } else {
                let whole = written.records_within(at);
                assert!(records == written.records[..whole], "{at}");
                assert_eq!(end.unwrap(), End::Torn { offset: written.ends[whole - 1] as u64 });
            }
        }
    }

    #[test]
    fn a_flipped_byte_in_a_closed_file_is_corruption_or_costs_nothing() {
        // The second record leaves 10 bytes of its block, which are filled; the third spans blocks.
        let second = BLOCK_BYTES - 10 - 2 * HEADER_BYTES - 5;
        let written = write(&[Do::Add(5), Do::Add(second), Do::Add(BLOCK_BYTES + 100), Do::Add(7)], true);
        let close = written.ends[3];
        let near = |at: usize, place: usize| at.abs_diff(place) < 40;
        for at in 0..written.bytes.len() {
            let checked = [0, BLOCK_BYTES, 2 * BLOCK_BYTES, close].iter().any(|place| near(at, *place));
            if !checked && at % 311 != 0 {
                continue;
            }
            let mut bytes = written.bytes.clone();
            bytes[at] ^= 1;
            let (records, end) = read(&bytes);
            if at < close {
                assert_corrupt(end);
            } else {
                assert!(records == written.records, "{at}");
                assert_eq!(end.unwrap(), End::Torn { offset: close as u64 });
            }
        }
    }

    #[test]
    fn zeros_are_the_end_of_a_preallocated_file_but_not_below_a_promise() {
        let mut written = write(&[Do::Add(5), Do::Add(70), Do::Sync, Do::Add(30)], false);
        let len = written.bytes.len();
        written.bytes.resize(3 * BLOCK_BYTES, 0);
        let (records, end) = read(&written.bytes);
        assert_eq!((records.len(), end.unwrap()), (3, End::EndOfFile));
        assert_eq!(read(&[0; 1000]).1.unwrap(), End::EndOfFile);
        written.bytes[written.ends[0]..written.ends[1]].fill(0);
        assert_corrupt(read(&written.bytes[..len]).1);
    }

    #[test]
    fn a_hole_is_found_from_blocks_further_on() {
        let mut written =
            write(&[Do::Add(100), Do::Add(BLOCK_BYTES), Do::Sync, Do::Add(BLOCK_BYTES), Do::Add(9)], false);
        written.bytes[written.ends[0]..BLOCK_BYTES].fill(0xff);
        let (records, end) = read(&written.bytes);
        assert_eq!(records.len(), 1);
        assert_eq!(end.as_ref().unwrap_err().offset(), Some(written.ends[0] as u64));
        assert_corrupt(end);
    }

    #[test]
    fn bytes_of_another_file_end_this_one() {
        let written = write(&[Do::Add(5)], false);
        let (records, end) = read_as(&written.bytes, NUMBER + 1);
        assert_eq!((records.len(), end.unwrap()), (0, End::Torn { offset: 0 }));
        let (records, _) = read_as(&written.bytes, NUMBER + (1 << 32));
        assert_eq!(records.len(), 1, "only the low bits are kept");
    }

    #[test]
    fn a_middle_block_of_old_bytes_ends_the_log_at_once() {
        let mut written = write(&[Do::Add(10), Do::Add(3 * BLOCK_BYTES), Do::Add(10)], false);
        let old = write(&[Do::Add(3 * BLOCK_BYTES)], true);
        written.bytes[BLOCK_BYTES..2 * BLOCK_BYTES].copy_from_slice(&old.bytes[..BLOCK_BYTES]);
        let (records, end) = read(&written.bytes);
        assert_eq!((records.len(), end.unwrap()), (1, End::Torn { offset: written.ends[0] as u64 }));
    }

    #[test]
    fn two_blocks_swapped_are_damage() {
        let whole_block = BLOCK_BYTES - HEADER_BYTES;
        let mut written = write(&[Do::Add(whole_block), Do::Add(whole_block), Do::Add(1)], true);
        let (first, second) = written.bytes[..2 * BLOCK_BYTES].split_at_mut(BLOCK_BYTES);
        first.swap_with_slice(second);
        let (records, end) = read(&written.bytes);
        assert!(records.is_empty());
        assert_corrupt(end);
    }

    #[test]
    fn a_log_kept_as_a_value_promises_nothing() {
        let inner = write(&[Do::Add(400), Do::Sync, Do::Add(10)], true);
        let fs = TestFs::default();
        let mut records = writer(&fs, "d/log", NUMBER);
        records.add_record(b"kept");
        records.add_record(b"torn");
        records.add_record(&inner.bytes);
        records.flush().unwrap();
        let mut bytes = fs.bytes("d/log");
        bytes[HEADER_BYTES + 4] ^= 1;
        let (records, end) = read(&bytes);
        assert_eq!(records, [b"kept"]);
        assert_eq!(end.unwrap(), End::Torn { offset: 23 });
    }

    #[test]
    fn nothing_but_zeros_may_follow_a_clean_close() {
        let mut written = write(&[Do::Add(5)], true);
        written.bytes.extend_from_slice(&[0; 500]);
        assert_eq!(read(&written.bytes).1.unwrap(), End::CleanClose);
        *written.bytes.last_mut().unwrap() = 1;
        assert_corrupt(read(&written.bytes).1);
    }

    /// A chunk with a right checksum, whatever it says.
    fn forge(bytes: &mut Vec<u8>, kind: u8, promised: u64, payload: &[u8]) {
        let start = bytes.len();
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&(payload.len() as u16).to_le_bytes());
        bytes.push(kind);
        bytes.extend_from_slice(&(NUMBER as u32).to_le_bytes());
        bytes.extend_from_slice(&promised.to_le_bytes());
        bytes.extend_from_slice(payload);
        let crc = chunk_checksum(start as u64, &bytes[start + 4..]);
        bytes[start..start + 4].copy_from_slice(&crc.to_le_bytes());
    }

    #[test]
    fn good_chunks_that_make_no_sense_are_refused() {
        let cases: [(&[(u8, u64)], ErrorKind); 9] = [
            (&[(MIDDLE, 0)], ErrorKind::Corruption),
            (&[(LAST, 0)], ErrorKind::Corruption),
            (&[(FIRST, 0), (FULL, 0)], ErrorKind::Corruption),
            (&[(FIRST, 0), (FIRST, 0)], ErrorKind::Corruption),
            (&[(FIRST, 0), (CLEAN_CLOSE, 0)], ErrorKind::Corruption),
            (&[(FULL, 1)], ErrorKind::Corruption),
            (&[(FULL, 0), (CLEAN_CLOSE, 19)], ErrorKind::Corruption),
            (&[(0, 0)], ErrorKind::Unsupported),
            (&[(6, 0)], ErrorKind::Unsupported),
        ];
        for (chunks, kind) in cases {
            let mut bytes = Vec::new();
            for (kind, promised) in chunks {
                forge(&mut bytes, *kind, *promised, b"x");
            }
            assert_eq!(read(&bytes).1.unwrap_err().kind(), kind, "{chunks:?}");
        }
    }

    #[test]
    fn headers_at_every_turn_do_not_make_the_search_quadratic() {
        let mut bytes = vec![0xff; BLOCK_BYTES];
        let mut plausible = vec![0_u8; HEADER_BYTES];
        plausible[4..6].copy_from_slice(&20_000_u16.to_le_bytes());
        plausible[6] = FULL;
        plausible[7..11].copy_from_slice(&(NUMBER as u32).to_le_bytes());
        plausible[11] = 7;
        while bytes.len() < 64 * BLOCK_BYTES {
            bytes.extend_from_slice(&plausible);
        }
        assert_eq!(read(&bytes).1.unwrap(), End::Torn { offset: 0 });
    }

    fn script() -> impl Strategy<Value = Vec<Do>> {
        let near_block = (BLOCK_BYTES - HEADER_BYTES - 8..BLOCK_BYTES + HEADER_BYTES + 8).prop_map(Do::Add);
        let small = (0_usize..300).prop_map(Do::Add);
        let large = (0..4 * BLOCK_BYTES).prop_map(Do::Add);
        prop::collection::vec(prop_oneof![3 => small, 1 => near_block, 1 => large, 2 => Just(Do::Sync)], 1..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn what_was_written_is_read(script in script(), close: bool) {
            let written = write(&script, close);
            let (records, end) = read(&written.bytes);
            prop_assert!(records == written.records);
            prop_assert_eq!(end.unwrap(), if close { End::CleanClose } else { End::EndOfFile });
        }

        #[test]
        fn damage_never_gives_other_records(script in script(), close: bool, at: prop::sample::Index, byte in 1_u8..) {
            let mut written = write(&script, close);
            prop_assume!(!written.bytes.is_empty());
            let at = at.index(written.bytes.len());
            written.bytes[at] ^= byte;
            let (records, end) = read(&written.bytes);
            prop_assert!(written.records.starts_with(&records));
            let lost = records.len() < written.records.len();
            prop_assert!(!close || !lost || end.is_err(), "a closed file loses nothing silently");
            prop_assert!(records.len() >= written.records_within(at));
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            let _ = read(&bytes);
        }
    }
}
