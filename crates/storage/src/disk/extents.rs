//! Space for records and pages that no primary page has room for: runs of 1 KiB units in the
//! extents file.
//!
//! The file is cut into groups; each begins with a page that maps its units. A map says which units
//! the *pages* refer to. The same write-backs write maps and pages. Units that only the ring refers
//! to are held in memory and found again at a start. So after any crash a unit is referred to or
//! free. Maps are read when needed: records go to groups whose map is at hand, and a damaged map
//! costs the space of its group only.

mod map;
mod seen;
mod surplus;

use std::collections::BTreeSet;

use bytes::Bytes;

use super::io::{File, Write};
use super::survey::{Survey, Verdict};
use crate::disk::place::{GROUP_UNITS, PAGE_UNITS, UNIT};

pub(super) use map::Map;

/// The write of a content that begins at this unit.
pub(super) fn content_write(unit: u64, content: Bytes) -> Write {
    Write { file: File::Extents, offset: unit * UNIT, bytes: content }
}

/// First unit of damaged content, and its checksum as the reference has it. Another record may own
/// the units by now, so a survey gives them back, not the record.
pub(super) type Doubt = (u64, u64);

/// The same of a page, which its reference has no checksum of.
pub(super) const PAGE_DOUBTED: u64 = 0;

#[derive(Debug)]
struct Group {
    home: Option<Map>, // units that pages refer to; `None` until read
    held: Option<Map>, // units that only the ring or a write-back refers to
    is_dirty: bool,
    is_new: bool,       // no page refers to it, and its map was never written
    is_lost: bool,      // the map was damaged: no unit is allocated or freed here
    longest: u64,       // no free run is longer
    from: u64,          // where the next search starts, unless it always starts at the beginning
    is_sure: bool,      // no unit is in use that its maps call free
    given: Option<Map>, // units that the file system has taken back
}

impl Group {
    fn new(home: Option<Map>) -> Group {
        let is_new = false;
        Group {
            home,
            held: None,
            is_dirty: false,
            is_new,
            is_lost: false,
            longest: GROUP_UNITS,
            from: 0,
            is_sure: false,
            given: None,
        }
    }

    fn word(&self, i: usize) -> u64 {
        let of = |map: &Option<Map>| map.as_ref().map_or(0, |map| map.word(i));
        of(&self.home) | of(&self.held)
    }

    fn search(&mut self, count: u64, first_fit: bool) -> Option<u64> {
        if self.home.is_none() || self.is_lost || count > self.longest {
            return None;
        }
        let from = if first_fit { 0 } else { self.from };
        let found = self.free_run(from, count).or_else(|| self.free_run(0, count));
        match found {
            Some(first) => self.from = first + count,
            None => self.longest = count - 1,
        }
        found
    }

    /// The first run of `count` free units at or behind `from`.
    fn free_run(&self, from: u64, count: u64) -> Option<u64> {
        let (mut unit, mut run) = (from, 0);
        while unit < GROUP_UNITS {
            let word = self.word((unit / 64) as usize) >> (unit % 64);
            let left = 64 - unit % 64;
            let taken = u64::from(word.trailing_ones()).min(left);
            let free = u64::from(word.trailing_zeros()).min(left);
            if taken > 0 {
                run = 0;
                unit += taken;
                continue;
            }
            run += free;
            unit += free;
            if run >= count {
                return Some(unit - run);
            }
        }
        None
    }
}

/// The groups of the extents file and their free units.
#[derive(Debug)]
pub(super) struct Extents {
    groups: Vec<Group>,
    dirty: Vec<u64>,
    first_fit: bool,
    /// Units for which no group whose map is known had room, while others were unknown.
    sought: Option<u64>,
    survey: Option<Survey>,
    /// Where the next survey begins.
    survey_from: u64,
    /// Damaged content that pages refer to.
    doubtful: BTreeSet<Doubt>,
    /// Units that surveys have found without a reference, until their maps are in place.
    cleared: Vec<(u64, u64)>,
    /// Groups in which something became free since they were last looked at.
    roomier: BTreeSet<u64>,
    /// The first group with room when it was looked at; it keeps its room while it is the first.
    kept: Option<u64>,
    /// Pages may refer to groups that no superblock counts: added groups are not surely empty.
    may_go_on: bool,
    /// A group may be looked at for a surplus, though the store does not rest.
    is_surplus_due: bool,
    /// Runs that are being given back, and the request that does so.
    giving: Option<(u64, Vec<(u64, u64)>)>,
}

impl Extents {
    /// A file of so many groups, none of whose maps has been read.
    pub(super) fn new(groups: u64, first_fit: bool) -> Extents {
        let groups = (0..groups).map(|_| Group::new(None)).collect();
        Extents {
            groups,
            dirty: Vec::new(),
            first_fit,
            sought: None,
            survey: None,
            survey_from: 0,
            doubtful: BTreeSet::new(),
            cleared: Vec::new(),
            roomier: BTreeSet::new(),
            kept: None,
            may_go_on: false,
            is_surplus_due: false,
            giving: None,
        }
    }

    /// Pages may refer to groups behind the last one.
    pub(super) fn doubt_end(&mut self) {
        self.may_go_on = true;
    }

    /// Notes that a page refers to these units, as one did before, where their map does not say so:
    /// it is of a group that was taken for a new one.
    pub(super) fn keep_home(&mut self, unit: u64, count: u64) {
        let Some(group) = self.groups.get((unit / GROUP_UNITS) as usize) else { return };
        let first = unit % GROUP_UNITS;
        let has = |map: &Map| (first..first + count).all(|unit| map.has(unit));
        if group.home.as_ref().is_some_and(|map| !has(map)) {
            self.set_home(unit, count, true);
        }
    }

    pub(super) fn groups(&self) -> u64 {
        self.groups.len() as u64
    }

    /// The map as the next write-back writes it.
    pub(super) fn map(&self, group: u64) -> Option<&Map> {
        self.groups.get(group as usize)?.home.as_ref()
    }

    pub(super) fn is_known(&self, group: u64) -> bool {
        self.groups[group as usize].home.is_some()
    }

    /// The map was damaged where it stands, and was not in memory.
    pub(super) fn is_lost(&self, group: u64) -> bool {
        self.groups[group as usize].is_lost
    }

    /// There is one more group, with this map.
    pub(super) fn find(&mut self, map: Map) {
        self.groups.push(Group::new(Some(map)));
    }

    /// A page refers to this group: where the superblock does not count it, that is older than the
    /// page, and the map has to be read.
    pub(super) fn include(&mut self, group: u64) {
        while group >= self.groups() {
            base::sometimes!("disk: a page refers to a group that is not counted");
            self.groups.push(Group::new(None));
        }
    }

    /// Groups whose map has not been read, the newest first.
    pub(super) fn unknown(&self) -> impl Iterator<Item = u64> + '_ {
        let groups = self.groups.iter().enumerate().rev();
        groups.filter(|(_, group)| group.home.is_none()).map(|(number, _)| number as u64)
    }

    /// True if there may be room in a group whose map has not been read, and was none in others.
    pub(super) fn seeks_room(&mut self) -> bool {
        self.sought = self.sought.filter(|_| self.groups.iter().any(|group| group.home.is_none()));
        self.sought.is_some()
    }

    /// Takes a map that was read; a damaged one closes its group.
    pub(super) fn learn(&mut self, group: u64, map: Option<Map>) {
        let known = &mut self.groups[group as usize];
        if known.home.is_none() {
            known.is_lost = map.is_none();
            known.home = Some(map.unwrap_or_else(Map::full));
            known.longest = GROUP_UNITS;
            self.sought = self.sought.filter(|&count| known.search(count, true).is_none());
        }
    }

    /// Finds a run of free units and holds it; adds a group where there is none.
    pub(super) fn allocate(&mut self, count: u64) -> u64 {
        assert!(count <= GROUP_UNITS - PAGE_UNITS, "{count} units exceed a group");
        let first_fit = self.first_fit;
        let found = self.groups.iter_mut().enumerate().find_map(|(i, group)| {
            group.search(count, first_fit).map(|first| i as u64 * GROUP_UNITS + first)
        });
        let unit = found.unwrap_or_else(|| {
            self.sought = Some(count);
            self.add_group();
            let number = self.groups() - 1;
            self.groups[number as usize].is_sure = !self.may_go_on;
            number * GROUP_UNITS + PAGE_UNITS
        });
        self.hold(unit, count);
        unit
    }

    /// Finds a run of free units that a page refers to from now on.
    pub(super) fn allocate_home(&mut self, count: u64) -> u64 {
        let unit = self.allocate(count);
        self.set_home(unit, count, true);
        self.release(unit, count);
        unit
    }

    /// Keeps units from being allocated until they are released, whatever their map says.
    pub(super) fn hold(&mut self, unit: u64, count: u64) {
        while unit / GROUP_UNITS >= self.groups() {
            self.add_group();
        }
        let group = &mut self.groups[(unit / GROUP_UNITS) as usize];
        group.held.get_or_insert_with(Map::empty).set(unit % GROUP_UNITS, count, true);
        if let Some(given) = &mut group.given {
            given.set(unit % GROUP_UNITS, count, false);
        }
    }

    pub(super) fn release(&mut self, unit: u64, count: u64) {
        let number = unit / GROUP_UNITS;
        let group = &mut self.groups[number as usize];
        if let Some(held) = &mut group.held {
            held.set(unit % GROUP_UNITS, count, false);
        }
        group.longest = GROUP_UNITS;
        self.note_free(number);
    }

    /// Notes in the map that pages refer to these units, or no longer do.
    ///
    /// # Panics
    /// If the map has not been read: a write-back reads the maps that it needs first.
    pub(super) fn set_home(&mut self, unit: u64, count: u64, value: bool) {
        if let Some(survey) = &mut self.survey {
            survey.note_change((unit, count), value);
        }
        let number = unit / GROUP_UNITS;
        let group = &mut self.groups[number as usize];
        let map = group.home.as_mut().expect("a write-back has read the maps that it changes");
        if group.is_lost {
            return;
        }
        map.set(unit % GROUP_UNITS, count, value);
        group.is_new = false;
        if !group.is_dirty {
            group.is_dirty = true;
            self.dirty.push(number);
        }
    }

    /// A map was found damaged where it stands: it is written again if it is known, else its group
    /// is closed. False where that is not news.
    pub(super) fn renew(&mut self, number: u64) -> bool {
        let group = &self.groups[number as usize];
        let is_news = !group.is_dirty && !group.is_lost;
        self.learn(number, None);
        let group = &mut self.groups[number as usize];
        if is_news && !group.is_lost {
            group.is_dirty = true;
            self.dirty.push(number);
        }
        is_news
    }

    /// Begins a survey while this is the newest write-back, if none is under way.
    pub(super) fn begin_survey(&mut self, newest: u64) {
        let first = if self.survey_from < self.groups() { self.survey_from } else { 0 };
        self.survey.get_or_insert_with(|| Survey::new(first, newest));
    }

    /// All maps were judged by a survey that has looked at all pages.
    pub(super) fn end_survey(&mut self) {
        if let Some(survey) = self.survey.take_if(|survey| survey.is_looking)
            && !survey.is_partial
        {
            self.survey_from = survey.end();
        }
    }

    /// Puts a map right by the survey, given the map on the medium if that is whole. `None` if it
    /// was right, else whether it called units free that are in use.
    pub(super) fn correct(&mut self, number: u64, on_medium: Option<Map>) -> Option<bool> {
        if self.survey.as_ref()?.judges(number) && on_medium.is_some() {
            self.learn(number, on_medium);
        }
        let survey = self.survey.as_ref()?;
        let group = &mut self.groups[number as usize];
        let map = group.home.as_ref()?;
        let verdict = survey.judge(number, map);
        group.is_sure |= survey.knows_all_of(number);
        // The stand-in for a damaged map is right if all of the group is in use, but is not on the
        // medium.
        let is_right = group.is_lost && survey.knows_all_of(number);
        let stand_in = || is_right.then(|| Verdict { map: map.clone(), has_lacked: false });
        let Some(Verdict { map: right, has_lacked }) = verdict.or_else(stand_in) else {
            self.note_free(number);
            return None;
        };
        // The holders of some of it give that back.
        let held = group.held.clone().unwrap_or_else(Map::empty);
        let cleared = map.without(&right).without(&held).runs();
        group.home = Some(right);
        group.is_lost = false;
        group.is_new &= !has_lacked;
        (group.longest, group.from) = (GROUP_UNITS, 0);
        if !group.is_dirty {
            group.is_dirty = true;
            self.dirty.push(number);
        }
        self.note_free(number);
        // Until this map is in place, an older one may be, and pages that refer to cleared units.
        for (first, count) in cleared {
            let unit = number * GROUP_UNITS + first;
            self.hold(unit, count);
            self.cleared.push((unit, count));
        }
        Some(has_lacked)
    }

    /// The content of this reference is damaged.
    pub(super) fn doubt(&mut self, doubt: Doubt) {
        self.doubtful.insert(doubt);
    }

    /// True, once, for damaged content, which no page refers to any more.
    pub(super) fn was_doubtful(&mut self, doubt: Doubt) -> bool {
        self.doubtful.remove(&doubt)
    }

    /// Takes the units that are free once the maps that are written now are in place.
    pub(super) fn take_cleared(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.cleared)
    }

    /// Groups whose map differs from the medium.
    pub(super) fn dirty(&self) -> usize {
        self.dirty.len()
    }

    /// Groups whose map is to be written, and how many groups there are then: at most `most`,
    /// unless pages refer to more. Only the ring refers to units of the rest, and a start finds
    /// those there.
    pub(super) fn take_dirty(&mut self, most: usize) -> (Vec<u64>, u64) {
        self.dirty.sort_unstable();
        let in_use = self.groups.iter().rposition(|group| !group.is_new).map_or(0, |last| last + 1);
        let needed = self.dirty.partition_point(|&group| group < in_use as u64);
        let count = self.dirty.len().min(most.max(needed));
        let left = self.dirty.split_off(count);
        let taken = std::mem::replace(&mut self.dirty, left);
        for &group in &taken {
            let group = &mut self.groups[group as usize];
            (group.is_dirty, group.is_new) = (false, false);
        }
        (taken, self.dirty.first().copied().unwrap_or(self.groups()))
    }

    fn add_group(&mut self) {
        let number = self.groups();
        self.groups.push(Group::new(Some(Map::fresh())));
        // Its map must be on the medium before the superblock counts it.
        let group = &mut self.groups[number as usize];
        (group.is_dirty, group.is_new) = (true, true);
        self.dirty.push(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_never_overlap_and_freed_space_is_used_again() {
        use_space(false);
        use_space(true);
    }

    fn use_space(first_fit: bool) {
        let mut extents = Extents::new(0, first_fit);
        let mut prng = base::Prng::new(4);
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for _ in 0..3_000 {
            if runs.len() > 100 || (runs.len() > 20 && prng.chance(0.4)) {
                let (unit, count) = runs.swap_remove(prng.below(runs.len() as u64) as usize);
                extents.release(unit, count);
            } else {
                let count = prng.between(1, 600);
                let unit = extents.allocate(count);
                assert!(runs.iter().all(|&(u, c)| unit + count <= u || u + c <= unit));
                assert!(unit % GROUP_UNITS >= PAGE_UNITS, "the map itself is in use");
                runs.push((unit, count));
            }
        }
        assert!(extents.groups() <= 4, "{} groups for a bounded set of runs", extents.groups());
    }

    #[test]
    fn a_damaged_map_closes_its_group() {
        let mut extents = Extents::new(1, false);
        assert_eq!(extents.unknown().next(), Some(0));
        extents.learn(0, None);
        extents.set_home(9, 1, false);
        assert_eq!(extents.allocate(1) / GROUP_UNITS, 1);
    }
}
