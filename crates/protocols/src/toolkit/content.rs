//! The value of a register with its time to live, and commands on it.
//!
//! A member counts a time to live from the moment at which it stored the value.
//!
//! [`Content::run`] is for protocols in which one member decides each change. Once a time is over
//! there, a command finds no value, and even a read leaves a deletion behind. So a key ends by a
//! change like any other, and never comes back.

use std::fmt::Debug;

use base::Millis;
use bytes::Bytes;
use types::wire::put_varint;
use types::{Change, Clock, ExpiryChange, Key, Malformed, Reader, Reply, TimeToLive, View, Wire};

use super::countdown::{Countdown, Started};
use crate::mutation::{self, Mutation};
use crate::protocol::Scope;
use crate::register_cache::Weight;
use crate::uptime::Uptime;

/// The content of a register. `V` orders its changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Content<V> {
    /// `None`: deleted.
    pub value: Option<Bytes>,
    pub expiry: Option<Expiry<V>>,
}

/// A time to live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expiry<V> {
    /// The change that set it: later ones may keep it.
    set_by: V,
    ttl: TimeToLive,
    /// Its end in Unix time, by the clock of the node that set it.
    ends: Millis,
    /// When this replica began to count. The bytes of a message have the sender's.
    started: Option<Started>,
}

/// The result of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect<V> {
    Changed { content: Content<V>, reply: Reply },
    Unchanged { reply: Reply },
}

impl<V> Content<V> {
    pub const DELETED: Content<V> = Content { value: None, expiry: None };

    /// The share of a register with this content.
    #[must_use]
    pub fn weight(&self, key: &Key) -> Weight {
        match &self.value {
            Some(value) => Weight::of_key(key.bytes().len() + value.len(), self.expiry.is_some()),
            None => Weight::NONE,
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.value.is_none()
    }
}

impl<V: Copy> Content<V> {
    /// The content of a write that no state matters to.
    #[must_use]
    pub fn written(value: Option<Bytes>, ttl: TimeToLive, set_by: V, unix: Millis) -> Content<V> {
        let expiry = |ends| Expiry { set_by, ttl, ends, started: None };
        Content { value, expiry: ttl.ends(unix).map(expiry) }
    }

    /// The same with an empty value in the place of another one.
    #[must_use]
    pub fn without_value(&self) -> Content<V> {
        Content { value: self.value.as_ref().map(|_| Bytes::new()), ..*self }
    }

    /// The content for a command, with this rest of its time to live.
    #[must_use]
    pub fn view(&self, rest: Option<Millis>) -> View<'_> {
        let (ttl, ends) = match self.expiry {
            None => (TimeToLive::Never, None),
            Some(expiry) => (expiry.left(rest), Some(expiry.ends)),
        };
        View { value: self.value.as_deref(), ttl, ends }
    }
}

impl<V: Copy + Eq> Content<V> {
    /// The same at another replica: it counts by itself, and goes on if it knows the deadline. Its
    /// own span may be the rest of a copy's.
    #[must_use]
    pub fn arrive(self, held: Option<&Content<V>>, uptime: &dyn Uptime) -> Content<V> {
        let held = held.and_then(|held| held.expiry);
        let expiry = self.expiry.map(|expiry| {
            let known = held.filter(|held| held.set_by == expiry.set_by);
            let (ttl, started) = match (known, held) {
                (Some(known), _) => (known.ttl, known.started),
                (None, Some(held)) if mutation::is(Mutation::ZabCountsOn) => {
                    (expiry.ttl, held.started)
                }
                (None, _) => (expiry.ttl, Started::anew(Some(expiry.ttl), uptime)),
            };
            Expiry { ttl, started, ..expiry }
        });
        Content { expiry, ..self }
    }

    /// The same for a reader or a copy: with the rest of its time to live.
    #[must_use]
    pub fn with_rest(self, uptime: &dyn Uptime, unix: Millis) -> Content<V> {
        let rest = self.countdown(uptime, unix).rest();
        let expiry = self.expiry.map(|expiry| Expiry { ttl: expiry.left(rest), ..expiry });
        Content { expiry, ..self }
    }

    /// The progress of its countdown here.
    #[must_use]
    pub fn countdown(&self, uptime: &dyn Uptime, unix: Millis) -> Countdown {
        self.expiry.map_or(Countdown::None, |it| Countdown::of(it.ttl, it.started, uptime, unix))
    }

    /// True if its time is over, and the register still has the value.
    #[must_use]
    pub fn is_over(&self, uptime: &dyn Uptime, unix: Millis) -> bool {
        self.value.is_some() && self.countdown(uptime, unix) == Countdown::Over
    }

    /// Answers a read by this content though its time may be over: no change has ended it yet.
    /// `None` if it would change the content.
    pub fn read<R, S, M>(&self, cx: &mut Scope<'_, R, S, M>, command: &[u8]) -> Option<Reply> {
        let clock = Clock { unix: cx.unix, seed: cx.rng.next_u64() };
        let rest = self.countdown(cx.uptime, cx.unix).rest();
        let applied = cx.update.apply(self.view(rest), command, clock);
        (applied.change == Change::None).then_some(applied.reply)
    }

    /// Runs a command on this content. `next` names the change that it may be.
    pub fn run<R, S, M>(&self, cx: &mut Scope<'_, R, S, M>, next: V, command: &[u8]) -> Effect<V> {
        let is_over = self.is_over(cx.uptime, cx.unix);
        let clock = Clock { unix: cx.unix, seed: cx.rng.next_u64() };
        let deleted = Content::DELETED;
        let found = if is_over { &deleted } else { self };
        let applied =
            cx.update.apply(found.view(found.countdown(cx.uptime, cx.unix).rest()), command, clock);
        let reply = applied.reply;
        let expiry = |change| match change {
            ExpiryChange::Keep => found.expiry,
            ExpiryChange::Set(ttl) => ttl.ends(clock.unix).map(|ends| {
                let started = Started::anew(Some(ttl), cx.uptime);
                Expiry { set_by: next, ttl, ends, started }
            }),
        };
        let content = match applied.change {
            Change::None if is_over => Content::DELETED,
            Change::None => return Effect::Unchanged { reply },
            Change::Put { value, expiry: change } => {
                Content { value: Some(value), expiry: expiry(change) }
            }
            Change::Expire(change) if found.value.is_some() => {
                Content { value: found.value.clone(), expiry: expiry(change) }
            }
            Change::Delete | Change::Expire(_) => Content::DELETED,
        };
        Effect::Changed { content, reply }
    }
}

impl<V> Expiry<V> {
    fn left(&self, rest: Option<Millis>) -> TimeToLive {
        match (self.ttl, rest) {
            // The key is there until a change says otherwise, so some of its time is left.
            (TimeToLive::After(_), Some(rest)) => TimeToLive::After(Millis(rest.0.max(1))),
            (ttl, _) => ttl,
        }
    }
}

const FLAG: u8 = 1;
const HAS_VALUE: u8 = 2;
const EXPIRES: u8 = 4;

/// `flags u8 · [value] · [set_by · ttl · ends · started]`.
impl<V: Wire> Content<V> {
    /// Encodes it with a flag of the register.
    pub fn put(&self, out: &mut Vec<u8>, flag: bool) {
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        let has_value = bit(self.value.is_some(), HAS_VALUE);
        out.push(bit(flag, FLAG) | has_value | bit(self.expiry.is_some(), EXPIRES));
        if let Some(value) = &self.value {
            value.encode(out);
        }
        if let Some(Expiry { set_by, ttl, ends, started }) = &self.expiry {
            set_by.encode(out);
            ttl.encode(out);
            put_varint(out, ends.0);
            put_varint(out, started.map_or(0, |it| it.uptime().0.saturating_add(1)));
        }
    }

    /// Decodes it with the flag of the register.
    ///
    /// # Errors
    /// If these are no such bytes.
    pub fn take(reader: &mut Reader<'_>) -> Result<(Content<V>, bool), Malformed> {
        let flags = reader.u8()?;
        if flags & !(FLAG | HAS_VALUE | EXPIRES) != 0 || flags & (HAS_VALUE | EXPIRES) == EXPIRES {
            return Err(Malformed);
        }
        let value = if flags & HAS_VALUE != 0 { Some(Bytes::decode(reader)?) } else { None };
        let expiry = match flags & EXPIRES {
            0 => None,
            _ => Some(Expiry::take(reader)?),
        };
        Ok((Content { value, expiry }, flags & FLAG != 0))
    }
}

impl<V: Wire> Expiry<V> {
    fn take(reader: &mut Reader<'_>) -> Result<Expiry<V>, Malformed> {
        let (set_by, ttl) = (V::decode(reader)?, TimeToLive::decode(reader)?);
        if ttl == TimeToLive::Never {
            return Err(Malformed);
        }
        let ends = Millis(reader.varint()?);
        let started = reader.varint()?.checked_sub(1).map(|uptime| Started::at(Millis(uptime)));
        Ok(Expiry { set_by, ttl, ends, started })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use types::{Ballot, Epoch, Incarnation, NodeId};

    use super::*;

    fn version(number: u64) -> Ballot {
        Ballot::new(Epoch(0), number, NodeId(1), Incarnation(1))
    }

    /// Contents of each shape.
    pub(crate) fn contents<V: Copy>(set_by: V) -> Vec<Content<V>> {
        let value = Some(Bytes::from_static(b"v"));
        let expiry = |ttl, started| Some(Expiry { set_by, ttl, ends: Millis(900), started });
        let span = TimeToLive::After(Millis(300));
        vec![
            Content::DELETED,
            Content { value: Some(Bytes::new()), expiry: None },
            Content { value: value.clone(), expiry: expiry(span, Some(Started::at(Millis(7)))) },
            Content { value, expiry: expiry(TimeToLive::At { unix: Millis(900) }, None) },
        ]
    }

    #[test]
    fn contents_come_back_from_their_bytes() {
        for content in contents(version(3)) {
            for flag in [false, true] {
                let mut bytes = Vec::new();
                content.put(&mut bytes, flag);
                for len in 0..bytes.len() {
                    assert!(Content::<Ballot>::take(&mut Reader::new(&bytes[..len])).is_err());
                }
                let taken = Content::take(&mut Reader::new(&bytes));
                assert_eq!(taken, Ok((content.clone(), flag)));
            }
        }
    }

    #[test]
    fn replica_counts_from_its_own_start() {
        let timed = contents(version(1))[2].clone();
        let unix = Millis(0);
        assert_eq!(timed.countdown(&Millis(100), unix), Countdown::Running(Millis(208)));
        let here = timed.clone().arrive(None, &Millis(1_000));
        assert_eq!(here.countdown(&Millis(1_000), unix), Countdown::Running(Millis(300)));
        let again = timed.arrive(Some(&here), &Millis(1_200));
        assert_eq!(again, here, "a known deadline is counted on");
        assert!(!here.is_over(&Millis(1_300), unix) && here.is_over(&Millis(1_302), unix));
    }

    /// Members that leave and copy again and again must not keep a key for ever.
    #[test]
    fn copy_goes_on_with_the_rest_of_its_donor() {
        let (timed, unix) = (contents(version(1))[2].clone(), Millis(0));
        let rest = timed.countdown(&Millis(207), unix);
        let here = timed.clone().with_rest(&Millis(207), unix).arrive(None, &Millis(1_000));
        assert_eq!(here.countdown(&Millis(1_000), unix), Countdown::Running(Millis(101)));
        assert_eq!(here.countdown(&Millis(1_001), unix), rest);
        // A later change that keeps the deadline brings the whole span.
        let later = timed.arrive(Some(&here), &Millis(1_050));
        assert_eq!(later.countdown(&Millis(1_001), unix), rest);
        assert!(later.is_over(&Millis(1_102), unix));
    }

    #[test]
    fn deadline_goes_by_the_wall_clock() {
        let until = contents(version(1))[3].clone().arrive(None, &Millis(0));
        assert!(!until.is_over(&Millis(9_000), Millis(899)));
        assert!(until.is_over(&Millis(0), Millis(900)));
    }
}
