//! Reads the content of a dump.

use super::listpack::Element;
use super::reader::Reader;
use super::{Content, Elements, LoadError, intset, listpack, ziplist};

/// Type bytes that are read and not written.
const LIST: u8 = 1;
const LIST_ZIPLIST: u8 = 10;
const SORTED_SET_ZIPLIST: u8 = 12;
const HASH_ZIPLIST: u8 = 13;
const LIST_QUICKLIST: u8 = 14;
/// Of a version of Redis 7.4 before its release.
const HASH_ENDS_EARLY: u8 = 22;
const HASH_LISTPACK_ENDS_EARLY: u8 = 23;

/// Type bytes of the forms that Redis 7.4 writes.
pub(super) const STRING: u8 = 0;
pub(super) const SET: u8 = 2;
pub(super) const HASH: u8 = 4;
pub(super) const SORTED_SET: u8 = 5;
pub(super) const SET_INTSET: u8 = 11;
pub(super) const HASH_LISTPACK: u8 = 16;
pub(super) const SORTED_SET_LISTPACK: u8 = 17;
pub(super) const LIST_QUICKLIST_2: u8 = 18;
pub(super) const SET_LISTPACK: u8 = 20;
pub(super) const HASH_ENDS: u8 = 24;
pub(super) const HASH_LISTPACK_ENDS: u8 = 25;

/// Nodes of a list: one element, or a listpack.
pub(super) const NODE_PLAIN: u64 = 1;
pub(super) const NODE_PACKED: u64 = 2;

/// The last end of a field, in milliseconds of Unix time.
const END_MAX: u64 = (1 << 48) - 1;

/// Many elements in one string.
#[derive(Clone, Copy)]
enum Packed {
    Listpack,
    Ziplist,
}

pub(super) fn content(body: &[u8], limit: usize) -> Result<Content, LoadError> {
    let mut reader = Reader::new(body, limit);
    let content = match reader.byte()? {
        STRING => string(&mut reader)?,
        LIST => Content::List { elements: elements(&mut reader, 1)?, is_whole: true },
        LIST_ZIPLIST => {
            // redis-server does not look whether a smaller form suffices.
            Content::List { elements: packed(&mut reader, Packed::Ziplist)?, is_whole: false }
        }
        LIST_QUICKLIST => quicklist(&mut reader, |_| Ok(NODE_PACKED), Packed::Ziplist)?,
        LIST_QUICKLIST_2 => quicklist(&mut reader, Reader::len, Packed::Listpack)?,
        SET => Content::Set(elements(&mut reader, 1)?),
        SET_INTSET => Content::Set(integers(&mut reader)?),
        SET_LISTPACK => Content::Set(packed(&mut reader, Packed::Listpack)?),
        SORTED_SET => sorted_set(&mut reader)?,
        SORTED_SET_ZIPLIST => packed_sorted_set(&mut reader, Packed::Ziplist)?,
        SORTED_SET_LISTPACK => packed_sorted_set(&mut reader, Packed::Listpack)?,
        HASH => hash(elements(&mut reader, 2)?, Vec::new()),
        HASH_ZIPLIST => hash(packed(&mut reader, Packed::Ziplist)?, Vec::new()),
        HASH_LISTPACK => hash(packed(&mut reader, Packed::Listpack)?, Vec::new()),
        HASH_ENDS => {
            let first = u64::from_le_bytes(reader.array()?);
            hash_with_ends(&mut reader, Some(first))?
        }
        HASH_ENDS_EARLY => hash_with_ends(&mut reader, None)?,
        HASH_LISTPACK_ENDS => {
            // The first end of a field: the fields have theirs, too.
            reader.array::<8>()?;
            packed_hash_with_ends(&mut reader)?
        }
        HASH_LISTPACK_ENDS_EARLY => packed_hash_with_ends(&mut reader)?,
        _ => return Err(LoadError::Format),
    };
    if reader.is_empty() && is_sound(&content) { Ok(content) } else { Err(LoadError::Format) }
}

fn is_sound(content: &Content) -> bool {
    match content {
        Content::String(_) => true,
        Content::List { elements, .. } => !elements.is_empty(),
        Content::Set(members) => !members.is_empty() && members.differ(1),
        Content::SortedSet { members, scores } => {
            !members.is_empty() && members.len() == scores.len() && members.differ(1)
        }
        Content::Hash { pairs, ends } => {
            let fields = pairs.len() / 2;
            let is_paired = pairs.len().is_multiple_of(2) && fields > 0;
            is_paired && (ends.is_empty() || ends.len() == fields) && pairs.differ(2)
        }
    }
}

fn string(reader: &mut Reader<'_>) -> Result<Content, LoadError> {
    let text = reader.string()?;
    reader.allocate(text.len())?;
    Ok(Content::String(text.into_owned()))
}

/// As many strings as a number says, times `parts`.
fn elements(reader: &mut Reader<'_>, parts: u64) -> Result<Elements, LoadError> {
    let count = reader.count()?.checked_mul(parts).ok_or(LoadError::Format)?;
    let mut elements = Elements::default();
    for _ in 0..count {
        push_string(reader, &mut elements)?;
    }
    Ok(elements)
}

fn push_string(reader: &mut Reader<'_>, elements: &mut Elements) -> Result<(), LoadError> {
    let text = reader.string()?;
    reader.push(elements, &text)
}

fn visit(
    bytes: &[u8],
    packed: Packed,
    visitor: impl FnMut(Element<'_>) -> Result<(), LoadError>,
) -> Result<(), LoadError> {
    match packed {
        Packed::Listpack => listpack::visit(bytes, visitor),
        Packed::Ziplist => ziplist::visit(bytes, visitor),
    }
}

fn packed(reader: &mut Reader<'_>, packed: Packed) -> Result<Elements, LoadError> {
    let bytes = reader.string()?;
    let mut elements = Elements::default();
    visit(&bytes, packed, |element| reader.push_packed(&mut elements, element))?;
    Ok(elements)
}

fn integers(reader: &mut Reader<'_>) -> Result<Elements, LoadError> {
    let bytes = reader.string()?;
    let mut elements = Elements::default();
    for integer in intset::parse(&bytes).ok_or(LoadError::Format)? {
        reader.push_packed(&mut elements, Element::Integer(integer))?;
    }
    Ok(elements)
}

/// Nodes, each of the kind that `node` reads before it.
fn quicklist<'a>(
    reader: &mut Reader<'a>,
    mut node: impl FnMut(&mut Reader<'a>) -> Result<u64, LoadError>,
    packed: Packed,
) -> Result<Content, LoadError> {
    let (mut elements, mut is_whole) = (Elements::default(), true);
    for _ in 0..reader.count()? {
        let kind = node(reader)?;
        let bytes = reader.string()?;
        let before = elements.len();
        match kind {
            NODE_PACKED => {
                visit(&bytes, packed, |element| reader.push_packed(&mut elements, element))?;
            }
            NODE_PLAIN if !bytes.is_empty() => {
                reader.push(&mut elements, &bytes)?;
                is_whole = false;
            }
            _ => return Err(LoadError::Format),
        }
        // A node may be empty.
        is_whole &= before == 0 || before == elements.len();
    }
    Ok(Content::List { elements, is_whole })
}

fn sorted_set(reader: &mut Reader<'_>) -> Result<Content, LoadError> {
    let (mut members, mut scores) = (Elements::default(), Vec::new());
    for _ in 0..reader.count()? {
        push_string(reader, &mut members)?;
        let score = f64::from_le_bytes(reader.array()?);
        push_score(reader, &mut scores, score)?;
    }
    Ok(Content::SortedSet { members, scores })
}

/// Members, each before its score.
fn packed_sorted_set(reader: &mut Reader<'_>, packed: Packed) -> Result<Content, LoadError> {
    let bytes = reader.string()?;
    let (mut members, mut scores) = (Elements::default(), Vec::new());
    visit(&bytes, packed, |element| {
        if scores.len() == members.len() {
            return reader.push_packed(&mut members, element);
        }
        let score = match element {
            Element::Integer(number) => number as f64,
            Element::Text(text) => parse_score(text).ok_or(LoadError::Format)?,
        };
        push_score(reader, &mut scores, score)
    })?;
    Ok(Content::SortedSet { members, scores })
}

fn parse_score(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn push_score(reader: &mut Reader<'_>, scores: &mut Vec<f64>, score: f64) -> Result<(), LoadError> {
    if score.is_nan() {
        return Err(LoadError::Format);
    }
    reader.allocate(size_of::<f64>())?;
    scores.push(score);
    Ok(())
}

fn hash(pairs: Elements, ends: Vec<u64>) -> Content {
    Content::Hash { pairs, ends }
}

/// Fields, each behind its end: an offset from `first` that is one too great, or the end itself.
fn hash_with_ends(reader: &mut Reader<'_>, first: Option<u64>) -> Result<Content, LoadError> {
    let (mut pairs, mut ends) = (Elements::default(), Vec::new());
    for _ in 0..reader.count()? {
        let end = match (reader.len()?, first) {
            (offset @ 1.., Some(first)) => {
                first.checked_add(offset - 1).filter(|&end| end > 0).ok_or(LoadError::Format)?
            }
            (end, _) => end,
        };
        push_end(reader, &mut ends, end)?;
        push_string(reader, &mut pairs)?;
        push_string(reader, &mut pairs)?;
    }
    Ok(hash(pairs, ends))
}

/// Fields, each before its value and its end.
fn packed_hash_with_ends(reader: &mut Reader<'_>) -> Result<Content, LoadError> {
    let bytes = reader.string()?;
    let (mut pairs, mut ends) = (Elements::default(), Vec::new());
    visit(&bytes, Packed::Listpack, |element| {
        if pairs.len() < 2 * (ends.len() + 1) {
            return reader.push_packed(&mut pairs, element);
        }
        let Element::Integer(end) = element else { return Err(LoadError::Format) };
        let end = u64::try_from(end).map_err(|_| LoadError::Format)?;
        push_end(reader, &mut ends, end)
    })?;
    Ok(hash(pairs, ends))
}

fn push_end(reader: &mut Reader<'_>, ends: &mut Vec<u64>, end: u64) -> Result<(), LoadError> {
    if end > END_MAX {
        return Err(LoadError::Format);
    }
    reader.allocate(size_of::<u64>())?;
    ends.push(end);
    Ok(())
}
