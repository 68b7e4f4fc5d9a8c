//! The encoding that `OBJECT ENCODING` names: redis-server's at `list-max-listpack-size -2`.
//!
//! A listpack grows into a quicklist when it would exceed its limit. A quicklist goes back when an
//! element leaves and half of that limit suffices.
//!
//! redis-server goes back only from a single node. Nodes are not kept here: elements that are left
//! at the edges of two nodes form a listpack earlier.

use base::decimal::parse_i64;
use values::list::Encoding;
use values::{List, blobs};

const LISTPACK_LEN_MAX: usize = 8192;

/// A listpack without elements.
const EMPTY_LEN: usize = 7;

/// The encoding of `list` before elements of `added` bytes come to it.
pub(super) fn grown(list: List<'_>, added: usize) -> Encoding {
    let fits = |limit: usize| is_within(limit, &[list.elements.bytes()]);
    match list.encoding {
        Encoding::Listpack if LISTPACK_LEN_MAX.checked_sub(added).is_some_and(fits) => {
            Encoding::Listpack
        }
        _ => Encoding::Quicklist,
    }
}

/// The encoding of a new list.
pub(super) fn of_new(elements: &[u8]) -> Encoding {
    let is_small = is_within(LISTPACK_LEN_MAX, &[elements]);
    if is_small { Encoding::Listpack } else { Encoding::Quicklist }
}

/// The encoding after elements left: `parts` are the encoded elements that stay.
pub(super) fn shrunk(encoding: Encoding, parts: &[&[u8]]) -> Encoding {
    match encoding {
        Encoding::Quicklist if !is_within(LISTPACK_LEN_MAX / 2, parts) => Encoding::Quicklist,
        _ => Encoding::Listpack,
    }
}

/// A listpack of the encoded elements takes at most `limit` bytes.
fn is_within(limit: usize, parts: &[&[u8]]) -> bool {
    let mut len = EMPTY_LEN;
    for part in parts {
        let mut rest = *part;
        while let Some(element) = blobs::take(&mut rest) {
            len += entry_len(element);
            if len > limit {
                return false;
            }
        }
    }
    len <= limit
}

/// Bytes of an element in a listpack, with the length that follows it.
fn entry_len(element: &[u8]) -> usize {
    let len = match (parse_i64(element), element.len()) {
        (Some(number), _) => integer_len(number),
        (None, len @ ..64) => 1 + len,
        (None, len @ 64..4096) => 2 + len,
        (None, len) => 5 + len,
    };
    len + match len {
        ..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

fn integer_len(number: i64) -> usize {
    match number {
        0..=127 => 1,
        -4096..=4095 => 2,
        -0x8000..=0x7fff => 3,
        -0x80_0000..=0x7f_ffff => 4,
        -0x8000_0000..=0x7fff_ffff => 5,
        _ => 9,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_the_lengths_of_a_listpack() {
        let text = |len: usize| vec![b'x'; len];
        for (element, len) in [
            (b"0".to_vec(), 2),
            (b"127".to_vec(), 2),
            (b"128".to_vec(), 3),
            (b"-1".to_vec(), 3),
            (b"4095".to_vec(), 3),
            (b"4096".to_vec(), 4),
            (b"-32768".to_vec(), 4),
            (b"32768".to_vec(), 5),
            (b"8388608".to_vec(), 6),
            (b"2147483648".to_vec(), 10),
            (b"-9223372036854775808".to_vec(), 10),
            (b"9223372036854775808".to_vec(), 21),
            (b"007".to_vec(), 5),
            (text(0), 2),
            (text(63), 65),
            (text(64), 67),
            (text(125), 128),
            (text(126), 130),
            (text(4095), 4099),
            (text(4096), 4103),
            (text(16_378), 16_386),
        ] {
            assert_eq!(entry_len(&element), len, "{}", element.escape_ascii());
        }
    }
}
