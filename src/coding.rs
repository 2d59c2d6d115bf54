//! Integers as bytes: little-endian fixed width (byteorder) and LEB128 varints; and [`Decoder`], which reads them back
//! from untrusted bytes, returns errors and never panics.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use crate::error::{Error, Result};
use byteorder::{ByteOrder, LittleEndian};

pub(crate) fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// LEB128: seven bits a byte, low bits first; 1 to 10 bytes.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes with their length before them.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// How many bytes [`put_varint`] writes.
pub(crate) fn varint_len(value: u64) -> usize {
    (64_u32.saturating_sub((value | 1).leading_zeros()) as usize).div_ceil(7)
}

/// Reads a varint from the front: the value and how many bytes it took. None if it is cut short, longer than ten bytes
/// or over 64 bits.
#[inline]
pub(crate) fn get_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    if first < 0x80 {
        return Some((u64::from(first), 1));
    }
    let mut value = u64::from(first & 0x7f);
    let mut shift = 7_u32;
    for (at, &byte) in bytes.iter().enumerate().take(10).skip(1) {
        let part = u64::from(byte & 0x7f);
        if shift == 63 && part > 1 {
            return None;
        }
        value |= part << shift;
        if byte < 0x80 {
            return Some((value, at.saturating_add(1)));
        }
        shift = shift.saturating_add(7);
    }
    None
}

/// Reads fields off the front of untrusted bytes. Every method fails with `Corruption` when the bytes run out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Decoder { rest: bytes }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `len` bytes.
    pub(crate) fn take(&mut self, len: usize, what: &str) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or_else(|| {
            Error::corruption(format!("{what}: expected {len} more bytes, found {}", self.rest.len()))
        })?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn u8(&mut self, what: &str) -> Result<u8> {
        Ok(self.take(1, what)?.first().copied().unwrap_or_default())
    }

    pub(crate) fn u16(&mut self, what: &str) -> Result<u16> {
        Ok(LittleEndian::read_u16(self.take(2, what)?))
    }

    pub(crate) fn u32(&mut self, what: &str) -> Result<u32> {
        Ok(LittleEndian::read_u32(self.take(4, what)?))
    }

    pub(crate) fn u64(&mut self, what: &str) -> Result<u64> {
        Ok(LittleEndian::read_u64(self.take(8, what)?))
    }

    pub(crate) fn varint(&mut self, what: &str) -> Result<u64> {
        let (value, used) = get_varint(self.rest)
            .ok_or_else(|| Error::corruption(format!("{what}: not a varint of at most 64 bits")))?;
        self.rest = self.rest.get(used..).unwrap_or_default();
        Ok(value)
    }

    /// A varint that must fit a `usize` and, as a length, the bytes that remain.
    pub(crate) fn length(&mut self, what: &str) -> Result<usize> {
        let value = self.varint(what)?;
        match usize::try_from(value) {
            Ok(len) if len <= self.rest.len() => Ok(len),
            _ => Err(Error::corruption(format!("{what}: length {value} is over the {} bytes left", self.rest.len()))),
        }
    }

    /// Bytes with their length before them, as [`put_bytes`] writes.
    pub(crate) fn bytes(&mut self, what: &str) -> Result<&'a [u8]> {
        let len = self.length(what)?;
        self.take(len, what)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_at_every_width() {
        for shift in 0..64 {
            for value in [1_u64 << shift, (1_u64 << shift) - 1, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, value);
                assert_eq!(bytes.len(), varint_len(value), "{value}");
                assert_eq!(get_varint(&bytes), Some((value, bytes.len())));
                assert_eq!(get_varint(&bytes[..bytes.len() - 1]), None);
            }
        }
    }

    #[test]
    fn varints_over_64_bits_are_refused() {
        assert_eq!(get_varint(&[0xff; 11]), None);
        assert_eq!(get_varint(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]), None);
        assert_eq!(get_varint(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]), Some((u64::MAX, 10)));
    }

    #[test]
    fn a_length_over_what_is_left_is_corruption() {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, 1 << 40);
        let error = Decoder::new(&bytes).bytes("name").unwrap_err();
        assert_eq!(error.kind(), crate::error::ErrorKind::Corruption);
        assert!(Decoder::new(&[1, 2, 3]).u32("x").is_err());
    }

    #[test]
    fn fixed_width_fields_are_little_endian() {
        let mut out = Vec::new();
        put_u16(&mut out, 0x0102);
        put_u32(&mut out, 0x0102_0304);
        put_u64(&mut out, 0x0102_0304_0506_0708);
        assert_eq!(out, [2, 1, 4, 3, 2, 1, 8, 7, 6, 5, 4, 3, 2, 1]);
        let mut decoder = Decoder::new(&out);
        assert_eq!(decoder.u16("").unwrap(), 0x0102);
        assert_eq!(decoder.u32("").unwrap(), 0x0102_0304);
        assert_eq!(decoder.u64("").unwrap(), 0x0102_0304_0506_0708);
        assert!(decoder.is_empty());
    }
}
