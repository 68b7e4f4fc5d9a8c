//! Writes of the control thread that a full disk refuses, and when they are tried again.
//!
//! File systems that copy on write need room to change the identity.

use base::Nanos;

/// Between two attempts to note a peer.
const RETRY_EVERY: Nanos = Nanos::from_millis(500);

/// Changes of the identity while a member runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum IdentityWrite {
    /// The clocks of times to live.
    Clocks,
    /// The counters and limits of a peer.
    Notes,
    /// The records of configured groups.
    Groups,
}

#[derive(Debug, Default)]
pub(super) struct FullDisk {
    are_clocks_refused: bool,
    are_notes_refused: bool,
    pub(super) are_groups_refused: bool,
    /// When the records of groups are tried again.
    groups_retry: Option<Nanos>,
    /// Connections are held; then their notes are tried again.
    retry: Option<Nanos>,
}

impl FullDisk {
    /// Notes how a write ended. True if those of its kind ended in another way before.
    pub(super) fn on_write(&mut self, write: IdentityWrite, is_done: bool) -> bool {
        let is_refused = match write {
            IdentityWrite::Clocks => &mut self.are_clocks_refused,
            IdentityWrite::Notes => &mut self.are_notes_refused,
            IdentityWrite::Groups => &mut self.are_groups_refused,
        };
        std::mem::replace(is_refused, !is_done) == is_done
    }

    pub(super) fn on_held(&mut self, now: Nanos) {
        self.retry.get_or_insert(now + RETRY_EVERY);
    }

    /// True once when held connections are to be taken up again.
    pub(super) fn is_due(&mut self, now: Nanos) -> bool {
        self.retry.take_if(|at| *at <= now).is_some()
    }

    pub(super) fn hold_groups(&mut self, now: Nanos) {
        self.groups_retry = Some(now + RETRY_EVERY);
    }

    /// True until the records of groups may be tried again.
    pub(super) fn holds_groups(&self, now: Nanos) -> bool {
        self.groups_retry.is_some_and(|at| now < at)
    }

    pub(super) fn next_timer(&self) -> Option<Nanos> {
        let groups = self.groups_retry.filter(|_| self.are_groups_refused);
        self.retry.into_iter().chain(groups).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_write_changes_once() {
        let mut disk = FullDisk::default();
        for (write, other) in [
            (IdentityWrite::Clocks, IdentityWrite::Notes),
            (IdentityWrite::Notes, IdentityWrite::Groups),
            (IdentityWrite::Groups, IdentityWrite::Clocks),
        ] {
            let outcomes = [true, false, false, true, true, false, true];
            let changes = outcomes.map(|is_done| {
                assert!(!disk.on_write(other, true), "{other:?} were never refused");
                disk.on_write(write, is_done)
            });
            assert_eq!(changes, [false, true, false, true, false, true, true], "{write:?}");
        }
    }

    #[test]
    fn held_notes_are_tried_again_later() {
        let (mut disk, at) = (FullDisk::default(), Nanos::from_millis);
        assert!(!disk.is_due(at(9_999)));
        disk.on_held(at(100));
        disk.on_held(at(400));
        assert_eq!(disk.next_timer(), Some(at(600)), "the first one decides");
        assert!(!disk.is_due(at(599)));
        assert!(disk.is_due(at(600)) && !disk.is_due(at(600)));
        disk.on_write(IdentityWrite::Groups, false);
        disk.hold_groups(at(100));
        assert_eq!(disk.next_timer(), Some(at(600)));
        assert!(disk.holds_groups(at(599)) && !disk.holds_groups(at(600)));
        disk.on_write(IdentityWrite::Groups, true);
        assert_eq!(disk.next_timer(), None);
    }
}
