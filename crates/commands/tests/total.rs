//! Commands run on any bytes without a panic, and decode all that they encode.

use base::Millis;
use commands::{Interpreter, Plan};
use proptest::prelude::*;
use types::limits::VALUE_LEN_DEFAULT;
use types::{Change, Clock, Reply, TimeToLive, Update, View, Wire};
use values::Hash;
use values::hash::Draft;
use values::sorted_set::{Builder, Element, Encoding};

const WORDS: &[&str] = &[
    "NX",
    "XX",
    "GT",
    "LT",
    "GET",
    "EX",
    "PXAT",
    "KEEPTTL",
    "FIELDS",
    "WITHVALUES",
    "COUNT",
    "MATCH",
    "NOVALUES",
    "a",
    "1",
    "2",
    "PERSIST",
    "IFEQ",
    "IFDNE",
    "0",
    "-1",
    "10",
    "9223372036854775807",
    "-9223372036854775808",
    "1e3",
    "inf",
    "BYLEX",
    "BYSCORE",
    "INCR",
    "LIMIT",
    "REV",
    "WITHSCORES",
    "(1",
    "[a",
    "-",
    "+",
    "",
];

fn ttls() -> impl Strategy<Value = TimeToLive> {
    let time = || prop_oneof![0..5_000_u64, Just(u64::MAX), any::<u64>()];
    prop_oneof![
        Just(TimeToLive::Never),
        time().prop_map(|span| TimeToLive::After(Millis(span))),
        time().prop_map(|unix| TimeToLive::At { unix: Millis(unix) }),
    ]
}

fn values() -> impl Strategy<Value = Option<Vec<u8>>> {
    let string = prop_oneof![
        "[0-9]{0,20}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..30),
    ];
    let list = prop::collection::vec("[a-c0-2]{0,2}", 1..9).prop_map(|elements| {
        let mut encoded = Vec::new();
        elements.iter().for_each(|one| values::blobs::put(&mut encoded, one.as_bytes()));
        values::list::encode_parts(values::list::Encoding::Listpack, &[&encoded]).to_vec()
    });
    let noise = prop::collection::vec(any::<u8>(), 0..30);
    prop_oneof![
        Just(None),
        string.prop_map(|string| Some(values::string::encode(&string).to_vec())),
        list.prop_map(Some),
        collections().prop_map(Some),
        noise.prop_map(Some),
        hashes().prop_map(Some),
        sorted_sets().prop_map(Some),
    ]
}

/// A type, an encoding and elements, some of which are numbers: often a sound value.
fn collections() -> impl Strategy<Value = Vec<u8>> {
    let element = prop_oneof![
        "[0-9a-c]{0,2}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..9),
    ];
    let elements = prop::collection::vec(element, 0..8);
    (2..=6_u8, 0..4_u8, elements).prop_map(|(kind, encoding, elements)| {
        let mut value = vec![kind, encoding];
        elements.iter().for_each(|element| values::blobs::put(&mut value, element));
        value
    })
}

/// Hashes of few fields, some with ends.
fn hashes() -> impl Strategy<Value = Vec<u8>> {
    let end = prop::option::of(0..10_000_u64);
    prop::collection::btree_map("[a0-9-]{0,2}", ("[0-9]{0,3}", end), 1..5).prop_map(|fields| {
        let names: Vec<&[u8]> = fields.keys().map(String::as_bytes).collect();
        let mut draft = Draft::new(Hash::EMPTY, names.iter().copied(), 0);
        for (name, (value, _)) in &fields {
            draft.set(name.as_bytes(), value.as_bytes());
        }
        let plain = draft.finish().expect("fields");
        if fields.values().all(|(_, end)| end.is_none()) {
            return plain.to_vec();
        }
        let with_ends = Hash::decode(&plain).expect("a hash").with_ends();
        let hash = Hash::decode(&with_ends).expect("a hash");
        let mut draft = Draft::new(hash, names.iter().copied(), 0);
        fields.iter().for_each(|(name, (_, end))| draft.set_end(name.as_bytes(), *end));
        draft.finish().expect("fields").to_vec()
    })
}

fn sorted_sets() -> impl Strategy<Value = Vec<u8>> {
    let score = prop_oneof![(-3..3_i32).prop_map(f64::from), Just(f64::INFINITY), Just(0.5)];
    let encoding = prop_oneof![Just(Encoding::Listpack), Just(Encoding::Skiplist)];
    let all = prop::collection::btree_map("[a0-9]{0,2}", score, 1..9);
    (encoding, all).prop_map(|(encoding, all)| {
        let element = |(member, score): (&'_ String, &f64)| (*score, member.clone());
        let mut all: Vec<(f64, String)> = all.iter().map(element).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
        let mut builder = Builder::new(encoding);
        for (score, member) in &all {
            builder.push(Element { score: *score, member: member.as_bytes() });
        }
        builder.finish().to_vec()
    })
}

fn clocks() -> impl Strategy<Value = Clock> {
    let unix = prop_oneof![0..10_000_u64, Just(u64::MAX), any::<u64>()];
    unix.prop_map(|unix| Clock { unix: Millis(unix), seed: 7 })
}

fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let rest = prop::collection::vec(prop_oneof![0..8_u8, any::<u8>()], 0..24);
    (0..255_u8, rest).prop_map(|(verb, rest)| [vec![verb], rest].concat())
}

/// A request for a command on one key, with arguments that are mostly words of its syntax.
fn requests() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let name = prop::sample::select(
        commands::table::rows()
            .filter(|spec| spec.access.is_some())
            .map(|spec| spec.name)
            .collect::<Vec<_>>(),
    );
    let arg = prop_oneof![
        prop::sample::select(WORDS).prop_map(|word| word.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..6),
    ];
    (name, prop::collection::vec(arg, 1..7)).prop_map(|(name, mut args)| {
        args.insert(0, name.as_bytes().to_vec());
        args
    })
}

fn check_applied(value: Option<&[u8]>, clock: Clock, change: &Change, reply: &Reply) {
    let has_lapsed = value.is_some_and(|it| values::hash::lapse(it, clock.unix.0).is_some());
    assert_eq!(Reply::from_bytes(&reply.to_bytes()).as_ref(), Ok(reply));
    match change {
        Change::Put { value, .. } => {
            assert_eq!(values::check(value), Ok(()), "a value that cannot be read");
            assert!(value.len() <= VALUE_LEN_DEFAULT + 1, "{} bytes", value.len());
        }
        Change::Expire(_) | Change::Delete => assert!(value.is_some(), "{change:?} of no key"),
        Change::None => {}
    }
    if reply.is_error() && !has_lapsed {
        assert_eq!(*change, Change::None, "an error changed something");
    }
}

proptest! {
    #[test]
    fn any_body_runs_on_any_state(
        body in bodies(), value in values(), ttl in ttls(), clock in clocks(),
    ) {
        let view = View::fresh(value.as_deref(), ttl, clock.unix);
        let applied = Interpreter::default().apply(view, &body, clock);
        check_applied(value.as_deref(), clock, &applied.change, &applied.reply);
    }

    #[test]
    fn planned_commands_decode(
        request in requests(), value in values(), ttl in ttls(), clock in clocks(),
    ) {
        let args: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
        let (command, access) = match commands::plan(&args, clock) {
            Ok((spec, Plan::Key { command, .. } | Plan::PerKey { command, .. })) => {
                (command, spec.access)
            }
            Ok((_, Plan::Session(verb))) => unreachable!("{verb:?} of a command on keys"),
            Ok((_, Plan::Keys { .. } | Plan::Once { .. } | Plan::Reply(_))) | Err(_) => {
                return Ok(());
            }
        };
        prop_assert!(access.is_some());
        let view = View::fresh(value.as_deref(), ttl, clock.unix);
        let applied = Interpreter::default().apply(view, &command.body, clock);
        check_applied(value.as_deref(), clock, &applied.change, &applied.reply);
        let is_strange = matches!(&applied.reply, Reply::Error(text) if text.ends_with(b"upgrade it"));
        prop_assert!(!is_strange, "not understood: {:?}", command);
    }
}
