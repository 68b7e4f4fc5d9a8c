//! Replies that no script can record: random ones, pages of scans, limits of this store.

use std::collections::BTreeSet;

use base::Millis;
use types::{Clock, Double, Reply, TimeToLive, View};

use crate::interpreter::Interpreter;
use crate::space::{Halt, Space};

/// Runs lines on an empty key `z` and answers the last reply.
fn run(seed: u64, max_value_len: usize, lines: &[&str]) -> Reply {
    let interpreter = Interpreter { max_value_len, scripts: None };
    let clock = Clock { unix: Millis(1_000), seed };
    let mut space = Space::new(&interpreter, clock);
    for key in ["z", "d"] {
        space.load(key.into(), View::fresh(None, TimeToLive::Never, clock.unix));
    }
    let mut last = Reply::Null;
    for line in lines {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        last = match space.execute(&args) {
            Ok(reply) => reply,
            Err(Halt::Error(error)) => error.into(),
            Err(halt) => panic!("{line}: {halt:?}"),
        };
    }
    last
}

/// `ZADD` of members `m0`, `m1` and so on, each with its number as score.
fn addition(len: usize) -> String {
    (0..len).fold("ZADD z".to_owned(), |line, n| format!("{line} {n} m{n}"))
}

fn texts(reply: Reply) -> Vec<String> {
    let Reply::Array(all) = reply else { panic!("{reply:?}") };
    let text = |reply| match reply {
        Reply::Bulk(text) => String::from_utf8(text.to_vec()).expect("text"),
        other => panic!("{other:?}"),
    };
    all.into_iter().map(text).collect()
}

#[test]
fn random_members_are_elements() {
    for (len, seed) in [(5, 1), (5, 2), (200, 3)] {
        let draw = |line: &str| run(seed, 1 << 20, &[&addition(len), line]);
        let distinct = texts(draw("ZRANDMEMBER z 4"));
        assert_eq!((distinct.len(), distinct.iter().collect::<BTreeSet<_>>().len()), (4, 4));
        let repeated = texts(draw("ZRANDMEMBER z -1000"));
        assert_eq!(repeated.len(), 1000);
        let all: BTreeSet<String> = (0..len).map(|n| format!("m{n}")).collect();
        assert!(distinct.iter().chain(&repeated).all(|member| all.contains(member)));
        assert!(repeated.iter().collect::<BTreeSet<_>>().len() > len / 2, "few are drawn");
        let Reply::Pairs(pairs) = draw("ZRANDMEMBER z -50 WITHSCORES") else { panic!("no pairs") };
        assert_eq!(pairs.len(), 50);
        for (member, score) in pairs {
            let Reply::Double(Double(score)) = score else { panic!("{score:?}") };
            assert_eq!(member, Reply::bulk(format!("m{score}")));
        }
    }
    let draw = |seed| run(seed, 1 << 20, &[&addition(50), "ZRANDMEMBER z"]);
    assert!((0..20).map(draw).any(|reply| reply != draw(0)), "seeds do not matter");
}

#[test]
fn random_members_fit_a_reply() {
    let reply = run(1, 1 << 20, &[&addition(3), "ZRANDMEMBER z -9223372036854775807"]);
    assert_eq!(reply, Reply::error("ERR reply too large: ask for fewer elements"));
}

#[test]
fn scan_of_a_skiplist_visits_each_element_once() {
    let (mut cursor, mut visited, mut pages) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let line = format!("ZSCAN z {cursor} COUNT 7");
        let Reply::Array(parts) = run(1, 1 << 20, &[&addition(300), &line]) else { panic!() };
        let [Reply::Bulk(next), page] = parts.as_slice() else { panic!("{parts:?}") };
        visited.extend(texts(page.clone()).chunks(2).map(|pair| pair.join(" ")));
        cursor = String::from_utf8(next.to_vec()).expect("a cursor");
        pages += 1;
        if cursor == "0" {
            break;
        }
    }
    assert!(pages > 40, "{pages} pages");
    let all: BTreeSet<String> = (0..300).map(|n| format!("m{n} {n}")).collect();
    assert_eq!((visited.len(), visited.into_iter().collect::<BTreeSet<_>>()), (300, all));
}

#[test]
fn values_have_a_greatest_length() {
    let error = |len: usize| {
        Reply::error(format!("ERR value too large: {len} bytes, and max-value-size is 40"))
    };
    // Each element takes four bytes, up to a score of 31.
    let fits = addition(9);
    assert_eq!(run(1, 40, &[&fits]), Reply::Integer(9));
    assert_eq!(run(1, 40, &[&fits, "ZADD z 5 longer"]), error(46));
    assert_eq!(run(1, 40, &[&fits, "ZADD z 5 longer", "ZCARD z"]), Reply::Integer(9));
    assert_eq!(run(1, 40, &[&fits, "ZINCRBY z 0.5 m1"]), error(46));
    assert_eq!(run(1, 40, &[&fits, "ZUNIONSTORE d 1 z WEIGHTS 1.5"]), error(70));
    assert_eq!(run(1, 40, &[&fits, "ZRANGESTORE d z 0 -1", "ZCARD d"]), Reply::Integer(9));
}
