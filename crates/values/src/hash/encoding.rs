//! The name that `OBJECT ENCODING` shows for a hash.

use super::Field;

/// Fields that a hash of the small encodings has at most (`hash-max-listpack-entries`, Redis 7).
pub(super) const SMALL_LEN_MAX: usize = 512;
/// Bytes of a name or value in a hash of the small encodings (`hash-max-listpack-value`).
pub(super) const SMALL_BLOB_LEN_MAX: usize = 64;

/// A hash grows from a small encoding into a table, and takes up ends. It never goes back. The
/// numbers are on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Encoding {
    ListPack = 1,
    Table = 2,
    ListPackEnds = 3,
    TableEnds = 4,
}

impl Encoding {
    pub(super) fn from_byte(byte: u8) -> Option<Encoding> {
        use Encoding::{ListPack, ListPackEnds, Table, TableEnds};
        let all = [ListPack, Table, ListPackEnds, TableEnds];
        all.into_iter().find(|encoding| *encoding as u8 == byte)
    }

    /// The reply of `OBJECT ENCODING` (Redis 7.4).
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Encoding::ListPack => "listpack",
            Encoding::ListPackEnds => "listpackex",
            Encoding::Table | Encoding::TableEnds => "hashtable",
        }
    }

    /// Fields may have ends.
    #[must_use]
    pub fn has_ends(self) -> bool {
        matches!(self, Encoding::ListPackEnds | Encoding::TableEnds)
    }

    /// Redis scans it in one step.
    #[must_use]
    pub fn is_small(self) -> bool {
        matches!(self, Encoding::ListPack | Encoding::ListPackEnds)
    }

    /// That of a hash which got these fields at once.
    pub(super) fn fitting(fields: &[Field<'_>], has_ends: bool) -> Encoding {
        let is_short =
            |field: &Field<'_>| field.name.len().max(field.value.len()) <= SMALL_BLOB_LEN_MAX;
        let is_small = fields.len() <= SMALL_LEN_MAX && fields.iter().all(is_short);
        let encoding = if is_small { Encoding::ListPack } else { Encoding::Table };
        if has_ends { encoding.with_ends() } else { encoding }
    }

    pub(super) fn with_ends(self) -> Encoding {
        if self.is_small() { Encoding::ListPackEnds } else { Encoding::TableEnds }
    }

    pub(super) fn as_table(self) -> Encoding {
        if self.has_ends() { Encoding::TableEnds } else { Encoding::Table }
    }
}
