//! Arguments of requests under way, as `SLOWLOG` shows them: the first 31, 128 bytes of each.
//!
//! A request's bytes are gone when its reply is ready. A queue per session holds a copy.

use bytes::Bytes;

/// Arguments that an entry shows, with one that counts the rest.
const WORDS_MAX: usize = 32;
/// Bytes of an argument that an entry shows.
const WORD_LEN_MAX: usize = 128;
/// A buffer above this is given back once it is empty.
const KEPT_CAPACITY: usize = 16 << 10;

/// Where the arguments of a request are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WordsAt {
    /// Counted over the life of the buffer.
    start: u64,
    end: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Words {
    bytes: Vec<u8>,
    /// Where the first byte of `bytes` is.
    start: u64,
    /// Bytes at the beginning that are no longer needed.
    free: usize,
}

impl Words {
    /// Copies the arguments of a request.
    pub(crate) fn put(&mut self, args: &[&[u8]]) -> WordsAt {
        let start = self.start + self.bytes.len() as u64;
        self.bytes.extend_from_slice(&(args.len() as u32).to_le_bytes());
        for arg in args.iter().take(shown_of(args.len())) {
            self.bytes.extend_from_slice(&(arg.len() as u32).to_le_bytes());
            self.bytes.extend_from_slice(&arg[..arg.len().min(WORD_LEN_MAX)]);
        }
        WordsAt { start, end: self.start + self.bytes.len() as u64 }
    }

    /// Forgets the arguments of a request and of all before it.
    pub(crate) fn release(&mut self, at: WordsAt) {
        self.free = self.free.max(at.end.saturating_sub(self.start) as usize);
        if self.free >= self.bytes.len() {
            self.start += self.bytes.len() as u64;
            self.bytes.clear();
            self.free = 0;
            if self.bytes.capacity() > KEPT_CAPACITY {
                self.bytes = Vec::new();
            }
        } else if self.free > KEPT_CAPACITY && self.free > self.bytes.len() / 2 {
            self.bytes.drain(..self.free);
            self.start += self.free as u64;
            self.free = 0;
        }
    }

    /// The arguments of a request. Empty if they are forgotten.
    pub(crate) fn get(&self, at: WordsAt) -> Vec<Bytes> {
        let from = at.start.checked_sub(self.start).map(|from| from as usize);
        from.and_then(|from| read(self.bytes.get(from..)?)).unwrap_or_default()
    }
}

fn read(mut bytes: &[u8]) -> Option<Vec<Bytes>> {
    let count = read_len(&mut bytes)?;
    let mut words = Vec::with_capacity(count.min(WORDS_MAX));
    for _ in 0..shown_of(count) {
        let len = read_len(&mut bytes)?;
        let (word, rest) = bytes.split_at_checked(len.min(WORD_LEN_MAX))?;
        words.push(trimmed(word, len));
        bytes = rest;
    }
    push_rest(&mut words, count);
    Some(words)
}

fn read_len(bytes: &mut &[u8]) -> Option<usize> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*len) as usize)
}

/// Arguments as `SLOWLOG` shows them.
pub(crate) fn shown(args: &[&[u8]]) -> Vec<Bytes> {
    let shown = args.iter().take(shown_of(args.len()));
    let mut words: Vec<Bytes> =
        shown.map(|arg| trimmed(&arg[..arg.len().min(WORD_LEN_MAX)], arg.len())).collect();
    push_rest(&mut words, args.len());
    words
}

fn shown_of(count: usize) -> usize {
    if count > WORDS_MAX { WORDS_MAX - 1 } else { count }
}

/// The first bytes of an argument that has `len`.
fn trimmed(word: &[u8], len: usize) -> Bytes {
    if word.len() == len {
        return Bytes::copy_from_slice(word);
    }
    let rest = format!("... ({} more bytes)", len - word.len());
    [word, rest.as_bytes()].concat().into()
}

fn push_rest(words: &mut Vec<Bytes>, count: usize) {
    if count > WORDS_MAX {
        words.push(format!("... ({} more arguments)", count - words.len()).into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_trimmed_as_in_redis() {
        let long = vec![b'x'; 130];
        let mut args: Vec<&[u8]> = vec![b"mset", b"", &long];
        args.extend(std::iter::repeat_n(b"v".as_slice(), 38));
        let mut words = Words::default();
        let at = words.put(&args);
        let got = words.get(at);
        assert_eq!(got, shown(&args));
        assert_eq!(
            (got.len(), &got[1][..], &got[31][..]),
            (32, &b""[..], &b"... (10 more arguments)"[..])
        );
        assert!(got[2].ends_with(b"xx... (2 more bytes)") && got[2].len() == 128 + 18);
        assert_eq!(shown(&args[..32]).len(), 32);
        assert_eq!(shown(&args[..32])[31].as_ref(), b"v");
    }

    #[test]
    fn released_arguments_give_their_room_back() {
        let mut words = Words::default();
        let value = [b'v'; 100];
        let put = |words: &mut Words| words.put(&[b"SET", &value, &value]);
        let mut under_way = std::collections::VecDeque::new();
        for _ in 0..10_000 {
            under_way.push_back(put(&mut words));
            if under_way.len() > 50 {
                words.release(under_way.pop_front().unwrap());
            }
            assert!(words.bytes.len() < 64 << 10);
        }
        assert!(under_way.iter().all(|&at| words.get(at).len() == 3));
        under_way.drain(..).for_each(|at| words.release(at));
        assert!(words.bytes.is_empty());
        let at = put(&mut words);
        assert_eq!(words.get(at)[0].as_ref(), b"SET");
    }
}
