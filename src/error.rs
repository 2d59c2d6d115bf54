//! The one error type of the crate: a kind for programs, a message for people, and the file and offset it is about.
//!
//! Boxed, so that `Result<Option<Value>>` stays small on the read path.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, for programs to decide by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The file system refused or failed an operation.
    Io,
    /// Bytes on disk are not what was written: a checksum, a length or an order is wrong.
    Corruption,
    /// The files ask for something this build cannot do: a newer format, a codec that is not compiled in.
    Unsupported,
    /// The caller passed something outside the documented limits. Nothing was written.
    InvalidArgument,
    /// The database, keyspace or file does not exist.
    NotFound,
    /// The database exists and `error_if_exists` was set.
    AlreadyExists,
    /// Another process, or another handle of this process, has the database open.
    Locked,
    /// The handle was used after `close`.
    Closed,
    /// A requirement of a conditional batch did not hold. Nothing was written.
    Conflict,
    /// An earlier write, flush or manifest failure made the database read-only; the source is that failure.
    BackgroundFailure,
    /// The database was opened read-only.
    ReadOnly,
    /// The disk is full.
    NoSpace,
}

/// An error of siftdb. Cheap to move (one pointer) and to clone.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    path: Option<PathBuf>,
    offset: Option<u64>,
    source: Option<Arc<dyn std::error::Error + Send + Sync + 'static>>,
}

impl Error {
    /// An error of `kind`. The message says what was expected and what to do.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error(Box::new(Inner { kind, message: message.into(), path: None, offset: None, source: None }))
    }

    pub(crate) fn corruption(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corruption, message)
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    pub(crate) fn invalid_argument(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    /// An `io::Error` met while doing `operation` on `path`.
    pub(crate) fn io(operation: &str, path: &Path, source: io::Error) -> Self {
        let kind = match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            _ => ErrorKind::Io,
        };
        Error(Box::new(Inner {
            kind,
            message: format!("cannot {operation}"),
            path: Some(path.to_owned()),
            offset: None,
            source: Some(Arc::new(source)),
        }))
    }

    /// The error that later writes get once `cause` has made the database read-only.
    pub(crate) fn background(cause: &Error) -> Self {
        Error(Box::new(Inner {
            kind: ErrorKind::BackgroundFailure,
            message: "the database is read-only since an earlier failure; reads go on, reopen to write again".into(),
            path: None,
            offset: None,
            source: Some(Arc::new(cause.clone())),
        }))
    }

    /// Adds the file, unless one is named already.
    pub(crate) fn in_file(mut self, path: &Path) -> Self {
        self.0.path.get_or_insert_with(|| path.to_owned());
        self
    }

    /// Adds the offset, unless one is named already.
    pub(crate) fn at(mut self, offset: u64) -> Self {
        self.0.offset.get_or_insert(offset);
        self
    }

    /// What went wrong, for programs to decide by.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The file the error is about.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The byte offset in that file.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        if let Some(path) = &self.0.path {
            write!(f, ": {}", path.display())?;
        }
        if let Some(offset) = self.0.offset {
            write!(f, " at offset {offset}")?;
        }
        if let Some(source) = &self.0.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|s| s as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_file_offset_and_cause() {
        let error = Error::io("read", Path::new("x/000001.sst"), io::Error::other("boom")).at(17);
        assert_eq!(error.to_string(), "cannot read: x/000001.sst at offset 17: boom");
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(std::error::Error::source(&error).is_some());
    }

    #[test]
    fn disk_full_and_missing_files_have_their_own_kind() {
        let full = Error::io("write", Path::new("f"), io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(full.kind(), ErrorKind::NoSpace);
        let missing = Error::io("open", Path::new("f"), io::Error::from(io::ErrorKind::NotFound));
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn an_error_is_one_pointer() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }
}
