//! Space that is given back to the file system: the free units of groups that hold little.
//!
//! Only groups with a map that is known to be right give: this process made it, or a survey has
//! seen all pages. An older map would cost at once every record in units that it calls free.

use super::map::WORDS;
use super::{Extents, Group, Map};
use crate::disk::device::Device;
use crate::disk::io::File;
use crate::disk::place::{GROUP_UNITS, PAGE_UNITS, UNIT};
/// Shorter runs are kept: they are soon used again, and a file in small pieces is slow to read and
/// to write.
const RUN_UNITS_MIN: u64 = 64;

impl Group {
    /// True if so much is free that some of it may go.
    fn is_roomy(&self) -> bool {
        let free = || (0..WORDS).map(|i| u64::from(self.word(i).count_zeros())).sum::<u64>();
        self.home.is_some() && !self.is_lost && free() * 2 > GROUP_UNITS
    }

    /// Runs of free pages that may hold something yet.
    fn surplus(&self) -> Vec<(u64, u64)> {
        let page = |of: u64, unit: u64| of >> (unit % 64) & ((1 << PAGE_UNITS) - 1);
        let is_free = |unit: u64| page(self.word((unit / 64) as usize), unit) == 0;
        let holds = |unit: u64| self.given.as_ref().is_none_or(|given| !given.has(unit));
        let (mut runs, mut unit) = (Vec::new(), 0);
        while unit < GROUP_UNITS {
            let pages = (unit..GROUP_UNITS).step_by(PAGE_UNITS as usize);
            let end = pages.take_while(|&unit| is_free(unit)).last().map(|unit| unit + PAGE_UNITS);
            let Some(end) = end else {
                unit += PAGE_UNITS;
                continue;
            };
            if end - unit >= RUN_UNITS_MIN && (unit..end).any(holds) {
                runs.push((unit, end - unit));
            }
            unit = end;
        }
        runs
    }
}

impl Extents {
    /// The surplus of a group is to be looked at.
    pub(super) fn note_free(&mut self, number: u64) {
        self.roomier.extend(self.kept.take());
        if self.groups[number as usize].is_sure {
            self.roomier.insert(number);
        }
    }

    /// Units have become free, or are known to be.
    pub(in crate::disk) fn call_surplus(&mut self) {
        self.is_surplus_due = true;
    }

    /// Gives back the surplus of one group: of all of them one after the other at rest, else of one
    /// now and then.
    pub(in crate::disk) fn step_surplus(&mut self, is_resting: bool, device: &mut Device) {
        let is_due = is_resting || self.is_surplus_due;
        if self.giving.is_some() || !is_due {
            return;
        }
        self.is_surplus_due = false;
        let runs = self.give();
        if !runs.is_empty() {
            let bytes = runs.iter().map(|&(unit, count)| (unit * UNIT, count * UNIT)).collect();
            self.giving = Some((device.discard(File::Extents, bytes), runs));
        }
    }

    /// A request is done; false if it is not the one that gives back.
    pub(in crate::disk) fn given(&mut self, io: u64) -> bool {
        let giving = self.giving.take_if(|(of, _)| *of == io);
        if let Some((_, runs)) = &giving {
            self.end_giving(runs);
        }
        giving.is_some()
    }

    /// Runs that one group gives back, held until [`Extents::end_giving`]. The first group with a
    /// surplus keeps it, for the next records.
    fn give(&mut self) -> Vec<(u64, u64)> {
        while let Some(number) = self.roomier.pop_last() {
            let (before, rest) = self.groups.split_at(number as usize);
            if !rest[0].is_roomy() {
                continue;
            }
            if !before.iter().any(Group::is_roomy) {
                // Those before it have no room until something becomes free.
                self.kept = Some(number);
                self.roomier.clear();
                break;
            }
            let runs = rest[0].surplus();
            let start = number * GROUP_UNITS;
            let runs: Vec<_> = runs.iter().map(|&(unit, count)| (start + unit, count)).collect();
            if !runs.is_empty() {
                runs.iter().for_each(|&(unit, count)| self.hold(unit, count));
                return runs;
            }
        }
        Vec::new()
    }

    /// These runs are free again, and empty.
    fn end_giving(&mut self, runs: &[(u64, u64)]) {
        for &(unit, count) in runs {
            let group = &mut self.groups[(unit / GROUP_UNITS) as usize];
            group.given.get_or_insert_with(Map::empty).set(unit % GROUP_UNITS, count, true);
            self.release(unit, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: u64 = 1_000;

    /// So many groups, full of runs; each with its first unit.
    fn full(groups: u64) -> (Extents, Vec<u64>) {
        let mut extents = Extents::new(0, true);
        let mut runs = Vec::new();
        while extents.groups() <= groups {
            runs.push(extents.allocate(RUN));
        }
        (extents, runs)
    }

    #[test]
    fn groups_that_hold_little_give_it_back_once_but_the_first() {
        let (mut extents, runs) = full(3);
        assert!(extents.give().is_empty(), "nothing is free");
        let of = |group: u64| runs.iter().filter(move |&&unit| unit / GROUP_UNITS == group);
        for &unit in of(1).skip(10) {
            extents.release(unit, RUN);
        }
        assert!(extents.give().is_empty(), "it is the only one that has room");
        for &unit in of(2).skip(2) {
            extents.release(unit, RUN);
        }
        let given = extents.give();
        let [(first, count)] = given[..] else { panic!("{given:?}") };
        let last = *of(2).nth(1).expect("there are more") + RUN;
        assert_eq!((first, first + count), (last.next_multiple_of(PAGE_UNITS), 3 * GROUP_UNITS));
        let long = extents.allocate(25 * RUN);
        assert_eq!(long / GROUP_UNITS, 3, "what is being given is not used meanwhile");
        extents.end_giving(&given);
        assert!(extents.give().is_empty(), "it holds nothing any more");
        assert_eq!(extents.allocate(25 * RUN), last, "it is used again");
        extents.release(last, 25 * RUN);
        assert_eq!(extents.give(), given, "some of it was used since");
    }

    #[test]
    fn what_is_freed_from_the_end_is_given_in_the_end() {
        let (mut extents, runs) = full(3);
        let mut given = 0;
        for group in (0..4).rev() {
            for &unit in runs.iter().filter(|&unit| unit / GROUP_UNITS == group) {
                extents.release(unit, RUN);
            }
            for _ in 0..4 {
                let runs = extents.give();
                given += runs.iter().map(|&(_, count)| count).sum::<u64>();
                extents.end_giving(&runs);
            }
            assert_eq!(extents.roomier.len(), 0, "what gives nothing is not looked at again");
        }
        assert_eq!(given, 3 * (GROUP_UNITS - PAGE_UNITS), "all but the first group");
    }

    #[test]
    fn a_map_that_may_be_old_gives_nothing() {
        let mut extents = Extents::new(2, true);
        for group in 0..2 {
            extents.learn(group, Some(Map::fresh()));
            extents.hold(group * GROUP_UNITS + 100, RUN);
            extents.release(group * GROUP_UNITS + 100, RUN);
        }
        assert!(extents.give().is_empty());
        extents.begin_survey(0);
        extents.survey.as_mut().expect("it has begun").is_looking = true;
        for group in 0..2 {
            assert_eq!(extents.correct(group, None), None, "the map was right");
        }
        assert_eq!(
            extents.give(),
            [(GROUP_UNITS + PAGE_UNITS, GROUP_UNITS - PAGE_UNITS)],
            "a survey has seen what they should say"
        );
    }

    #[test]
    fn a_map_that_has_learned_what_is_in_use_gives_the_rest() {
        let mut extents = Extents::new(2, true);
        (0..2).for_each(|group| extents.learn(group, Some(Map::fresh())));
        extents.begin_survey(0);
        let survey = extents.survey.as_mut().expect("it has begun");
        survey.is_looking = true;
        survey.note_used((GROUP_UNITS + PAGE_UNITS, RUN));
        assert_eq!((extents.correct(0, None), extents.correct(1, None)), (None, Some(true)));
        let rest = PAGE_UNITS + RUN;
        assert_eq!(extents.give(), [(GROUP_UNITS + rest, GROUP_UNITS - rest)]);
    }

    #[test]
    fn a_survey_that_missed_a_page_says_nothing_of_what_is_free() {
        let mut extents = Extents::new(2, true);
        (0..2).for_each(|group| extents.learn(group, Some(Map::fresh())));
        extents.begin_survey(0);
        let survey = extents.survey.as_mut().expect("it has begun");
        (survey.is_looking, survey.is_partial) = (true, true);
        assert_eq!((extents.correct(0, None), extents.correct(1, None)), (None, None));
        assert!(extents.give().is_empty());
    }

    #[test]
    fn short_runs_and_parts_of_pages_are_kept() {
        let mut group = Group::new(Some(Map::fresh()));
        let mut held = Map::full();
        held.set(102, RUN_UNITS_MIN + 3, false);
        held.set(1_000, RUN_UNITS_MIN - 1, false);
        group.held = Some(held);
        assert_eq!(group.surplus(), [(104, RUN_UNITS_MIN)]);
    }
}
