//! What can go wrong, what the user is told to do about it, and the exit status: 2 for a wrong call, 1 for a failure.

use siftdb::ErrorKind;
use std::fmt;
use std::io;
use std::path::Path;

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Why the program ends early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The call makes no sense: an unknown workload, an empty key file. Exit status 2.
    Usage(String),
    /// The work failed. Exit status 1.
    Failed(String),
    /// Whoever read our output has gone: nobody is left to tell, and nothing is wrong.
    OutputClosed,
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Failure::Usage(message.into())
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Failure::Failed(message.into())
    }

    /// A failure of the file system while doing `operation` on `path`.
    pub(crate) fn io(operation: &str, path: &Path, source: &io::Error) -> Self {
        let hint = match source.kind() {
            io::ErrorKind::NotFound => "check the path",
            io::ErrorKind::PermissionDenied => "check its permissions, or choose another path",
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => NO_SPACE,
            _ => return Failure::failed(format!("cannot {operation} {}: {source}", path.display())),
        };
        Failure::failed(format!("cannot {operation} {}: {source}; {hint}", path.display()))
    }

    /// The same for a file that the user named as input: that it is not there, or is no file, is a wrong call.
    pub(crate) fn input(operation: &str, path: &Path, source: &io::Error) -> Self {
        use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
        match Self::io(operation, path, source) {
            Failure::Failed(message) if matches!(source.kind(), NotFound | NotADirectory | IsADirectory) => {
                Failure::Usage(message)
            }
            other => other,
        }
    }

    /// An error of the engine, with what to do about it, for the database in `dir`.
    pub(crate) fn engine(error: &siftdb::Error, dir: &Path) -> Self {
        let dir = dir.display();
        let hint = match cause(error) {
            ErrorKind::Locked => "close the program that has it open, or choose another directory with --db",
            ErrorKind::NotFound => "check the path",
            ErrorKind::AlreadyExists => "choose another directory with --db, or remove this one",
            ErrorKind::NoSpace => NO_SPACE,
            ErrorKind::Unsupported => "rebuild kvbench with the feature named, or use a newer version",
            ErrorKind::Corruption => "if this is a siftdb database, restore it; otherwise choose another directory",
            _ => return Failure::failed(format!("database {dir}: {error}")),
        };
        Failure::failed(format!("database {dir}: {error}; {hint}"))
    }
}

/// What made the database read-only, if that is what `error` says; otherwise its own kind.
fn cause(error: &siftdb::Error) -> ErrorKind {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<siftdb::Error>());
    match source {
        Some(source) if error.kind() == ErrorKind::BackgroundFailure => cause(source),
        _ => error.kind(),
    }
}

const NO_SPACE: &str = "free some space, or choose another file system with --db or TMPDIR";

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(message) | Failure::Failed(message) => f.write_str(message),
            Failure::OutputClosed => f.write_str("the output was closed"),
        }
    }
}

/// For `?` on writes to standard output, the only bare `io::Error` in this program.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => Failure::Failed(format!("cannot write the results: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_output_is_told_from_a_failed_one() {
        assert!(matches!(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)), Failure::OutputClosed));
        assert!(matches!(Failure::from(io::Error::other("x")), Failure::Failed(_)));
    }

    #[test]
    fn a_full_disk_and_a_missing_file_say_what_to_do() {
        let full = Failure::io("write", Path::new("f"), &io::Error::from(io::ErrorKind::StorageFull)).to_string();
        assert!(full.contains("free some space"), "{full}");
        let missing = Failure::io("read", Path::new("f"), &io::Error::from(io::ErrorKind::NotFound)).to_string();
        assert!(missing.contains("check the path"), "{missing}");
    }
}
