//! Frames: the envelope of a payload in a byte stream.
//!
//! `magic u16, version u8, kind u8, len u32, checksum u64`, little endian, then `len` bytes. The
//! checksum covers the header and the payload and is seeded with a number that both ends of a
//! connection derived in its handshake, so the bytes of another connection do not verify. It guards
//! against accidents, not against forgers.

use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};

/// Bytes before the payload.
pub const HEADER_LEN: usize = 16;

/// Payload bytes of a frame at most: a turn's messages to one peer.
pub const PAYLOAD_LEN_MAX: usize = types::limits::FRAME_LEN_MAX;

/// Payload bytes before the other end has proven itself.
pub const PAYLOAD_LEN_MAX_UNPROVEN: usize = 4 << 10;

const MAGIC: u16 = 0x5a50;
const VERSION: u8 = 1;

const AT_MAGIC: Range<usize> = 0..2;
const AT_VERSION: usize = 2;
const AT_KIND: usize = 3;
const AT_LEN: Range<usize> = 4..8;
const AT_CHECKSUM: Range<usize> = 8..16;
const _: () = assert!(AT_CHECKSUM.end == HEADER_LEN);

/// The content of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// The sender's introduction, with a nonce.
    Hello = 1,
    /// That I know the secret.
    Proof = 2,
    /// Why I will not talk to you.
    Refusal = 3,
    /// Answer me, so that I know you live.
    Ping = 4,
    Pong = 5,
    /// A payload for the layer above.
    Payload = 6,
}

/// Bytes that are no frame of this connection; the connection is of no use any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    #[error("not a frame")]
    Magic,
    #[error("frame format {0} is unknown")]
    Version(u8),
    #[error("frame kind {0} is unknown")]
    Kind(u8),
    #[error("a frame of {len} bytes, at most {max}")]
    TooLong { len: usize, max: usize },
    #[error("wrong checksum")]
    Checksum,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        Some(match byte {
            1 => Kind::Hello,
            2 => Kind::Proof,
            3 => Kind::Refusal,
            4 => Kind::Ping,
            5 => Kind::Pong,
            6 => Kind::Payload,
            _ => return None,
        })
    }
}

/// Appends one frame.
///
/// # Panics
/// If the payload is longer than [`PAYLOAD_LEN_MAX`]: the receiver would refuse it.
pub fn encode(seed: u64, kind: Kind, payload: &[u8], out: &mut Vec<u8>) {
    assert!(payload.len() <= PAYLOAD_LEN_MAX, "a payload of {} bytes", payload.len());
    let mut header = [0; HEADER_LEN];
    header[AT_MAGIC].copy_from_slice(&MAGIC.to_le_bytes());
    header[AT_VERSION] = VERSION;
    header[AT_KIND] = kind as u8;
    header[AT_LEN].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    let checksum = checksum(seed, &header, payload);
    header[AT_CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    out.extend_from_slice(&header);
    out.extend_from_slice(payload);
}

fn checksum(seed: u64, header: &[u8; HEADER_LEN], payload: &[u8]) -> u64 {
    let bound = base::checksum::checksum(seed, &header[..AT_CHECKSUM.start]);
    base::checksum::checksum(bound, payload)
}

/// Takes frames off a byte stream that arrives in pieces.
#[derive(Debug)]
pub struct Decoder {
    buffer: BytesMut,
    seed: u64,
    payload_len_max: usize,
}

impl Decoder {
    #[must_use]
    pub fn new(seed: u64, payload_len_max: usize) -> Decoder {
        Decoder { buffer: BytesMut::new(), seed, payload_len_max }
    }

    /// From the next frame on, another seed and limit hold.
    pub fn rebind(&mut self, seed: u64, payload_len_max: usize) {
        self.seed = seed;
        self.payload_len_max = payload_len_max;
    }

    /// Bytes that arrived. At most one frame of the longest kind is held, plus the bytes that came
    /// with its end.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Part of a frame has arrived.
    #[must_use]
    pub fn is_within(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// The next whole frame.
    ///
    /// # Errors
    /// [`FrameError`] when the bytes are no frame; call it no more.
    pub fn take(&mut self) -> Result<Option<(Kind, Bytes)>, FrameError> {
        let Some(header) = self.buffer.first_chunk::<HEADER_LEN>() else { return Ok(None) };
        let header = *header;
        let (kind, len) = self.read_header(&header)?;
        if self.buffer.len() < HEADER_LEN + len {
            self.buffer.reserve(HEADER_LEN + len - self.buffer.len());
            return Ok(None);
        }
        self.buffer.advance(HEADER_LEN);
        let payload = self.buffer.split_to(len).freeze();
        if checksum(self.seed, &header, &payload) != number(&header[AT_CHECKSUM]) {
            return Err(FrameError::Checksum);
        }
        Ok(Some((kind, payload)))
    }

    fn read_header(&self, header: &[u8; HEADER_LEN]) -> Result<(Kind, usize), FrameError> {
        if number(&header[AT_MAGIC]) != u64::from(MAGIC) {
            return Err(FrameError::Magic);
        }
        if header[AT_VERSION] != VERSION {
            return Err(FrameError::Version(header[AT_VERSION]));
        }
        let kind = Kind::from_byte(header[AT_KIND]).ok_or(FrameError::Kind(header[AT_KIND]))?;
        let len = number(&header[AT_LEN]) as usize;
        if len > self.payload_len_max {
            return Err(FrameError::TooLong { len, max: self.payload_len_max });
        }
        Ok((kind, len))
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drain(decoder: &mut Decoder) -> Result<Vec<(Kind, Bytes)>, FrameError> {
        let mut frames = Vec::new();
        while let Some(frame) = decoder.take()? {
            frames.push(frame);
        }
        Ok(frames)
    }

    proptest! {
        #[test]
        fn frames_come_back_however_the_stream_is_cut(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..8),
            cut in 1_usize..50,
            seed: u64,
        ) {
            let mut stream = Vec::new();
            for payload in &payloads {
                encode(seed, Kind::Payload, payload, &mut stream);
            }
            let mut decoder = Decoder::new(seed, 200);
            let mut found = Vec::new();
            for piece in stream.chunks(cut) {
                decoder.push(piece);
                found.extend(drain(&mut decoder).unwrap());
            }
            let found: Vec<Vec<u8>> = found.into_iter().map(|(_, bytes)| bytes.to_vec()).collect();
            prop_assert_eq!(found, payloads);
        }

        #[test]
        fn any_changed_bit_is_found(
            payload in prop::collection::vec(any::<u8>(), 0..64),
            at: prop::sample::Index,
            bit in 0_u8..8,
        ) {
            let mut stream = Vec::new();
            encode(7, Kind::Payload, &payload, &mut stream);
            let at = at.index(stream.len());
            stream[at] ^= 1 << bit;
            let mut decoder = Decoder::new(7, 64);
            decoder.push(&stream);
            // A longer length waits for bytes that never come; everything else is an error.
            prop_assert!(!matches!(decoder.take(), Ok(Some(_))));
        }

        #[test]
        fn rubbish_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut decoder = Decoder::new(1, 100);
            decoder.push(&bytes);
            let _ = drain(&mut decoder);
        }
    }

    #[test]
    fn bytes_of_another_connection_do_not_verify() {
        let mut stream = Vec::new();
        encode(1, Kind::Payload, b"x", &mut stream);
        let mut decoder = Decoder::new(2, 100);
        decoder.push(&stream);
        assert_eq!(decoder.take(), Err(FrameError::Checksum));
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_its_bytes_arrive() {
        let mut stream = Vec::new();
        encode(1, Kind::Payload, &[0; 101], &mut stream);
        let mut decoder = Decoder::new(1, 100);
        decoder.push(&stream[..HEADER_LEN]);
        assert_eq!(decoder.take(), Err(FrameError::TooLong { len: 101, max: 100 }));
    }
}
