//! The calls that may make a mark.
//!
//! Calls are named by their index in `Prepared::required`, then `Prepared::optional`.

use hashbrown::HashMap;

use crate::model::{MarksAfter, Model};
use crate::prepared::{Prepared, PreparedCall};

pub(crate) struct Makers<'p, 'a, M: Model> {
    model: &'p M,
    pub(crate) calls: Vec<&'p PreparedCall<'a, M>>,
    // Calls that may make this mark and few others; calls to ask.
    only: HashMap<&'p M::Mark, Vec<usize>>,
    several: Vec<usize>,
}

impl<'p, 'a, M: Model> Makers<'p, 'a, M> {
    pub(crate) fn new(model: &'p M, prepared: &'p Prepared<'a, M>) -> Self {
        let calls: Vec<&PreparedCall<'a, M>> =
            prepared.required.iter().chain(&prepared.optional).collect();
        let (mut only, mut several) = (HashMap::<_, Vec<usize>>::new(), Vec::new());
        for (at, call) in calls.iter().enumerate() {
            match &call.makes {
                MarksAfter::Only(marks) => {
                    marks.iter().for_each(|mark| only.entry(mark).or_default().push(at));
                }
                MarksAfter::Several => several.push(at),
            }
        }
        Makers { model, calls, only, several }
    }

    /// The calls that may make `mark`.
    pub(crate) fn of(&self, mark: &M::Mark) -> impl Iterator<Item = usize> {
        // Some call must also make the marks that this call needs.
        self.named(mark).filter(|maker| {
            self.needed_to_make(*maker, mark).is_none_or(|needed| {
                self.is_initial(*maker, &needed) || self.named(&needed).any(|other| other != *maker)
            })
        })
    }

    fn named(&self, mark: &M::Mark) -> impl Iterator<Item = usize> {
        let only = self.only.get(mark).into_iter().flatten();
        let several = self.several.iter().filter(|at| {
            let call = self.calls[**at];
            self.model.may_make(call.input, call.output, mark)
        });
        only.chain(several).copied()
    }

    /// A mark without which `maker` does not make `mark`.
    pub(crate) fn needed_to_make(&self, maker: usize, mark: &M::Mark) -> Option<M::Mark> {
        let call = self.calls[maker];
        self.model.mark_to_make(call.input, call.output, mark)
    }

    /// Whether the start has the mark, of the part of it that `call` deals with.
    pub(crate) fn is_initial(&self, call: usize, mark: &M::Mark) -> bool {
        let mut marks = Vec::new();
        self.model.marks(&self.model.initial(), self.calls[call].input, &mut marks);
        marks.contains(mark)
    }
}
