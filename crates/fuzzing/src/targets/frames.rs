//! What nodes send each other, as far as its frames.

use bytes::Bytes;
use transport::frame::{self, Decoder, FrameError, Kind};

use super::Target;
use crate::input::{Input, cut};

pub(super) const TARGET: Target = Target {
    name: "frames",
    claim: "frames are the same however the stream is cut, and each is made of exactly the bytes that encode it",
    run,
    seeds,
    short: 300_000,
};

const PAYLOAD_LEN_MAX: usize = 500;

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let seed = u64::from(input.u8() % 4);
    let cuts = input.u64();
    let stream = input.rest();
    let (frames, end) = take(seed, &[stream]);
    assert_eq!(take(seed, &cut(stream, cuts)), (frames.clone(), end));
    let mut again = Vec::new();
    for (kind, payload) in &frames {
        assert!(payload.len() <= PAYLOAD_LEN_MAX);
        frame::encode(seed, *kind, payload, &mut again);
    }
    assert!(stream.starts_with(&again), "frames that nobody sent");
}

fn take(seed: u64, pieces: &[&[u8]]) -> (Vec<(Kind, Bytes)>, Option<FrameError>) {
    let mut decoder = Decoder::new(seed, PAYLOAD_LEN_MAX);
    let mut frames = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.take() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}

fn seeds() -> Vec<Vec<u8>> {
    let kinds = [Kind::Hello, Kind::Proof, Kind::Refusal, Kind::Ping, Kind::Pong, Kind::Payload];
    let seed = |number: u8| {
        let mut seed = vec![number];
        seed.extend_from_slice(&u64::from(number).to_le_bytes());
        for (index, kind) in kinds.into_iter().enumerate() {
            frame::encode(u64::from(number), kind, &vec![number; index * 20], &mut seed);
        }
        seed
    };
    (0..4).map(seed).collect()
}
