//! Who is at the other end: two nodes and somebody between them who changes what they say, and
//! knows no secret.

use base::{Nanos, Prng};
use transport::connection::{Connection, Happening, KeepAlive};
use transport::handshake::Handshake;
use transport::{ClusterId, Hello};
use types::{AmnesiaCount, Incarnation, NodeId};

use super::Target;
use crate::input::Input;

pub(super) const TARGET: Target = Target {
    name: "handshake",
    claim: "nobody is proven but the other end, as it described itself, and payloads are among those it sent",
    run,
    seeds,
    short: 100_000,
};

const START: Nanos = Nanos(1_000_000_000);

struct End {
    connection: Connection,
    me: Hello,
    sent: Vec<Vec<u8>>,
    is_proven: bool,
    is_reset: bool,
}

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let knows = input.u8() % 4 != 3;
    let mut ends = pair(if knows { b"secret" } else { b"guess" });
    let mut now = START;
    while !input.is_empty() {
        let op = input.u8();
        let from = usize::from(op & 1);
        match op >> 1 & 7 {
            0..=3 => carry(&mut ends, from, now, input.u16()),
            4 => change(&mut ends, from, now, input.u16(), input.u64()),
            5 => say(&mut ends[from], now, input.u8()),
            6 => {
                now += Nanos::from_millis(u64::from(input.u8()) * 10);
                for end in &mut ends {
                    end.is_reset |= end.connection.on_time(now).is_err();
                }
            }
            // Later there is nothing secret in a frame: who can put bytes into an open connection
            // can speak for it.
            _ if ends[1 - from].is_proven => {}
            _ => hear(&mut ends, 1 - from, now, input.take(usize::from(op))),
        }
        let proven = ends.iter().any(|end| end.is_proven);
        assert!(knows || !proven, "proven without the secret");
    }
}

fn pair(secret: &[u8]) -> [End; 2] {
    let hellos = [1, 2].map(|node: u8| Hello {
        node: NodeId(u16::from(node)),
        incarnation: Incarnation(u32::from(node)),
        amnesia: AmnesiaCount(3),
        cluster: Some(ClusterId([9; 16])),
        channel: 0,
        workers: 2,
        settings: 1,
        features: types::features::Features::default(),
        nonce: [node; 32],
    });
    let dial = Handshake::dial(hellos[0].clone(), NodeId(2), b"secret");
    let accept = Handshake::accept(hellos[1].clone(), &[NodeId(1), NodeId(3)], secret);
    let mut shakes = [dial, accept].into_iter();
    hellos.map(|me| {
        let handshake = shakes.next().expect("there are two ends");
        let connection = Connection::new(handshake, KeepAlive::WORKERS, START);
        End { connection, me, sent: Vec::new(), is_proven: false, is_reset: false }
    })
}

/// Takes up to `len` bytes from one end.
fn wire(end: &mut End, len: u16) -> Vec<u8> {
    let unsent = end.connection.unsent();
    let bytes = unsent[..usize::from(len).min(unsent.len())].to_vec();
    end.connection.wrote(bytes.len());
    bytes
}

fn carry(ends: &mut [End; 2], from: usize, now: Nanos, len: u16) {
    let bytes = wire(&mut ends[from], len);
    hear(ends, 1 - from, now, &bytes);
}

/// Carries bytes that are not what was said: changed, lost or doubled somewhere.
fn change(ends: &mut [End; 2], from: usize, now: Nanos, len: u16, seed: u64) {
    let mut prng = Prng::new(seed);
    let mut bytes = wire(&mut ends[from], len);
    if bytes.is_empty() {
        return;
    }
    let at = prng.below(bytes.len() as u64) as usize;
    match prng.below(3) {
        0 => bytes[at] ^= 1 << prng.below(8),
        1 => drop(bytes.drain(at..)),
        _ => {
            let tail = bytes[at..].to_vec();
            bytes.extend(tail);
        }
    }
    hear(ends, 1 - from, now, &bytes);
}

fn say(end: &mut End, now: Nanos, number: u8) {
    if end.is_proven && !end.is_reset {
        let payload = vec![number; usize::from(number)];
        end.connection.send(now, &payload).expect("little waits");
        end.sent.push(payload);
    }
}

fn hear(ends: &mut [End; 2], to: usize, now: Nanos, bytes: &[u8]) {
    let (left, right) = ends.split_at_mut(1);
    let (end, other) = if to == 0 { (&mut left[0], &right[0]) } else { (&mut right[0], &left[0]) };
    if end.is_reset {
        return;
    }
    let mut happenings = Vec::new();
    end.is_reset = end.connection.on_bytes(now, bytes, &mut happenings).is_err();
    for happening in happenings.into_iter() {
        match happening {
            Happening::Proven(hello) => {
                assert!(!end.is_proven, "proven twice");
                assert_eq!(hello, other.me);
                end.is_proven = true;
            }
            Happening::Payload(payload) => {
                assert!(end.is_proven, "a payload of the unproven");
                assert!(
                    other.sent.iter().any(|sent| *sent == payload),
                    "a payload that nobody sent"
                );
            }
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let all = [0xff, 0xff];
    // Both hellos, both proofs, then payloads both ways.
    let mut good = vec![0];
    for from in [0, 1, 0, 1, 0, 1] {
        good.push(from);
        good.extend(all);
    }
    for from in [0, 1] {
        good.extend([5 << 1 | from, 30, from, 0xff, 0xff]);
    }
    let mut slow = good.clone();
    slow.extend([6 << 1, 200, 1, 0xff, 0xff, 6 << 1, 200]);
    let mut without = good.clone();
    without[0] = 3;
    let mut cut = vec![0];
    (0..40).for_each(|step| cut.extend([step % 2, 7, 0]));
    let mut noise = vec![0];
    noise.extend([4 << 1, 0xff, 0xff, 1, 2, 3, 4, 5, 6, 7, 8, 7 << 1, 1, 2, 3]);
    vec![good, slow, without, cut, noise]
}
