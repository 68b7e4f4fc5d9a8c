//! `WAIT`: every reply already means a majority, so it only tells how many other replicas that is.
//!
//! A quorum minus this node surely holds the connection's writes. Asked for more, it waits as long
//! as it was told and then answers the known number: no connection tracks which replicas have
//! caught up.

use base::Nanos;

/// A `WAIT` for more replicas than a majority.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub until: Nanos,
    pub known: i64,
}

/// Longest wait of a client that asked for no end.
pub(crate) const FOR_EVER: Nanos = Nanos::from_secs(3_600);
