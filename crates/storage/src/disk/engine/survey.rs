//! The scrub's survey of what pages refer to; see [`crate::disk::survey`].

use super::Engine;
use crate::disk::extents::{Map, PAGE_UNITS, map_place, units_for};
use crate::disk::page::Bucket;

impl Engine {
    /// A pass begins. What the ring holds keeps its units only once the ring has been read.
    pub(super) fn begin_survey(&mut self) {
        if self.unread.is_none() && self.lost_ring.is_none() {
            self.extents.begin_survey(self.batch);
        }
    }

    /// The first pages of a pass are looked at.
    pub(super) fn look_at_pages(&mut self) {
        let in_place = self.batch_in_place;
        if let Some(survey) = self.extents.survey() {
            survey.is_looking = survey.since <= in_place;
        }
    }

    /// A page refers to these units.
    pub(super) fn survey_run(&mut self, run: (u64, u64)) {
        if let Some(survey) = self.extents.survey() {
            survey.note_used(run);
        }
    }

    /// Some of what pages refer to is not known.
    pub(super) fn survey_in_part(&mut self) {
        if let Some(survey) = self.extents.survey() {
            survey.is_partial = true;
        }
    }

    /// Takes what records of a bucket refer to.
    pub(super) fn survey_records(&mut self, bucket: &Bucket) {
        let Some(survey) = self.extents.survey().filter(|_| bucket.has_references()) else {
            return;
        };
        for reference in bucket.entries().filter_map(|entry| entry.reference()) {
            survey.note_used((reference.unit, units_for(reference.content_len())));
        }
    }

    /// Takes what a bucket refers to that was looked at, from memory.
    pub(super) fn survey_known(&mut self, number: u64) {
        let Some(survey) = self.extents.survey() else { return };
        let Some(bucket) = self.cache.peek(number) else {
            survey.is_partial = true;
            return;
        };
        let overflow = bucket.overflow.iter().map(|&unit| (unit, PAGE_UNITS));
        let runs = overflow.chain(bucket.garbage.iter().copied());
        runs.for_each(|run| survey.note_used(run));
        let references = bucket.entries().filter_map(|entry| entry.reference());
        let runs = references.map(|it| (it.unit, units_for(it.content_len())));
        runs.for_each(|run| survey.note_used(run));
    }

    /// All pages were looked at: the map of a group is put right, of which this stands on the medium if it is whole.
    pub(super) fn judge_map(&mut self, group: u64, on_medium: Option<Map>) {
        self.surplus.call();
        let Some(has_lacked) = self.extents.correct(group, on_medium) else { return };
        self.scrub.is_torn = true;
        if has_lacked {
            base::sometimes!("disk: a map calls units free that are in use");
            self.scrub.note_damage();
            self.remark(map_place(group), "the map of a group called units free that are in use");
        }
    }
}
