//! The payload of a log's stripe: the first index that is kept, then batches of records.

use bytes::Bytes;

use crate::disk::bytes_at::{u32_at, u64_at};

/// Bytes before the batches.
pub(super) const HEAD_LEN: usize = 8;
/// Bytes of a batch before its records.
pub(super) const BATCH_HEAD_LEN: usize = 16;
/// Bytes of a record before its content.
pub(super) const RECORD_HEAD_LEN: usize = 4;

/// Records that replace everything from `from` on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Batch {
    pub(super) from: u64,
    pub(super) records: Vec<Bytes>,
}

/// Bytes that a batch takes in a payload.
pub(super) fn encoded_len(records: &[Bytes]) -> usize {
    let content: usize = records.iter().map(|record| RECORD_HEAD_LEN + record.len()).sum();
    BATCH_HEAD_LEN + content
}

/// The payload that says so.
pub(super) fn encode(first: u64, batches: &[Batch]) -> Vec<u8> {
    let len: usize = batches.iter().map(|batch| encoded_len(&batch.records)).sum();
    let mut payload = Vec::with_capacity(HEAD_LEN + len);
    payload.extend_from_slice(&first.to_le_bytes());
    for Batch { from, records } in batches {
        let content = encoded_len(records) - BATCH_HEAD_LEN;
        payload.extend_from_slice(&from.to_le_bytes());
        payload.extend_from_slice(&(records.len() as u32).to_le_bytes());
        payload.extend_from_slice(&(content as u32).to_le_bytes());
        for record in records {
            payload.extend_from_slice(&(record.len() as u32).to_le_bytes());
            payload.extend_from_slice(record);
        }
    }
    payload
}

/// The first index that is kept, and the batches; `None` where the payload says something else.
pub(super) fn decode(payload: &Bytes) -> Option<(u64, Vec<Batch>)> {
    let mut rest = payload.clone();
    let first = u64_at(&take(&mut rest, HEAD_LEN)?, 0);
    let mut batches = Vec::new();
    while !rest.is_empty() {
        let head = take(&mut rest, BATCH_HEAD_LEN)?;
        let mut content = take(&mut rest, u32_at(&head, 12) as usize)?;
        let mut records = Vec::new();
        for _ in 0..u32_at(&head, 8) {
            let len = u32_at(&take(&mut content, RECORD_HEAD_LEN)?, 0);
            records.push(take(&mut content, len as usize)?);
        }
        if !content.is_empty() {
            return None;
        }
        batches.push(Batch { from: u64_at(&head, 0), records });
    }
    Some((first, batches))
}

fn take(bytes: &mut Bytes, len: usize) -> Option<Bytes> {
    (len <= bytes.len()).then(|| bytes.split_to(len))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn batch() -> impl Strategy<Value = Batch> {
        let record = proptest::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from);
        (any::<u64>(), proptest::collection::vec(record, 0..5))
            .prop_map(|(from, records)| Batch { from, records })
    }

    proptest! {
        #[test]
        fn a_payload_says_what_it_was_made_of_and_no_part_of_it_does(
            first in any::<u64>(), batches in proptest::collection::vec(batch(), 0..4), cut in 1_usize..9
        ) {
            let payload = encode(first, &batches);
            let mut shorter = payload.clone();
            shorter.truncate(payload.len().saturating_sub(cut));
            prop_assert_eq!(decode(&Bytes::from(payload)), Some((first, batches.clone())));
            let last = batches.last().map(|last| encoded_len(&last.records));
            // Without its last batch, head and all, it is another payload.
            prop_assume!(last != Some(cut));
            prop_assert_eq!(decode(&Bytes::from(shorter)), None);
        }

        #[test]
        fn garbage_is_no_reason_to_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            decode(&Bytes::from(bytes));
        }
    }

    #[test]
    fn the_bytes_of_a_payload_are_these() {
        let batch = Batch { from: 3, records: vec![Bytes::from_static(b"a"), Bytes::new()] };
        let expected =
            b"\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x02\0\0\0\x09\0\0\0\x01\0\0\0a\0\0\0\0";
        assert_eq!(encode(2, &[batch]), expected);
    }
}
