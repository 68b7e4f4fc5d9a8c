//! Values come back out of their dumps. `commands` compares dumps with those of Redis.

use proptest::prelude::*;

use super::*;
use crate::{hash, list, set, sorted_set, string};

/// The same value out of its dump.
fn again(value: &[u8]) -> bytes::Bytes {
    load(&save(value).unwrap(), 1 << 20).unwrap().encode()
}

proptest! {
    #[test]
    fn strings_come_back(text in prop_oneof![
        prop::collection::vec(any::<u8>(), 0..100),
        any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        any::<i32>().prop_map(|number| number.to_string().into_bytes()),
        any::<i8>().prop_map(|number| number.to_string().into_bytes()),
    ]) {
        let value = string::encode(&text);
        prop_assert_eq!(again(&value), value);
    }

    #[test]
    fn lists_come_back(lens in prop::collection::vec(prop_oneof![0..9_usize, 0..9000_usize], 1..9)) {
        let mut elements = Vec::new();
        lens.iter().for_each(|&len| crate::blobs::put(&mut elements, &vec![b'x'; len]));
        let value = list::encode_parts(list::Encoding::Quicklist, &[&elements]);
        let again = again(&value);
        let content = list::decode(&again).unwrap();
        prop_assert_eq!(content.elements.bytes(), elements.as_slice());
        let is_small = listpack::fits(content.elements.iter(), 8192);
        prop_assert_eq!(content.encoding == list::Encoding::Listpack, is_small);
    }

    #[test]
    fn sets_come_back(members in prop::collection::btree_set(
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..70),
            any::<i16>().prop_map(|number| number.to_string().into_bytes()),
        ],
        1..200,
    )) {
        let members: Vec<&[u8]> = members.iter().map(Vec::as_slice).collect();
        let mut growth = set::Growth::first(members[0], 1);
        members.iter().for_each(|member| growth.push(member));
        let value = growth.encode();
        prop_assert_eq!(again(&value), value);
    }

    #[test]
    fn sorted_sets_come_back(
        elements in prop::collection::btree_map(
            prop::collection::vec(any::<u8>(), 0..67),
            prop_oneof![
                any::<i64>().prop_map(|score| score as f64),
                any::<f64>().prop_filter("a number", |score| !score.is_nan()),
                prop::sample::select(vec![0.5, -0.0, f64::INFINITY, 4_611_686_018_427_387_904.0]),
            ],
            1..200,
        ),
    ) {
        let longest = elements.keys().map(Vec::len).max().unwrap();
        let encoding = sorted_set::Encoding::fitting(elements.len(), longest);
        let element = |(member, &score)| sorted_set::Element { score: encoding.keep(score), member };
        let mut all: Vec<_> =
            elements.iter().map(|(member, score)| (member.as_slice(), score)).map(element).collect();
        all.sort_by(sorted_set::Element::order);
        let mut builder = sorted_set::Builder::new(encoding);
        all.into_iter().for_each(|element| builder.push(element));
        let value = builder.finish();
        prop_assert_eq!(again(&value), value);
    }

    #[test]
    fn hashes_come_back(
        fields in prop::collection::btree_map(
            prop::collection::vec(any::<u8>(), 0..67),
            (prop::collection::vec(any::<u8>(), 0..20), prop::option::of(1..1_u64 << 48)),
            1..20,
        ),
        has_ends: bool,
    ) {
        let mut all = Vec::new();
        for (name, (value, end)) in &fields {
            all.push(hash::Field { name, value, end: end.filter(|_| has_ends) });
        }
        let value = hash::encode(all, has_ends);
        let has_end = fields.values().any(|(_, end)| end.is_some()) && has_ends;
        let again = again(&value);
        // A table keeps no trace of ends that it had.
        let lost = !has_end && has_ends && again[1] != value[1];
        prop_assert!(lost || again == value);
    }

    #[test]
    fn noise_is_refused_or_a_value(
        mut bytes in prop::collection::vec(prop_oneof![0..30_u8, any::<u8>()], 1..80),
        form in 0..26_u8,
    ) {
        bytes[0] = form;
        footer::append(&mut bytes);
        if let Ok(content) = load(&bytes, 1 << 16) {
            let value = content.encode();
            prop_assert_eq!(crate::check(&value), Ok(()));
        }
    }
}
