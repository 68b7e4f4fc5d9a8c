//! Results that become sorted sets.

use bytes::Bytes;
use types::{Change, ExpiryChange, TimeToLive};
use values::sorted_set::{Builder, Element, Encoding};

use crate::space::{Halt, Space};

/// The sorted set of elements in any order. `None` if there are none.
///
/// `is_counted`: redis-server knows the number of elements before it adds them one by one. A score
/// stays as the encoding at that time keeps it.
pub(super) fn value_of(mut elements: Vec<Element<'_>>, is_counted: bool) -> Option<Bytes> {
    let mut encoding = Encoding::fitting(if is_counted { elements.len() } else { 0 }, 0);
    for (at, element) in elements.iter_mut().enumerate() {
        encoding = encoding.or(Encoding::fitting(at + 1, element.member.len()));
        element.score = encoding.keep(element.score);
    }
    build(encoding, elements)
}

/// [`value_of`] elements that redis-server puts in all at one time.
pub(super) fn value_of_all(mut elements: Vec<Element<'_>>) -> Option<Bytes> {
    let longest = elements.iter().map(|element| element.member.len()).max().unwrap_or(0);
    let encoding = Encoding::fitting(elements.len(), longest);
    for element in &mut elements {
        element.score = encoding.keep(element.score);
    }
    build(encoding, elements)
}

fn build(encoding: Encoding, mut elements: Vec<Element<'_>>) -> Option<Bytes> {
    elements.sort_unstable_by(Element::order);
    let mut builder = Builder::new(encoding);
    elements.iter().for_each(|element| builder.push(*element));
    (!elements.is_empty()).then(|| builder.finish())
}

/// Replaces a key, and its time to live. `None` removes the key.
///
/// # Errors
/// `value too large`.
pub(super) fn put(space: &mut Space, key: &[u8], value: Option<Bytes>) -> Result<(), Halt> {
    let cx = space.context(key)?;
    let change = match value {
        Some(value) => {
            cx.check_len(0, value.len() as u64)?;
            Change::Put { value, expiry: ExpiryChange::Set(TimeToLive::Never) }
        }
        None if cx.exists() => Change::Delete,
        None => Change::None,
    };
    space.change(key, change)
}
