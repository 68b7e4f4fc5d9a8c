//! Pages tell the survey which units they refer to.

use super::Extents;
use crate::disk::page::Bucket;
use crate::disk::place::{GROUP_UNITS, PAGE_UNITS};

impl Extents {
    /// The pages are looked at from the first one on: they count if all write-backs that had begun
    /// are in place.
    pub(in crate::disk) fn look_at_pages(&mut self, in_place: u64) {
        if let Some(survey) = &mut self.survey {
            survey.is_looking = survey.since <= in_place;
        }
    }

    fn is_looking(&self) -> bool {
        self.survey.as_ref().is_some_and(|survey| survey.is_looking)
    }

    /// A page that was looked at refers to these units.
    pub(in crate::disk) fn survey_run(&mut self, run: (u64, u64)) {
        if self.is_looking() {
            self.note_used([run]);
        }
    }

    /// A page could not be read: the survey does not know all units in use.
    pub(in crate::disk) fn survey_in_part(&mut self) {
        if let Some(survey) = &mut self.survey {
            survey.is_partial |= survey.is_looking;
        }
    }

    /// Takes the units that records of a bucket refer to.
    pub(in crate::disk) fn survey_records(&mut self, bucket: &Bucket) {
        if self.is_looking() {
            self.note_used(bucket.content_runs());
        }
    }

    /// Takes the units that a bucket in memory refers to; `if_looking` only if pages count already.
    pub(in crate::disk) fn survey_bucket(&mut self, bucket: &Bucket, if_looking: bool) {
        if self.survey.is_none() || (if_looking && !self.is_looking()) {
            return;
        }
        let overflow = bucket.overflow.iter().map(|&unit| (unit, PAGE_UNITS));
        let runs = overflow.chain(bucket.garbage.iter().copied()).chain(bucket.content_runs());
        self.note_used(runs);
    }

    fn note_used(&mut self, runs: impl IntoIterator<Item = (u64, u64)>) {
        for run in runs {
            // A superblock that does not count the group is older than the page.
            self.include(run.0 / GROUP_UNITS);
            if let Some(survey) = &mut self.survey {
                survey.note_used(run);
            }
        }
    }
}
