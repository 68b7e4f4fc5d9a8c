//! Patterns of `SORT`: the name of another key, made out of an element.

use types::limits::KEY_LEN_MAX;
use values::{Hash, Kind};

use crate::space::{Halt, Space};

const ARROW: &[u8] = b"->";

/// A pattern of `BY` or `GET`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pattern<'a> {
    /// `#`: the element itself.
    Element,
    /// A name without a star, which stands for no key.
    Constant,
    /// The element replaces the star of a key's name.
    Key { before: &'a [u8], after: &'a [u8], field: Option<&'a [u8]> },
}

impl<'a> Pattern<'a> {
    pub(super) fn parse(text: &'a [u8]) -> Pattern<'a> {
        if text == b"#" {
            return Pattern::Element;
        }
        let Some(star) = text.iter().position(|&byte| byte == b'*') else {
            return Pattern::Constant;
        };
        let (before, after) = (&text[..star], &text[star + 1..]);
        let arrow = after.windows(ARROW.len()).position(|word| word == ARROW);
        match arrow.map(|arrow| (&after[..arrow], &after[arrow + ARROW.len()..])) {
            Some((after, field @ [_, ..])) => Pattern::Key { before, after, field: Some(field) },
            _ => Pattern::Key { before, after, field: None },
        }
    }

    /// The key that stands for an element. A name that no key has is `None`.
    pub(super) fn key(&self, element: &[u8]) -> Option<Vec<u8>> {
        let Pattern::Key { before, after, .. } = self else { return None };
        let key = [before, element, after].concat();
        (key.len() <= KEY_LEN_MAX).then_some(key)
    }

    /// The string that stands for an element: the element, a string, or a field of a hash.
    ///
    /// # Errors
    /// [`Halt::Unloaded`] and [`Halt::TooLong`].
    pub(super) fn find<'s>(
        &self,
        element: &'s [u8],
        space: &'s Space,
    ) -> Result<Option<&'s [u8]>, Halt> {
        if *self == Pattern::Element {
            return Ok(Some(element));
        }
        let Some(key) = self.key(element) else { return Ok(None) };
        let Some(value) = space.context(&key)?.view.value else { return Ok(None) };
        space.charge(0)?;
        let Pattern::Key { field, .. } = self else { return Ok(None) };
        Ok(match (Kind::of(value), field) {
            (Ok(Kind::String), None) => values::string::decode(value).ok(),
            (Ok(Kind::Hash), Some(field)) => {
                let found = Hash::decode(value).ok().and_then(|hash| hash.get(field));
                found.map(|field| field.value)
            }
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_and_arrow_are_found() {
        let key = |before: &'static str, after: &'static str, field: Option<&'static str>| {
            let field = field.map(str::as_bytes);
            Pattern::Key { before: before.as_bytes(), after: after.as_bytes(), field }
        };
        for (text, pattern) in [
            ("#", Pattern::Element),
            ("##", Pattern::Constant),
            ("", Pattern::Constant),
            ("a->b", Pattern::Constant),
            ("*", key("", "", None)),
            ("a*b*", key("a", "b*", None)),
            ("a*b->f", key("a", "b", Some("f"))),
            ("a*->f->g", key("a", "", Some("f->g"))),
            ("a*->", key("a", "->", None)),
            ("a->b*c", key("a->b", "c", None)),
            ("*->*", key("", "", Some("*"))),
        ] {
            assert_eq!(Pattern::parse(text.as_bytes()), pattern, "{text}");
        }
    }
}
