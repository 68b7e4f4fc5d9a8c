//! A survey learns from the scrub which units pages refer to: the maps are held against that.
//!
//! A map may have gone back, and call units free that are in use. It may have been damaged, which
//! closes its group. Units of a damaged page or record stay marked for good. A survey finds out,
//! some groups at a time.
//!
//! The argument. Pages are looked at one after the other while write-backs go on. A page refers in
//! the end to units of the time when it was looked at, or to units that a write-back has given it
//! since. Those write-backs report here. Write-backs that had begun before the survey are in place
//! before the first page is looked at. Units that a write-back took from a page meanwhile may be
//! held until it is in place, or belong to another page: they are left to the next survey.

use std::collections::BTreeMap;

use super::extents::Map;
use crate::disk::place::GROUP_UNITS;

/// Groups of one survey, at most: its memory of each takes two pages.
const GROUPS_AT_ONCE: u64 = 256;

/// The units that were seen in some groups.
#[derive(Debug)]
pub(super) struct Survey {
    first: u64,
    groups: BTreeMap<u64, Seen>,
    /// Write-backs up to this one must be in place before pages are looked at.
    pub(super) since: u64,
    /// Pages are being looked at, from the first one on.
    pub(super) is_looking: bool,
    /// Some page could not be read: unused units are not known.
    pub(super) is_partial: bool,
}

/// The units that were seen in a group.
#[derive(Debug)]
struct Seen {
    used: Map,
    /// No page was given it after it was taken from one.
    freed: Map,
}

/// The right map, and how it differs.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) map: Map,
    /// It called units free that are in use.
    pub(super) has_lacked: bool,
}

impl Survey {
    /// Of the groups from this one on, while this is the newest write-back.
    pub(super) fn new(first: u64, newest: u64) -> Survey {
        Survey {
            first,
            groups: BTreeMap::new(),
            since: newest,
            is_looking: false,
            is_partial: false,
        }
    }

    /// The first group behind those of this survey.
    pub(super) fn end(&self) -> u64 {
        self.first + GROUPS_AT_ONCE
    }

    fn seen(&mut self, unit: u64) -> Option<&mut Seen> {
        let group = unit / GROUP_UNITS;
        let is_of_it = (self.first..self.end()).contains(&group);
        let fresh = || Seen { used: Map::fresh(), freed: Map::empty() };
        is_of_it.then(|| self.groups.entry(group).or_insert_with(fresh))
    }

    /// A page that was looked at refers to these units.
    pub(super) fn note_used(&mut self, (unit, count): (u64, u64)) {
        let first = unit % GROUP_UNITS;
        if first + count > GROUP_UNITS {
            return;
        }
        if let Some(seen) = self.seen(unit) {
            seen.used.set(first, count, true);
        }
    }

    /// A write-back makes a page refer to these units, or no longer do so.
    pub(super) fn note_change(&mut self, (unit, count): (u64, u64), is_used: bool) {
        let first = unit % GROUP_UNITS;
        if let Some(seen) = self.seen(unit) {
            if is_used {
                seen.used.set(first, count, true);
            }
            seen.freed.set(first, count, !is_used);
        }
    }

    /// True for its groups once all pages were looked at.
    pub(super) fn judges(&self, group: u64) -> bool {
        self.is_looking && (self.first..self.end()).contains(&group)
    }

    /// True once all pages were looked at for their references to this group.
    pub(super) fn knows_all_of(&self, group: u64) -> bool {
        self.judges(group) && !self.is_partial
    }

    /// Judges the map of a group once all pages were looked at; `None` if it is right, or cannot be
    /// judged.
    pub(super) fn judge(&self, group: u64, map: &Map) -> Option<Verdict> {
        if !self.judges(group) {
            return None;
        }
        let (fresh, empty) = (Map::fresh(), Map::empty());
        let seen = self.groups.get(&group);
        let (used, freed) = seen.map_or((&fresh, &empty), |seen| (&seen.used, &seen.freed));
        let lacking = used.without(freed).without(map);
        let kept = if self.is_partial { map.clone() } else { map.within(&used.with(freed)) };
        let right = kept.with(&lacking);
        let has_lacked = lacking != empty;
        (right != *map).then_some(Verdict { map: right, has_lacked })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(runs: &[(u64, u64)]) -> Map {
        let mut map = Map::fresh();
        runs.iter().for_each(|&(first, count)| map.set(first, count, true));
        map
    }

    fn survey() -> Survey {
        let mut survey = Survey::new(0, 7);
        survey.is_looking = true;
        survey.note_used((10, 5));
        survey.note_used((100, 1));
        survey.note_change((20, 5), true);
        survey
    }

    fn right(survey: &Survey, runs: &[(u64, u64)]) -> Option<(Map, bool)> {
        survey.judge(0, &map(runs)).map(|verdict| (verdict.map, verdict.has_lacked))
    }

    const USED: &[(u64, u64)] = &[(10, 5), (20, 5), (100, 1)];

    #[test]
    fn a_map_that_lacks_units_gets_them_and_one_that_has_too_many_loses_them() {
        let survey = survey();
        assert_eq!(right(&survey, USED), None);
        assert_eq!(right(&survey, &USED[1..]), Some((map(USED), true)));
        assert_eq!(right(&survey, &[USED, &[(200, 9)]].concat()), Some((map(USED), false)));
        let full = Map::full();
        assert_eq!(survey.judge(0, &full).map(|it| it.map), Some(map(USED)));
        let other = survey.judge(3, &map(USED)).map(|it| it.map);
        assert_eq!(other, Some(Map::fresh()), "nobody refers to that group");
        assert!(survey.judge(survey.end(), &map(USED)).is_none(), "of that nothing is known");
    }

    #[test]
    fn what_a_write_back_took_meanwhile_is_left_as_it_is() {
        let mut survey = survey();
        survey.note_change((10, 5), false);
        assert_eq!(right(&survey, USED), None);
        assert_eq!(right(&survey, &USED[1..]), None);
        survey.note_change((12, 1), true);
        assert_eq!(
            right(&survey, &USED[1..]),
            Some((map(&[&USED[1..], &[(12, 1)]].concat()), true))
        );
    }

    #[test]
    fn where_a_page_could_not_be_read_nothing_is_taken() {
        let mut survey = survey();
        survey.is_partial = true;
        assert_eq!(right(&survey, &[USED, &[(200, 9)]].concat()), None);
        let more = [USED, &[(200, 9)]].concat();
        assert_eq!(right(&survey, &more[1..]), Some((map(&more), true)));
    }

    #[test]
    fn nothing_is_judged_before_pages_were_looked_at() {
        let mut survey = survey();
        survey.is_looking = false;
        assert_eq!(right(&survey, &[]), None);
    }
}
