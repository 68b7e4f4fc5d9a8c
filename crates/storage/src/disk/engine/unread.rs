//! A start that serves before the ring has been read: what the ring may have entries of waits, everything else does not.
//! Which that is its digests tell; until they have come, everything waits, and where they do not tell, everything waits for
//! the ring.
//!
//! Nothing goes home in the meantime, so the tail of the ring stays where it was and nothing is written over what is to be
//! read. No extent is given away either, for the ring may refer to one that no map knows of.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::Engine;
use super::digests::{Ask, Digests};
use super::known::Known;
use super::lookup::Reading;
use super::open::reading;
use crate::Place;
use crate::disk::entry::{Entry, Identity, Kind, Mark};
use crate::disk::io::{Blocking, File, Io, Medium};
use crate::disk::metas::Metas;
use crate::disk::named::Named;
use crate::disk::outline::Extent;
use crate::disk::part;
use crate::disk::recovery::{Found, ReadSectors, Recovered};
use crate::disk::request::{Batch, Request};
use crate::disk::stripe::SECTOR;

/// Loads at a time for which a start reads parts of the ring: more than so many are as well off with all of it.
const SEEKS_MAX: usize = 32;
/// Loads in all for which it does: what they find is remembered until the ring has been read.
const SOUGHT_MAX: usize = 1 << 15;

/// The stripes that have not been read, and who waits for them.
#[derive(Debug)]
pub(super) struct Unread {
    pub(super) ring: UnreadRing,
    names: Names,
    /// Loads for which parts of the ring are being read.
    seeks: usize,
    /// Loads for which they were, or are.
    sought: usize,
    waiting: Vec<(usize, Request)>, // by worker
    /// Workers whose changes wait: what comes from them later comes after those.
    held: Vec<bool>,
    /// Bytes of changes that wait.
    len: usize,
    /// Something waits that somebody asked for.
    is_wanted: bool,
}

/// Whether it is known which hashes the ring may have entries of.
#[derive(Debug)]
enum Names {
    /// Not before the digests have come; and the stripes behind them.
    Coming(Digests, Vec<Found>),
    /// Yes, and this of the entries.
    Known(Known),
    /// Not before the ring has been read.
    Unknown,
}

/// What is to be read, and handed to [`Engine::take_ring`].
#[derive(Clone, Debug)]
pub(in crate::disk) struct UnreadRing {
    pub(in crate::disk) extent: Extent,
    /// Where the stripes end that the last process wrote.
    pub(in crate::disk) head: u64,
    /// Empty until it is known, and `None` where it will not be.
    named: Arc<OnceLock<Option<Named>>>,
}

impl UnreadRing {
    /// Reads it through the medium of the store, or another with the same files.
    pub(in crate::disk) fn read(&self, medium: &mut dyn Medium) -> Result<Recovered, String> {
        let mut medium = Blocking::new(medium);
        self.find(&mut reading(&mut medium))
    }

    /// The same, however its sectors are read.
    pub(in crate::disk) fn find(&self, read: &mut ReadSectors<'_>) -> Result<Recovered, String> {
        let recovered = self.extent.read(self.head, read)?;
        // Digests that have not come by now are of no use: everything has waited for the ring.
        match self.named.get_or_init(|| None) {
            Some(named) if !named.name_all(&recovered.stripes) => {
                Err("the ring has entries that its digests do not name: reset the node".into())
            }
            _ => Ok(recovered),
        }
    }
}

/// A load that looks for its place in the parts of the ring whose digests name it.
#[derive(Debug)]
pub(super) struct Seek {
    worker: usize,
    place: Place,
    /// First position and the one behind the last; the newest part comes last.
    parts: Vec<(u64, u64)>,
    /// All that was read has been whole, and had nothing of it.
    is_absent: bool,
}

impl Unread {
    pub(super) fn new(
        extent: Extent,
        head: u64,
        digests: Digests,
        last: Vec<Found>,
        workers: usize,
    ) -> Unread {
        Unread {
            ring: UnreadRing { extent, head, named: Arc::default() },
            names: Names::Coming(digests, last),
            seeks: 0,
            sought: 0,
            waiting: Vec::new(),
            held: vec![false; workers],
            len: 0,
            is_wanted: false,
        }
    }

    /// All digests have come: gives back what has waited for them. Where one is missing it is to wait for the ring.
    fn learn_names(&mut self) -> Vec<(usize, Request)> {
        if let Names::Coming(digests, last) = std::mem::replace(&mut self.names, Names::Unknown)
            && let Some(known) = self.know(digests, last)
        {
            self.names = Names::Known(known);
        }
        self.held.fill(false);
        self.len = 0;
        std::mem::take(&mut self.waiting)
    }

    /// `None` where a digest is missing, or the ring has been read before.
    fn know(&self, digests: Digests, last: Vec<Found>) -> Option<Known> {
        let digests = digests.speaking()?;
        let mut metas = Metas::default();
        digests.iter().for_each(|digest| metas.add_all(&digest.metas));
        last.iter().for_each(|found| metas.add_all(&found.said.metas));
        self.ring.named.set(Some(Named::new(digests, &last))).ok()?;
        Some(Known::of(&metas, last))
    }

    /// What digests and the last stripes tell, once they do.
    fn names(&self) -> Option<(&Named, &Known)> {
        match &self.names {
            Names::Known(known) => Some((self.ring.named.get()?.as_ref()?, known)),
            Names::Coming(..) | Names::Unknown => None,
        }
    }

    fn known_mut(&mut self) -> Option<&mut Known> {
        match &mut self.names {
            Names::Known(known) => Some(known),
            Names::Coming(..) | Names::Unknown => None,
        }
    }

    /// Bytes of changes that wait.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn has_changes(&self) -> bool {
        self.held.contains(&true)
    }

    /// The newest that the ring has of a place, where that is known.
    pub(super) fn known(&self, identity: &Identity) -> Option<Entry<'_>> {
        let (named, known) = self.names()?;
        known.find_whole(identity, named)
    }

    fn has_to_wait(&self, binding: u64, worker: usize, request: &Request) -> bool {
        let concerns = match request {
            Request::Load(place) => {
                let identity = Identity::of(binding, place);
                self.is_open(identity.hash, || identity)
            }
            Request::Change(batch) => self.concerns(batch),
            Request::Scan(_) | Request::Scrub { .. } => true,
        };
        concerns || self.held[worker]
    }

    fn concerns(&self, batch: &Batch) -> bool {
        let mut new = Entry::all(&batch.entries).filter(|(_, entry)| entry.kind != Kind::DEAD);
        !batch.large.is_empty()
            || !batch.marks.is_empty()
            || new.any(|(_, entry)| self.is_open(entry.hash, || entry.identity()))
    }

    /// True unless it is known what the ring has of a place, or that it has nothing.
    fn is_open(&self, hash: u64, identity: impl FnOnce() -> Identity) -> bool {
        let Some((named, known)) = self.names() else { return true };
        named.may_have(hash) && {
            let identity = identity();
            !(identity.kind.class() == Kind::META && known.has_all_metas)
                && known.find_whole(&identity, named).is_none()
                && !known.is_absent(&identity)
        }
    }

    /// How to look for a place without reading all of the ring.
    fn seek(&self, binding: u64, worker: usize, request: &Request) -> Option<Seek> {
        let Request::Load(place) = request else { return None };
        if self.seeks >= SEEKS_MAX || self.sought >= SOUGHT_MAX || self.held[worker] {
            return None;
        }
        let identity = Identity::of(binding, place);
        let (named, known) = self.names()?;
        if known.find(&identity, named).is_some() {
            // What digests name of it is older.
            return None;
        }
        let tail = self.ring.extent.tail;
        let parts = named.parts(identity.hash).map(|(first, end)| (first.max(tail), end)).collect();
        Some(Seek { worker, place: place.clone(), parts, is_absent: true })
    }

    fn hold(&mut self, worker: usize, request: Request) {
        let is_asked_for = !matches!(request, Request::Scrub { .. });
        self.is_wanted |= is_asked_for && !matches!(self.names, Names::Coming(..));
        if let Request::Change(batch) = &request {
            self.held[worker] = true;
            self.len += batch.entries.len();
            self.len += batch.large.iter().map(|large| large.content.len()).sum::<usize>();
        }
        self.waiting.push((worker, request));
    }
}

impl Engine {
    /// The part of the ring that a start has left to be read.
    pub(in crate::disk) fn unread(&self) -> Option<UnreadRing> {
        self.unread.as_ref().map(|unread| unread.ring.clone())
    }

    /// Something cannot go on before the ring has been read.
    pub(super) fn want_ring(&mut self) {
        if let Some(unread) = &mut self.unread {
            unread.is_wanted = true;
        }
    }

    /// True once somebody waits for the ring.
    pub(in crate::disk) fn wants_ring(&self) -> bool {
        self.unread.as_ref().is_some_and(|unread| unread.is_wanted)
    }

    /// Keeps a request that has to wait for the ring; gives back any other.
    pub(super) fn hold(&mut self, worker: usize, request: Request) -> Option<Request> {
        if let Some(unread) = &mut self.unread
            && unread.has_to_wait(self.binding, worker, &request)
        {
            match unread.seek(self.binding, worker, &request) {
                Some(seek) => {
                    unread.sought += 1;
                    self.seek(seek);
                }
                None => unread.hold(worker, request),
            }
            return None;
        }
        Some(request)
    }

    /// Has the digests read, and lets everything wait for them.
    pub(super) fn read_digests(&mut self, mut unread: Unread) {
        if let Names::Coming(digests, _) = &unread.names {
            digests.asks().for_each(|ask| self.read_digest(&ask));
            if digests.have_come() {
                unread.learn_names(); // nothing waits yet
            }
        }
        self.unread = Some(unread);
    }

    fn read_digest(&mut self, &Ask { number, offset, len }: &Ask) {
        let id = self.take_io_id();
        // Past the cache: nobody reads it again.
        self.ios.push(Io::Verify { id, file: File::Spare, offset, len });
        self.reads.insert(id, Reading::Digest { number });
    }

    pub(super) fn digest_read(&mut self, number: usize, content: Bytes) {
        let Some(unread) = &mut self.unread else { return };
        let Names::Coming(digests, _) = &mut unread.names else { return };
        match digests.put(number, content) {
            Some(ask) => self.read_digest(&ask),
            None if digests.have_come() => {
                for (worker, request) in unread.learn_names() {
                    self.request(worker, request);
                }
            }
            None => {}
        }
    }

    /// Reads the newest part of the ring where the place of a load may be; without one it waits for the whole ring.
    fn seek(&mut self, mut seek: Seek) {
        let Some(unread) = &mut self.unread else { return self.load(seek.worker, seek.place) };
        let ring = unread.ring.extent.ring;
        match seek.parts.pop() {
            Some(part @ (first, end)) if first % ring + (end - first) <= ring => {
                unread.seeks += 1;
                let id = self.take_io_id();
                let (offset, len) = (first % ring * SECTOR as u64, (end - first) as usize * SECTOR);
                self.ios.push(Io::Verify { id, file: File::Ring, offset, len });
                self.reads.insert(id, Reading::Part { seek, part });
            }
            None if seek.is_absent => {
                base::sometimes!("disk: a digest seems to name what the ring does not have");
                if let Some(known) = unread.known_mut() {
                    known.add_absent(Identity::of(self.binding, &seek.place));
                }
                self.load(seek.worker, seek.place);
            }
            _ => unread.hold(seek.worker, Request::Load(seek.place)),
        }
    }

    /// A part of the ring has been read for a load.
    pub(super) fn part_read(&mut self, mut seek: Seek, part: (u64, u64), content: &Bytes) {
        let Some(unread) = &mut self.unread else { return self.load(seek.worker, seek.place) };
        unread.seeks -= 1;
        let identity = Identity::of(self.binding, &seek.place);
        match part::newest(&unread.ring.extent, part, content, &identity) {
            Some(Some(raw)) => {
                base::sometimes!("disk: a record is read from a ring that has not been");
                if let Some(known) = unread.known_mut() {
                    known.add_older(raw);
                }
                // Where it refers to an extent that does not help.
                (seek.parts, seek.is_absent) = (Vec::new(), false);
                if unread.known(&identity).is_some() {
                    return self.load(seek.worker, seek.place);
                }
            }
            Some(None) => {}
            None => (seek.parts, seek.is_absent) = (Vec::new(), false),
        }
        self.seek(seek);
    }

    /// Takes what the ring held, and goes on with what waited for it.
    pub(in crate::disk) fn take_ring(&mut self, read: Result<Recovered, String>) {
        let Some(unread) = self.unread.take() else { return };
        let mut recovered = match read {
            Ok(recovered) => recovered,
            Err(reason) => return self.fail(&reason),
        };
        if unread.waiting.iter().any(|(_, request)| !matches!(request, Request::Scrub { .. })) {
            base::sometimes!("disk: a request waits until the ring has been read");
        }
        // Digests spoke of no marks: what says otherwise is not what they spoke of.
        let has_marks = recovered.stripes.iter().any(|found| found.said.has_marks());
        recovered.damaged |= has_marks;
        self.replay(&mut recovered);
        self.mend_ring(&recovered);
        if recovered.damaged {
            self.lose_ring();
        }
        for (worker, request) in unread.waiting {
            self.request(worker, request);
        }
    }

    /// Brings what a start has found under what came before it was found.
    pub(super) fn unfold_used(&mut self) {
        let ring = &mut self.ring;
        let (mut superseded, mut replaced) = (Vec::new(), Vec::new());
        self.index.unfold_used(
            ring.durable,
            |stripe| superseded.push(stripe),
            |stripe, at| replaced.push((stripe, at)),
        );
        superseded.into_iter().for_each(|stripe| ring.discharge(stripe));
        for (stripe, at) in replaced {
            base::sometimes!("disk: an entry of the ring is found under one that is not durable");
            let stripe = ring.stripe(stripe).expect("a stripe that is not durable is in the ring");
            let pending = stripe.pending.as_mut().expect("it is not durable");
            pending.superseded.push(at);
        }
    }

    /// The ring lost records that nobody can name: all shards are forgotten and all pages are void. What the ring holds
    /// behind the damage is newer than what was lost, and stays. Until the superblock moves the tail past the damage,
    /// which waits for the mark, every start finds it again.
    fn lose_ring(&mut self) {
        self.void_pages();
        self.cache.void();
        let stripe = self.forget(Mark::FORGET_ALL);
        self.lost_ring = (stripe > self.ring.durable).then_some(stripe);
    }
}
