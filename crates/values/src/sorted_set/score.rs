//! A score: a varint if it is a whole number, else a mark and the bits of the double.

use base::varint;

/// No whole number has this form: its lowest bit is 0.
const MARK: u8 = 1;
/// Whole numbers up to this magnitude are varints.
const WHOLE_MAX: u64 = 1 << 53;

pub(super) fn put(out: &mut Vec<u8>, score: f64) {
    match whole(score) {
        Some(number) => varint::put(out, zigzag(number) << 1),
        None => {
            out.push(MARK);
            out.extend_from_slice(&score.to_le_bytes());
        }
    }
}

pub(super) fn len(score: f64) -> usize {
    whole(score).map_or(1 + size_of::<f64>(), |number| varint::len(zigzag(number) << 1))
}

/// `None` when it is cut, NaN, or not in its one form.
pub(super) fn take(rest: &mut &[u8]) -> Option<f64> {
    if let [MARK, tail @ ..] = *rest {
        let (bits, tail) = tail.split_first_chunk()?;
        let score = f64::from_le_bytes(*bits);
        *rest = tail;
        return (!score.is_nan() && whole(score).is_none()).then_some(score);
    }
    let number = varint::take(rest)?;
    let whole = unzigzag(number >> 1);
    (number & 1 == 0 && whole.unsigned_abs() <= WHOLE_MAX).then_some(whole as f64)
}

/// The number whose varint stands for `score`.
fn whole(score: f64) -> Option<i64> {
    let number = score as i64;
    let is_whole =
        number.unsigned_abs() <= WHOLE_MAX && (number as f64).to_bits() == score.to_bits();
    is_whole.then_some(number)
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(score: f64) {
        let mut out = Vec::new();
        put(&mut out, score);
        assert_eq!(out.len(), len(score), "{score}");
        let mut rest = &out[..];
        assert_eq!(take(&mut rest).map(f64::to_bits), Some(score.to_bits()), "{score}");
        assert!(rest.is_empty());
    }

    #[test]
    fn scores_come_back() {
        let limit = WHOLE_MAX as f64;
        for score in [0.0, -0.0, 1.0, -1.0, 63.0, limit, -limit, limit * 2.0, 1e308, 0.5] {
            check(score);
        }
        check(f64::INFINITY);
        check(f64::NEG_INFINITY);
        assert_eq!((len(31.0), len(-32.0), len(32.0), len(limit), len(0.5)), (1, 1, 2, 8, 9));
    }

    proptest! {
        #[test]
        fn any_score_comes_back(bits: u64, number: i64) {
            check(number as f64);
            let score = f64::from_bits(bits);
            prop_assume!(!score.is_nan());
            check(score);
        }
    }
}
