//! Elements of a collection: a page of a scan, and random ones.

use base::Prng;
use base::checksum;
use base::decimal::parse_i64;
use types::Reply;
use types::wire::{Malformed, Reader};

use crate::errors::{self, ErrorReply};
use crate::glob::{self, Case};
use crate::operation::{self, Sink};

/// Elements that a scan visits in one call, by default.
const PAGE_DEFAULT: usize = 10;

/// Bytes of a reply whose elements may repeat: a few arguments could name any number of them.
const REPLY_LEN_MAX: usize = 16 << 20;

const INVALID_CURSOR: ErrorReply = errors::fixed(b"ERR invalid cursor");
const NAMES_ONLY_OF_HASHES: ErrorReply =
    errors::fixed(b"ERR NOVALUES option can only be used in HSCAN");
const REPLY_TOO_LARGE: ErrorReply = errors::fixed(b"ERR reply too large: ask for fewer elements");

/// The options of `HSCAN`, `SSCAN` and `ZSCAN`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ScanOptions<'a> {
    pub(crate) cursor: u64,
    pub(crate) pattern: Option<&'a [u8]>,
    pub(crate) count: usize,
    /// `NOVALUES`.
    pub(crate) names_only: bool,
}

impl<'a> ScanOptions<'a> {
    /// Parses `cursor [MATCH pattern] [COUNT count] [NOVALUES]`.
    ///
    /// # Errors
    /// The reply to send.
    pub(crate) fn parse(
        args: &[&'a [u8]],
        knows_names_only: bool,
    ) -> Result<ScanOptions<'a>, ErrorReply> {
        let mut options = ScanOptions {
            cursor: check_cursor(args[0])?,
            pattern: None,
            count: PAGE_DEFAULT,
            names_only: false,
        };
        let mut rest = &args[1..];
        while let [word, tail @ ..] = rest {
            rest = match (word.to_ascii_uppercase().as_slice(), tail) {
                (b"MATCH", [pattern, tail @ ..]) => {
                    options.pattern = Some(pattern);
                    tail
                }
                (b"COUNT", [count, tail @ ..]) => {
                    let count = parse_i64(count).ok_or(errors::NOT_AN_INTEGER)?;
                    options.count =
                        usize::try_from(count).ok().filter(|&it| it > 0).ok_or(errors::SYNTAX)?;
                    tail
                }
                (b"NOVALUES", _) if !knows_names_only => return Err(NAMES_ONLY_OF_HASHES),
                (b"NOVALUES", tail) => {
                    options.names_only = true;
                    tail
                }
                _ => return Err(errors::SYNTAX),
            };
        }
        Ok(options)
    }

    /// Writes all options at the end of a body.
    pub(crate) fn put(&self, out: &mut impl Sink) {
        out.byte(u8::from(self.pattern.is_some()) | u8::from(self.names_only) << 1);
        out.varint(self.cursor);
        out.varint(self.count as u64);
        out.bytes(self.pattern.unwrap_or_default());
    }

    /// Reads the options that [`ScanOptions::put`] wrote.
    pub(crate) fn take(fields: &mut Reader<'a>) -> Result<ScanOptions<'a>, Malformed> {
        let flags = fields.u8()?;
        if flags > 3 {
            return Err(Malformed);
        }
        let (cursor, count) = (fields.varint()?, fields.varint()?);
        let count = usize::try_from(count).ok().filter(|&count| count > 0).ok_or(Malformed)?;
        let pattern = if flags & 1 == 1 { Some(operation::rest(fields)?) } else { None };
        Ok(ScanOptions { cursor, pattern, count, names_only: flags & 2 == 2 })
    }

    /// The cursor of the next call, and the indexes of the elements that this call visits, of
    /// those that match. `names` are all elements; `is_small`: a small collection is one page.
    ///
    /// Elements are visited in the order of their hashes, so one that stays is visited once,
    /// whatever is added or removed meanwhile.
    pub(crate) fn page<'n>(
        &self,
        names: impl Iterator<Item = &'n [u8]> + Clone,
        is_small: bool,
    ) -> (u64, Vec<usize>) {
        let mut visited: Vec<(u64, usize)> = names
            .clone()
            .map(|name| checksum::hash(name).max(1))
            .enumerate()
            .map(|(index, hash)| (hash, index))
            .filter(|&(hash, _)| is_small || hash >= self.cursor)
            .collect();
        let mut next = 0;
        if !is_small && visited.len() > self.count {
            // Elements with one hash stay together.
            let (page, &mut (end, _), _) = visited.select_nth_unstable(self.count);
            if page.iter().any(|&(hash, _)| hash < end) {
                next = end;
                visited.retain(|&(hash, _)| hash < end);
            } else {
                let later = visited.iter().map(|&(hash, _)| hash).filter(|&hash| hash > end);
                next = later.min().unwrap_or(0);
                visited.retain(|&(hash, _)| hash == end);
            }
        }
        let mut indexes: Vec<usize> = visited.into_iter().map(|(_, index)| index).collect();
        indexes.sort_unstable();
        if let Some(pattern) = self.pattern {
            let mut at = indexes.iter().peekable();
            let mut matching = Vec::new();
            for (index, name) in names.enumerate() {
                if at.next_if(|&&visited| visited == index).is_some()
                    && glob::matches(pattern, name, Case::Sensitive)
                {
                    matching.push(index);
                }
            }
            indexes = matching;
        }
        (next, indexes)
    }
}

/// The cursor that `text` spells.
///
/// # Errors
/// `invalid cursor`.
pub(crate) fn check_cursor(text: &[u8]) -> Result<u64, ErrorReply> {
    let cursor = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    cursor.ok_or(INVALID_CURSOR)
}

/// A cursor and elements, as the scan commands answer.
pub(crate) fn scan_reply(next: u64, elements: Vec<Reply>) -> Reply {
    Reply::array([Reply::bulk(next.to_string()), Reply::Array(elements)])
}

/// Refuses a reply of `len` bytes, as [`Reply::len`] counts them, that is too large.
///
/// # Errors
/// `reply too large`.
pub(crate) fn check_reply_len(len: usize) -> Result<(), ErrorReply> {
    if len > REPLY_LEN_MAX { Err(REPLY_TOO_LARGE) } else { Ok(()) }
}

/// Indexes of random elements among `len`. A positive count draws each at most once, a negative one
/// draws each time among all. `reply_len` is that of the reply for an element.
///
/// # Errors
/// `reply too large`, since elements that repeat have no other bound.
pub(crate) fn draw(
    len: usize,
    count: i64,
    seed: u64,
    reply_len: impl Fn(usize) -> usize,
) -> Result<Vec<usize>, ErrorReply> {
    let mut prng = Prng::new(seed);
    if len == 0 {
        return Ok(Vec::new());
    }
    if count < 0 {
        let (mut drawn, mut total) = (Vec::new(), 0);
        for _ in 0..count.unsigned_abs() {
            let index = prng.below(len as u64) as usize;
            total += reply_len(index);
            check_reply_len(total)?;
            drawn.push(index);
        }
        return Ok(drawn);
    }
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let mut all: Vec<usize> = (0..len).collect();
    if count >= len {
        return Ok(all);
    }
    for at in 0..count {
        let other = at + prng.below((len - at) as u64) as usize;
        all.swap(at, other);
    }
    all.truncate(count);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn options(cursor: u64, count: usize) -> ScanOptions<'static> {
        ScanOptions { cursor, pattern: None, count, names_only: false }
    }

    /// Equal names stand for names whose hashes collide.
    #[test]
    fn elements_with_one_hash_share_a_page() {
        let names: [&[u8]; 7] = [b"a", b"b", b"a", b"c", b"a", b"b", b"a"];
        let (mut cursor, mut visited) = (0, Vec::new());
        loop {
            let (next, page) = options(cursor, 1).page(names.into_iter(), false);
            assert!(page.iter().all(|&index| names[index] == names[page[0]]), "{page:?}");
            visited.extend(page);
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        visited.sort_unstable();
        assert_eq!(visited, [0, 1, 2, 3, 4, 5, 6]);
    }

    proptest! {
        #[test]
        fn scan_visits_each_element_once(
            names in prop::collection::btree_set(prop::collection::vec(any::<u8>(), 0..4), 0..60),
            count in 1..9_usize,
        ) {
            let names: Vec<Vec<u8>> = names.into_iter().collect();
            let (mut cursor, mut visited) = (0, Vec::new());
            loop {
                let all = names.iter().map(Vec::as_slice);
                let (next, page) = options(cursor, count).page(all, false);
                visited.extend(page);
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
            visited.sort_unstable();
            prop_assert_eq!(visited, (0..names.len()).collect::<Vec<_>>());
        }

        #[test]
        fn draws_differ_unless_repeats_are_wanted(len in 1..50_usize, count in 0..60_i64, seed: u64) {
            let drawn = draw(len, count, seed, |_| 16).unwrap();
            prop_assert_eq!(drawn.len(), len.min(count as usize));
            prop_assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), drawn.len());
            let repeated = draw(len, -count, seed, |_| 16).unwrap();
            prop_assert_eq!(repeated.len(), count as usize);
            prop_assert!(repeated.iter().all(|&index| index < len));
        }
    }

    #[test]
    fn draws_that_repeat_are_bounded() {
        let draws = (REPLY_LEN_MAX / 16) as i64;
        assert_eq!(draw(3, -draws, 1, |_| 16).map(|all| all.len()), Ok(draws as usize));
        for count in [-draws - 1, i64::MIN] {
            assert_eq!(draw(3, count, 1, |_| 16), Err(REPLY_TOO_LARGE));
        }
    }

    #[test]
    fn options_are_checked() {
        fn parse(line: &str) -> Result<ScanOptions<'_>, Vec<u8>> {
            let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            ScanOptions::parse(&args, false).map_err(|error| error.text().to_vec())
        }
        assert_eq!(parse("7 COUNT 3"), Ok(options(7, 3)));
        for (line, error) in [
            ("x", "ERR invalid cursor"),
            ("-1", "ERR invalid cursor"),
            ("0 COUNT x", "ERR value is not an integer or out of range"),
            ("0 COUNT 0", "ERR syntax error"),
            ("0 MATCH", "ERR syntax error"),
            ("0 NOVALUES", "ERR NOVALUES option can only be used in HSCAN"),
        ] {
            assert_eq!(parse(line), Err(error.as_bytes().to_vec()), "{line}");
        }
    }
}
