//! The judge: one order over all keys that explains every answer.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use types::{Access, Command, Key, Outcome, Reply, Tag};

use crate::zab::epoch::{Epoch, Zxid};
use crate::zab::txn::{Effect, OF_NO_CLIENT, Stream};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Do {
    Get,
    /// A read in its place of the order.
    ReadLast,
    Set,
    /// With a time to live of [`super::super::asks::TTL`].
    SetExpiring,
    Append,
    SetIfAbsent,
    Delete,
}

impl Do {
    /// The value that it writes, or appends, names the request.
    pub fn command(self, tag: Tag) -> Command {
        let (access, letter) = match self {
            Do::Get => (Access::Read, b'g'),
            Do::ReadLast => (Access::Update, b'g'),
            Do::Set => (Access::Write, b's'),
            Do::SetExpiring => (Access::Write, b'x'),
            Do::Append => (Access::Update, b'a'),
            Do::SetIfAbsent => (Access::Update, b'n'),
            Do::Delete => (Access::Update, b'd'),
        };
        Command::new(access, Bytes::from([&[letter][..], &value(tag)].concat()))
    }

    /// The state behind it and its reply.
    fn run(self, tag: Tag, before: Option<&[u8]>) -> (Option<Vec<u8>>, Reply) {
        let own = value(tag).to_vec();
        let same = before.map(<[u8]>::to_vec);
        match (self, before) {
            (Do::Get | Do::ReadLast, _) => (same, Reply::copy_or_null(before)),
            (Do::Set | Do::SetExpiring, _) | (Do::SetIfAbsent, None) => (Some(own), Reply::OK),
            (Do::SetIfAbsent, Some(_)) => (same, Reply::Boolean(false)),
            (Do::Append, _) => {
                let value = [before.unwrap_or_default(), &own].concat();
                let len = value.len() as i64;
                (Some(value), Reply::Integer(len))
            }
            (Do::Delete, before) => (None, Reply::Integer(i64::from(before.is_some()))),
        }
    }
}

fn value(tag: Tag) -> [u8; 2] {
    u16::try_from(tag.0).expect("few requests").to_be_bytes()
}

#[derive(Debug)]
struct Op {
    node: usize,
    session: u64,
    key: Key,
    what: Do,
    outcome: Option<(u64, Outcome)>,
    /// Its client is gone.
    is_orphan: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Placed {
    epoch: Epoch,
    stream: Stream,
    number: u64,
    key: Key,
    effect: Effect,
    reply: Reply,
}

impl Placed {
    /// All but its times, which each node counts by itself.
    fn name(&self) -> impl PartialEq + '_ {
        let value = self.effect.0.as_ref().map(|content| &content.value);
        (self.epoch, self.stream, self.number, &self.key, value, &self.reply)
    }
}

#[derive(Default)]
pub(super) struct Order {
    ops: BTreeMap<Tag, Op>,
    /// Requests by the numbers under which workers sent them.
    numbers: BTreeMap<(Epoch, Stream, u64), Tag>,
    /// Applied entries by their places.
    placed: BTreeMap<u64, Placed>,
}

impl Order {
    pub fn ask(&mut self, tag: Tag, (node, session): (usize, u64), key: Key, what: Do) {
        let op = Op { node, session, key, what, outcome: None, is_orphan: false };
        self.ops.insert(tag, op);
    }

    pub fn number(&mut self, number: (Epoch, Stream, u64), command: &Command) {
        if let Some(bytes) = command.body.get(1..3).filter(|_| number.2 != OF_NO_CLIENT) {
            let tag = u16::from_be_bytes([bytes[0], bytes[1]]);
            self.numbers.insert(number, Tag(tag.into()));
        }
    }

    /// A node applies an entry.
    pub fn place(
        &mut self,
        at: Zxid,
        (stream, number): (Stream, u64),
        key: &Key,
        effect: &Effect,
        reply: &Reply,
    ) -> Result<(), String> {
        let (effect, reply, key) = (effect.clone(), reply.clone(), key.clone());
        let placed = Placed { epoch: at.epoch, stream, number, key, effect, reply };
        let known = self.placed.entry(at.index).or_insert_with(|| placed.clone());
        match known.name() == placed.name() {
            true => Ok(()),
            false => Err(format!("{} is {known:?} and {placed:?}", at.index)),
        }
    }

    pub fn complete(&mut self, tag: Tag, outcome: Outcome, clock: u64) -> Result<(), String> {
        let op = self.ops.get_mut(&tag).ok_or(format!("{tag:?} was never asked"))?;
        match op.outcome.replace((clock, outcome)) {
            None => Ok(()),
            Some(_) => Err(format!("{tag:?} was answered twice")),
        }
    }

    /// The process of a node ends, and its clients hear no more.
    pub fn end_clients(&mut self, node: usize) {
        let open = self.ops.values_mut().filter(|op| op.node == node && op.outcome.is_none());
        open.for_each(|op| op.is_orphan = true);
    }

    pub fn is_open(&self, tag: Tag) -> bool {
        self.ops.get(&tag).is_some_and(|op| op.outcome.is_none() && !op.is_orphan)
    }

    pub fn open(&self) -> Vec<Tag> {
        self.ops.keys().copied().filter(|&tag| self.is_open(tag)).collect()
    }

    pub fn outcome(&self, tag: Tag) -> Option<&Outcome> {
        self.ops.get(&tag)?.outcome.as_ref().map(|(_, outcome)| outcome)
    }

    /// The requests in the order of their entries, with their places.
    fn entries(&self) -> Result<BTreeMap<Tag, u64>, String> {
        let mut places = BTreeMap::new();
        for ((&index, placed), expected) in self.placed.iter().zip(1..) {
            if index != expected {
                return Err(format!("no node has applied entry {expected}"));
            }
            if placed.number == OF_NO_CLIENT {
                continue;
            }
            let name = (placed.epoch, placed.stream, placed.number);
            let tag = *self.numbers.get(&name).ok_or(format!("no worker sent {placed:?}"))?;
            if let Some(before) = places.insert(tag, index) {
                return Err(format!("{tag:?} ran at {before} and at {index}"));
            }
        }
        Ok(places)
    }

    /// The states of each key with the places from which on it had them.
    fn states(&self, places: &BTreeMap<Tag, u64>) -> Result<States, String> {
        let mut states = States::new();
        let mut expiring = BTreeSet::new();
        let tags: BTreeMap<u64, Tag> = places.iter().map(|(&tag, &index)| (index, tag)).collect();
        for (&index, placed) in &self.placed {
            let of_key = states.entry(placed.key.clone()).or_insert_with(|| vec![(0, None)]);
            let before = of_key.last().and_then(|(_, value)| value.clone());
            let Some(&tag) = tags.get(&index) else {
                of_key.push((index, None));
                continue;
            };
            let what = self.ops[&tag].what;
            let (mut value, mut reply) = what.run(tag, before.as_deref());
            if reply != placed.reply && expiring.contains(&placed.key) {
                // Its time was over at the leader.
                (value, reply) = what.run(tag, None);
            }
            match what {
                Do::SetExpiring => expiring.insert(placed.key.clone()),
                Do::Set => expiring.remove(&placed.key),
                _ => false,
            };
            if reply != placed.reply {
                return Err(format!(
                    "{tag:?} at {index} answers {:?}, not {reply:?}",
                    placed.reply
                ));
            }
            if value != before {
                of_key.push((index, value));
            }
        }
        Ok(states)
    }

    /// The place and the value of the last entry that left a value under this key.
    pub fn last(&self, key: &Key) -> Option<(u64, Option<Vec<u8>>)> {
        let of_key = self.placed.iter().filter(|(_, placed)| placed.key == *key);
        let last = of_key.filter_map(|(&index, placed)| Some((index, placed.effect.0.as_ref()?)));
        let (index, content) = last.last()?;
        let value = content.value.as_ref()?;
        Some((index, Some(value.to_vec())))
    }

    pub fn judge(&self) -> Result<(), String> {
        let places = self.entries()?;
        let states = self.states(&places)?;
        for (tag, op) in self.ops.iter().filter(|(_, op)| op.what != Do::Get) {
            let place = places.get(tag);
            match (&op.outcome, place) {
                (Some((_, Outcome::Reply(reply))), Some(place))
                    if self.placed[place].reply != *reply =>
                {
                    let placed = &self.placed[place];
                    return Err(format!("{tag:?} was answered {reply:?}: {placed:?}"));
                }
                (Some((_, Outcome::Reply(reply))), None) => {
                    return Err(format!("{tag:?} was answered {reply:?} and has no entry"));
                }
                (Some((_, Outcome::NoQuorum)), Some(place)) => {
                    return Err(format!("{tag:?} failed and has entry {place}"));
                }
                _ => {}
            }
        }
        self.judge_time(&places)?;
        self.judge_reads(&places, &states)
    }

    /// Entries are in the order of their requests, where these did not overlap.
    fn judge_time(&self, places: &BTreeMap<Tag, u64>) -> Result<(), String> {
        for (one, place) in places {
            let Some((ended, Outcome::Reply(_))) = &self.ops[one].outcome else { continue };
            for (other, later) in places.range(Tag(*ended)..) {
                if later < place {
                    return Err(format!("{one:?} at {place} ended before {other:?} at {later}"));
                }
            }
        }
        Ok(())
    }

    /// There is a place for each read. No client of a node goes back, nor sees less than one before
    /// it. On one key this holds for the requests of a session that do not wait for each other.
    fn judge_reads(&self, places: &BTreeMap<Tag, u64>, states: &States) -> Result<(), String> {
        let initial = vec![(0, None)];
        let mut seen: BTreeMap<Tag, u64> = BTreeMap::new();
        for (&tag, op) in &self.ops {
            let Some((_, Outcome::Reply(reply))) = &op.outcome else { continue };
            let is_before = |before: &Tag| {
                let other = &self.ops[before];
                let has_ended = other.outcome.as_ref().is_some_and(|(at, _)| *at < tag.0);
                let is_of_session = (other.session, &other.key) == (op.session, &op.key);
                other.node == op.node && (has_ended || is_of_session)
            };
            let before = seen.iter().filter(|(before, _)| is_before(before));
            let floor = before.map(|(_, &place)| place).max().unwrap_or(0);
            if let Some(&place) = places.get(&tag) {
                if place <= floor {
                    return Err(format!("{tag:?} at {place} follows one at {floor}"));
                }
                seen.insert(tag, place);
                continue;
            }
            let is_behind = |(later, _): &(&Tag, &u64)| {
                let other = &self.ops[later];
                (other.node, other.session, &other.key) == (op.node, op.session, &op.key)
            };
            let later = places.range(tag..).find(is_behind);
            let end = later.map_or(u64::MAX, |(_, &place)| place);
            let of_key = states.get(&op.key).unwrap_or(&initial);
            let spans = of_key.iter().zip(of_key.iter().skip(1).map(|it| it.0).chain([u64::MAX]));
            let fits = spans.filter(|((_, value), until)| {
                *until > floor && Reply::copy_or_null(value.as_deref()) == *reply
            });
            let place = fits.map(|((from, _), _)| (*from).max(floor)).next();
            match place {
                Some(place) if place < end => seen.insert(tag, place),
                found => {
                    let text =
                        format!("{tag:?} read {reply:?} at {found:?}, not in {floor}..{end}");
                    return Err(text);
                }
            };
        }
        Ok(())
    }
}

type States = BTreeMap<Key, Vec<(u64, Option<Vec<u8>>)>>;
