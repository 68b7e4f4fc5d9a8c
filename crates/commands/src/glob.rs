//! Patterns as `KEYS` and `SCAN MATCH` understand them (`stringmatchlen`, Redis 7).
//!
//! `*` any bytes, `?` any byte, `[a-z]` `[^a-z]` one of or none of, `\x` the byte itself.

/// Whether upper and lower case differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    Sensitive,
    Insensitive,
}

/// True if `pattern` matches all of `text`. The steps are at most the product of both lengths.
#[must_use]
pub fn matches(pattern: &[u8], text: &[u8], case: Case) -> bool {
    if text.is_empty() {
        // redis-server ignores the pattern for an empty text. `KEYS *` skips the match.
        return matches!(pattern, b"" | b"*");
    }
    let (mut pattern, mut text) = (pattern, text);
    // The pattern after the last star, and the text that the star has not matched yet.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            retry = Some((rest, text));
            pattern = rest;
            continue;
        }
        if let [first, rest @ ..] = text
            && let Some(after) = step(pattern, *first, case)
        {
            (pattern, text) = (after, rest);
            continue;
        }
        if pattern.is_empty() && text.is_empty() {
            return true;
        }
        match retry {
            Some((after, [_, rest @ ..])) => {
                retry = Some((after, rest));
                (pattern, text) = (after, rest);
            }
            _ => return false,
        }
    }
}

/// The rest of a pattern once its first element, which is no star, has matched `byte`.
fn step(pattern: &[u8], byte: u8, case: Case) -> Option<&[u8]> {
    let same = |a: u8, b: u8| fold(a, case) == fold(b, case);
    match pattern {
        [] => None,
        [b'?', rest @ ..] => Some(rest),
        [b'[', rest @ ..] => {
            let (is_member, rest) = class(rest, byte, case);
            is_member.then_some(rest)
        }
        [b'\\', escaped, rest @ ..] => same(*escaped, byte).then_some(rest),
        [plain, rest @ ..] => same(*plain, byte).then_some(rest),
    }
}

/// True if `byte` is in the class at the front of `rest`, and the pattern after its bracket. A
/// class without a bracket ends with the pattern.
fn class(rest: &[u8], byte: u8, case: Case) -> (bool, &[u8]) {
    let (negated, mut rest) = match rest {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let byte = fold(byte, case);
    let mut found = false;
    loop {
        let (low, high);
        (low, high, rest) = match rest {
            [] => break,
            [b']', rest @ ..] => return (found != negated, rest),
            [b'\\', escaped, rest @ ..] => (*escaped, *escaped, rest),
            [low, b'-', high, rest @ ..] => (*low, *high, rest),
            [plain, rest @ ..] => (*plain, *plain, rest),
        };
        let (low, high) = (fold(low.min(high), case), fold(low.max(high), case));
        found |= (low..=high).contains(&byte);
    }
    (found != negated, rest)
}

fn fold(byte: u8, case: Case) -> u8 {
    match case {
        Case::Sensitive => byte,
        Case::Insensitive => byte.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(pattern: &str, text: &str, expected: bool) {
        let found = matches(pattern.as_bytes(), text.as_bytes(), Case::Sensitive);
        assert_eq!(found, expected, "{pattern:?} on {text:?}");
    }

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("**", "", false),
            ("a*", "", false),
            ("**", "a", true),
            ("a**", "a", true),
            ("*", "anything", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hbllo", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("[\\]]", "]", true),
            ("[abc", "c", true),
            ("a*b*c", "aXbYbc", true),
            ("a*b*c", "aXbYb", false),
            ("**a**", "xa", true),
            ("a\\", "a\\", true),
        ] {
            check(pattern, text, expected);
        }
        assert!(matches(b"Client|*", b"client|ID", Case::Insensitive));
    }

    #[test]
    fn many_stars_take_no_for_ever() {
        let pattern = "a*".repeat(50) + "b";
        check(&pattern, &"a".repeat(5_000), false);
    }

    proptest! {
        #[test]
        fn a_text_fits_itself_escaped(text in prop::collection::vec(any::<u8>(), 0..20)) {
            let escaped: Vec<u8> = text.iter().flat_map(|&byte| [b'\\', byte]).collect();
            prop_assert!(matches(&escaped, &text, Case::Sensitive));
        }

        #[test]
        fn noise_panics_nowhere(pattern in "[a-c*?\\[\\]^\\\\-]{0,12}", text in "[a-c\\]-]{0,12}") {
            let _ = matches(pattern.as_bytes(), text.as_bytes(), Case::Insensitive);
        }
    }
}
