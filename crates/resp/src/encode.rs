//! Encoding: each function appends one element to `out`.
//!
//! Replies are produced once, as RESP3. [`translate_to_resp2`](crate::translate_to_resp2) makes the
//! older form. Aggregates are headers: the caller appends the elements that it announced.

use itoa::Buffer;

/// `+text`. Line ends in `text` become blanks, so that it cannot end the line early.
pub fn simple(out: &mut Vec<u8>, text: &[u8]) {
    line(out, b'+', text);
}

/// `-text`; `text` starts with its code: `ERR syntax error`. Line ends become blanks.
pub fn error(out: &mut Vec<u8>, text: &[u8]) {
    line(out, b'-', text);
}

pub fn integer(out: &mut Vec<u8>, value: i64) {
    line(out, b':', Buffer::new().format(value).as_bytes());
}

pub fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len() + HEADER_LEN_MAX);
    header(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// RESP3's only null.
pub fn null(out: &mut Vec<u8>) {
    out.extend_from_slice(b"_\r\n");
}

/// RESP2's missing bulk string.
pub fn null_bulk(out: &mut Vec<u8>) {
    out.extend_from_slice(b"$-1\r\n");
}

/// RESP2's missing array.
pub fn null_array(out: &mut Vec<u8>) {
    out.extend_from_slice(b"*-1\r\n");
}

/// Header of an array of `len` elements.
pub fn array(out: &mut Vec<u8>, len: usize) {
    header(out, b'*', len);
}

/// Header of a map of `len` pairs.
pub fn map(out: &mut Vec<u8>, len: usize) {
    header(out, b'%', len);
}

/// Header of a set of `len` elements.
pub fn set(out: &mut Vec<u8>, len: usize) {
    header(out, b'~', len);
}

/// Header of an out-of-band message of `len` elements.
pub fn push(out: &mut Vec<u8>, len: usize) {
    header(out, b'>', len);
}

/// The text of [`double_text`].
pub fn double(out: &mut Vec<u8>, value: f64) {
    line(out, b',', double_text(value).as_bytes());
}

pub fn boolean(out: &mut Vec<u8>, value: bool) {
    out.extend_from_slice(if value { b"#t\r\n" } else { b"#f\r\n" });
}

/// Text with a three-letter format: `txt` or `mkd`.
pub fn verbatim(out: &mut Vec<u8>, format: [u8; 3], text: &[u8]) {
    header(out, b'=', text.len() + 4);
    out.extend_from_slice(&format);
    out.push(b':');
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

/// A whole number of any size; `digits` are decimal, with a minus where it is negative.
pub fn big_number(out: &mut Vec<u8>, digits: &[u8]) {
    line(out, b'(', digits);
}

/// A request: an array of bulk strings, as clients send it.
pub fn request<A: AsRef<[u8]>>(out: &mut Vec<u8>, args: &[A]) {
    array(out, args.len());
    for arg in args {
        bulk(out, arg.as_ref());
    }
}

/// Type byte, at most twenty digits, line end; twice, for the line end of the content.
const HEADER_LEN_MAX: usize = 25;

pub(crate) fn header(out: &mut Vec<u8>, kind: u8, len: usize) {
    out.push(kind);
    out.extend_from_slice(Buffer::new().format(len).as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.reserve(text.len() + 3);
    out.push(kind);
    let start = out.len();
    out.extend_from_slice(text);
    for byte in &mut out[start..] {
        if matches!(byte, b'\r' | b'\n') {
            *byte = b' ';
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// A short text that reads back as `value`, digit by digit as Redis 7.4 prints it.
#[must_use]
pub fn double_text(value: f64) -> String {
    base::double::text(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn elements_have_the_bytes_of_the_specification() {
        assert_eq!(encoded(|o| simple(o, b"OK")), "+OK\r\n");
        assert_eq!(encoded(|o| error(o, b"ERR syntax error")), "-ERR syntax error\r\n");
        assert_eq!(encoded(|o| integer(o, i64::MIN)), ":-9223372036854775808\r\n");
        assert_eq!(encoded(|o| bulk(o, b"")), "$0\r\n\r\n");
        assert_eq!(encoded(|o| bulk(o, b"hello")), "$5\r\nhello\r\n");
        assert_eq!(encoded(|o| boolean(o, true)), "#t\r\n");
        assert_eq!(encoded(|o| verbatim(o, *b"txt", b"Some")), "=8\r\ntxt:Some\r\n");
        assert_eq!(encoded(|o| big_number(o, b"-12")), "(-12\r\n");
        assert_eq!(encoded(|o| map(o, 2)), "%2\r\n");
        assert_eq!(encoded(|o| request(o, &["GET", "k"])), "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
    }

    #[test]
    fn line_ends_cannot_leave_their_line() {
        assert_eq!(encoded(|o| error(o, b"ERR a\r\n+OK")), "-ERR a  +OK\r\n");
    }

    #[test]
    fn doubles_are_short_and_read_back() {
        for (value, text) in [
            (0.1, "0.1"),
            (3.0, "3"),
            (1e300, "1e+300"),
            (1e20, "1e+20"),
            (2.5e-7, "2.5e-7"),
            (-0.0, "-0"),
        ] {
            assert_eq!(double_text(value), text);
            assert_eq!(text.parse::<f64>().unwrap(), value);
        }
        assert_eq!(encoded(|o| double(o, f64::NEG_INFINITY)), ",-inf\r\n");
        assert_eq!(encoded(|o| double(o, f64::NAN)), ",nan\r\n");
    }
}
