//! Writes the type byte and the content of a dump.

use base::decimal::parse_i64;

use super::content::LISTPACK_LEN_MAX;
use super::{intset, listpack, load};
use crate::{
    Blobs, DecodeError, Hash, Kind, List, SortedSet, double, list, set, sorted_set, string,
};

/// Marks of the high bits of a length, and first bytes of longer ones.
const LEN_14: u8 = 0x40;
const LEN_32: u8 = 0x80;
const LEN_64: u8 = 0x81;
/// Strings that are integers.
const INT_8: u8 = 0xc0;
const INT_16: u8 = 0xc1;
const INT_32: u8 = 0xc2;
/// Whole scores up to this one are integers in a listpack.
const WHOLE_SCORE_MAX: f64 = (1_u64 << 62) as f64;
/// Longest text of an integer in 32 bits.
const INT_TEXT_LEN_MAX: usize = 11;

pub(super) fn value(value: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::with_capacity(value.len() + 32);
    match Kind::of(value)? {
        Kind::String => {
            out.push(load::STRING);
            put_string(&mut out, string::decode(value)?);
        }
        Kind::List => put_list(&mut out, &list::decode(value)?),
        Kind::Set => put_set(&mut out, &set::decode(value)?),
        Kind::SortedSet => put_sorted_set(&mut out, &SortedSet::decode(value)?),
        Kind::Hash => put_hash(&mut out, &Hash::decode(value)?),
        unknown => return Err(DecodeError::UnknownKind(unknown as u8)),
    }
    Ok(out)
}

/// Elements that fill a node stand alone.
fn put_list(out: &mut Vec<u8>, list: &List<'_>) {
    out.push(load::LIST_QUICKLIST_2);
    let (mut nodes, mut count) = (Vec::new(), 0);
    let mut packed = listpack::Writer::new();
    let mut put_node = |kind: u64, bytes: &[u8]| {
        put_len(&mut nodes, kind);
        put_string(&mut nodes, bytes);
        count += 1;
    };
    for element in list.elements {
        if !packed.is_empty() && !packed.has_room(element, LISTPACK_LEN_MAX) {
            let full = std::mem::replace(&mut packed, listpack::Writer::new());
            put_node(load::NODE_PACKED, &full.finish());
        }
        if packed.has_room(element, LISTPACK_LEN_MAX) {
            packed.push(element);
        } else {
            put_node(load::NODE_PLAIN, element);
        }
    }
    if !packed.is_empty() {
        put_node(load::NODE_PACKED, &packed.finish());
    }
    put_len(out, count);
    out.extend_from_slice(&nodes);
}

fn put_set(out: &mut Vec<u8>, set: &set::Set<'_>) {
    match set.encoding() {
        set::Encoding::Intset => {
            out.push(load::SET_INTSET);
            let integers: Vec<i64> = set.iter().filter_map(parse_i64).collect();
            put_string(out, &intset::write(&integers));
        }
        set::Encoding::Listpack => {
            out.push(load::SET_LISTPACK);
            put_packed(out, set.members());
        }
        set::Encoding::Hashtable => {
            out.push(load::SET);
            put_strings(out, set.members());
        }
    }
}

fn put_sorted_set(out: &mut Vec<u8>, set: &SortedSet<'_>) {
    match set.encoding() {
        sorted_set::Encoding::Listpack => {
            out.push(load::SORTED_SET_LISTPACK);
            let mut writer = listpack::Writer::new();
            for element in set.iter() {
                writer.push(element.member);
                put_score(&mut writer, element.score);
            }
            put_string(out, &writer.finish());
        }
        sorted_set::Encoding::Skiplist => {
            out.push(load::SORTED_SET);
            put_len(out, set.len() as u64);
            let elements: Vec<_> = set.iter().collect();
            // The highest first, as in Redis, where readers insert at the head.
            for element in elements.iter().rev() {
                put_string(out, element.member);
                out.extend(element.score.to_le_bytes());
            }
        }
    }
}

fn put_score(writer: &mut listpack::Writer, score: f64) {
    if score.abs() <= WHOLE_SCORE_MAX && score.trunc() == score {
        writer.push_integer(score as i64);
    } else {
        writer.push(double::text(score).as_bytes());
    }
}

fn put_hash(out: &mut Vec<u8>, hash: &Hash<'_>) {
    let first_end = hash.iter().filter_map(|field| field.end).min();
    match (hash.encoding().is_small(), hash.encoding().has_ends(), first_end) {
        (true, false, _) => {
            out.push(load::HASH_LISTPACK);
            put_packed_hash(out, hash, false);
        }
        (true, true, first) => {
            out.push(load::HASH_LISTPACK_ENDS);
            out.extend(first.unwrap_or(0).to_le_bytes());
            put_packed_hash(out, hash, true);
        }
        (false, _, None) => {
            out.push(load::HASH);
            put_len(out, hash.len() as u64);
            for field in hash.iter() {
                put_string(out, field.name);
                put_string(out, field.value);
            }
        }
        (false, _, Some(first)) => {
            out.push(load::HASH_ENDS);
            out.extend(first.to_le_bytes());
            put_len(out, hash.len() as u64);
            for field in hash.iter() {
                put_len(out, field.end.map_or(0, |end| end - first + 1));
                put_string(out, field.name);
                put_string(out, field.value);
            }
        }
    }
}

fn put_packed_hash(out: &mut Vec<u8>, hash: &Hash<'_>, has_ends: bool) {
    let mut writer = listpack::Writer::new();
    for field in hash.iter() {
        writer.push(field.name);
        writer.push(field.value);
        if has_ends {
            writer.push_integer(field.end.unwrap_or(0).cast_signed());
        }
    }
    put_string(out, &writer.finish());
}

fn put_packed(out: &mut Vec<u8>, elements: Blobs<'_>) {
    let mut writer = listpack::Writer::new();
    elements.iter().for_each(|element| writer.push(element));
    put_string(out, &writer.finish());
}

fn put_strings(out: &mut Vec<u8>, elements: Blobs<'_>) {
    put_len(out, elements.len() as u64);
    elements.iter().for_each(|element| put_string(out, element));
}

fn put_len(out: &mut Vec<u8>, len: u64) {
    match len {
        0..=0x3f => out.push(len as u8),
        0x40..=0x3fff => out.extend([LEN_14 | (len >> 8) as u8, len as u8]),
        _ => match u32::try_from(len) {
            Ok(len) => {
                out.push(LEN_32);
                out.extend(len.to_be_bytes());
            }
            Err(_) => {
                out.push(LEN_64);
                out.extend(len.to_be_bytes());
            }
        },
    }
}

/// Never compressed: a reader takes both forms.
fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    let number = if text.len() <= INT_TEXT_LEN_MAX { parse_i64(text) } else { None };
    match number {
        Some(number @ -128..=127) => out.extend([INT_8, number as u8]),
        Some(number @ -32_768..=32_767) => {
            out.push(INT_16);
            out.extend((number as i16).to_le_bytes());
        }
        Some(number @ -2_147_483_648..=2_147_483_647) => {
            out.push(INT_32);
            out.extend((number as i32).to_le_bytes());
        }
        _ => {
            put_len(out, text.len() as u64);
            out.extend_from_slice(text);
        }
    }
}
