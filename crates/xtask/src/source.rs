//! Rust source with comments and literals told apart from code, and tests from what ships.
//!
//! This is a scanner, not a parser: enough for rules about words. It knows strings, raw strings, character
//! literals against lifetimes, nested block comments, and items marked `#[cfg(test)]`.

/// One line, split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The code, with the contents of literals left out.
    pub code: String,
    /// The text of comments.
    pub comment: String,
    /// Belongs to an item marked `#[cfg(test)]`.
    pub in_test: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Code,
    LineComment,
    BlockComment { depth: usize },
    Text,
    RawText { hashes: usize },
}

/// Splits `text` into lines and marks those that only tests see.
pub fn scan(text: &str) -> Vec<Line> {
    let mut lines = split(text);
    mark_tests(&mut lines);
    lines
}

fn split(text: &str) -> Vec<Line> {
    let bytes = text.as_bytes();
    let mut lines = vec![Line::default()];
    let mut state = State::Code;
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let character = rest.chars().next().expect("`at` is inside the text and on a boundary");
        if character == '\n' {
            if state == State::LineComment {
                state = State::Code;
            }
            lines.push(Line::default());
            at += 1;
            continue;
        }
        let line = lines.last_mut().expect("there is always a last line");
        at += match state {
            State::Code => in_code(bytes, at, rest, character, line, &mut state),
            State::LineComment => {
                line.comment.push(character);
                character.len_utf8()
            }
            State::BlockComment { depth } => in_block(rest, character, depth, line, &mut state),
            State::Text => in_text(rest, character, line, &mut state),
            State::RawText { hashes } => {
                let end = format!("\"{}", "#".repeat(hashes));
                if rest.starts_with(&end) {
                    state = State::Code;
                    line.code.push('"');
                    end.len()
                } else {
                    character.len_utf8()
                }
            }
        };
    }
    lines
}

/// Each of these returns how many bytes it took.
fn in_code(
    bytes: &[u8],
    at: usize,
    rest: &str,
    character: char,
    line: &mut Line,
    state: &mut State,
) -> usize {
    if rest.starts_with("//") {
        *state = State::LineComment;
        return 2;
    }
    if rest.starts_with("/*") {
        *state = State::BlockComment { depth: 1 };
        return 2;
    }
    let word_before = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    if !word_before && let Some((hashes, length)) = raw_start(rest) {
        *state = State::RawText { hashes };
        line.code.push('"');
        return length;
    }
    if character == '"' {
        *state = State::Text;
    } else if character == '\''
        && let Some(length) = character_literal(rest)
    {
        line.code.push_str("' '");
        return length;
    }
    line.code.push(character);
    character.len_utf8()
}

fn in_block(
    rest: &str,
    character: char,
    depth: usize,
    line: &mut Line,
    state: &mut State,
) -> usize {
    if rest.starts_with("*/") {
        *state = if depth == 1 { State::Code } else { State::BlockComment { depth: depth - 1 } };
        return 2;
    }
    if rest.starts_with("/*") {
        *state = State::BlockComment { depth: depth + 1 };
        return 2;
    }
    line.comment.push(character);
    character.len_utf8()
}

fn in_text(rest: &str, character: char, line: &mut Line, state: &mut State) -> usize {
    match character {
        // A backslash hides what follows it, but not the end of a line.
        '\\' => 1 + rest[1..].chars().next().filter(|&c| c != '\n').map_or(0, char::len_utf8),
        '"' => {
            *state = State::Code;
            line.code.push('"');
            1
        }
        other => other.len_utf8(),
    }
}

/// The hashes and the length of what opens a raw string.
fn raw_start(rest: &str) -> Option<(usize, usize)> {
    let prefix = ["br", "cr", "r"].into_iter().find(|prefix| rest.starts_with(prefix))?;
    let hashes = rest[prefix.len()..].bytes().take_while(|&b| b == b'#').count();
    let open = prefix.len() + hashes;
    (rest.as_bytes().get(open) == Some(&b'"')).then_some((hashes, open + 1))
}

/// The length of the character literal that starts here, or `None` for a lifetime.
fn character_literal(rest: &str) -> Option<usize> {
    let mut characters = rest.char_indices().skip(1);
    let (_, first) = characters.next()?;
    if first == '\\' {
        characters.next()?; // the escaped character may itself be a quote
        return characters.find(|&(_, c)| c == '\'').map(|(at, _)| at + 1);
    }
    characters.next().filter(|&(_, c)| c == '\'').map(|(at, _)| at + 1)
}

/// Marks each item below `#[cfg(test)]`, up to its closing brace or its semicolon.
fn mark_tests(lines: &mut [Line]) {
    let mut depth: Option<usize> = None; // braces open inside the item; `None`: not in one
    for line in lines {
        let mut from = 0;
        if depth.is_none() {
            let Some(start) = line.code.find("#[cfg(test)]") else { continue };
            from = start + "#[cfg(test)]".len();
            depth = Some(0);
        }
        line.in_test = true;
        for character in line.code[from..].chars() {
            match (character, depth) {
                ('{', Some(open)) => depth = Some(open + 1),
                ('}', Some(1)) | (';', Some(0)) => depth = None,
                ('}', Some(open)) => depth = Some(open.saturating_sub(1)),
                _ => {}
            }
        }
    }
}

/// Names of modules that are declared below `#[cfg(test)]` and live in files of their own.
pub fn test_modules(lines: &[Line]) -> Vec<String> {
    let in_tests = lines.iter().filter(|line| line.in_test);
    in_tests
        .filter_map(|line| {
            let code = line.code.trim().trim_start_matches("#[cfg(test)]").trim();
            let name = code.strip_prefix("pub(crate) ").unwrap_or(code).strip_prefix("mod ")?;
            name.strip_suffix(';').map(str::to_string)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Vec<String> {
        scan(text).into_iter().map(|line| line.code).collect()
    }

    #[test]
    fn literals_and_comments_are_no_code() {
        assert_eq!(code("let a = \"un//wrap\"; // note"), ["let a = \"\"; "]);
        assert_eq!(code(r##"let a = r#"x " y"#;"##), ["let a = \"\";"]);
        assert_eq!(code("a /* b /* c */ d */ e"), ["a  e"]);
        assert_eq!(code("let a = \"q\\\"q\"; b"), ["let a = \"\"; b"]);
        assert_eq!(code("\"one\ntwo\"; three"), ["\"", "\"; three"]);
    }

    #[test]
    fn lifetimes_are_not_characters() {
        assert_eq!(code("fn f<'a>(x: &'a str) { '\"' }"), ["fn f<'a>(x: &'a str) { ' ' }"]);
        assert_eq!(code(r"match c { '\'' => 1, '\\' => 2 }"), ["match c { ' ' => 1, ' ' => 2 }"]);
    }

    #[test]
    fn comment_text_is_kept_apart() {
        assert_eq!(scan("x; // why")[0].comment, " why");
    }

    #[test]
    fn test_items_end_where_their_braces_close() {
        let lines = scan("a();\n#[cfg(test)]\nmod tests {\n fn t() { b(); }\n}\nc();");
        let marks: Vec<bool> = lines.iter().map(|line| line.in_test).collect();
        assert_eq!(marks, [false, true, true, true, true, false]);
    }

    #[test]
    fn test_modules_in_files_are_named() {
        assert_eq!(test_modules(&scan("#[cfg(test)]\nmod cases;\nmod real;")), ["cases"]);
    }
}
