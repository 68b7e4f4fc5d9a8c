//! Values come back out of their dumps. `commands` compares dumps with those of Redis.

use proptest::prelude::*;

use super::*;
use crate::{list, set, string};

/// The same value out of its dump.
fn again(value: &[u8]) -> bytes::Bytes {
    load(&save(value).unwrap(), 1 << 20).unwrap().encode().unwrap()
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
    fn noise_is_refused_or_a_value(
        mut bytes in prop::collection::vec(prop_oneof![0..30_u8, any::<u8>()], 1..80),
        form in 0..26_u8,
    ) {
        bytes[0] = form;
        footer::append(&mut bytes);
        if let Some(value) = load(&bytes, 1 << 16).ok().and_then(|content| content.encode()) {
            prop_assert_eq!(crate::check(&value), Ok(()));
        }
    }
}
