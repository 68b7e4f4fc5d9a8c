//! The scrub's survey of what pages refer to; see [`crate::disk::survey`].

use super::Engine;
use crate::disk::extents::Map;
use crate::disk::page::Bucket;
use crate::disk::place::{GROUP_UNITS, PAGE_UNITS, map_place, units_for};

impl Engine {
    /// A pass begins.
    pub(super) fn begin_survey(&mut self) {
        self.extents.begin_survey(self.batch);
    }

    /// The first pages of a pass are looked at.
    pub(super) fn look_at_pages(&mut self) {
        let in_place = self.batch_in_place;
        if let Some(survey) = self.extents.survey() {
            survey.is_looking = survey.since <= in_place;
        }
    }

    /// True while what a page says counts: not in a pass whose pages may be older than a write-back that said nothing.
    fn is_looking(&mut self) -> bool {
        self.extents.survey().is_some_and(|survey| survey.is_looking)
    }

    /// A page that was looked at refers to these units.
    pub(super) fn survey_run(&mut self, run: (u64, u64)) {
        if self.is_looking() {
            self.note_used([run]);
        }
    }

    /// Some of what pages refer to is not known.
    pub(super) fn survey_in_part(&mut self) {
        if let Some(survey) = self.extents.survey() {
            survey.is_partial |= survey.is_looking;
        }
    }

    /// Takes what records of a bucket refer to that was looked at.
    pub(super) fn survey_records(&mut self, bucket: &Bucket) {
        if self.is_looking() {
            self.note_used(records(bucket));
        }
    }

    /// Takes what a bucket refers to that was looked at, from memory.
    pub(super) fn survey_known(&mut self, number: u64) {
        if !self.cache.has(number) {
            return self.survey_in_part();
        }
        if self.is_looking() {
            self.survey_bucket(number);
        }
    }

    /// Takes what a bucket in memory refers to, whether pages count already or will later.
    pub(super) fn survey_bucket(&mut self, number: u64) {
        if self.extents.survey().is_none() {
            return;
        }
        let bucket = self.cache.peek(number).expect("it is in memory");
        let overflow = bucket.overflow.iter().map(|&unit| (unit, PAGE_UNITS));
        let runs: Vec<_> = overflow.chain(bucket.garbage.iter().copied()).collect();
        let runs: Vec<_> = runs.into_iter().chain(records(bucket)).collect();
        self.note_used(runs);
    }

    fn note_used(&mut self, runs: impl IntoIterator<Item = (u64, u64)>) {
        for run in runs {
            // A superblock that does not count it is older than the page.
            self.extents.include(run.0 / GROUP_UNITS);
            if let Some(survey) = self.extents.survey() {
                survey.note_used(run);
            }
        }
    }

    /// All pages were looked at: the map of a group is put right, of which this stands on the medium if it is whole.
    pub(super) fn judge_map(&mut self, group: u64, on_medium: Option<Map>) {
        self.surplus.call();
        if self.extents.correct(group, on_medium) == Some(true) {
            base::sometimes!("disk: a map calls units free that are in use");
            self.scrub.note_damage();
            self.remark(map_place(group), "a space map called used space free; it is repaired");
        }
    }
}

/// What records of a bucket refer to.
fn records(bucket: &Bucket) -> Vec<(u64, u64)> {
    if !bucket.has_references() {
        return Vec::new();
    }
    let references = bucket.entries().filter_map(|entry| entry.reference());
    references.map(|it| (it.unit, units_for(it.content_len()))).collect()
}
