//! Bytes of hashes, and changes compared with a model of Redis.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// A state of a model: fields in order.
type Model = Vec<(Vec<u8>, Vec<u8>, Option<u64>)>;

fn fields(value: &[u8]) -> Model {
    let hash = Hash::decode(value).expect("a hash");
    hash.iter().map(|it| (it.name.to_vec(), it.value.to_vec(), it.end)).collect()
}

fn of(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut draft = Draft::new(Hash::EMPTY, pairs.iter().map(|(name, _)| name.as_bytes()), 1);
    for (name, value) in pairs {
        draft.set(name.as_bytes(), value.as_bytes());
    }
    draft.finish().expect("fields").to_vec()
}

fn expire(value: &[u8], ends: &[(&str, u64)]) -> Vec<u8> {
    let with_ends = Hash::decode(value).expect("a hash").with_ends();
    let hash = Hash::decode(&with_ends).expect("a hash");
    let mut draft = Draft::new(hash, ends.iter().map(|(name, _)| name.as_bytes()), 1);
    ends.iter().for_each(|(name, end)| draft.set_end(name.as_bytes(), Some(*end)));
    draft.finish().expect("fields").to_vec()
}

#[test]
fn bytes_never_change() {
    let value = of(&[("a", "1"), ("bc", "")]);
    assert_eq!(value, b"\x02\x01\x01a\x011\x02bc\x00");
    let ends = expire(&value, &[("bc", 300)]);
    assert_eq!(ends, b"\x02\x03\xac\x02\x02bc\x00\x00\x01a\x011");
    let long = "x".repeat(65);
    assert_eq!(of(&[("a", &long)])[..5], *b"\x02\x02\x01a\x41");
    assert_eq!(expire(&of(&[("a", &long)]), &[("a", 5)])[..5], *b"\x02\x04\x05\x01a");
}

#[test]
fn broken_bytes_are_refused() {
    for bytes in [
        &b""[..],
        b"\x02",
        b"\x02\x01",
        b"\x02\x00\x01a\x011",
        b"\x02\x05\x01a\x011",
        b"\x02\x01\x01a",
        b"\x02\x01\x01a\x021",
        b"\x02\x01\x01a\x011\x01",
        b"\x02\x03\x05\x01a",
        b"\x02\x03\x80\x00\x01a\x011",
        b"\x02\x03\x05\x01a\x011\x04\x01b\x011",
        b"\x02\x03\x00\x01a\x011\x04\x01b\x011",
        b"\x03\x01\x01a\x011",
    ] {
        assert!(Hash::decode(bytes).is_err(), "{bytes:?}");
    }
}

#[test]
fn hash_grows_into_a_table() {
    let encoding = |value: &[u8]| Hash::decode(value).expect("a hash").encoding();
    let name = |number: usize| format!("f{number}");
    let names: Vec<String> = (0..512).map(name).collect();
    let pairs: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "v")).collect();
    let small = of(&pairs);
    assert_eq!(encoding(&small), Encoding::ListPack);
    let set = |value: &[u8], name: &str, to: &str| {
        let mut draft = Draft::new(Hash::decode(value).unwrap(), [name.as_bytes()].into_iter(), 1);
        draft.set(name.as_bytes(), to.as_bytes());
        draft.finish().unwrap()
    };
    assert_eq!(encoding(&set(&small, "f511", "w")), Encoding::ListPack);
    assert_eq!(encoding(&set(&small, "f512", "w")), Encoding::Table);
    assert_eq!(encoding(&set(&small, "f1", &"w".repeat(64))), Encoding::ListPack);
    assert_eq!(encoding(&set(&small, "f1", &"w".repeat(65))), Encoding::Table);
    assert_eq!(encoding(&set(&of(&[("a", "")]), &"n".repeat(65), "")), Encoding::Table);
    let ends = expire(&small, &[("f9", 1)]);
    assert_eq!(encoding(&ends), Encoding::ListPackEnds);
    assert_eq!(encoding(&set(&ends, "more", "")), Encoding::TableEnds);
    let table = set(&small, "more", "");
    assert_eq!(encoding(&expire(&table, &[("f9", 1)])), Encoding::TableEnds);
}

#[test]
fn earlier_ends_go_first() {
    let value = of(&[("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")]);
    let names = |value: &[u8]| {
        fields(value).into_iter().map(|it| String::from_utf8(it.0).unwrap()).collect::<String>()
    };
    let value = expire(&value, &[("c", 20)]);
    assert_eq!(names(&value), "cabd");
    // The one that comes last goes before its equals.
    let value = expire(&value, &[("d", 20), ("b", 20)]);
    assert_eq!(names(&value), "bdca");
    assert_eq!(names(&expire(&value, &[("a", 19)])), "abdc");
    assert_eq!(names(&expire(&value, &[("a", 21)])), "bdca");
    let mut draft = Draft::new(Hash::decode(&value).unwrap(), [&b"d"[..], b"b"].into_iter(), 1);
    draft.set_end(b"d", None);
    draft.set(b"b", b"new");
    assert_eq!(names(&draft.finish().unwrap()), "cadb");
}

#[test]
fn fields_lapse_at_their_ends() {
    let value = expire(&of(&[("a", "1"), ("b", "2"), ("c", "3")]), &[("b", 20), ("c", 10)]);
    assert_eq!(lapse(&value, 9), None);
    let rest = |value: &[u8], unix| match lapse(value, unix) {
        Some(Lapsed::Rest(rest)) => fields(&rest).len(),
        other => panic!("{other:?}"),
    };
    assert_eq!((rest(&value, 10), rest(&value, 19), rest(&value, 20)), (2, 2, 1));
    assert_eq!(lapse(&expire(&of(&[("a", "1")]), &[("a", 7)]), 7), Some(Lapsed::All));
    assert_eq!(lapse(&of(&[("a", "1")]), u64::MAX), None);
    assert_eq!(lapse(b"\x02\x03\x05\x01a\x021", 9), None, "broken");
    for value in [&b""[..], b"\x01", b"\x02", b"\x02\x03", b"\x02\x01\x05"] {
        assert_eq!(lapse(value, 9), None);
    }
}

#[derive(Clone, Debug)]
enum Change {
    Set(u8, u8),
    SetValue(u8, u8),
    SetEnd(u8, Option<u64>),
    Remove(u8),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        (0..20_u8, any::<u8>()).prop_map(|(name, value)| Change::Set(name, value)),
        (0..20_u8, any::<u8>()).prop_map(|(name, value)| Change::SetValue(name, value)),
        (0..20_u8, prop::option::of(1..6_u64)).prop_map(|(name, end)| Change::SetEnd(name, end)),
        (0..20_u8).prop_map(Change::Remove),
    ];
    prop::collection::vec(change, 1..30)
}

/// Redis' way: take the field out, and put it before the first that does not end earlier.
fn change_model(model: &mut Model, change: &Change) {
    let at = |model: &Model, name: u8| model.iter().position(|it| it.0 == [name]);
    let insert = |model: &mut Model, field: (Vec<u8>, Vec<u8>, Option<u64>)| {
        let later = |other: Option<u64>| match (other, field.2) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(other), Some(end)) => other >= end,
        };
        let place = model.iter().position(|it| later(it.2)).unwrap_or(model.len());
        model.insert(place, field);
    };
    match *change {
        Change::Set(name, value) => match at(model, name) {
            Some(place) if model[place].2.is_none() => model[place].1 = vec![value],
            place => {
                place.map(|place| model.remove(place));
                insert(model, (vec![name], vec![value], None));
            }
        },
        Change::SetValue(name, value) => match at(model, name) {
            Some(place) => model[place].1 = vec![value],
            None => insert(model, (vec![name], vec![value], None)),
        },
        Change::SetEnd(name, end) => {
            if let Some(place) = at(model, name) {
                let field = model.remove(place);
                insert(model, (field.0, field.1, end));
            }
        }
        Change::Remove(name) => drop(at(model, name).map(|place| model.remove(place))),
    }
}

fn name_of(change: &Change) -> u8 {
    match *change {
        Change::Set(name, _) | Change::SetValue(name, _) => name,
        Change::SetEnd(name, _) | Change::Remove(name) => name,
    }
}

proptest! {
    #[test]
    fn draft_changes_fields_as_redis_does(groups in prop::collection::vec(changes(), 1..6)) {
        let bytes: Vec<[u8; 1]> = (0..=255).map(|byte| [byte]).collect();
        let (mut model, mut value) = (Model::new(), of(&[("x", "")]));
        value = Hash::decode(&value).unwrap().with_ends();
        model.push((b"x".to_vec(), Vec::new(), None));
        for group in groups {
            let hash = Hash::decode(&value).unwrap();
            let names = group.iter().map(|change| &bytes[usize::from(name_of(change))][..]);
            let mut draft = Draft::new(hash, names, 1);
            for change in &group {
                let byte = |byte: u8| &bytes[usize::from(byte)][..];
                match *change {
                    Change::Set(name, value) => {
                        draft.set(byte(name), byte(value));
                    }
                    Change::SetValue(name, value) => draft.set_value(byte(name), byte(value)),
                    Change::SetEnd(name, end) => draft.set_end(byte(name), end),
                    Change::Remove(name) => {
                        draft.remove(byte(name));
                    }
                }
                change_model(&mut model, change);
            }
            let new = draft.finish().expect("x stays").to_vec();
            drop(draft);
            value = new;
            prop_assert_eq!(fields(&value), model.clone());
        }
        let by_name: BTreeMap<_, _> = model.iter().map(|it| (it.0.clone(), it)).collect();
        prop_assert_eq!(by_name.len(), model.len());
    }

    #[test]
    fn noise_has_one_form(bytes in prop::collection::vec(0..6_u8, 0..30)) {
        let value = [&[2][..], &bytes].concat();
        if let Ok(hash) = Hash::decode(&value) {
            let mut out = head(hash.encoding(), 0);
            hash.iter().for_each(|field| field.put(hash.encoding(), &mut out));
            prop_assert_eq!(&out, &value);
            if let Some(Lapsed::Rest(rest)) = lapse(&value, 3) {
                prop_assert!(crate::check(&rest).is_ok());
            }
        }
    }
}
