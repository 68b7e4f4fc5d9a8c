//! Inline requests: a line of words. Quotes and escapes follow redis-server's `sdssplitargs`.

/// A quote is open at the end of the line, or something other than a blank follows a closing quote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unbalanced;

/// Splits `line` at blanks into words; `"…"` knows `\n \r \t \b \a \xHH`, `'…'` knows `\'` only.
/// Appends the words to `bytes`, and `(start, end)` of each word to `words`.
///
/// # Errors
/// [`Unbalanced`] quotes. Ignore the bytes that were appended.
pub fn split_args(
    line: &[u8],
    bytes: &mut Vec<u8>,
    words: &mut Vec<(u32, u32)>,
) -> Result<(), Unbalanced> {
    let mut rest = line;
    loop {
        while let [first, tail @ ..] = rest {
            if !is_space(*first) {
                break;
            }
            rest = tail;
        }
        if rest.is_empty() {
            return Ok(());
        }
        let start = bytes.len() as u32;
        rest = word(rest, bytes)?;
        words.push((start, bytes.len() as u32));
    }
}

/// Appends the word at the front of `rest` and returns the rest behind it.
fn word<'a>(mut rest: &'a [u8], bytes: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    while let [first, tail @ ..] = rest {
        rest = match first {
            b'"' => return closed(double_quoted(tail, bytes)?),
            b'\'' => return closed(single_quoted(tail, bytes)?),
            // Vertical tab and form feed separate words but do not end one.
            b' ' | b'\n' | b'\r' | b'\t' => return Ok(tail),
            plain => {
                bytes.push(*plain);
                tail
            }
        };
    }
    Ok(rest)
}

/// A closing quote ends its word: a blank or the end of the line follows.
fn closed(rest: &[u8]) -> Result<&[u8], Unbalanced> {
    match rest.first() {
        Some(next) if !is_space(*next) => Err(Unbalanced),
        _ => Ok(rest),
    }
}

fn double_quoted<'a>(mut rest: &'a [u8], bytes: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    loop {
        rest = match rest {
            [] => return Err(Unbalanced),
            [b'"', tail @ ..] => return Ok(tail),
            [b'\\', b'x', high, low, tail @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                bytes.push(hex(*high) << 4 | hex(*low));
                tail
            }
            [b'\\', escaped, tail @ ..] => {
                bytes.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                tail
            }
            [plain, tail @ ..] => {
                bytes.push(*plain);
                tail
            }
        };
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], bytes: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    loop {
        rest = match rest {
            [] => return Err(Unbalanced),
            [b'\'', tail @ ..] => return Ok(tail),
            [b'\\', b'\'', tail @ ..] => {
                bytes.push(b'\'');
                tail
            }
            [plain, tail @ ..] => {
                bytes.push(*plain);
                tail
            }
        };
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// C's `isspace` in the C locale.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> Result<Vec<Vec<u8>>, Unbalanced> {
        let (mut bytes, mut words) = (Vec::new(), Vec::new());
        split_args(line.as_bytes(), &mut bytes, &mut words)?;
        Ok(words.iter().map(|&(from, to)| bytes[from as usize..to as usize].to_vec()).collect())
    }

    fn check(line: &str, words: &[&[u8]]) {
        assert_eq!(split(line).unwrap(), words, "{line:?}");
    }

    #[test]
    fn words_are_split_at_blanks() {
        check("", &[]);
        check("  \t ", &[]);
        check("  set  k v ", &[b"set", b"k", b"v"]);
        check("a\x0bb", &[b"a\x0bb"]);
    }

    #[test]
    fn quotes_keep_blanks_and_know_escapes() {
        check(r#"set k "a b""#, &[b"set", b"k", b"a b"]);
        check(r#""\x41\xff\n\r\t\b\a\q\"""#, &[b"A\xff\n\r\t\x08\x07q\""]);
        check(r#""\xg1""#, &[b"xg1"]);
        check(r"'it\'s \n'", &[br"it's \n"]);
        check(r#"a"b c""#, &[b"ab c"]);
        check(r#""" ''"#, &[b"", b""]);
    }

    #[test]
    fn open_quotes_and_glued_words_are_refused() {
        for line in [r#"""#, "'", r#""a"b"#, r"'a'b", r#""a\""#, r#""\"#] {
            assert_eq!(split(line), Err(Unbalanced), "{line:?}");
        }
    }
}
