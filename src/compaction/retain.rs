//! What a merge may drop, version by version.
//!
//! Snapshots cut the sequence numbers into stripes: two versions of a key lie in one stripe if every snapshot sees both or
//! neither. Of each stripe only the newest version can ever be read. A tombstone goes when no snapshot is older than it
//! and nothing older can exist outside the merge.

use crate::key::{InternalKey, SeqNo, Tag, ValueKind};

/// What to do with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Write it, under this tag.
    Keep(Tag),
    /// A newer version hides it from every snapshot.
    Shadowed,
    /// A tombstone with nothing left to hide.
    SpentTombstone,
}

/// Decides entry by entry; entries come in internal-key order.
pub(crate) struct Retention<'a> {
    /// Live snapshots, ascending.
    snapshots: &'a [SeqNo],
    key: Vec<u8>,
    /// The stripe of the last version seen of `key`; None before any.
    stripe: Option<usize>,
}

impl<'a> Retention<'a> {
    pub(crate) fn new(snapshots: &'a [SeqNo]) -> Self {
        Retention { snapshots, key: Vec::new(), stripe: None }
    }

    /// `older_exists`: whether an entry of this key older than the merge's inputs can exist; asked at most once per call.
    pub(crate) fn judge(
        &mut self,
        entry: InternalKey<'_>,
        kind: ValueKind,
        older_exists: impl FnOnce(&[u8]) -> bool,
    ) -> Verdict {
        if self.stripe.is_none() || self.key != entry.user_key {
            self.key.clear();
            self.key.extend_from_slice(entry.user_key);
            self.stripe = None;
        }
        // The first snapshot that sees the entry; all that see it lie from there on.
        let stripe = self.snapshots.partition_point(|&snapshot| snapshot < entry.tag.seqno());
        if self.stripe == Some(stripe) {
            return Verdict::Shadowed;
        }
        self.stripe = Some(stripe);
        if stripe != 0 || older_exists(entry.user_key) {
            return Verdict::Keep(entry.tag);
        }
        match kind {
            ValueKind::Delete => Verdict::SpentTombstone,
            // Nothing older anywhere and visible to all: its number no longer matters. 0 takes one byte in a block.
            ValueKind::Put => Verdict::Keep(Tag::new(0, kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(snapshots: &[SeqNo], older: bool, versions: &[(&str, SeqNo, ValueKind)]) -> Vec<Verdict> {
        let mut retention = Retention::new(snapshots);
        versions
            .iter()
            .map(|(key, seqno, kind)| {
                let entry = InternalKey::new(key.as_bytes(), Tag::new(*seqno, *kind));
                retention.judge(entry, *kind, |_| older)
            })
            .collect()
    }

    use ValueKind::{Delete, Put};
    use Verdict::{Keep, Shadowed, SpentTombstone};

    fn keep(seqno: SeqNo, kind: ValueKind) -> Verdict {
        Keep(Tag::new(seqno, kind))
    }

    #[test]
    fn without_snapshots_only_the_newest_version_stays() {
        assert_eq!(
            run(&[], true, &[("k", 9, Put), ("k", 5, Put), ("k", 1, Delete)]),
            [keep(9, Put), Shadowed, Shadowed]
        );
    }

    #[test]
    fn each_snapshot_keeps_the_version_it_sees() {
        let versions = [("k", 60, Put), ("k", 5, Put), ("k", 3, Put)];
        assert_eq!(run(&[50], true, &versions), [keep(60, Put), keep(5, Put), Shadowed]);
        assert_eq!(run(&[4, 50], true, &versions), [keep(60, Put), keep(5, Put), keep(3, Put)]);
        assert_eq!(run(&[5, 50], true, &versions), [keep(60, Put), keep(5, Put), Shadowed]);
        assert_eq!(run(&[60], true, &versions), [keep(60, Put), Shadowed, Shadowed]);
    }

    #[test]
    fn a_tombstone_goes_only_when_nothing_older_is_left_and_no_snapshot_is_older() {
        assert_eq!(run(&[], false, &[("k", 9, Delete), ("k", 5, Put)]), [SpentTombstone, Shadowed]);
        assert_eq!(run(&[], true, &[("k", 9, Delete), ("k", 5, Put)]), [keep(9, Delete), Shadowed]);
        assert_eq!(run(&[5], false, &[("k", 9, Delete), ("k", 5, Put)]), [keep(9, Delete), keep(0, Put)]);
        assert_eq!(run(&[9], false, &[("k", 9, Delete), ("k", 5, Put)]), [SpentTombstone, Shadowed]);
    }

    #[test]
    fn a_snapshot_at_zero_keeps_what_it_sees() {
        assert_eq!(run(&[0], false, &[("k", 0, Put)]), [keep(0, Put)]);
        assert_eq!(run(&[0], false, &[("k", 3, Put), ("k", 0, Put)]), [keep(3, Put), keep(0, Put)]);
    }

    #[test]
    fn keys_do_not_shadow_each_other_the_empty_key_included() {
        assert_eq!(
            run(&[], true, &[("", 5, Put), ("a", 4, Put), ("ab", 3, Put)]),
            [keep(5, Put), keep(4, Put), keep(3, Put)]
        );
    }
}
