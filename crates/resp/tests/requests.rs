//! The request parser against the conversations of redis-server 7.0.15, and against itself in
//! pieces.

use proptest::prelude::*;
use resp::{Limits, Parser, Progress, ProtocolError, encode};

/// The requests in a stream of bytes, an error if any, and the bytes that are left.
#[derive(PartialEq, Debug, Default)]
struct Heard {
    requests: Vec<Vec<Vec<u8>>>,
    error: Option<ProtocolError>,
    left: usize,
}

/// Feeds `pieces` as a connection does.
fn hear(limits: Limits, pieces: &[&[u8]]) -> Heard {
    let mut parser = Parser::new(limits);
    let mut heard = Heard::default();
    let mut buf = Vec::new();
    for piece in pieces {
        buf.extend_from_slice(piece);
        loop {
            let consumed = match parser.next(&buf) {
                Ok(Progress::Command(request)) => {
                    heard.requests.push(request.iter().map(<[u8]>::to_vec).collect());
                    request.consumed()
                }
                Ok(Progress::Blank { consumed }) => consumed,
                Ok(Progress::NeedMore { missing }) => {
                    assert!(missing > 0, "asks for nothing");
                    break;
                }
                Err(error) => {
                    heard.error = Some(error);
                    return heard;
                }
            };
            assert!(consumed > 0 && consumed <= buf.len(), "{consumed} of {}", buf.len());
            buf.drain(..consumed);
        }
    }
    heard.left = buf.len();
    heard
}

fn hear_whole(bytes: &[u8]) -> Heard {
    hear(Limits::default(), &[bytes])
}

fn check_requests(bytes: &[u8], requests: &[&[&str]]) {
    let heard = hear_whole(bytes);
    assert_eq!(heard.error, None);
    let expected: Vec<Vec<Vec<u8>>> =
        requests.iter().map(|r| r.iter().map(|a| a.as_bytes().to_vec()).collect()).collect();
    assert_eq!(heard.requests, expected);
}

fn check_error(limits: Limits, bytes: &[u8], reply: &str) {
    let heard = hear(limits, &[bytes]);
    let mut out = Vec::new();
    heard.error.expect("an error").encode(&mut out);
    assert_eq!(String::from_utf8_lossy(&out), reply);
}

#[test]
fn pipelined_arrays_come_one_by_one() {
    check_requests(
        b"*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n\r\n\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n",
        &[&["PING"], &["SET", "k", "\r\n"], &["GET", ""]],
    );
}

#[test]
fn inline_and_array_requests_mix() {
    check_requests(
        b"PING\r\nset k \"a b\"\n*1\r\n$4\r\nPING\r\nget k\r\n",
        &[&["PING"], &["set", "k", "a b"], &["PING"], &["get", "k"]],
    );
}

#[test]
fn empty_requests_are_passed_over() {
    check_requests(b"\r\n\n  \r\n*0\r\n*-1\r\n*-5\r\nPING\r\n", &[&["PING"]]);
}

#[test]
fn nothing_is_heard_before_the_last_byte() {
    let bytes = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
    for len in 0..bytes.len() {
        let heard = hear_whole(&bytes[..len]);
        assert_eq!((heard.requests.len(), heard.error, heard.left), (0, None, len));
    }
}

#[test]
fn a_big_argument_says_how_much_is_missing() {
    let mut parser = Parser::default();
    let Ok(Progress::NeedMore { missing }) = parser.next(b"*1\r\n$100000\r\nabc") else {
        panic!("the argument is not here yet")
    };
    assert_eq!(missing, 100_000 + 2 - 3);
}

#[test]
fn errors_have_the_texts_of_redis() {
    let limits = Limits::default();
    for (bytes, text) in [
        ("*3\r\n$3\r\nSET\r\n$-1\r\n", "invalid bulk length"),
        ("*1\r\n$blabla\r\n", "invalid bulk length"),
        ("*1\r\n$\r\n", "invalid bulk length"),
        ("*1\r\n$01\r\n", "invalid bulk length"),
        ("*1\r\n$536870913\r\n", "invalid bulk length"),
        ("*1\r\n$2000000000\r\n", "invalid bulk length"),
        ("*1\r\n$99999999999999999999\r\n", "invalid bulk length"),
        ("*20000000000\r\n", "invalid multibulk length"),
        ("*4194305\r\n", "invalid multibulk length"),
        ("*2147483648\r\n", "invalid multibulk length"),
        ("*x\r\n", "invalid multibulk length"),
        ("*\r\n", "invalid multibulk length"),
        ("*+1\r\n", "invalid multibulk length"),
        ("*3\r\n$3\r\nSET\r\n$1\r\nx\r\nfooz\r\n", "expected '$', got 'f'"),
        ("*1\r\nPING\r\n", "expected '$', got 'P'"),
        ("*1\r\n\r\n", "expected '$', got ' '"),
        ("set \"\"\"test-key\"\"\" test-value\r\n", "unbalanced quotes in request"),
        ("get '\r\n", "unbalanced quotes in request"),
    ] {
        check_error(limits, bytes.as_bytes(), &format!("-ERR Protocol error: {text}\r\n"));
    }
    let long = |start: &str| [start.as_bytes(), &vec![b'0'; 64 * 1024 + 1]].concat();
    for (start, text) in [
        ("*", "too big mbulk count string"),
        ("*1\r\n$", "too big bulk count string"),
        ("0", "too big inline request"),
    ] {
        check_error(limits, &long(start), &format!("-ERR Protocol error: {text}\r\n"));
    }
}

#[test]
fn clients_that_must_authenticate_may_send_little() {
    let limits = Limits { authenticated: false, ..Limits::default() };
    check_error(limits, b"*11\r\n", "-ERR Protocol error: unauthenticated multibulk length\r\n");
    check_error(
        limits,
        b"*2\r\n$4\r\nAUTH\r\n$16385\r\n",
        "-ERR Protocol error: unauthenticated bulk length\r\n",
    );
    let heard = hear(limits, &[b"*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n"]);
    assert_eq!(heard.requests.len(), 1);
}

#[test]
fn a_request_has_a_greatest_length() {
    let limits = Limits { request_len_max: 100, ..Limits::default() };
    let bytes = b"*3\r\n$40\r\n0123456789012345678901234567890123456789\r\n$60\r\n";
    check_error(limits, bytes, "-ERR Protocol error: too big request\r\n");
}

#[test]
fn a_byte_that_is_no_character_is_echoed_as_it_is() {
    let mut out = Vec::new();
    ProtocolError::ExpectedDollar(0xff).encode(&mut out);
    assert_eq!(out, b"-ERR Protocol error: expected '$', got '\xff'\r\n");
}

fn requests() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
    let arg = prop::collection::vec(any::<u8>(), 0..40);
    prop::collection::vec(prop::collection::vec(arg, 1..6), 1..6)
}

/// Bytes that look enough like RESP to reach the parser's corners.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        Just(b"\r\n".to_vec()),
        Just(b"*2\r\n".to_vec()),
        Just(b"$3\r\nabc\r\n".to_vec()),
        Just(b"*1\r\n$4\r\nPING\r\n".to_vec()),
        Just(b"get \"k\\x41\" 'v'\r\n".to_vec()),
        "[*$][0-9-]{0,12}\r?\n?".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..6),
    ];
    prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

fn pieces<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    ends.push(bytes.len());
    ends.sort_unstable();
    let mut start = 0;
    ends.iter().map(|&end| &bytes[std::mem::replace(&mut start, end)..end]).collect()
}

proptest! {
    #[test]
    fn what_a_client_encodes_is_what_the_server_hears(requests in requests()) {
        let mut bytes = Vec::new();
        for request in &requests {
            encode::request(&mut bytes, request);
        }
        prop_assert_eq!(hear_whole(&bytes), Heard { requests, error: None, left: 0 });
    }

    #[test]
    fn pieces_say_what_the_whole_says(
        bytes in noise(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        prop_assert_eq!(hear(Limits::default(), &pieces(&bytes, &cuts)), hear_whole(&bytes));
    }

    #[test]
    fn single_bytes_say_what_the_whole_says(bytes in noise()) {
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(hear(Limits::default(), &single), hear_whole(&bytes));
    }
}
