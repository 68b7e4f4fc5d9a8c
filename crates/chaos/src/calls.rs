//! Calls of clients, their encoding in RESP, and the meaning of replies.
//!
//! No value is written twice, so a read names the write that it saw.
//! Values may be padded to a length that follows from their token.
//! A read is checked in full, while histories hold the token alone.

use base::Prng;
use bench::client::Value;
use checker::Outcome;
use checker::model::kv::{Bytes, KvInput, KvOutput};
use clap::ValueEnum;

use crate::lock::{LockInput, LockOutput, Token};

/// How long a lock is held at most.
pub const LOCK_MS: u64 = 1_200;

/// Bytes of the largest ordinary value, and of one that is meant to fill a disk.
const PADDED_MAX: u64 = 6_000;
const FILL_BYTES: usize = 400_000;

/// The use of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum KeyKind {
    /// Read, written, compared and set, deleted.
    Register,
    /// Counted up.
    Counter,
    /// Appended to.
    Text,
    /// Taken, released, left to expire.
    Lock,
    /// Written once, large.
    Fill,
}

impl KeyKind {
    /// The kinds that clients draw by themselves.
    pub const DRAWN: [KeyKind; 4] =
        [KeyKind::Register, KeyKind::Counter, KeyKind::Text, KeyKind::Lock];

    /// How many keys of this kind a generation has.
    pub fn keys(self) -> u16 {
        match self {
            KeyKind::Register => 3,
            KeyKind::Counter => 2,
            KeyKind::Text | KeyKind::Lock | KeyKind::Fill => 1,
        }
    }

    fn word(self) -> &'static str {
        match self {
            KeyKind::Register => "register",
            KeyKind::Counter => "counter",
            KeyKind::Text => "text",
            KeyKind::Lock => "lock",
            KeyKind::Fill => "fill",
        }
    }
}

/// The calls that clients draw.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
pub enum Mix {
    #[default]
    All,
    /// No deadlines by wall clocks: some protocols believe a single one.
    Counted,
    /// The same, and reads take their place among the writes: some protocols have other reads, too.
    Ordered,
    /// SET and GET alone: some protocols run no command whose effect depends on the value before.
    Plain,
}

/// Names a key. A generation of keys lasts for one fault and is read again at the end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TestKey {
    pub kind: KeyKind,
    pub generation: u32,
    pub number: u16,
}

impl TestKey {
    /// As nodes know it.
    pub fn name(self) -> String {
        format!("{}:{}:{}", self.kind.word(), self.generation, self.number)
    }
}

/// A call on a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    Kv(KvInput),
    Lock(LockInput),
}

impl Call {
    /// Whether its success is an acknowledged write.
    pub fn is_write(&self) -> bool {
        !matches!(self, Call::Kv(KvInput::Get) | Call::Lock(LockInput::Holder))
    }

    /// The call that reads a key of this kind.
    pub fn read(kind: KeyKind) -> Call {
        match kind {
            KeyKind::Lock => Call::Lock(LockInput::Holder),
            _ => Call::Kv(KvInput::Get),
        }
    }
}

/// The reply to a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Kv(KvOutput),
    Lock(LockOutput),
}

/// A client's memory of a key: the last value it saw, or the token by which it holds the lock.
#[derive(Clone, Default, Debug)]
pub struct KeyMemory {
    pub value: Option<Bytes>,
    pub held: Option<Token>,
}

impl KeyMemory {
    /// Learns from an answer.
    pub fn note(&mut self, call: &Call, reply: &Answer) {
        match (call, reply) {
            (_, Answer::Kv(KvOutput::Value(seen))) => self.value.clone_from(seen),
            (Call::Kv(KvInput::Set(value)), _) => self.value = Some(value.clone()),
            (Call::Lock(LockInput::Acquire(token)), Answer::Lock(LockOutput::Granted(true))) => {
                self.held = Some(*token);
            }
            (Call::Lock(LockInput::Release(_)), _) => self.held = None,
            _ => {}
        }
    }
}

/// Draws a call; `token` was never used before.
pub fn draw(rng: &mut Prng, kind: KeyKind, token: u64, memory: &KeyMemory) -> Call {
    let value = Bytes::from(token.to_string().as_bytes());
    Call::Kv(match kind {
        KeyKind::Register => match rng.below(10) {
            0..=3 => KvInput::Get,
            4..=5 => KvInput::Set(value),
            6 => KvInput::SetIfAbsent(value),
            7 => KvInput::GetSet(value),
            8 => match &memory.value {
                Some(expected) => KvInput::SetIfEqual { expected: expected.clone(), new: value },
                None => KvInput::Get,
            },
            _ => KvInput::Del,
        },
        KeyKind::Counter if rng.chance(0.6) => KvInput::IncrBy(1),
        KeyKind::Text if rng.chance(0.3) => {
            // Items end with a comma, so that no two sequences of them read alike.
            KvInput::Append(Bytes::from(format!("{token},").as_bytes()))
        }
        KeyKind::Counter | KeyKind::Text => KvInput::Get,
        KeyKind::Fill => KvInput::Set(value),
        KeyKind::Lock => {
            return Call::Lock(match (memory.held, rng.below(10)) {
                (Some(token), 0..=4) => LockInput::Release(token),
                (_, 0..=5) => LockInput::Acquire(token),
                _ => LockInput::Holder,
            });
        }
    })
}

/// Draws a read or a write of a register that no earlier value decides.
pub fn draw_plain(rng: &mut Prng, token: u64) -> Call {
    let value = Bytes::from(token.to_string().as_bytes());
    Call::Kv(if rng.chance(0.5) { KvInput::Get } else { KvInput::Set(value) })
}

/// Draws a call that writes in any state of the key.
pub fn draw_write(rng: &mut Prng, kind: KeyKind, token: u64) -> Call {
    match kind {
        KeyKind::Counter => Call::Kv(KvInput::IncrBy(1)),
        KeyKind::Text => draw(rng, KeyKind::Text, token, &KeyMemory::default()),
        _ => Call::Kv(KvInput::Set(Bytes::from(token.to_string().as_bytes()))),
    }
}

/// The words of a request. Some locks count their deadline from the time of day, if it is given.
pub fn words(key: TestKey, call: &Call, wall_ms: Option<u64>) -> Vec<Vec<u8>> {
    let name = key.name().into_bytes();
    let word = |text: &str| text.as_bytes().to_vec();
    let padded = |value: &Bytes| pad(key.kind, value.as_slice());
    match call {
        Call::Kv(input) => match input {
            KvInput::Set(value) => vec![word("SET"), name, padded(value)],
            KvInput::SetIfAbsent(value) => vec![word("SET"), name, padded(value), word("NX")],
            KvInput::SetIfEqual { expected, new } => {
                vec![word("SET"), name, padded(new), word("IFEQ"), padded(expected)]
            }
            KvInput::GetSet(value) => vec![word("SET"), name, padded(value), word("GET")],
            KvInput::Del => vec![word("DEL"), name],
            KvInput::IncrBy(by) => vec![word("INCRBY"), name, word(&by.to_string())],
            KvInput::Append(more) => vec![word("APPEND"), name, more.as_slice().to_vec()],
            KvInput::Get => vec![word("GET"), name],
            other => panic!("no client asks {other:?}"),
        },
        Call::Lock(input) => match input {
            LockInput::Acquire(token) => {
                let (option, time) = match wall_ms {
                    Some(wall_ms) if token.is_multiple_of(3) => ("PXAT", deadline_ms(wall_ms)),
                    _ => ("PX", LOCK_MS),
                };
                let token = word(&token.to_string());
                vec![word("SET"), name, token, word("NX"), word(option), word(&time.to_string())]
            }
            LockInput::Release(token) => vec![word("DELIFEQ"), name, word(&token.to_string())],
            LockInput::Holder => vec![word("GET"), name],
            LockInput::Expire(_) => panic!("no client asks a lock to expire"),
        },
    }
}

/// Deadline of a lock that was requested at `wall_ms`.
///
/// At least [`LOCK_MS`] later by the histories' clock, although the time of day is truncated to
/// milliseconds and may be slewed.
fn deadline_ms(wall_ms: u64) -> u64 {
    wall_ms + 1 + LOCK_MS + LOCK_MS / 500
}

/// The value of a token: registers and fills are padded to a length that the token decides.
fn pad(kind: KeyKind, token: &[u8]) -> Vec<u8> {
    let length = match kind {
        KeyKind::Fill => FILL_BYTES,
        KeyKind::Register => {
            let drawn = base::checksum::hash(token);
            // One in eight is long.
            if drawn.is_multiple_of(8) { (drawn / 8 % PADDED_MAX) as usize } else { 0 }
        }
        KeyKind::Counter | KeyKind::Text | KeyKind::Lock => 0,
    };
    let mut value = token.to_vec();
    if value.len() < length {
        value.resize(length, b'.');
    }
    value
}

/// The token of a value.
///
/// # Errors
/// When no client can have written the value.
fn unpad(kind: KeyKind, value: &[u8]) -> Result<Bytes, String> {
    if !matches!(kind, KeyKind::Register | KeyKind::Fill) {
        return Ok(Bytes::from(value));
    }
    let end = value.iter().position(|byte| *byte == b'.').unwrap_or(value.len());
    match pad(kind, &value[..end]) == value {
        true => Ok(Bytes::from(&value[..end])),
        false => Err(format!(
            "a value that no client wrote: {} bytes, \"{}\"…",
            value.len(),
            value[..value.len().min(60)].escape_ascii()
        )),
    }
}

/// Interprets a reply.
///
/// `-CLUSTERDOWN`, `-LOADING`, `-OOM` and `-TRYAGAIN` promise that there was and will be no effect.
/// `-UNKNOWN` promises neither.
///
/// # Errors
/// When no correct node sends that reply.
pub fn outcome(kind: KeyKind, call: &Call, reply: &Value) -> Result<Outcome<Answer>, String> {
    if let Value::Error(text) = reply {
        return match text.split(' ').next() {
            Some("UNKNOWN") => Ok(Outcome::Unknown),
            Some("CLUSTERDOWN" | "LOADING" | "OOM" | "TRYAGAIN") => Ok(Outcome::Failed),
            _ => Err(format!("{call:?} was answered with an unexpected error: {text}")),
        };
    }
    let returned = match call {
        Call::Kv(input) => kv_output(kind, input, reply)?.map(Answer::Kv),
        Call::Lock(input) => lock_output(*input, reply).map(Answer::Lock),
    };
    returned.map(Outcome::Returned).ok_or_else(|| format!("{call:?} was answered with {reply:?}"))
}

fn kv_output(kind: KeyKind, input: &KvInput, reply: &Value) -> Result<Option<KvOutput>, String> {
    use KvInput as I;
    Ok(match (input, reply) {
        (I::Set(_) | I::SetIfAbsent(_) | I::SetIfEqual { .. }, Value::Simple(ok)) if ok == "OK" => {
            Some(KvOutput::Done)
        }
        (I::SetIfAbsent(_) | I::SetIfEqual { .. }, Value::Nil) => Some(KvOutput::Refused),
        (I::Get | I::GetSet(_), Value::Nil) => Some(KvOutput::Value(None)),
        (I::Get | I::GetSet(_), Value::Bulk(bytes)) => {
            Some(KvOutput::Value(Some(unpad(kind, bytes)?)))
        }
        (I::Del | I::IncrBy(_) | I::Append(_), Value::Integer(number)) => {
            Some(KvOutput::Integer(*number))
        }
        _ => None,
    })
}

fn lock_output(input: LockInput, reply: &Value) -> Option<LockOutput> {
    match (input, reply) {
        (LockInput::Acquire(_), Value::Simple(ok)) if ok == "OK" => Some(LockOutput::Granted(true)),
        (LockInput::Acquire(_), Value::Nil) => Some(LockOutput::Granted(false)),
        (LockInput::Release(_), Value::Integer(count @ 0..=1)) => {
            Some(LockOutput::Granted(*count == 1))
        }
        (LockInput::Holder, Value::Nil) => Some(LockOutput::Holder(None)),
        (LockInput::Holder, Value::Bulk(bytes)) => {
            let token = std::str::from_utf8(bytes).ok()?.parse().ok()?;
            Some(LockOutput::Holder(Some(token)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> Result<Outcome<Answer>, String> {
        outcome(KeyKind::Register, &Call::read(KeyKind::Register), &Value::Error(text.to_string()))
    }

    #[test]
    fn errors_follow_the_contract() {
        assert_eq!(error("UNKNOWN no quorum"), Ok(Outcome::Unknown));
        for text in ["CLUSTERDOWN few", "LOADING wait", "OOM full", "TRYAGAIN conflict"] {
            assert_eq!(error(text), Ok(Outcome::Failed), "{text}");
        }
        assert!(error("ERR internal").is_err());
    }

    #[test]
    fn padded_values_decode_and_torn_values_fail() {
        let long = (0..u64::MAX)
            .map(|token| token.to_string())
            .find(|token| pad(KeyKind::Register, token.as_bytes()).len() > 1_000)
            .expect("one in eight is long");
        for kind in [KeyKind::Register, KeyKind::Fill] {
            let mut value = pad(kind, long.as_bytes());
            assert_eq!(unpad(kind, &value), Ok(Bytes::from(&long)), "{kind:?}");
            value.pop();
            assert!(unpad(kind, &value).is_err(), "{kind:?} cut off");
            value.extend(b"x");
            assert!(unpad(kind, &value).is_err(), "{kind:?} with another end");
        }
    }

    #[test]
    fn deadline_is_never_before_time_to_live() {
        // The host's clock may run faster by 500 ppm and show its last millisecond only.
        for wall_us in 0..3_000_u64 {
            let asked_ms = wall_us / 1_000;
            let lasts_us = (deadline_ms(asked_ms) * 1_000 - wall_us) as f64;
            assert!(lasts_us / 1.000_5 >= (LOCK_MS * 1_000) as f64, "asked at {wall_us} us");
        }
        let key = TestKey { kind: KeyKind::Lock, generation: 1, number: 0 };
        let taken = |wall_ms| words(key, &Call::Lock(LockInput::Acquire(3)), wall_ms);
        let option = |name: &str, time: u64| [name.into(), time.to_string().into_bytes()];
        assert_eq!(taken(Some(5_000))[4..], option("PXAT", deadline_ms(5_000)));
        assert_eq!(taken(None)[4..], option("PX", LOCK_MS));
    }

    #[test]
    fn reply_of_wrong_shape_is_an_error() {
        let set = Call::Kv(KvInput::Set(Bytes::from("1")));
        assert!(outcome(KeyKind::Register, &set, &Value::Nil).is_err());
        assert!(outcome(KeyKind::Register, &set, &Value::Integer(1)).is_err());
        let take = Call::Lock(LockInput::Acquire(1));
        assert!(outcome(KeyKind::Lock, &take, &Value::Integer(1)).is_err());
        let refused = Ok(Outcome::Returned(Answer::Lock(LockOutput::Granted(false))));
        assert_eq!(outcome(KeyKind::Lock, &take, &Value::Nil), refused);
    }

    #[test]
    fn every_drawn_call_encodes() {
        let mut rng = Prng::new(1);
        let mut memory = KeyMemory { value: Some(Bytes::from("7")), held: Some(7) };
        for token in 0..2_000 {
            for kind in
                [KeyKind::Register, KeyKind::Counter, KeyKind::Text, KeyKind::Lock, KeyKind::Fill]
            {
                let key = TestKey { kind, generation: 1, number: 0 };
                let call = draw(&mut rng, kind, token, &memory);
                assert!(words(key, &call, Some(0)).len() >= 2);
                assert!(words(key, &draw_write(&mut rng, kind, token), Some(0)).len() >= 2);
            }
            memory.held = (token % 2 == 0).then_some(token);
        }
    }
}
