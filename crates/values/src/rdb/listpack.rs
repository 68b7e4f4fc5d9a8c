//! Listpacks: elements of small collections in one string, integers in their own forms.

use base::decimal::parse_i64;

use super::LoadError;

/// The total length and the number of elements.
const HEADER_LEN: usize = 4 + 2;
const END: u8 = 0xff;
/// The number of elements when it does not fit.
const UNKNOWN: u16 = u16::MAX;

/// An element as it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Element<'a> {
    Text(&'a [u8]),
    Integer(i64),
}

/// Visits the elements of a listpack.
///
/// # Errors
/// [`LoadError::Format`] when it is malformed, and those of `visit`.
pub(super) fn visit(
    bytes: &[u8],
    mut visit: impl FnMut(Element<'_>) -> Result<(), LoadError>,
) -> Result<(), LoadError> {
    let (count, mut rest) = frame(bytes).ok_or(LoadError::Format)?;
    let mut visited = 0_usize;
    while !rest.is_empty() {
        visit(take(&mut rest).ok_or(LoadError::Format)?)?;
        visited += 1;
    }
    let is_sound = count == UNKNOWN || usize::from(count) == visited;
    if is_sound { Ok(()) } else { Err(LoadError::Format) }
}

/// The number of elements and their bytes.
fn frame(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (total, rest) = bytes.split_first_chunk()?;
    let (count, rest) = rest.split_first_chunk()?;
    let (&END, rest) = rest.split_last()? else { return None };
    let is_whole = u32::from_le_bytes(*total) as usize == bytes.len();
    is_whole.then_some((u16::from_le_bytes(*count), rest))
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<Element<'a>> {
    let bytes = *rest;
    let (&first, tail) = bytes.split_first()?;
    let (element, tail) = match first {
        0x00..=0x7f => (Element::Integer(first.into()), tail),
        0x80..=0xbf => text(tail, usize::from(first & 0x3f))?,
        0xc0..=0xdf => {
            let (&low, tail) = tail.split_first()?;
            let bits = i64::from(first & 0x1f) << 8 | i64::from(low);
            (Element::Integer(signed(bits, 13)), tail)
        }
        0xe0..=0xef => {
            let (&low, tail) = tail.split_first()?;
            text(tail, usize::from(first & 0x0f) << 8 | usize::from(low))?
        }
        0xf0 => {
            let (len, tail) = tail.split_first_chunk()?;
            text(tail, u32::from_le_bytes(*len) as usize)?
        }
        0xf1 => integer::<2>(tail)?,
        0xf2 => integer::<3>(tail)?,
        0xf3 => integer::<4>(tail)?,
        0xf4 => integer::<8>(tail)?,
        _ => return None,
    };
    // The length stands behind an element, too, for readers that go backwards.
    let (back, groups) = back_len(bytes.len() - tail.len());
    *rest = tail.strip_prefix(&back[..groups])?;
    Some(element)
}

fn text(tail: &[u8], len: usize) -> Option<(Element<'_>, &[u8])> {
    let (text, tail) = tail.split_at_checked(len)?;
    Some((Element::Text(text), tail))
}

fn integer<const N: usize>(tail: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (low, tail) = tail.split_first_chunk::<N>()?;
    let mut bytes = [0; 8];
    bytes[..N].copy_from_slice(low);
    Some((Element::Integer(signed(i64::from_le_bytes(bytes), 8 * N as u32)), tail))
}

/// The number whose lowest `width` bits are those of `bits`.
fn signed(bits: i64, width: u32) -> i64 {
    let unused = 64 - width;
    bits << unused >> unused
}

/// A length in groups of seven bits, and their number. The low group is the last one; all but the
/// first are marked.
fn back_len(len: usize) -> ([u8; 5], usize) {
    // redis-server takes one group more than it must for the greatest length of a size.
    let groups = match len {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    };
    let mut bytes = [0; 5];
    for (at, byte) in bytes[..groups].iter_mut().enumerate() {
        let mark = if at == 0 { 0 } else { 0x80 };
        *byte = (len >> (7 * (groups - 1 - at))) as u8 & 0x7f | mark;
    }
    (bytes, groups)
}

/// True if a listpack of these elements has at most `limit` bytes.
pub(super) fn fits<'a>(elements: impl Iterator<Item = &'a [u8]>, limit: usize) -> bool {
    let mut writer = Writer::new();
    for element in elements {
        if !writer.has_room(element, limit) {
            return false;
        }
        writer.push(element);
    }
    true
}

/// Writes a listpack.
pub(super) struct Writer {
    bytes: Vec<u8>,
    count: usize,
}

impl Writer {
    pub(super) fn new() -> Writer {
        Writer { bytes: vec![0; HEADER_LEN], count: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// True if the listpack has at most `limit` bytes after another element.
    pub(super) fn has_room(&self, element: &[u8], limit: usize) -> bool {
        let form = match (parse_i64(element), element.len()) {
            (Some(0..=127), _) => 1,
            (Some(-4096..=4095), _) => 2,
            (Some(-32_768..=32_767), _) => 3,
            (Some(-8_388_608..=8_388_607), _) => 4,
            (Some(-2_147_483_648..=2_147_483_647), _) => 5,
            (Some(_), _) => 9,
            (None, len @ 0..64) => 1 + len,
            (None, len @ 64..4096) => 2 + len,
            (None, len) => 5 + len,
        };
        let len = self.bytes.len() + form + back_len(form).1;
        // The mark of the end follows.
        len < limit
    }

    /// Appends an element, as an integer if it is the text of one.
    pub(super) fn push(&mut self, element: &[u8]) {
        match parse_i64(element) {
            Some(number) => self.push_integer(number),
            None => self.push_text(element),
        }
    }

    fn push_text(&mut self, text: &[u8]) {
        let start = self.bytes.len();
        match text.len() {
            len @ 0..64 => self.bytes.push(0x80 | len as u8),
            len @ 64..4096 => self.bytes.extend([0xe0 | (len >> 8) as u8, len as u8]),
            len => {
                self.bytes.push(0xf0);
                self.bytes.extend((len as u32).to_le_bytes());
            }
        }
        self.bytes.extend_from_slice(text);
        self.end_element(start);
    }

    pub(super) fn push_integer(&mut self, number: i64) {
        let start = self.bytes.len();
        let bytes = number.to_le_bytes();
        match number {
            0..=127 => self.bytes.push(bytes[0]),
            -4096..=4095 => self.bytes.extend([0xc0 | bytes[1] & 0x1f, bytes[0]]),
            -32_768..=32_767 => self.put_integer(0xf1, &bytes[..2]),
            -8_388_608..=8_388_607 => self.put_integer(0xf2, &bytes[..3]),
            -2_147_483_648..=2_147_483_647 => self.put_integer(0xf3, &bytes[..4]),
            _ => self.put_integer(0xf4, &bytes),
        }
        self.end_element(start);
    }

    fn put_integer(&mut self, form: u8, bytes: &[u8]) {
        self.bytes.push(form);
        self.bytes.extend_from_slice(bytes);
    }

    fn end_element(&mut self, start: usize) {
        let (back, groups) = back_len(self.bytes.len() - start);
        self.bytes.extend_from_slice(&back[..groups]);
        self.count += 1;
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(END);
        let total = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&total.to_le_bytes());
        let count = u16::try_from(self.count).unwrap_or(UNKNOWN);
        self.bytes[4..HEADER_LEN].copy_from_slice(&count.to_le_bytes());
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn listpack(elements: &[&[u8]]) -> Vec<u8> {
        let mut writer = Writer::new();
        elements.iter().for_each(|element| writer.push(element));
        writer.finish()
    }

    fn parse(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
        let mut elements = Vec::new();
        let push = |element: Element<'_>| {
            elements.push(match element {
                Element::Text(text) => text.to_vec(),
                Element::Integer(number) => number.to_string().into_bytes(),
            });
            Ok(())
        };
        visit(bytes, push).ok().map(|()| elements)
    }

    /// `RPUSH k a 5 -1 5000 70000 9000000000`, `DUMP k` of redis-server 7.4.1.
    #[test]
    fn bytes_are_those_of_redis() {
        let bytes = listpack(&[b"a", b"5", b"-1", b"5000", b"70000", b"9000000000"]);
        let expected = b"\x22\x00\x00\x00\x06\x00\x81a\x02\x05\x01\xdf\xff\x02\xf1\x88\x13\x03\
            \xf2\x70\x11\x01\x04\xf4\x00\x1a\x71\x18\x02\x00\x00\x00\x09\xff";
        assert_eq!(bytes.escape_ascii().to_string(), expected.escape_ascii().to_string());
    }

    #[test]
    fn damage_is_refused() {
        let whole = listpack(&[b"text", b"1234", &[b'x'; 100]]);
        assert!(parse(&whole).is_some());
        for at in 0..whole.len() {
            assert_eq!(parse(&whole[..at]), None, "{at} bytes");
        }
        for at in 0..10 {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            assert_ne!(parse(&damaged), parse(&whole), "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn elements_come_back(
            texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..5),
            numbers in prop::collection::vec((any::<i64>(), 0..64_u32), 0..5),
            len in prop::sample::select(vec![63, 64, 127, 4095, 4096, 16_378, 16_379, 70_000]),
        ) {
            let numbers = numbers.iter().map(|&(n, shift)| (n >> shift).to_string().into_bytes());
            let mut all: Vec<Vec<u8>> = texts.into_iter().chain(numbers).collect();
            all.push(vec![b'y'; len]);
            let bytes = listpack(&all.iter().map(Vec::as_slice).collect::<Vec<_>>());
            prop_assert_eq!(parse(&bytes), Some(all));
        }

        #[test]
        fn room_is_that_of_the_next_element(
            text in prop_oneof![
                (0..5000_usize).prop_map(|len| vec![b'x'; len]),
                (any::<i64>(), 0..64_u32).prop_map(|(n, shift)| (n >> shift).to_string().into_bytes()),
            ],
        ) {
            let len = listpack(&[&text]).len();
            prop_assert!(fits([text.as_slice()].into_iter(), len));
            prop_assert!(!fits([text.as_slice()].into_iter(), len - 1));
        }

        #[test]
        fn noise_never_panics(mut bytes in prop::collection::vec(any::<u8>(), 7..60)) {
            let len = bytes.len();
            bytes[..4].copy_from_slice(&(len as u32).to_le_bytes());
            bytes[4..6].copy_from_slice(&UNKNOWN.to_le_bytes());
            bytes[len - 1] = END;
            drop(parse(&bytes));
        }
    }
}
