//! Which hashes a ring may have entries of before it has been read, and where.

use super::digest::{Digest, Names};
use super::recovery::Found;

/// Digests in the order of their positions, and the hashes of the stripes behind the last of them.
#[derive(Debug)]
pub(super) struct Named {
    digests: Vec<Digest>,
    last: Vec<Names>,
}

impl Named {
    pub(super) fn new(digests: Vec<Digest>, last: &[Found]) -> Named {
        let hashes = last.iter().flat_map(|found| &found.said.hashes);
        Named { digests, last: Names::of_all(hashes.copied()) }
    }

    /// True of all that the ring has, and of some more.
    pub(super) fn may_have(&self, hash: u64) -> bool {
        self.may_be_last(hash) || self.digests.iter().any(|digest| digest.names.have(hash))
    }

    /// The same of the stripes that no digest speaks of.
    pub(super) fn may_be_last(&self, hash: u64) -> bool {
        self.last.iter().any(|names| names.have(hash))
    }

    /// Where entries may be that are not in the last stripes, in order: position and the one behind the end.
    pub(super) fn parts(&self, hash: u64) -> impl Iterator<Item = (u64, u64)> {
        let named = self.digests.iter().filter(move |digest| digest.names.have(hash));
        named.map(|digest| (digest.first, digest.end))
    }

    /// True unless one of these stripes has a hash that is not named where the stripe is.
    pub(super) fn name_all(&self, stripes: &[Found]) -> bool {
        stripes.iter().all(|Found { position, said, .. }| {
            let before = self.digests.partition_point(|digest| digest.end <= *position);
            let mut hashes = said.hashes.iter();
            match self.digests.get(before) {
                Some(digest) => hashes.all(|&hash| digest.names.have(hash)),
                None => hashes.all(|&hash| self.may_be_last(hash)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::metas::Metas;
    use super::super::staged::Said;
    use super::*;

    fn digest(first: u64, end: u64, hashes: &[u64]) -> Digest {
        let names = Names::of_all(hashes.iter().copied()).remove(0);
        Digest { first, end, marks_end: 0, metas: Metas::default(), names }
    }

    fn found(position: u64, hashes: &[u64]) -> Found {
        let said = Said { hashes: hashes.to_vec(), ..Said::default() };
        Found { position, payload: Bytes::new(), said }
    }

    fn hash(number: u64) -> u64 {
        number << 40
    }

    #[test]
    fn stripes_are_looked_for_where_they_are() {
        // The second digest begins again where a start found the first stripe behind the first one.
        let digests =
            vec![digest(100, 120, &[hash(1), hash(2)]), digest(110, 140, &[hash(2), hash(3)])];
        let named = Named::new(digests, &[found(140, &[hash(4)])]);
        let all = [
            found(105, &[hash(1), hash(2)]),
            found(119, &[hash(2)]),
            found(120, &[hash(2), hash(3)]),
            found(139, &[]),
            found(140, &[hash(4)]),
        ];
        assert!(named.name_all(&all));
        for (position, number) in [(119, 3), (120, 1), (139, 4), (140, 3), (150, 5)] {
            assert!(!named.name_all(&[found(position, &[hash(number)])]), "{number} at {position}");
        }
        let may_have: Vec<u64> = (0..6).filter(|&number| named.may_have(hash(number))).collect();
        assert_eq!(may_have, [1, 2, 3, 4]);
        assert!(named.may_be_last(hash(4)) && !named.may_be_last(hash(3)));
        assert_eq!(named.parts(hash(2)).collect::<Vec<_>>(), [(100, 120), (110, 140)]);
        assert_eq!(named.parts(hash(4)).count(), 0);
    }
}
