//! Block compression. A compressed payload is `raw length varint | compressed bytes`; a plain one is the raw bytes.
//!
//! No bomb goes off here: a block over [`MAX_COMPRESSED_RAW_BYTES`] is stored plain, so a payload that declares more is
//! corrupt and is refused before anything is allocated; and the decoder must produce exactly what was declared.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use crate::block::filled;
use crate::coding::{Decoder, put_varint};
use crate::error::{Error, Result};
use crate::value::SharedBytes;

/// How the blocks of a table are compressed.
///
/// A block that would not shrink, or is over 16 MiB, is stored plain whatever is set here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compression {
    /// Stored as they are.
    #[default]
    None,
    /// LZ4: fast both ways. Needs the feature `lz4` (on by default).
    Lz4,
    /// Zstandard: smaller and slower; for the last level. Needs the feature `zstd`.
    Zstd,
}

/// The largest block that is ever compressed.
pub(crate) const MAX_COMPRESSED_RAW_BYTES: usize = 16 << 20;

impl Compression {
    /// The codec's number on disk.
    pub(crate) fn codec(self) -> u8 {
        match self {
            Compression::None => 0,
            Compression::Lz4 => 1,
            Compression::Zstd => 2,
        }
    }

    pub(crate) fn from_codec(codec: u8) -> Result<Self> {
        match codec {
            0 => Ok(Compression::None),
            1 => Ok(Compression::Lz4),
            2 => Ok(Compression::Zstd),
            other => Err(Error::unsupported(format!(
                "block codec {other} is unknown to this version; open the files with the version that wrote them"
            ))),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }

    /// `Unsupported` if this build leaves the codec out.
    pub(crate) fn require(self) -> Result<()> {
        let built = match self {
            Compression::None => true,
            Compression::Lz4 => cfg!(feature = "lz4"),
            Compression::Zstd => cfg!(feature = "zstd"),
        };
        if built { Ok(()) } else { Err(self.missing()) }
    }

    fn missing(self) -> Error {
        let name = self.name();
        Error::unsupported(format!("blocks compressed with {name}: build siftdb with its feature `{name}`"))
    }
}

/// Compresses one block after another with one set of work tables.
pub(crate) struct Compressor {
    compression: Compression,
    output: Vec<u8>,
    #[cfg(feature = "lz4")]
    lz4: Option<Box<lz4_flex::block::CompressTable>>,
    #[cfg(feature = "zstd")]
    zstd: Option<zstd::bulk::Compressor<'static>>,
}

impl Compressor {
    /// `Unsupported` if this build leaves the codec out.
    pub(crate) fn new(compression: Compression) -> Result<Self> {
        compression.require()?;
        Ok(Compressor {
            compression,
            output: Vec::new(),
            #[cfg(feature = "lz4")]
            lz4: None,
            #[cfg(feature = "zstd")]
            zstd: None,
        })
    }

    /// The payload to store for `raw`, and its codec.
    pub(crate) fn compress<'a>(&'a mut self, raw: &'a [u8]) -> Result<(Compression, &'a [u8])> {
        if self.compression == Compression::None || raw.len() > MAX_COMPRESSED_RAW_BYTES {
            return Ok((Compression::None, raw));
        }
        self.output.clear();
        put_varint(&mut self.output, raw.len() as u64);
        match self.compression {
            Compression::None => {}
            Compression::Lz4 => self.append_lz4(raw)?,
            Compression::Zstd => self.append_zstd(raw)?,
        }
        if self.output.len() < raw.len() { Ok((self.compression, &self.output)) } else { Ok((Compression::None, raw)) }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.output.capacity()
    }

    #[cfg(feature = "lz4")]
    fn append_lz4(&mut self, raw: &[u8]) -> Result<()> {
        use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
        let table = self.lz4.get_or_insert_with(|| Box::new(CompressTable::large()));
        let start = self.output.len();
        self.output.resize(start.saturating_add(get_maximum_output_size(raw.len())), 0);
        let space = self.output.get_mut(start..).unwrap_or_default();
        let written = compress_into_with_table(raw, space, table)
            .map_err(|e| Error::corruption(format!("lz4 could not compress a block: {e}")))?;
        self.output.truncate(start.saturating_add(written));
        Ok(())
    }

    #[cfg(not(feature = "lz4"))]
    fn append_lz4(&mut self, _raw: &[u8]) -> Result<()> {
        Err(Compression::Lz4.missing())
    }

    #[cfg(feature = "zstd")]
    fn append_zstd(&mut self, raw: &[u8]) -> Result<()> {
        let failed = |e: std::io::Error| Error::corruption(format!("zstd could not compress a block: {e}"));
        if self.zstd.is_none() {
            self.zstd = Some(zstd::bulk::Compressor::new(ZSTD_LEVEL).map_err(failed)?);
        }
        if let Some(compressor) = &mut self.zstd {
            let compressed = compressor.compress(raw).map_err(failed)?;
            self.output.extend_from_slice(&compressed);
        }
        Ok(())
    }

    #[cfg(not(feature = "zstd"))]
    fn append_zstd(&mut self, _raw: &[u8]) -> Result<()> {
        Err(Compression::Zstd.missing())
    }
}

/// The library's own default.
#[cfg(feature = "zstd")]
const ZSTD_LEVEL: i32 = 3;

/// The raw bytes of a compressed payload.
pub(crate) fn decompress(compression: Compression, payload: &[u8]) -> Result<SharedBytes> {
    compression.require()?;
    let mut decoder = Decoder::new(payload);
    let declared = decoder.varint("raw length of a compressed block")?;
    let raw_len = usize::try_from(declared).ok().filter(|&len| len <= MAX_COMPRESSED_RAW_BYTES).ok_or_else(|| {
        Error::corruption(format!("a compressed block declares {declared} bytes, over {MAX_COMPRESSED_RAW_BYTES}"))
    })?;
    filled(raw_len, |output| {
        let written = decode(compression, decoder.rest(), output)?;
        if written == raw_len {
            return Ok(());
        }
        Err(Error::corruption(format!("a compressed block declares {raw_len} bytes and holds {written}")))
    })
}

fn decode(compression: Compression, input: &[u8], output: &mut [u8]) -> Result<usize> {
    match compression {
        Compression::None => Err(Error::corruption("a plain block was taken for a compressed one")),
        Compression::Lz4 => decode_lz4(input, output),
        Compression::Zstd => decode_zstd(input, output),
    }
}

#[cfg(feature = "lz4")]
fn decode_lz4(input: &[u8], output: &mut [u8]) -> Result<usize> {
    lz4_flex::block::decompress_into(input, output)
        .map_err(|e| Error::corruption(format!("lz4 cannot decode a block: {e}")))
}

#[cfg(not(feature = "lz4"))]
fn decode_lz4(_input: &[u8], _output: &mut [u8]) -> Result<usize> {
    Err(Compression::Lz4.missing())
}

/// Decodes with a context kept per thread: making one costs as much as decoding a block. The output buffer is the
/// window, so a frame that declares a larger one allocates nothing.
#[cfg(feature = "zstd")]
fn decode_zstd(input: &[u8], output: &mut [u8]) -> Result<usize> {
    use std::cell::RefCell;
    thread_local! {
        static CONTEXT: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
    }
    let failed = |e: std::io::Error| Error::corruption(format!("zstd cannot decode a block: {e}"));
    CONTEXT.with_borrow_mut(|context| {
        if context.is_none() {
            *context = Some(zstd::bulk::Decompressor::new().map_err(failed)?);
        }
        match context {
            Some(decompressor) => decompressor.decompress_to_buffer(input, output).map_err(failed),
            None => Ok(0),
        }
    })
}

#[cfg(not(feature = "zstd"))]
fn decode_zstd(_input: &[u8], _output: &mut [u8]) -> Result<usize> {
    Err(Compression::Zstd.missing())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn built_codecs() -> Vec<Compression> {
        [Compression::Lz4, Compression::Zstd].into_iter().filter(|c| c.require().is_ok()).collect()
    }

    #[test]
    fn blocks_round_trip_with_one_compressor() {
        for compression in built_codecs() {
            let mut compressor = Compressor::new(compression).unwrap();
            for len in [100_usize, 4096, 70_000, 200, 65_535, 65_536] {
                let raw: Vec<u8> = (0..len).map(|i| (i / 9) as u8).collect();
                let (codec, payload) = compressor.compress(&raw).unwrap();
                assert_eq!(codec, compression);
                assert!(payload.len() < raw.len());
                assert_eq!(&*decompress(codec, payload).unwrap(), raw);
            }
        }
    }

    #[test]
    fn what_does_not_shrink_or_is_too_large_is_stored_plain() {
        for compression in built_codecs() {
            let mut compressor = Compressor::new(compression).unwrap();
            assert_eq!(compressor.compress(b"abc").unwrap(), (Compression::None, &b"abc"[..]));
            let large = vec![0; MAX_COMPRESSED_RAW_BYTES + 1];
            assert_eq!(compressor.compress(&large).unwrap().0, Compression::None);
            assert_eq!(compressor.compress(&large[1..]).unwrap().0, compression);
        }
    }

    #[test]
    fn a_declared_size_that_is_wrong_or_a_bomb_is_corruption() {
        for compression in built_codecs() {
            let mut compressor = Compressor::new(compression).unwrap();
            let payload = compressor.compress(&[7; 100]).unwrap().1.to_vec();
            for declared in [99_u64, 101, 0, MAX_COMPRESSED_RAW_BYTES as u64 + 1, u64::MAX] {
                let mut forged = Vec::new();
                put_varint(&mut forged, declared);
                forged.extend_from_slice(&payload[1..]);
                assert_eq!(decompress(compression, &forged).err().unwrap().kind(), ErrorKind::Corruption, "{declared}");
            }
            assert_eq!(decompress(compression, &[]).err().unwrap().kind(), ErrorKind::Corruption);
        }
    }

    #[test]
    fn an_unknown_codec_is_unsupported_and_the_known_keep_their_numbers() {
        assert_eq!(Compression::from_codec(3).err().unwrap().kind(), ErrorKind::Unsupported);
        for (codec, compression) in [Compression::None, Compression::Lz4, Compression::Zstd].into_iter().enumerate() {
            assert_eq!(usize::from(compression.codec()), codec);
            assert_eq!(Compression::from_codec(compression.codec()).unwrap(), compression);
        }
    }

    #[cfg(not(feature = "zstd"))]
    #[test]
    fn a_codec_left_out_of_the_build_names_its_feature() {
        let error = decompress(Compression::Zstd, &[0]).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("feature `zstd`"));
    }
}
