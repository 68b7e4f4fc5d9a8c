//! The reports of replicas on one register: which version is the newest, and whether it has ended.

use base::Millis;
use types::limits::MEMBERS_MAX;
use types::{AmnesiaCount, Malformed, NodeId, Reader, Wire};

use super::register::{Register, Version};
use crate::mutation::{self, Mutation};
use crate::quorum::Tally;
use crate::replicas::Replicas;
use crate::toolkit::countdown::Countdown;

/// A register as its replica reports it. The value is empty unless it was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    pub register: Register,
    /// Of its time to live there.
    pub countdown: Countdown,
}

impl Report {
    pub const ABSENT: Report = Report { register: Register::ABSENT, countdown: Countdown::None };
}

impl Wire for Report {
    fn encode(&self, out: &mut Vec<u8>) {
        self.register.encode(out);
        self.countdown.encode(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Report, Malformed> {
        Ok(Report { register: Register::decode(reader)?, countdown: Countdown::decode(reader)? })
    }
}

/// Reports of distinct replicas on one register.
#[derive(Clone, Debug)]
pub struct Answers {
    tally: Tally,
    /// By member index; the newest of each member's reports.
    reported: [(Version, Countdown); MEMBERS_MAX],
    newest: Register,
}

impl Default for Answers {
    fn default() -> Answers {
        Answers {
            tally: Tally::default(),
            reported: [(Version::NONE, Countdown::None); MEMBERS_MAX],
            newest: Register::ABSENT,
        }
    }
}

impl Answers {
    pub fn add(
        &mut self,
        replicas: Replicas<'_>,
        (node, amnesia): (NodeId, AmnesiaCount),
        report: Report,
    ) {
        let Report { register, countdown } = report;
        let Some(index) = replicas.index(node) else { return };
        let is_new = self.tally.add(replicas, node, amnesia);
        // A replica's versions only grow, so its newest report stands. A report after an amnesia
        // replaces the earlier ones.
        if is_new || self.reported[index].0 <= register.version {
            self.reported[index] = (register.version, countdown);
        }
        if register.version > self.newest.version {
            self.newest = register;
        }
    }

    #[must_use]
    pub fn has(&self, replicas: Replicas<'_>, node: NodeId) -> bool {
        self.tally.has(replicas, node)
    }

    #[must_use]
    pub fn is_quorum(&self, replicas: Replicas<'_>) -> bool {
        replicas.is_quorum(&self.tally)
    }

    #[must_use]
    pub fn is_all(&self, replicas: Replicas<'_>) -> bool {
        replicas.is_all(&self.tally)
    }

    /// The newest reported register.
    #[must_use]
    pub fn newest(&self) -> &Register {
        &self.newest
    }

    /// True if the newest version is a value.
    #[must_use]
    pub fn is_present(&self) -> bool {
        !self.newest.content.is_empty()
    }

    /// Replicas known to hold the newest version.
    #[must_use]
    pub fn holders(&self, replicas: Replicas<'_>) -> Tally {
        self.those(replicas, |version, _| version >= self.newest.version)
    }

    /// True if a quorum has counted the time to live of the newest version down.
    #[must_use]
    pub fn is_over(&self, replicas: Replicas<'_>) -> bool {
        if self.newest.content.expiry.is_none() {
            return false;
        }
        let newest = self.newest.version;
        let is_over = |version, countdown| version == newest && countdown == Countdown::Over;
        let over = self.those(replicas, is_over);
        let is_one =
            mutation::is(Mutation::ExpireByOne) && replicas.all().any(|it| over.has(replicas, it));
        replicas.is_quorum(&over) || is_one
    }

    /// The answers of replicas whose newest report is like this.
    fn those(&self, replicas: Replicas<'_>, is_it: impl Fn(Version, Countdown) -> bool) -> Tally {
        let mut those = self.tally;
        for (index, member) in replicas.members().enumerate() {
            let (version, countdown) = self.reported[index];
            if !is_it(version, countdown) {
                those.remove(replicas, member.node);
            }
        }
        those
    }

    /// The rests of the newest version's time to live, sorted.
    fn rests(&self, replicas: Replicas<'_>) -> Vec<Millis> {
        let newest = self.holders(replicas);
        let answers = replicas.all().zip(&self.reported);
        let answers = answers.filter(|&(node, _)| newest.has(replicas, node));
        let mut rests: Vec<Millis> = answers.filter_map(|(_, (_, it))| it.rest()).collect();
        rests.sort_unstable();
        rests
    }

    /// The largest rest reported.
    #[must_use]
    pub fn rest(&self, replicas: Replicas<'_>) -> Option<Millis> {
        self.rests(replicas).pop()
    }

    /// When a quorum will have counted down, as far as the reports tell.
    #[must_use]
    pub fn rest_of_quorum(&self, replicas: Replicas<'_>) -> Option<Millis> {
        let rests = self.rests(replicas);
        let count = replicas.members().count();
        rests.get(count / 2).or(rests.last()).copied()
    }

    /// The time to live of the newest version is over: its end follows.
    pub fn end(&mut self) {
        self.newest = self.newest.ended();
    }

    /// True if replicas other than this one that make a quorum have answered.
    #[must_use]
    pub fn is_quorum_of_others(&self, replicas: Replicas<'_>) -> bool {
        let (set, answered) = (replicas.set, self.tally.places(replicas.set, replicas.peers));
        if mutation::is(Mutation::RecoverFromSelf) {
            return set.is_quorum_of(answered | set.own_place());
        }
        set.is_quorum_of(answered & !set.own_place())
    }
}
