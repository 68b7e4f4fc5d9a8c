//! Patterns of Lua 5.1, matched step by step so that a run can end in the middle: some patterns
//! take exponential time.

use std::cell::Cell;

use mlua::{Error, Lua, Result, Value};

use crate::current::Shared;
use crate::raise;

const CAPTURES_MAX: usize = 32;
/// Items that wait for the rest of a pattern. Each takes a part of the thread's stack.
const DEPTH_MAX: usize = 200;
/// Steps between two looks at the budget, and those that count as one instruction.
const STEPS: usize = 1_024;
const STEPS_PER_INSTRUCTION: usize = 4;
/// Items of a set, and compared bytes, that count as one step.
const ITEMS_PER_STEP: usize = 4;
const BYTES_PER_STEP: usize = 16;

#[derive(Clone, Copy)]
enum Len {
    Open,
    /// The capture is its own position.
    Position,
    Bytes(usize),
}

/// A search of a pattern in a text.
pub(crate) struct Matcher<'a> {
    lua: &'a Lua,
    current: &'a Shared,
    pub(crate) text: &'a [u8],
    pattern: &'a [u8],
    captures: Vec<(usize, Len)>,
    depth: usize,
    steps: Cell<usize>,
}

impl<'a> Matcher<'a> {
    pub(crate) fn new(
        lua: &'a Lua,
        current: &'a Shared,
        text: &'a [u8],
        pattern: &'a [u8],
    ) -> Matcher<'a> {
        // A pattern ends at a null, as strings of C do.
        let end = pattern.iter().position(|&byte| byte == 0).unwrap_or(pattern.len());
        let (pattern, captures) = (&pattern[..end], Vec::new());
        Matcher { lua, current, text, pattern, captures, depth: 0, steps: Cell::new(0) }
    }

    /// The pattern matches at the beginning only.
    pub(crate) fn takes_anchor(&mut self) -> bool {
        let rest = self.pattern.strip_prefix(b"^");
        self.pattern = rest.unwrap_or(self.pattern);
        rest.is_some()
    }

    /// The first match at `from` or later, with its end.
    pub(crate) fn search(
        &mut self,
        from: usize,
        is_anchored: bool,
    ) -> Result<Option<(usize, usize)>> {
        for start in from..=self.text.len() {
            self.captures.clear();
            if let Some(end) = self.matches(start, 0)? {
                return Ok(Some((start, end)));
            }
            if is_anchored {
                break;
            }
        }
        Ok(None)
    }

    /// All captures of a match; the whole match without any.
    pub(crate) fn values(&self, start: usize, end: usize) -> Result<Vec<Value>> {
        (0..self.captures.len().max(1)).map(|index| self.value(index, start, end)).collect()
    }

    pub(crate) fn has_captures(&self) -> bool {
        !self.captures.is_empty()
    }

    pub(crate) fn value(&self, index: usize, start: usize, end: usize) -> Result<Value> {
        let bytes = match self.captures.get(index) {
            None if index == 0 => &self.text[start..end],
            None => return Err(self.fail("invalid capture index")),
            Some((_, Len::Open)) => return Err(self.fail("unfinished capture")),
            Some((at, Len::Position)) => return Ok(Value::Number((at + 1) as f64)),
            Some((at, Len::Bytes(len))) => &self.text[*at..at + len],
        };
        Ok(Value::String(self.lua.create_string(bytes)?))
    }

    fn fail(&self, text: &str) -> Error {
        raise::text(self.lua, text)
    }

    fn step(&mut self) -> Result<()> {
        self.count(1);
        let steps = self.steps.get();
        if steps < STEPS {
            return Ok(());
        }
        self.steps.set(0);
        let is_over = self.current.borrow_mut().spend((steps / STEPS_PER_INSTRUCTION) as u64);
        if is_over { Err(raise::halt()) } else { Ok(()) }
    }

    /// Counts steps without a look: the next step has it.
    fn count(&self, steps: usize) {
        self.steps.set(self.steps.get() + steps);
    }

    fn item(&self, at: usize) -> Option<u8> {
        self.pattern.get(at).copied()
    }

    /// Matches the rest of the pattern after an item that has alternatives.
    fn rest(&mut self, text: usize, pattern: usize) -> Result<Option<usize>> {
        if self.depth >= DEPTH_MAX {
            return Err(self.fail("pattern too complex"));
        }
        self.depth += 1;
        let matched = self.matches(text, pattern);
        self.depth -= 1;
        matched
    }

    /// Matches the pattern from `pattern` on at `text`; the end of the match.
    fn matches(&mut self, mut text: usize, mut pattern: usize) -> Result<Option<usize>> {
        loop {
            self.step()?;
            match (self.item(pattern), self.item(pattern + 1)) {
                (None, _) => return Ok(Some(text)),
                (Some(b'('), Some(b')')) => return self.open(text, pattern + 2, Len::Position),
                (Some(b'('), _) => return self.open(text, pattern + 1, Len::Open),
                (Some(b')'), _) => return self.close(text, pattern + 1),
                (Some(b'%'), Some(b'b')) => match self.balanced(text, pattern + 2)? {
                    Some(end) => (text, pattern) = (end, pattern + 4),
                    None => return Ok(None),
                },
                (Some(b'%'), Some(b'f')) => {
                    pattern += 2;
                    if self.item(pattern) != Some(b'[') {
                        return Err(self.fail("missing '[' after '%f' in pattern"));
                    }
                    let end = self.item_end(pattern)?;
                    let before = text.checked_sub(1).map_or(0, |at| self.text[at]);
                    let now = self.text.get(text).copied().unwrap_or(0);
                    let is_in = |byte| self.is_in_set(byte, pattern, end - 1);
                    if is_in(before) || !is_in(now) {
                        return Ok(None);
                    }
                    pattern = end;
                }
                (Some(b'%'), Some(digit @ b'0'..=b'9')) => match self.repeated(text, digit)? {
                    Some(end) => (text, pattern) = (end, pattern + 2),
                    None => return Ok(None),
                },
                (Some(b'$'), None) => return Ok((text == self.text.len()).then_some(text)),
                _ => {
                    let end = self.item_end(pattern)?;
                    let is_match = self.is_single(text, pattern, end);
                    match self.item(end) {
                        Some(b'?') => {
                            if is_match && let Some(end) = self.rest(text + 1, end + 1)? {
                                return Ok(Some(end));
                            }
                            pattern = end + 1;
                        }
                        Some(b'*') => return self.longest(text, pattern, end),
                        Some(b'+') if is_match => return self.longest(text + 1, pattern, end),
                        Some(b'+') => return Ok(None),
                        Some(b'-') => return self.shortest(text, pattern, end),
                        _ if is_match => (text, pattern) = (text + 1, end),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    fn longest(&mut self, text: usize, pattern: usize, end: usize) -> Result<Option<usize>> {
        let mut count = 0;
        while self.is_single(text + count, pattern, end) {
            self.step()?;
            count += 1;
        }
        for count in (0..=count).rev() {
            if let Some(end) = self.rest(text + count, end + 1)? {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    fn shortest(&mut self, mut text: usize, pattern: usize, end: usize) -> Result<Option<usize>> {
        loop {
            if let Some(end) = self.rest(text, end + 1)? {
                return Ok(Some(end));
            }
            if !self.is_single(text, pattern, end) {
                return Ok(None);
            }
            text += 1;
        }
    }

    fn open(&mut self, text: usize, pattern: usize, len: Len) -> Result<Option<usize>> {
        if self.captures.len() >= CAPTURES_MAX {
            return Err(self.fail("too many captures"));
        }
        let level = self.captures.len();
        self.captures.push((text, len));
        let matched = self.rest(text, pattern)?;
        if matched.is_none() {
            self.captures.truncate(level);
        }
        Ok(matched)
    }

    fn close(&mut self, text: usize, pattern: usize) -> Result<Option<usize>> {
        let is_open = |(_, len): &(usize, Len)| matches!(len, Len::Open);
        let Some(index) = self.captures.iter().rposition(is_open) else {
            return Err(self.fail("invalid pattern capture"));
        };
        let start = self.captures[index].0;
        self.captures[index].1 = Len::Bytes(text - start);
        let matched = self.rest(text, pattern)?;
        if matched.is_none()
            && let Some(capture) = self.captures.get_mut(index)
        {
            capture.1 = Len::Open;
        }
        Ok(matched)
    }

    /// `%1`: the text of the capture, once more.
    fn repeated(&self, text: usize, digit: u8) -> Result<Option<usize>> {
        let index = usize::from(digit).checked_sub(usize::from(b'1'));
        let capture = index.and_then(|index| self.captures.get(index));
        let len = match capture {
            Some((_, Len::Bytes(len))) => *len,
            Some((_, Len::Position)) => return Ok(None),
            _ => return Err(self.fail("invalid capture index")),
        };
        let at = capture.map_or(0, |(at, _)| *at);
        self.count(len / BYTES_PER_STEP);
        let is_same = self.text[text..].starts_with(&self.text[at..at + len]);
        Ok(is_same.then_some(text + len))
    }

    /// `%bxy`.
    fn balanced(&mut self, text: usize, pattern: usize) -> Result<Option<usize>> {
        let (Some(opens), Some(closes)) = (self.item(pattern), self.item(pattern + 1)) else {
            return Err(self.fail("unbalanced pattern"));
        };
        if self.text.get(text) != Some(&opens) {
            return Ok(None);
        }
        let mut depth = 1;
        for at in text + 1..self.text.len() {
            self.step()?;
            let byte = self.text[at];
            if byte == closes {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(at + 1));
                }
            } else if byte == opens {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// The end of the item that begins at `start`, without its suffix.
    fn item_end(&self, start: usize) -> Result<usize> {
        let mut at = start + 1;
        match self.pattern[at - 1] {
            b'%' if at >= self.pattern.len() => Err(self.fail("malformed pattern (ends with '%')")),
            b'%' => Ok(at + 1),
            b'[' => {
                if self.item(at) == Some(b'^') {
                    at += 1;
                }
                loop {
                    match self.item(at) {
                        None => return Err(self.fail("malformed pattern (missing ']')")),
                        Some(b'%') if self.item(at + 1).is_some() => at += 2,
                        Some(_) => at += 1,
                    }
                    if self.item(at) == Some(b']') {
                        self.count((at - start) / ITEMS_PER_STEP);
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(at),
        }
    }

    fn is_single(&self, text: usize, pattern: usize, end: usize) -> bool {
        let Some(&byte) = self.text.get(text) else { return false };
        match self.pattern[pattern] {
            b'.' => true,
            b'%' => is_of_class(byte, self.pattern[pattern + 1]),
            b'[' => self.is_in_set(byte, pattern, end - 1),
            other => other == byte,
        }
    }

    /// The set lies from its bracket at `start` up to that at `end`.
    fn is_in_set(&self, byte: u8, start: usize, end: usize) -> bool {
        let is_negated = self.item(start + 1) == Some(b'^');
        let mut at = start + 1 + usize::from(is_negated);
        while at < end {
            let item = self.pattern[at];
            let is_found = if item == b'%' {
                at += 1;
                self.item(at).is_some_and(|class| is_of_class(byte, class))
            } else if self.item(at + 1) == Some(b'-') && at + 2 < end {
                at += 2;
                (item..=self.pattern[at]).contains(&byte)
            } else {
                item == byte
            };
            if is_found {
                self.count((at - start) / ITEMS_PER_STEP);
                return !is_negated;
            }
            at += 1;
        }
        self.count((at - start) / ITEMS_PER_STEP);
        is_negated
    }
}

/// `%a` and its like. A capital letter is the opposite.
fn is_of_class(byte: u8, class: u8) -> bool {
    let is_of = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is_of != class.is_ascii_uppercase()
}
