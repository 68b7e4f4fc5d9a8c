//! `cjson.decode`.

use mlua::{Error, Result, Value};

use super::{DEPTH_MAX, Settings};
use crate::arguments::Arguments;
use crate::number;

#[derive(Debug)]
enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    String(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

impl Token {
    fn name(&self) -> &'static str {
        match self {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::String(_) => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Boolean(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Error(text) => text,
        }
    }
}

struct Decoder<'a> {
    args: &'a Arguments<'a>,
    text: &'a [u8],
    settings: &'a Settings,
    at: usize,
    /// The beginning of the last token.
    began: usize,
    depth: i64,
}

pub(super) fn decode(args: &Arguments<'_>, text: &[u8], settings: &Settings) -> Result<Value> {
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err(args.error("JSON parser does not support UTF-16 or UTF-32"));
    }
    let mut decoder = Decoder { args, text, settings, at: 0, began: 0, depth: 0 };
    let token = decoder.next();
    let value = decoder.value(token)?;
    match decoder.next() {
        Token::End => Ok(value),
        token => Err(decoder.unexpected("the end", &token)),
    }
}

impl Decoder<'_> {
    /// The byte at a distance; null after the end.
    fn byte(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn unexpected(&self, expected: &str, token: &Token) -> Error {
        let text = format!(
            "Expected {expected} but found {} at character {}",
            token.name(),
            self.began + 1
        );
        self.args.error(text)
    }

    /// An error at the place that was reached.
    fn bad(&mut self, text: &'static str) -> Token {
        self.began = self.at;
        Token::Error(text)
    }

    fn next(&mut self) -> Token {
        while matches!(self.byte(0), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        self.began = self.at;
        let single = match self.byte(0) {
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b',' => Token::Comma,
            b':' => Token::Colon,
            0 => return Token::End,
            b'"' => return self.string(),
            b'-' | b'0'..=b'9' => {
                if !self.settings.decode_invalid && self.is_invalid_number() {
                    return self.bad("invalid number");
                }
                return self.number();
            }
            b'f' | b'i' | b'I' | b'n' | b'N' | b't' | b'+' => return self.word(),
            _ => return self.bad("invalid token"),
        };
        self.at += 1;
        single
    }

    fn word(&mut self) -> Token {
        for (word, token) in [
            (&b"true"[..], Token::Boolean(true)),
            (b"false", Token::Boolean(false)),
            (b"null", Token::Null),
        ] {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return token;
            }
        }
        if self.settings.decode_invalid && self.is_invalid_number() {
            return self.number();
        }
        self.bad("invalid token")
    }

    /// A number that C reads and JSON does not have.
    fn is_invalid_number(&self) -> bool {
        let sign = usize::from(self.byte(0) == b'-');
        let starts = |word: &[u8]| {
            self.text
                .get(self.at + sign..self.at + sign + word.len())
                .is_some_and(|it| it.eq_ignore_ascii_case(word))
        };
        match self.byte(sign) {
            _ if self.byte(0) == b'+' => true,
            b'0' => matches!(self.byte(sign + 1), b'x' | b'X' | b'0'..=b'9'),
            0..=b'9' => false,
            _ => starts(b"inf") || starts(b"nan"),
        }
    }

    fn number(&mut self) -> Token {
        match number::prefix(&self.text[self.at..]) {
            Some((value, len)) => {
                self.at += len;
                Token::Number(value)
            }
            None => self.bad("invalid number"),
        }
    }

    fn string(&mut self) -> Token {
        self.at += 1;
        let mut text = Vec::new();
        loop {
            match self.byte(0) {
                b'"' => break,
                0 => return self.bad("unexpected end of string"),
                b'\\' => {
                    let escaped = match self.byte(1) {
                        byte @ (b'"' | b'\\' | b'/') => byte,
                        b'b' => 8,
                        b't' => b'\t',
                        b'n' => b'\n',
                        b'f' => 12,
                        b'r' => b'\r',
                        b'u' => match self.unicode() {
                            Some((symbol, len)) => {
                                text.extend_from_slice(&symbol);
                                self.at += len;
                                continue;
                            }
                            None => return self.bad("invalid unicode escape code"),
                        },
                        _ => return self.bad("invalid escape code"),
                    };
                    text.push(escaped);
                    self.at += 2;
                }
                byte => {
                    text.push(byte);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        Token::String(text)
    }

    /// The bytes of `\uXXXX` or a pair of them, and the length of the escape.
    fn unicode(&self) -> Option<(Vec<u8>, usize)> {
        let first = self.hex(2)?;
        let (point, len) = match first {
            0xd800..0xdc00 => {
                if self.byte(6) != b'\\' || self.byte(7) != b'u' {
                    return None;
                }
                let second = self.hex(8).filter(|it| (0xdc00..0xe000).contains(it))?;
                (((first & 0x3ff) << 10 | second & 0x3ff) + 0x1_0000, 12)
            }
            0xdc00..0xe000 => return None,
            point => (point, 6),
        };
        let symbol = char::from_u32(point)?;
        Some((symbol.to_string().into_bytes(), len))
    }

    fn hex(&self, ahead: usize) -> Option<u32> {
        (0..4).try_fold(0, |value, at| {
            Some(value << 4 | char::from(self.byte(ahead + at)).to_digit(16)?)
        })
    }

    fn descend(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth <= self.settings.decode_depth.min(DEPTH_MAX) {
            return Ok(());
        }
        Err(self.args.error(format!(
            "Found too many nested data structures ({}) at character {}",
            self.depth, self.at
        )))
    }

    fn value(&mut self, token: Token) -> Result<Value> {
        match token {
            Token::String(text) => Ok(Value::String(self.args.lua.create_string(text)?)),
            Token::Number(value) => Ok(Value::Number(value)),
            Token::Boolean(value) => Ok(Value::Boolean(value)),
            Token::Null => Ok(Value::NULL),
            Token::ObjectBegin => self.object(),
            Token::ArrayBegin => self.array(),
            token => Err(self.unexpected("value", &token)),
        }
    }

    fn object(&mut self) -> Result<Value> {
        self.descend()?;
        let table = self.args.lua.create_table()?;
        let mut token = self.next();
        while !matches!(token, Token::ObjectEnd) {
            let Token::String(key) = token else {
                return Err(self.unexpected("object key string", &token));
            };
            match self.next() {
                Token::Colon => {}
                token => return Err(self.unexpected("colon", &token)),
            }
            let value = self.next();
            let value = self.value(value)?;
            table.raw_set(self.args.lua.create_string(key)?, value)?;
            token = match self.next() {
                Token::ObjectEnd => break,
                Token::Comma => self.next(),
                token => return Err(self.unexpected("comma or object end", &token)),
            };
            if matches!(token, Token::ObjectEnd) {
                return Err(self.unexpected("object key string", &token));
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }

    fn array(&mut self) -> Result<Value> {
        self.descend()?;
        let table = self.args.lua.create_table()?;
        let mut token = self.next();
        let mut index = 0;
        while !(index == 0 && matches!(token, Token::ArrayEnd)) {
            let value = self.value(token)?;
            index += 1;
            table.raw_set(index, value)?;
            token = match self.next() {
                Token::ArrayEnd => break,
                Token::Comma => self.next(),
                token => return Err(self.unexpected("comma or array end", &token)),
            };
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }
}
