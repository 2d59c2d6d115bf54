//! CURRENT: the file that names the manifest. Written aside, synced, and renamed into place, so that it is always whole;
//! checked nevertheless, so that one that a power cut or a bad disk filled with zeros is recognised.
//!
//! ```text
//! MANIFEST-000005\n
//! crc 11f8d3e5\n      masked CRC-32 of the first line, in hexadecimal
//! ```
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use crate::checksum::checksum;
use crate::error::Result;
use crate::filename::{FileName, FileNumber};
use crate::record::read_whole;
use crate::vfs::{Context, FileSystem};
use std::path::Path;

/// Longer than any whole one: not worth reading.
const MAX_BYTES: u64 = 256;

/// What CURRENT says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Current {
    Names(FileNumber),
    Damaged,
    Missing,
}

fn content(number: FileNumber) -> String {
    let line = format!("{}\n", FileName::Manifest(number));
    format!("{line}crc {:08x}\n", checksum(line.as_bytes()))
}

fn parse(bytes: &[u8]) -> Option<FileNumber> {
    let name = std::str::from_utf8(bytes).ok()?.lines().next()?;
    let FileName::Manifest(number) = FileName::parse(name)? else { return None };
    (content(number).as_bytes() == bytes).then_some(number)
}

pub(super) fn read(fs: &dyn FileSystem, dir: &Path) -> Result<Current> {
    let path = FileName::Current.in_dir(dir);
    if !fs.exists(&path).context("look for", &path)? {
        return Ok(Current::Missing);
    }
    if fs.len(&path).context("measure", &path)? > MAX_BYTES {
        return Ok(Current::Damaged);
    }
    let bytes = read_whole(fs, &path)?;
    Ok(parse(&bytes).map_or(Current::Damaged, Current::Names))
}

/// Makes CURRENT name manifest `number`, which must be durable with its entry. The change is durable on return; after a
/// failure CURRENT may name either.
pub(super) fn install(fs: &dyn FileSystem, dir: &Path, number: FileNumber) -> Result<()> {
    let (temp, current) = (FileName::CurrentTemp.in_dir(dir), FileName::Current.in_dir(dir));
    match fs.remove_file(&temp) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        outcome => outcome.context("remove a left-over", &temp)?,
    }
    let mut file = fs.create_new(&temp).context("create", &temp)?;
    file.append(content(number).as_bytes()).context("write", &temp)?;
    file.sync().context("sync", &temp)?;
    file.close().context("close", &temp)?;
    fs.rename(&temp, &current).context("rename into place", &current)?;
    fs.sync_dir(dir).context("sync", dir)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;
    use crate::record::testing::TestFs;

    #[test]
    fn golden_bytes() {
        assert_eq!(content(5), "MANIFEST-000005\ncrc 11f8d3e5\n");
    }

    #[test]
    fn what_was_installed_is_read_and_a_left_over_does_not_matter() {
        let fs = TestFs::default();
        assert_eq!(read(&fs, Path::new("d")).unwrap(), Current::Missing);
        fs.put("d/CURRENT.tmp", b"left over");
        install(&fs, Path::new("d"), 5).unwrap();
        assert_eq!(read(&fs, Path::new("d")).unwrap(), Current::Names(5));
        install(&fs, Path::new("d"), 1_000_000).unwrap();
        assert_eq!(read(&fs, Path::new("d")).unwrap(), Current::Names(1_000_000));
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_recognised() {
        let fs = TestFs::default();
        let whole = content(5).into_bytes();
        let damaged = |bytes: &[u8]| {
            fs.put("d/CURRENT", bytes);
            read(&fs, Path::new("d")).unwrap() == Current::Damaged
        };
        for at in 0..whole.len() {
            assert!(damaged(&whole[..at]));
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                assert!(damaged(&bytes), "{at}");
            }
        }
        assert!(damaged(&vec![0; whole.len()]) && damaged(&[&whole[..], b"\n"].concat()) && damaged(&[b'M'; 300]));
    }
}
