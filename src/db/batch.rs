//! [`WriteBatch`]: operations that are committed together.

use crate::batch::Batch;
use crate::db::keyspace::{Handle, Keyspace};
use crate::db::queue::{Pending, Requirement};
use crate::error::{Error, Result};
use crate::key::{MAX_KEY_BYTES, SeqNo};
use crate::options::WriteOptions;
use crate::sync::Arc;

/// Operations that are committed together: after a crash all of them are there or none, across keyspaces.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = siftdb::Db::open(dir.path().join("db"))?;
/// let stock = db.keyspace("stock")?;
/// let mut batch = db.batch();
/// batch.put("order:1", "3 apples").delete("cart:7");
/// batch.on(&stock).require("apples", None).put("apples", "97");
/// let seqno = batch.commit()?;
/// # assert_eq!(seqno, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A batch may carry requirements: then it is committed only if they all hold at that moment, with no other write in
/// between. Later operations on a key win over earlier ones.
#[must_use = "a batch does nothing until it is committed"]
pub struct WriteBatch {
    handle: Arc<Handle>,
    batch: Batch,
    keyspaces: Vec<u32>,
    requirements: Vec<Requirement>,
    user_bytes: u64,
    /// The first operation that was refused; `commit` returns it.
    refused: Option<Error>,
}

impl WriteBatch {
    pub(crate) fn new(handle: Arc<Handle>) -> Self {
        WriteBatch {
            handle,
            batch: Batch::new(),
            keyspaces: Vec::new(),
            requirements: Vec::new(),
            user_bytes: 0,
            refused: None,
        }
    }

    /// Sets `key` to `value` in the default keyspace. A key or value over the limits is reported by `commit`.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.add_put(0, key.as_ref(), value.as_ref());
        self
    }

    /// Removes `key` from the default keyspace.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.add_delete(0, key.as_ref());
        self
    }

    /// The batch is committed only if `key` of the default keyspace has the value `expected` then (`None`: is absent).
    pub fn require(&mut self, key: impl AsRef<[u8]>, expected: Option<&[u8]>) -> &mut Self {
        self.add_requirement(0, key.as_ref(), expected);
        self
    }

    /// The same operations on another keyspace of the same database.
    pub fn on<'a>(&'a mut self, keyspace: &Keyspace) -> KeyspaceBatch<'a> {
        if !Arc::ptr_eq(keyspace.engine(), self.handle.engine()) {
            self.refuse(Error::invalid_argument("the keyspace belongs to another database than the batch"));
        }
        KeyspaceBatch { keyspace: keyspace.tree().id, batch: self }
    }

    /// Operations so far.
    pub fn len(&self) -> usize {
        self.batch.len() as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Encoded size in bytes: what the log will hold.
    pub fn byte_size(&self) -> usize {
        self.batch.byte_size()
    }

    /// Commits. Returns the sequence number of the last operation (of the last write before, if the batch has none). Safe from a crash of the process when this returns.
    ///
    /// # Errors
    /// `Conflict` if a requirement does not hold, `InvalidArgument` if an operation was over the limits: nothing was
    /// written. After `Io` all of the batch or none of it is there when the database is opened again.
    pub fn commit(self) -> Result<SeqNo> {
        self.commit_with(&WriteOptions::default())
    }

    /// [`commit`](Self::commit) with options.
    pub fn commit_with(self, options: &WriteOptions) -> Result<SeqNo> {
        if let Some(error) = self.refused {
            return Err(error);
        }
        let engine = Arc::clone(self.handle.engine());
        engine.commit(Pending {
            batch: self.batch,
            keyspaces: self.keyspaces,
            requirements: self.requirements,
            sync: options.sync || engine.options.sync_every_write,
            user_bytes: self.user_bytes,
        })
    }

    fn refuse(&mut self, error: Error) {
        self.refused.get_or_insert(error);
    }

    fn touch(&mut self, keyspace: u32) {
        if !self.keyspaces.contains(&keyspace) {
            self.keyspaces.push(keyspace);
        }
    }

    fn add_put(&mut self, keyspace: u32, key: &[u8], value: &[u8]) {
        match self.batch.put(keyspace, key, value) {
            Ok(()) => {
                self.user_bytes += (key.len() + value.len()) as u64;
                self.touch(keyspace);
            }
            Err(error) => self.refuse(error),
        }
    }

    fn add_delete(&mut self, keyspace: u32, key: &[u8]) {
        match self.batch.delete(keyspace, key) {
            Ok(()) => {
                self.user_bytes += key.len() as u64;
                self.touch(keyspace);
            }
            Err(error) => self.refuse(error),
        }
    }

    fn add_requirement(&mut self, keyspace: u32, key: &[u8], expected: Option<&[u8]>) {
        if key.len() > MAX_KEY_BYTES {
            self.refuse(Error::invalid_argument(format!(
                "a required key has {} bytes, at most 65,535 are possible",
                key.len()
            )));
            return;
        }
        self.touch(keyspace);
        self.requirements.push(Requirement { keyspace, key: key.to_vec(), expected: expected.map(<[u8]>::to_vec) });
    }
}

impl std::fmt::Debug for WriteBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WriteBatch({} operations, {} bytes)", self.len(), self.byte_size())
    }
}

/// A batch's operations on one keyspace: what [`WriteBatch::on`] gives.
#[derive(Debug)]
pub struct KeyspaceBatch<'a> {
    batch: &'a mut WriteBatch,
    keyspace: u32,
}

impl KeyspaceBatch<'_> {
    /// Sets `key` to `value`.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.batch.add_put(self.keyspace, key.as_ref(), value.as_ref());
        self
    }

    /// Removes `key`.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.batch.add_delete(self.keyspace, key.as_ref());
        self
    }

    /// The batch is committed only if `key` has the value `expected` then (`None`: is absent).
    pub fn require(&mut self, key: impl AsRef<[u8]>, expected: Option<&[u8]>) -> &mut Self {
        self.batch.add_requirement(self.keyspace, key.as_ref(), expected);
        self
    }
}
