//! A write-back is written in four steps, each with a flush. Contents of large records come first,
//! then images of all changed pages, to the double-write buffer. Then come the pages in place, and
//! the second superblock.
//!
//! The second superblock comes last, so that no loss of power tears both.

use std::vec::IntoIter;

use super::work::Work;
use crate::disk::device::Device;
use crate::disk::io::{File, Files, Write};
use crate::mutation::{self, Mutation};

/// Contents that share a flush: a commit meanwhile does not wait behind more.
const CONTENTS_AT_ONCE: usize = 128;

/// The write-back that is being written, if one is.
#[derive(Default, Debug)]
pub(super) struct Writer {
    writing: Option<Writing>,
}

#[derive(Debug)]
struct Writing {
    io: u64,
    step: Step,
    /// Its buckets are in order.
    work: Work,
    /// Where the ring begins once it is in place.
    tail: u64,
}

#[derive(Debug)]
enum Step {
    /// Contents go to extents that no page in place refers to.
    Contents { rest: IntoIter<Write>, pages: Pages },
    /// The images go to the double-write buffer; then these pages go home.
    Images { homes: Vec<Write> },
    /// Pages go home; this last one after them.
    Homes { last: Option<Write> },
}

/// The pages of a write-back.
#[derive(Debug)]
pub(super) struct Pages {
    /// To the double-write buffer.
    pub(super) images: Vec<Write>,
    /// To their places.
    pub(super) homes: Vec<Write>,
}

impl Writer {
    pub(super) fn is_busy(&self) -> bool {
        self.writing.is_some()
    }

    pub(super) fn is_its(&self, io: u64) -> bool {
        self.writing.as_ref().is_some_and(|writing| writing.io == io)
    }

    /// True for a bucket whose pages may not be in place yet.
    pub(super) fn has(&self, bucket: u64) -> bool {
        let work = self.writing.as_ref().map(|writing| &writing.work);
        work.is_some_and(|work| work.buckets.binary_search(&bucket).is_ok())
    }

    /// The number of buckets in the superblock that is being written.
    pub(super) fn bucket_count(&self) -> Option<u64> {
        self.writing.as_ref().map(|writing| writing.work.bucket_count)
    }

    pub(super) fn begin(&mut self, mut work: Work, pages: Pages, tail: u64, device: &mut Device) {
        let contents = std::mem::take(&mut work.contents).into_iter();
        let (io, step) = begin_contents(contents, pages, device);
        self.writing = Some(Writing { io, step, work, tail });
    }

    /// The request under way is done. The write-back and the ring's new tail, once all is in place.
    pub(super) fn done(&mut self, device: &mut Device) -> Option<(Work, u64)> {
        let Writing { step, work, tail, .. } = self.writing.take().expect("it is under way");
        let (io, step) = match step {
            Step::Contents { rest, pages } => begin_contents(rest, pages, device),
            Step::Images { mut homes } => {
                let last = homes.pop();
                begin_homes(homes, last, device)
            }
            Step::Homes { last: Some(last) } => begin_homes(vec![last], None, device),
            Step::Homes { last: None } => return Some((work, tail)),
        };
        self.writing = Some(Writing { io, step, work, tail });
        None
    }
}

fn begin_contents(mut rest: IntoIter<Write>, pages: Pages, device: &mut Device) -> (u64, Step) {
    let writes: Vec<Write> = rest.by_ref().take(CONTENTS_AT_ONCE).collect();
    if writes.is_empty() {
        let Pages { images, homes } = pages;
        let io = device.store(images, unless(Mutation::SpareUnflushed, Files::of(File::Spare)));
        return (io, Step::Images { homes });
    }
    let io = device.store(writes, unless(Mutation::ExtentsUnflushed, Files::of(File::Extents)));
    (io, Step::Contents { rest, pages })
}

fn begin_homes(writes: Vec<Write>, last: Option<Write>, device: &mut Device) -> (u64, Step) {
    let files = writes.iter().fold(Files::default(), |files, write| files.with(write.file));
    let io = device.store(writes, unless(Mutation::HomesUnflushed, files));
    (io, Step::Homes { last })
}

/// The files to flush, unless this deliberate mistake is switched on.
fn unless(mistake: Mutation, files: Files) -> Files {
    if mutation::is(mistake) { Files::default() } else { files }
}
