//! The password of this node's clients. There is one user, `default`.

use std::sync::{PoisonError, RwLock};

/// A password that an operator may change while the node runs (`CONFIG SET requirepass`).
pub(crate) struct Password {
    /// `None` lets every client in.
    now: RwLock<Option<Vec<u8>>>,
    /// The node was started with one.
    was_configured: bool,
}

impl Password {
    pub(crate) fn new(configured: Option<Vec<u8>>) -> Password {
        Password { was_configured: configured.is_some(), now: RwLock::new(configured) }
    }

    pub(crate) fn get(&self) -> Option<Vec<u8>> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Clients that gave another one before stay in, as in redis-server.
    pub(crate) fn set(&self, password: Option<Vec<u8>>) {
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = password;
    }

    /// True where every client is let in.
    pub(crate) fn is_open(&self) -> bool {
        self.now.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// A node that was started with a password keeps one, unless it listens on loopback only.
    pub(crate) fn may_be_removed(&self, is_loopback: bool) -> bool {
        is_loopback || !self.was_configured
    }

    /// True when the pair opens this server.
    pub(crate) fn admits(&self, user: &[u8], password: &[u8]) -> bool {
        let now = self.now.read().unwrap_or_else(PoisonError::into_inner);
        let fits = now.as_ref().is_none_or(|right| is_equal(right, password));
        user == b"default" && fits
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

    #[test]
    fn configured_password_stays_beyond_loopback() {
        let configured = Password::new(Some(b"secret".to_vec()));
        assert!(configured.may_be_removed(true) && !configured.may_be_removed(false));
        assert!(Password::new(None).may_be_removed(false), "it was started insecure");
    }
}
