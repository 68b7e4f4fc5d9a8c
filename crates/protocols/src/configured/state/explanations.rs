//! Explanations in progress.

use std::collections::BTreeMap;

use crate::explaining::Explaining;

#[derive(Debug, Default)]
pub(crate) struct Explanations {
    pub(crate) in_progress: BTreeMap<u64, Explaining>,
}

impl Explanations {
    pub(crate) fn is_empty(&self) -> bool {
        self.in_progress.is_empty()
    }
}
