//! Who may do what: a password, or nobody to keep out.

use crate::front::Shared;

/// True when the pair opens this server. There is one user, `default`.
pub(crate) fn is_valid(shared: &Shared, user: &[u8], password: &[u8]) -> bool {
    match &shared.config.password {
        None => user == b"default",
        Some(right) => user == b"default" && is_equal(right, password),
    }
}

/// Takes as long for a wrong password as for the right one of that length.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_compared_whole() {
        assert!(is_equal(b"secret", b"secret"));
        assert!(!is_equal(b"secret", b"secreT"));
        assert!(!is_equal(b"secret", b"secre"));
    }
}
