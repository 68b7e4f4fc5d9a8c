//! The payload of one frame between two nodes: the sender, its crash vector, and messages.
//!
//! Little endian. A header `format u8, sender u16, incarnation u32, amnesia u32, epoch u32, count
//! u8, count * (node u16, amnesia u32)`, then messages `database u8, shard u8, len u32, bytes` up
//! to the end. The transport checks length, checksum and version of the whole. Decoding trusts no
//! input.

use types::limits::MEMBERS_MAX;
use types::{AmnesiaCount, Database, Epoch, Incarnation, Malformed, NodeId, Reader, Shard};

/// The format this node speaks and understands.
pub const FORMAT: u8 = 1;

const FIXED_LEN: usize = 16;
const VECTOR_ENTRY_LEN: usize = 6;
/// Bytes of a message before its own.
const MESSAGE_HEADER_LEN: usize = 6;

/// Bytes of a header that names the amnesia counts of `others` members.
#[must_use]
pub const fn header_len(others: usize) -> usize {
    FIXED_LEN + others * VECTOR_ENTRY_LEN
}

/// The sender of a frame and its crash vector [Michael et al., DISC 2017].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader<'a> {
    pub sender: NodeId,
    pub incarnation: Incarnation,
    /// The sender's own amnesia count when it wrote the messages.
    pub amnesia: AmnesiaCount,
    pub epoch: Epoch,
    vector: &'a [u8],
}

impl FrameHeader<'_> {
    /// Losses of other members as the sender knew them.
    pub fn crash_vector(&self) -> impl Iterator<Item = (NodeId, AmnesiaCount)> + '_ {
        self.vector.chunks_exact(VECTOR_ENTRY_LEN).map(|entry| {
            let node = u16::from_le_bytes([entry[0], entry[1]]);
            let amnesia = u32::from_le_bytes([entry[2], entry[3], entry[4], entry[5]]);
            (NodeId(node), AmnesiaCount(amnesia))
        })
    }
}

/// Writes a header over the first [`header_len`] bytes of `out`.
///
/// # Panics
/// If `out` is shorter, or `crash_vector` yields another number than `others`.
pub fn write_header(
    out: &mut [u8],
    sender: NodeId,
    incarnation: Incarnation,
    amnesia: AmnesiaCount,
    epoch: Epoch,
    crash_vector: impl ExactSizeIterator<Item = (NodeId, AmnesiaCount)>,
) {
    let others = crash_vector.len();
    assert!(others <= MEMBERS_MAX, "{others} others, at most {MEMBERS_MAX}");
    out[0] = FORMAT;
    out[1..3].copy_from_slice(&sender.0.to_le_bytes());
    out[3..7].copy_from_slice(&incarnation.0.to_le_bytes());
    out[7..11].copy_from_slice(&amnesia.0.to_le_bytes());
    out[11..15].copy_from_slice(&epoch.0.to_le_bytes());
    out[15] = others as u8;
    let vector = &mut out[FIXED_LEN..header_len(others)];
    for (entry, (node, amnesia)) in vector.chunks_exact_mut(VECTOR_ENTRY_LEN).zip(crash_vector) {
        entry[..2].copy_from_slice(&node.0.to_le_bytes());
        entry[2..].copy_from_slice(&amnesia.0.to_le_bytes());
    }
}

/// Appends a message whose bytes `write` appends.
///
/// # Panics
/// If the message is longer than `u32::MAX`.
pub fn put_message(
    out: &mut Vec<u8>,
    database: Database,
    shard: Shard,
    write: impl FnOnce(&mut Vec<u8>),
) {
    out.extend_from_slice(&[database.0, shard.0, 0, 0, 0, 0]);
    let start = out.len();
    write(out);
    let len = u32::try_from(out.len() - start).expect("a message holds one record at most");
    out[start - 4..start].copy_from_slice(&len.to_le_bytes());
}

/// One message of a frame, undecoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawMessage<'a> {
    pub database: Database,
    pub shard: Shard,
    pub bytes: &'a [u8],
    /// The message with its own header, to be passed on as it is.
    pub whole: &'a [u8],
}

/// Takes a frame apart: the header, its bytes, and the messages.
///
/// # Errors
/// [`Malformed`] when the header is not one.
pub fn decode(frame: &[u8]) -> Result<(FrameHeader<'_>, &[u8], Messages<'_>), Malformed> {
    let mut reader = Reader::new(frame);
    if reader.u8()? != FORMAT {
        return Err(Malformed);
    }
    let sender = NodeId(reader.u16()?);
    let incarnation = Incarnation(reader.u32()?);
    let amnesia = AmnesiaCount(reader.u32()?);
    let epoch = Epoch(reader.u32()?);
    let others = usize::from(reader.u8()?);
    if others > MEMBERS_MAX || incarnation > Incarnation::MAX || amnesia > AmnesiaCount::MAX {
        return Err(Malformed);
    }
    let vector = reader.take(others * VECTOR_ENTRY_LEN)?;
    let header = FrameHeader { sender, incarnation, amnesia, epoch, vector };
    if header.crash_vector().any(|(_, amnesia)| amnesia > AmnesiaCount::MAX) {
        return Err(Malformed);
    }
    Ok((header, &frame[..header_len(others)], Messages { rest: reader.rest() }))
}

/// The shard of a frame's first message, without a look at anything else; `None` where there is
/// none.
#[must_use]
pub fn first_shard(frame: &[u8]) -> Option<Shard> {
    let others = usize::from(*frame.get(FIXED_LEN - 1)?);
    frame.get(header_len(others) + 1).map(|&shard| Shard(shard))
}

/// Walks the messages of a frame; ends after the first that is cut short.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    fn read(&self) -> Result<RawMessage<'a>, Malformed> {
        let mut reader = Reader::new(self.rest);
        let database = Database(reader.u8()?);
        let shard = Shard(reader.u8()?);
        let len = reader.u32()? as usize;
        let bytes = reader.take(len)?;
        Ok(RawMessage { database, shard, bytes, whole: &self.rest[..MESSAGE_HEADER_LEN + len] })
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<RawMessage<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let message = self.read();
        self.rest = match &message {
            Ok(message) => &self.rest[message.whole.len()..],
            Err(Malformed) => &[],
        };
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> Vec<u8> {
        let crash_vector = [(NodeId(1), AmnesiaCount(7)), (NodeId(3), AmnesiaCount(0))];
        let mut out = vec![0; header_len(2)];
        write_header(
            &mut out,
            NodeId(2),
            Incarnation(5),
            AmnesiaCount(4),
            Epoch(1),
            crash_vector.iter().copied(),
        );
        put_message(&mut out, Database(3), Shard(9), |out| out.extend_from_slice(b"abc"));
        put_message(&mut out, Database(0), Shard(255), |_| {});
        out
    }

    #[test]
    fn a_frame_comes_back() {
        let frame = frame();
        let (header, bytes, messages) = decode(&frame).unwrap();
        assert_eq!(bytes, &frame[..header_len(2)]);
        assert_eq!(
            (header.sender, header.incarnation, header.amnesia, header.epoch),
            (NodeId(2), Incarnation(5), AmnesiaCount(4), Epoch(1))
        );
        let crash_vector: Vec<_> = header.crash_vector().collect();
        assert_eq!(crash_vector, [(NodeId(1), AmnesiaCount(7)), (NodeId(3), AmnesiaCount(0))]);
        let messages: Vec<_> = messages.map(Result::unwrap).collect();
        assert_eq!(messages.len(), 2);
        assert_eq!(
            (messages[0].database, messages[0].shard, messages[0].bytes),
            (Database(3), Shard(9), &b"abc"[..])
        );
        assert_eq!(messages[1].bytes, b"");
        assert_eq!(first_shard(&frame), Some(Shard(9)));
    }

    #[test]
    fn a_frame_without_messages_has_no_first_shard() {
        let frame = frame();
        for cut in [0, FIXED_LEN - 1, FIXED_LEN, header_len(2), header_len(2) + 1] {
            assert_eq!(first_shard(&frame[..cut]), None, "{cut} bytes");
        }
    }

    #[test]
    fn every_cut_is_noticed_or_falls_between_two_messages() {
        let frame = frame();
        let ends = [header_len(2), header_len(2) + MESSAGE_HEADER_LEN + 3, frame.len()];
        for len in 0..frame.len() {
            let whole = decode(&frame[..len])
                .is_ok_and(|(_, _, mut messages)| messages.all(|message| message.is_ok()));
            assert_eq!(whole, ends.contains(&len), "cut at {len}");
        }
    }

    #[test]
    fn overflowing_amnesia_count_is_malformed() {
        let mut frame = frame();
        frame[7..11].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(decode(&frame).err(), Some(Malformed));
    }
}
