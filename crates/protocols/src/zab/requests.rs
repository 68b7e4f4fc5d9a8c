//! Writes and reads of a worker's clients in progress.

use std::collections::{BTreeMap, BTreeSet};

use base::Nanos;
use types::{Access, Command, Key, Outcome, SessionId, Tag};

use super::epoch::Epoch;
use super::reads::{Read, Reads};
use crate::protocol::Request;

/// Writes of one worker in progress; more are refused. As many reads may wait.
pub const REQUESTS_MAX: usize = 8_192;
/// Bytes of their commands.
const BYTES_MAX: usize = 64 << 20;
/// Bytes of the commands sent at a time; one may be longer.
const SENT_MAX: usize = 4 << 20;
/// The interval between repetitions of a write, doubled each time.
const RESEND: Nanos = Nanos::from_millis(10);
const DOUBLINGS_MAX: u32 = 5;
/// The time that a byte of a command in progress may take: a slow link repeats all of them late.
const BYTE: Nanos = Nanos(64);
/// The time of all of them, at most.
const PAUSE_MAX: Nanos = Nanos::from_millis(200);

#[derive(Debug, Default)]
pub struct Requests {
    next_id: u64,
    /// Writes without an outcome in the order of their coming, which is that of their numbers.
    writes: BTreeMap<u64, Write>,
    /// Their numbers in an epoch.
    numbers: BTreeMap<(Epoch, u64), u64>,
    /// The epoch of the numbers that count, and the next of them.
    epoch: Epoch,
    next_number: u64,
    /// Writes below were sent.
    unsent: u64,
    /// Bytes of the commands of all writes.
    bytes: usize,
    /// The last write of each session that is not applied yet.
    last_writes: BTreeMap<SessionId, u64>,
    reads: Reads,
}

#[derive(Debug)]
struct Write {
    /// None once its time is over.
    tag: Option<Tag>,
    session: SessionId,
    key: Key,
    command: Command,
    deadline: Nanos,
    /// In the epoch of the numbers that count; zero: it was not sent there.
    number: u64,
    was_sent: bool,
    resend_at: Nanos,
    resends: u32,
}

/// A write to be sent.
#[derive(Debug)]
pub struct Numbered {
    pub number: u64,
    pub key: Key,
    pub command: Command,
}

impl Requests {
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.reads.is_empty()
    }

    pub fn len(&self) -> usize {
        self.writes.len() + self.reads.len()
    }

    pub fn has_room_for(&self, request: &Request) -> bool {
        match request.command.access {
            Access::Read => self.reads.len() < REQUESTS_MAX,
            _ => {
                let bytes = self.bytes + request.command.body.len();
                self.writes.len() < REQUESTS_MAX && (bytes <= BYTES_MAX || self.bytes == 0)
            }
        }
    }

    pub fn add_write(&mut self, request: Request, deadline: Nanos) {
        self.next_id += 1;
        let Request { tag, session, key, command, .. } = request;
        self.bytes += command.body.len();
        self.last_writes.insert(session, self.next_id);
        let write = Write {
            tag: Some(tag),
            session,
            key,
            command,
            deadline,
            number: 0,
            was_sent: false,
            resend_at: Nanos::ZERO,
            resends: 0,
        };
        self.writes.insert(self.next_id, write);
    }

    /// Makes a read take a place among the writes. All reads that its session waits for came after
    /// it, and come behind it now: those that `came` with it, and then the others.
    pub fn add_read(&mut self, request: Request, deadline: Nanos, came: Vec<Read>) {
        let session = request.session;
        self.add_write(request, deadline);
        self.reads.put_behind(session, self.next_id, came);
    }

    /// True if a write of this session is not applied yet.
    pub fn has_write(&self, session: SessionId) -> bool {
        self.last_writes.contains_key(&session)
    }

    pub fn park(&mut self, request: Request, deadline: Nanos, needs: u64) {
        let behind = self.last_writes.get(&request.session).copied();
        self.reads.park(Read { request, deadline, behind, after: self.next_id, needs });
    }

    /// Takes the reads that wait for no write any more, and for no entry.
    pub fn take_reads(&mut self, visible: u64) -> Vec<Read> {
        self.reads.take_free(visible)
    }

    /// Writes of the session that came after the read are not applied yet.
    pub fn is_passed(&self, read: &Read) -> bool {
        self.last_writes.get(&read.request.session).is_some_and(|last| *last > read.after)
    }

    /// All reads wait for this entry, too.
    pub fn raise_needs(&mut self, needs: u64) {
        self.reads.raise_needs(needs);
    }

    /// Takes the reads that came before this write of their session: it is applied now.
    pub fn take_overtaken(&mut self, epoch: Epoch, number: u64) -> Vec<Read> {
        let Some(id) = self.numbers.get(&(epoch, number)) else { return Vec::new() };
        let Some(write) = self.writes.get(id) else { return Vec::new() };
        self.reads.take_of(write.session, |read| read.after < *id)
    }

    /// The writes to be sent now, in order: the new ones, and those to be repeated. The first time
    /// in another epoch all get new numbers: those that the leaders before took are applied.
    pub fn take_due(&mut self, epoch: Epoch, now: Nanos, max: usize) -> Vec<Numbered> {
        if self.epoch != epoch {
            self.begin(epoch);
        }
        let (mut sent, mut bytes) = (Vec::new(), 0);
        let again: Vec<u64> = self
            .writes
            .range(..self.unsent)
            .filter(|(_, write)| write.resend_at <= now)
            .map(|(&id, _)| id)
            .take(max)
            .collect();
        let new: Vec<u64> = self.writes.range(self.unsent..).map(|(&id, _)| id).collect();
        let pause = Nanos(BYTE.0 * self.bytes as u64).min(PAUSE_MAX);
        for id in again.into_iter().chain(new) {
            let Some(write) = self.writes.get_mut(&id) else { continue };
            bytes += write.command.body.len();
            if bytes > SENT_MAX && !sent.is_empty() {
                break;
            }
            self.unsent = self.unsent.max(id + 1);
            if write.number == 0 {
                self.next_number += 1;
                write.number = self.next_number;
                self.numbers.insert((epoch, write.number), id);
            }
            write.was_sent = true;
            write.resend_at = now + Nanos(RESEND.0 << write.resends) + pause;
            write.resends = DOUBLINGS_MAX.min(write.resends + 1);
            let (key, command) = (write.key.clone(), write.command.clone());
            sent.push(Numbered { number: write.number, key, command });
        }
        sent
    }

    /// The leader was given up for a while: writes that were sent may be lost.
    pub fn send_again(&mut self) {
        for write in self.writes.values_mut() {
            (write.resend_at, write.resends) = (Nanos::ZERO, 0);
        }
    }

    fn begin(&mut self, epoch: Epoch) {
        (self.epoch, self.next_number) = (epoch, 0);
        self.numbers.clear();
        // No client waits for these, and no leader knows them any more.
        let orphans: Vec<u64> =
            self.writes.iter().filter(|(_, it)| it.tag.is_none()).map(|(&id, _)| id).collect();
        for id in orphans {
            self.end(id);
        }
        for write in self.writes.values_mut() {
            (write.number, write.resend_at, write.resends) = (0, Nanos::ZERO, 0);
        }
        self.unsent = 0;
    }

    fn end(&mut self, id: u64) -> Option<Tag> {
        let write = self.writes.remove(&id)?;
        self.bytes -= write.command.body.len();
        self.reads.free(write.session, id);
        if self.last_writes.get(&write.session) == Some(&id) {
            self.last_writes.remove(&write.session);
        }
        write.tag
    }

    /// Notes that a write was applied. Returns the client that waits for it, and the reads that do.
    ///
    /// They are to be answered at once: a later write of the session may come next.
    /// Those that need entries behind `visible` stay.
    pub fn on_applied(
        &mut self,
        epoch: Epoch,
        number: u64,
        visible: u64,
    ) -> (Option<Tag>, Vec<Read>) {
        let Some(id) = self.numbers.remove(&(epoch, number)) else { return (None, Vec::new()) };
        let Some(session) = self.writes.get(&id).map(|it| it.session) else {
            return (None, Vec::new());
        };
        let tag = self.end(id);
        (tag, self.reads.take_of(session, |read| read.is_free(visible)))
    }

    /// Ends all writes that were sent: the copied state may include them. Numbers begin anew.
    ///
    /// Also returns reads of their sessions: the state may include a write that came later.
    pub fn end_sent(&mut self) -> (Vec<Tag>, Vec<Read>) {
        self.epoch = Epoch::default();
        let sent = self.writes.iter().filter(|(_, write)| write.was_sent);
        let (sent, sessions): (Vec<u64>, BTreeSet<SessionId>) =
            sent.map(|(&id, write)| (id, write.session)).unzip();
        let take = |session| self.reads.take_of(session, |_| true);
        let reads = sessions.into_iter().flat_map(take).collect();
        (sent.into_iter().filter_map(|id| self.end(id)).collect(), reads)
    }

    /// Ends writes and reads whose time is over.
    pub fn expire(&mut self, now: Nanos) -> (Vec<(Tag, Outcome)>, Vec<Request>) {
        let mut ended = Vec::new();
        let mut unsent = Vec::new();
        for (&id, write) in self.writes.iter_mut().filter(|(_, it)| it.deadline <= now) {
            if !write.was_sent {
                unsent.push(id);
            } else if let Some(tag) = write.tag.take() {
                // It keeps its number, and is repeated: later ones come behind it.
                ended.push((tag, Outcome::Unknown));
            }
        }
        let unsent = unsent.into_iter().filter_map(|id| self.end(id));
        ended.extend(unsent.map(|tag| (tag, Outcome::NoQuorum)));
        let over = self.reads.take(|read| read.deadline <= now);
        (ended, over.into_iter().map(|read| read.request).collect())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use types::Access;

    use super::*;

    const FIRST: Epoch = Epoch { counter: 1, node: 1 };
    const SECOND: Epoch = Epoch { counter: 2, node: 3 };

    fn request(tag: u64, access: Access) -> Request {
        let command = Command::new(access, Bytes::new());
        let (tag, session) = (Tag(tag), SessionId(7));
        Request { tag, session, key: Key::new(b"k"), command, asked_at: Nanos::ZERO }
    }

    fn numbers(sent: &[Numbered]) -> Vec<u64> {
        sent.iter().map(|it| it.number).collect()
    }

    #[test]
    fn writes_are_numbered_anew_in_each_epoch() {
        let mut requests = Requests::default();
        (1..=3).for_each(|tag| requests.add_write(request(tag, Access::Write), Nanos(100)));
        assert_eq!(numbers(&requests.take_due(FIRST, Nanos(0), 9)), [1, 2, 3]);
        assert!(requests.take_due(FIRST, Nanos(0), 9).is_empty(), "not due again");
        assert_eq!(requests.on_applied(FIRST, 1, 9).0, Some(Tag(1)));
        assert_eq!(requests.on_applied(FIRST, 1, 9).0, None);
        requests.add_write(request(4, Access::Write), Nanos(100));
        assert_eq!(numbers(&requests.take_due(SECOND, Nanos(0), 9)), [1, 2, 3]);
        assert_eq!(requests.on_applied(FIRST, 2, 9).0, None, "its number is that of the new epoch");
        assert_eq!(requests.on_applied(SECOND, 1, 9).0, Some(Tag(2)));
    }

    #[test]
    fn read_waits_for_the_writes_of_its_session() {
        let mut requests = Requests::default();
        requests.add_write(request(1, Access::Write), Nanos(100));
        requests.park(request(2, Access::Read), Nanos(100), 0);
        requests.take_due(FIRST, Nanos(0), 9);
        assert!(requests.take_reads(0).is_empty());
        requests.add_write(request(3, Access::Write), Nanos(100));
        assert_eq!(requests.on_applied(FIRST, 1, 9).1.len(), 1, "before the next write");
        assert!(requests.take_reads(0).is_empty());
        requests.take_due(FIRST, Nanos(0), 9);
        requests.on_applied(FIRST, 2, 9);
        assert!(!requests.has_write(SessionId(7)) && requests.is_empty());
    }

    /// The first one's key is over here: only its place in the order decides its answer.
    #[test]
    fn read_never_comes_before_an_earlier_one_in_the_order() {
        let mut requests = Requests::default();
        requests.park(request(2, Access::Read), Nanos(100), 7);
        requests.add_read(request(1, Access::Read), Nanos(100), Vec::new());
        requests.take_due(FIRST, Nanos(0), 9);
        assert!(requests.take_reads(7).is_empty());
        assert_eq!(requests.on_applied(FIRST, 1, 7).1.len(), 1);
    }

    /// A worker that lags gets the write's entry before it may answer the read.
    #[test]
    fn read_never_sees_a_later_write_of_its_session() {
        let mut requests = Requests::default();
        requests.park(request(1, Access::Read), Nanos(100), 7);
        requests.add_write(request(2, Access::Write), Nanos(100));
        requests.park(request(3, Access::Read), Nanos(100), 7);
        requests.take_due(FIRST, Nanos(0), 9);
        assert!(requests.take_reads(6).is_empty());
        let overtaken = requests.take_overtaken(FIRST, 1);
        assert_eq!(overtaken.iter().map(|it| it.request.tag).collect::<Vec<_>>(), [Tag(1)]);
        let (tag, reads) = requests.on_applied(FIRST, 1, 9);
        assert_eq!((tag, reads.len()), (Some(Tag(2)), 1));
    }

    /// A client of the node saw entry 9, or it was committed before this node had a leader.
    #[test]
    fn read_waits_for_what_others_saw() {
        let mut requests = Requests::default();
        requests.park(request(1, Access::Read), Nanos(100), 0);
        requests.raise_needs(9);
        assert!(requests.take_reads(8).is_empty());
        assert_eq!(requests.take_reads(9).len(), 1);
        requests.add_write(request(2, Access::Write), Nanos(100));
        requests.park(request(3, Access::Read), Nanos(100), 9);
        requests.take_due(FIRST, Nanos(0), 9);
        assert!(requests.on_applied(FIRST, 1, 5).1.is_empty());
        assert!(requests.take_reads(8).is_empty());
        assert_eq!(requests.take_reads(9).len(), 1);
    }

    #[test]
    fn sent_write_keeps_its_number_after_its_deadline() {
        let mut requests = Requests::default();
        requests.add_write(request(1, Access::Write), Nanos(100));
        requests.take_due(FIRST, Nanos(0), 9);
        requests.add_write(request(2, Access::Write), Nanos(100));
        let (ended, reads) = requests.expire(Nanos(100));
        assert_eq!(ended, [(Tag(1), Outcome::Unknown), (Tag(2), Outcome::NoQuorum)]);
        assert!(reads.is_empty() && requests.len() == 1);
        assert_eq!(numbers(&requests.take_due(FIRST, Nanos::from_secs(1), 9)), [1]);
        assert!(requests.take_due(SECOND, Nanos(0), 9).is_empty() && requests.is_empty());
    }

    #[test]
    fn long_writes_are_sent_in_parts_and_bounded_by_their_bytes() {
        let mut requests = Requests::default();
        let long = |tag, access| {
            let mut request = request(tag, access);
            request.command.body = Bytes::from(vec![0; SENT_MAX / 2]);
            request
        };
        let mut count = 0;
        while requests.has_room_for(&long(count, Access::Write)) {
            count += 1;
            requests.add_write(long(count, Access::Write), Nanos(100));
        }
        assert_eq!(count as usize, BYTES_MAX / (SENT_MAX / 2));
        assert!(requests.has_room_for(&request(0, Access::Read)), "reads wait for no room");
        let parts = (0..count / 2).map(|_| numbers(&requests.take_due(FIRST, Nanos(0), 9)));
        assert!(parts.eq((0..count / 2).map(|part| vec![2 * part + 1, 2 * part + 2])));
        assert!(requests.take_due(FIRST, RESEND, 9).is_empty(), "a slow link takes longer");
        assert!(!requests.take_due(FIRST, Nanos::from_secs(9), 9).is_empty());
        requests.on_applied(FIRST, 1, 1);
        assert!(requests.has_room_for(&long(0, Access::Write)));
        // One that is longer than all may be alone.
        let mut alone = request(1, Access::Write);
        alone.command.body = Bytes::from(vec![0; BYTES_MAX + 1]);
        assert!(Requests::default().has_room_for(&alone) && !requests.has_room_for(&alone));
    }
}
