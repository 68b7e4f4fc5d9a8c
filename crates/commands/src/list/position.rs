//! Indexes of elements: negative ones count from the tail.

use std::ops::Range;

/// The element at `index`, if there is one.
pub(super) fn index(index: i64, len: usize) -> Option<usize> {
    let index = if index < 0 { (len as i64).checked_add(index)? } else { index };
    usize::try_from(index).ok().filter(|&index| index < len)
}

/// The elements from `start` to `stop`, both included. It is empty if `start` is behind `stop`.
pub(super) fn range(start: i64, stop: i64, len: usize) -> Range<usize> {
    let len = len as i64;
    let from_head = |index: i64| if index < 0 { len.saturating_add(index) } else { index };
    let (start, stop) = (from_head(start).max(0), from_head(stop).min(len - 1));
    if start > stop { 0..0 } else { start as usize..stop as usize + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_count_from_both_ends() {
        for (from, found) in
            [(0, Some(0)), (2, Some(2)), (3, None), (-1, Some(2)), (-3, Some(0)), (-4, None)]
        {
            assert_eq!(index(from, 3), found, "{from}");
        }
        assert_eq!(index(i64::MIN, 3), None);
        assert_eq!(index(i64::MAX, 3), None);
    }

    #[test]
    fn ranges_end_with_the_list() {
        for (start, stop, found) in [
            (0, -1, 0..3),
            (1, 1, 1..2),
            (-2, 9, 1..3),
            (i64::MIN, i64::MAX, 0..3),
            (2, 1, 0..0),
            (3, 5, 0..0),
            (0, -4, 0..0),
            (i64::MAX, i64::MIN, 0..0),
        ] {
            assert_eq!(range(start, stop, 3), found, "{start} {stop}");
        }
    }
}
