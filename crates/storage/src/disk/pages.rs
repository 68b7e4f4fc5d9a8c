//! Memory of bucket pages that nothing needs any more, for those to come.
//!
//! Every page that goes home is a new one, and an old one leaves the cache for it, most often on another thread. To an
//! allocator, memory of that length is worth as much work as the page itself.

use crate::disk::place::PAGE;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// Pages that are kept.
const KEPT_MAX: usize = 256;

static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

fn kept() -> MutexGuard<'static, Vec<Vec<u8>>> {
    // A list of empty buffers: whole after a panic too.
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Empty memory for a page.
pub(super) fn take() -> Vec<u8> {
    let found = kept().pop();
    found.unwrap_or_else(|| Vec::with_capacity(PAGE))
}

/// A page whose memory is kept once nobody has it any more.
pub(super) fn lend(page: Vec<u8>) -> Bytes {
    Bytes::from_owner(Lent(page))
}

struct Lent(Vec<u8>);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut page = std::mem::take(&mut self.0);
        page.clear();
        let mut kept = kept();
        if kept.len() < KEPT_MAX && page.capacity() == PAGE {
            kept.push(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_as_it_was_made_while_others_come_and_go() {
        let pages: Vec<Bytes> = (0..2 * KEPT_MAX)
            .map(|i| {
                let mut page = take();
                assert!(page.is_empty());
                page.resize(PAGE, i as u8);
                lend(page)
            })
            .collect();
        let (some, others) = pages.split_at(KEPT_MAX);
        let some = some.to_vec();
        drop(others.to_vec());
        drop(pages);
        (0..KEPT_MAX).for_each(|_| drop(lend(vec![0xee; PAGE])));
        for (i, page) in some.iter().enumerate() {
            assert!(page.iter().all(|&byte| byte == i as u8));
        }
        drop(some);
        assert!(kept().len() <= KEPT_MAX);
    }
}
