//! Random values through the libraries: packed values come back, and no bytes make them panic.

use base::Millis;
use commands::{Halt, Interpreter, ScriptCall, Space};
use proptest::prelude::*;
use types::{Clock, Reply};

fn run(source: &str, args: &[&[u8]]) -> Result<Reply, Halt> {
    let interpreter = Interpreter { scripts: Some(scripts::ENGINE), ..Interpreter::default() };
    let clock = Clock { unix: Millis(1_000), seed: 7 };
    let call = ScriptCall { source: source.as_bytes(), keys: &[], args, is_read_only: false };
    (scripts::ENGINE.run)(&call, &mut Space::new(&interpreter, clock))
}

fn bytes(reply: Result<Reply, Halt>) -> Vec<u8> {
    match reply {
        Ok(Reply::Bulk(bytes)) => bytes.to_vec(),
        other => panic!("no bytes: {other:?}"),
    }
}

/// A JSON document, as text in one form only: no space, and at most one key per object, since the
/// order of keys is free.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|value| value.to_string()),
        any::<i32>().prop_map(|value| value.to_string()),
        (-1_000_000_i32..1_000_000).prop_map(|value| format!("{}.5", value)),
        "[a-z0-9 é€😀]{0,8}".prop_map(|text| format!("\"{text}\"")),
        Just("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0001\\u007f\"".to_owned()),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..6)
                .prop_map(|all| format!("[{}]", all.join(","))),
            ("[a-z]{1,5}", inner).prop_map(|(key, value)| format!("{{\"{key}\":{value}}}")),
        ]
    })
}

proptest! {
    #[test]
    fn json_comes_back(text in json()) {
        let source = "return cjson.encode(cjson.decode(ARGV[1]))";
        let again = bytes(run(source, &[text.as_bytes()]));
        prop_assert_eq!(String::from_utf8_lossy(&again), text);
    }

    #[test]
    fn message_pack_carries_json(text in json()) {
        let source = "return cjson.encode(cmsgpack.unpack(cmsgpack.pack(cjson.decode(ARGV[1]))))";
        let again = bytes(run(source, &[text.as_bytes()]));
        // MessagePack has null, and Lua drops fields and elements that are nil.
        if !text.contains("null") && text != "{}" {
            prop_assert_eq!(String::from_utf8_lossy(&again), text);
        }
    }

    #[test]
    fn any_text_is_decoded_or_refused(text: Vec<u8>) {
        for source in [
            "return type(cjson.decode(ARGV[1]))",
            "return select('#', cmsgpack.unpack(ARGV[1]))",
            "return select('#', struct.unpack(ARGV[1], ARGV[1]))",
            "return struct.pack(ARGV[1], 1, 2, 'three', 4)",
            "return struct.size(ARGV[1])",
            "return select('#', string.find(ARGV[1], ARGV[1]))",
            "return string.gsub(ARGV[1], ARGV[1], ARGV[1])",
            "return tonumber(ARGV[1]) and 1 or 0",
            "return select('#', loadstring(ARGV[1]))",
        ] {
            let ended = run(source, &[&text]);
            prop_assert!(matches!(ended, Ok(_) | Err(Halt::TooLong)), "{}: {:?}", source, ended);
        }
    }

    #[test]
    fn likely_formats_are_read_or_refused(
        format in "[<>! bBhHlLTiIfdxcs0-9]{0,12}",
        data: Vec<u8>,
        pattern in r"[%ab.*+?\-\[\]\^$()0-9fbz ]{0,12}",
    ) {
        for (source, args) in [
            ("return select('#', struct.unpack(ARGV[1], ARGV[2]))", [format.as_bytes(), &data]),
            ("return #struct.pack(ARGV[1], 1, 2, 3, 4, 5, 6, 7, 8, 9)", [format.as_bytes(), &data]),
            ("return select('#', string.find(ARGV[2], ARGV[1]))", [pattern.as_bytes(), &data]),
            ("return #string.gsub(ARGV[2], ARGV[1], '<%0>')", [pattern.as_bytes(), &data]),
            ("local n = 0 for w in string.gmatch(ARGV[2], ARGV[1]) do n = n + 1 end return n", [pattern.as_bytes(), &data]),
        ] {
            let ended = run(source, &args);
            prop_assert!(matches!(ended, Ok(_) | Err(Halt::TooLong)), "{}: {:?}", source, ended);
        }
    }

    #[test]
    fn packed_numbers_come_back(number: i32, text in "[a-z]{0,20}", double: f64, big: bool) {
        let order = if big { ">" } else { "<" };
        let source = format!(
            "local f = '{order}ilds' local a, b, c, d = struct.unpack(f, struct.pack(f, ARGV[1], ARGV[1], ARGV[2], ARGV[3])) return {{a, b, tostring(c) == tostring(tonumber(ARGV[2])), d}}"
        );
        prop_assume!(double.is_finite());
        let args = [number.to_string(), format!("{double:e}"), text.clone()];
        let reply = run(&source, &[args[0].as_bytes(), args[1].as_bytes(), args[2].as_bytes()]);
        let number = Reply::Integer(number.into());
        let expected = [number.clone(), number, Reply::Integer(1), Reply::bulk(text)];
        prop_assert_eq!(reply, Ok(Reply::array(expected)));
    }

    #[test]
    fn any_source_ends(source in "[a-zA-Z0-9 =.,:;()\\[\\]{}\"'+*/<>~#%^-]{0,60}") {
        let ended = run(&source, &[b"x"]);
        let is_ended = match &ended {
            Ok(_) | Err(Halt::TooLong | Halt::Unloaded(_)) => true,
            Err(Halt::Error(error)) => error.text().starts_with(b"ERR Error compiling script"),
        };
        prop_assert!(is_ended, "{}: {:?}", source, ended);
    }
}
