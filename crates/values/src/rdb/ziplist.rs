//! Ziplists: the form of small collections before Redis 7, which is read and never written.

use super::LoadError;
use super::listpack::Element;

/// Bytes before the elements: the total length, the place of the last element, their number.
const HEADER_LEN: usize = 4 + 4 + 2;
const END: u8 = 0xff;
/// The number of elements when it does not fit.
const UNKNOWN: u16 = u16::MAX;
/// Lengths of a previous element from here on take four bytes more.
const LONG: u8 = 254;

/// Visits the elements of a ziplist.
///
/// # Errors
/// [`LoadError::Format`] when it is malformed, and those of `visit`.
pub(super) fn visit(
    bytes: &[u8],
    mut visit: impl FnMut(Element<'_>) -> Result<(), LoadError>,
) -> Result<(), LoadError> {
    let (last, count, mut rest) = frame(bytes).ok_or(LoadError::Format)?;
    let (mut at, mut len, mut visited) = (HEADER_LEN, 0, 0_usize);
    while !rest.is_empty() {
        at += len;
        let before = rest.len();
        visit(take(&mut rest, len).ok_or(LoadError::Format)?)?;
        len = before - rest.len();
        visited += 1;
    }
    let counts = count == UNKNOWN || usize::from(count) == visited;
    let ends = visited == 0 || last as usize == at;
    if counts && ends { Ok(()) } else { Err(LoadError::Format) }
}

/// The place of the last element, the number of elements, and their bytes.
fn frame(bytes: &[u8]) -> Option<(u32, u16, &[u8])> {
    let (total, rest) = bytes.split_first_chunk()?;
    let (last, rest) = rest.split_first_chunk()?;
    let (count, rest) = rest.split_first_chunk()?;
    let (&END, rest) = rest.split_last()? else { return None };
    let is_whole = u32::from_le_bytes(*total) as usize == bytes.len();
    is_whole.then_some((u32::from_le_bytes(*last), u16::from_le_bytes(*count), rest))
}

/// Takes an element behind one of `previous` bytes.
fn take<'a>(rest: &mut &'a [u8], previous: usize) -> Option<Element<'a>> {
    let (&first, tail) = rest.split_first()?;
    let (len, tail) = match first {
        LONG => {
            let (len, tail) = tail.split_first_chunk()?;
            (u32::from_le_bytes(*len) as usize, tail)
        }
        END => return None,
        short => (usize::from(short), tail),
    };
    let (&form, tail) = tail.split_first()?;
    let (element, tail) = match form {
        0x00..=0x3f => text(tail, usize::from(form))?,
        0x40..=0x7f => {
            let (&low, tail) = tail.split_first()?;
            text(tail, usize::from(form & 0x3f) << 8 | usize::from(low))?
        }
        0x80 => {
            let (len, tail) = tail.split_first_chunk()?;
            text(tail, u32::from_be_bytes(*len) as usize)?
        }
        0xc0 => integer::<2>(tail)?,
        0xd0 => integer::<4>(tail)?,
        0xe0 => integer::<8>(tail)?,
        0xf0 => integer::<3>(tail)?,
        0xfe => integer::<1>(tail)?,
        0xf1..=0xfd => (Element::Integer(i64::from(form & 0x0f) - 1), tail),
        _ => return None,
    };
    *rest = tail;
    (len == previous).then_some(element)
}

fn text(tail: &[u8], len: usize) -> Option<(Element<'_>, &[u8])> {
    let (text, tail) = tail.split_at_checked(len)?;
    Some((Element::Text(text), tail))
}

fn integer<const N: usize>(tail: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (low, tail) = tail.split_first_chunk::<N>()?;
    let mut bytes = [0; 8];
    bytes[..N].copy_from_slice(low);
    let unused = 64 - 8 * N as u32;
    Some((Element::Integer(i64::from_le_bytes(bytes) << unused >> unused), tail))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The example of the format's description, with more elements.
    const EXAMPLE: &[u8] = b"\x27\0\0\0\x22\0\0\0\x06\0\x00\xf3\x02\xf6\x02\x0bHello World\
        \x0d\xfe\xff\x03\xc0\x00\x01\x04\x40\x01z\xff";

    fn parse(bytes: &[u8]) -> Option<Vec<String>> {
        let mut elements = Vec::new();
        let push = |element: Element<'_>| {
            elements.push(match element {
                Element::Text(text) => text.escape_ascii().to_string(),
                Element::Integer(number) => number.to_string(),
            });
            Ok(())
        };
        visit(bytes, push).ok().map(|()| elements)
    }

    #[test]
    fn elements_are_read() {
        let elements = ["2", "5", "Hello World", "-1", "256", "z"].map(str::to_owned);
        assert_eq!(parse(EXAMPLE), Some(elements.to_vec()));
    }

    #[test]
    fn damage_is_refused() {
        for at in 0..EXAMPLE.len() {
            assert_eq!(parse(&EXAMPLE[..at]), None, "{at} bytes");
        }
        for at in [0, 4, 8, 10, 12, 14, 27, 30] {
            let mut damaged = EXAMPLE.to_vec();
            damaged[at] ^= 0x01;
            assert_eq!(parse(&damaged), None, "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn noise_never_panics(mut bytes in prop::collection::vec(any::<u8>(), 11..60)) {
            let len = bytes.len();
            bytes[..4].copy_from_slice(&(len as u32).to_le_bytes());
            bytes[8..10].copy_from_slice(&UNKNOWN.to_le_bytes());
            bytes[len - 1] = END;
            drop(parse(&bytes));
        }
    }
}
