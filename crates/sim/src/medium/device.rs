//! A simulated block device under the disk engine: writes take time, and unflushed data is
//! uncertain.
//!
//! A request is under way until the world finishes it. A written, unflushed sector has several
//! states, and a loss of power keeps any of them, independently of other sectors. A killed process
//! leaves the state that readers saw. After a failed flush its data may be old or new, and the
//! cache takes it for clean. Rot changes sectors silently.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use base::Prng;
use bytes::Bytes;
use storage::disk::{Done, File, Files, Io, Medium, Write};

/// Bytes that reach the device together.
pub const SECTOR: usize = 512;
/// Sectors of a page, of which the first holds its head.
const SECTORS_OF_PAGE: usize = 8;
/// How often a full device rejects writes in place too.
const FULL_FOR_ALL_PPM: u32 = 20_000;
const FILES: usize = File::ALL.len();

/// The number of requests of a process that has ended.
const ENDED: u64 = u64::MAX;

type Sector = [u8; SECTOR];

/// One state of a sector that is not durable.
#[derive(Clone, Debug)]
struct SectorVersion {
    io: u64,
    bytes: Box<Sector>,
}

#[derive(Clone, Debug, Default)]
struct FileContent {
    /// The state after a loss of power, without pending writes.
    durable: Vec<u8>,
    /// The state that readers see.
    visible: Vec<u8>,
    /// States of sectors since they were flushed last, oldest first.
    pending: BTreeMap<usize, Vec<SectorVersion>>,
    /// Sectors with damaged durable state.
    rotten: BTreeSet<usize>,
    /// Content of sectors before the flush that changed them last, and the number of that flush.
    before: BTreeMap<usize, (u64, Box<Sector>)>,
}

/// A part of a write that readers do not see yet.
#[derive(Debug)]
struct Late {
    file: File,
    sector: usize,
    bytes: Box<Sector>,
}

#[derive(Debug)]
struct DeviceRequest {
    io: Io,
    late: Vec<Late>,
}

#[derive(Debug)]
struct DeviceState {
    files: [FileContent; FILES],
    under_way: Vec<DeviceRequest>,
    /// Requests since the last call of `take_begun`, with whether they store.
    begun: Vec<(u64, bool)>,
    done: Vec<Done>,
    /// Requests complete at once: while a store opens.
    is_instant: bool,
    /// Power fails before so many more requests.
    cut_after: Option<u64>,
    /// The next flush fails.
    fails_next: bool,
    has_failed: bool,
    /// Writes that need space fail.
    is_full: bool,
    flushes: u64,
    /// A forbidden request.
    complaint: Option<String>,
    rng: Prng,
}

/// A device with the four files of a store; clones share it.
#[derive(Clone, Debug)]
pub struct Device(Arc<Mutex<DeviceState>>);

impl Device {
    #[must_use]
    pub fn new(rng: Prng) -> Device {
        Device(Arc::new(Mutex::new(DeviceState {
            files: Default::default(),
            under_way: Vec::new(),
            begun: Vec::new(),
            done: Vec::new(),
            is_instant: false,
            cut_after: None,
            fails_next: false,
            has_failed: false,
            is_full: false,
            flushes: 0,
            complaint: None,
            rng,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, DeviceState> {
        self.0.lock().expect("no holder panics")
    }

    /// Sets whether requests complete at once.
    pub fn set_instant(&self, is_instant: bool) {
        self.lock().is_instant = is_instant;
    }

    /// Power fails before so many more requests: they fail from then on.
    pub fn cut_after(&self, requests: Option<u64>) {
        self.lock().cut_after = requests;
    }

    /// True once power has failed among requests that completed at once.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.lock().cut_after == Some(0)
    }

    /// Moves the requests begun since the last call, with whether they store.
    pub fn take_begun(&self, into: &mut Vec<(u64, bool)>) {
        into.append(&mut self.lock().begun);
    }

    /// Finishes a request that is still under way.
    pub fn finish(&self, id: u64) {
        let mut state = self.lock();
        let Some(at) = state.under_way.iter().position(|it| it.io.id() == id) else { return };
        let DeviceRequest { io, late } = state.under_way.remove(at);
        for Late { file, sector, bytes } in late {
            state.files[file as usize].show(sector, &bytes);
        }
        let done = state.end(&io);
        state.done.push(done);
    }

    /// Whether the next flush fails.
    pub fn set_failing(&self, fails: bool) {
        self.lock().fails_next = fails;
    }

    /// Sets whether writes that need space fail.
    pub fn set_full(&self, is_full: bool) {
        self.lock().is_full = is_full;
    }

    #[must_use]
    pub fn is_full(&self) -> bool {
        self.lock().is_full
    }

    /// True once a flush or a write has failed, until the store is opened again.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.lock().has_failed
    }

    /// The engine's forbidden request.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        self.lock().complaint.take()
    }

    /// The process ends: finished writes stay, and any part of the others.
    pub fn kill(&self) {
        let mut state = self.lock();
        let DeviceState { files, under_way, rng, .. } = &mut *state;
        for DeviceRequest { io, late } in under_way.drain(..) {
            for Late { file, sector, bytes } in late {
                let content = &mut files[file as usize];
                match rng.chance_ppm(500_000) {
                    true => content.show(sector, &bytes),
                    false => content.drop_version(sector, io.id()),
                }
            }
        }
        state.stop();
    }

    /// Power fails: every unflushed sector is old or new.
    pub fn lose_power(&self, keeps: bool) {
        let mut state = self.lock();
        let DeviceState { files, rng, .. } = &mut *state;
        let keep_ppm = match keeps {
            true => *rng.pick(&[0, 200_000, 500_000, 900_000, 1_000_000]),
            false => 0,
        };
        for content in files {
            for (sector, versions) in std::mem::take(&mut content.pending) {
                if rng.chance_ppm(keep_ppm) {
                    let bytes = rng.pick(&versions).bytes.clone();
                    content.make_durable(sector, &bytes);
                }
            }
            content.visible.clone_from(&content.durable);
        }
        state.stop();
    }

    /// A process opens the files again, as `storage::disk::FileMedium` does: the cache drops clean
    /// sectors. The rest of the visible state need not be durable.
    pub fn reopen(&self) {
        let mut state = self.lock();
        state.stop();
        for content in &mut state.files {
            content.drop_clean();
        }
        state.has_failed = false;
        state.fails_next = false;
    }

    /// Empties the device.
    pub fn wipe(&self) {
        let mut state = self.lock();
        state.stop();
        state.files = Default::default();
    }

    /// The durable state, for `revert`.
    #[must_use]
    pub fn durable(&self) -> Vec<Vec<u8>> {
        self.lock().files.iter().map(|content| content.durable.clone()).collect()
    }

    /// Reverts a sector, a page or a longer run of a file; false without an effect. No request may
    /// be under way.
    pub fn revert(&self, before: &[Vec<u8>]) -> bool {
        let mut state = self.lock();
        let DeviceState { files, rng, .. } = &mut *state;
        let file = *rng.pick(&[File::Slots, File::Slots, File::Slots, File::Extents, File::Ring]);
        let (content, before) = (&mut files[file as usize], &before[file as usize]);
        let pages = before.len() / (SECTORS_OF_PAGE * SECTOR);
        if pages == 0 {
            return false;
        }
        let first = rng.below(pages as u64) as usize * SECTORS_OF_PAGE;
        let (from, count) = match rng.below(4) {
            0 => (first + rng.below(SECTORS_OF_PAGE as u64) as usize, 1),
            1 | 2 => (first, SECTORS_OF_PAGE),
            _ => (first, rng.between(2, 64) as usize * SECTORS_OF_PAGE),
        };
        let mut has_changed = false;
        for sector in from..(from + count).min(before.len() / SECTOR) {
            let old = &before[sector * SECTOR..(sector + 1) * SECTOR];
            let old: Sector = old.try_into().expect("it is as long as a sector");
            has_changed |= content.sector(sector) != old;
            content.pending.remove(&sector);
            content.make_durable(sector, &old);
            content.show(sector, &old);
        }
        has_changed
    }

    /// Damages a sector that is in use and not being written; false where none was found.
    pub fn rot(&self) -> bool {
        self.rot_in(&[File::Slots, File::Slots, File::Ring, File::Extents, File::Spare])
    }

    /// The same in one of these files.
    pub fn rot_in(&self, of: &[File]) -> bool {
        let mut state = self.lock();
        let DeviceState { files, rng, .. } = &mut *state;
        for _ in 0..16 {
            let file = *rng.pick(of);
            let content = &mut files[file as usize];
            let sectors = content.durable.len() / SECTOR;
            if sectors == 0 {
                continue;
            }
            let sector = rng.below(sectors as u64) as usize;
            let mut bytes: Sector = content.sector(sector);
            if content.pending.contains_key(&sector) || bytes.iter().all(|&byte| byte == 0) {
                continue;
            }
            damage(&mut bytes, rng);
            content.make_durable(sector, &bytes);
            content.show(sector, &bytes);
            content.rotten.insert(sector);
            return true;
        }
        false
    }

    /// Reverts a sector of a page to its content before a write that changed the page's head too;
    /// false where none was found. Reverting the head itself would make an old page.
    pub fn roll_back(&self) -> bool {
        let mut state = self.lock();
        let DeviceState { files, rng, .. } = &mut *state;
        let content = &mut files[File::Slots as usize];
        let changed_with_its_head = |&(&sector, (flush, _)): &(&usize, &(u64, Box<Sector>))| {
            let head = sector / SECTORS_OF_PAGE * SECTORS_OF_PAGE;
            let changed_at = content.before.get(&head).map(|(flush, _)| flush);
            sector != head && !content.pending.contains_key(&sector) && changed_at == Some(flush)
        };
        let found: Vec<usize> = content
            .before
            .iter()
            .filter(changed_with_its_head)
            .map(|(&sector, _)| sector)
            .collect();
        if found.is_empty() {
            return false;
        }
        let sector = *rng.pick(&found);
        let Some((_, bytes)) = content.before.remove(&sector) else { return false };
        content.make_durable(sector, &bytes);
        content.show(sector, &bytes);
        content.rotten.insert(sector);
        true
    }

    /// True while the durable state of any sector is damaged.
    #[must_use]
    pub fn is_rotten(&self) -> bool {
        self.lock().files.iter().any(|content| !content.rotten.is_empty())
    }

    /// True while the durable state of any sector of this file is damaged.
    #[must_use]
    pub fn has_rot_in(&self, file: File) -> bool {
        !self.lock().files[file as usize].rotten.is_empty()
    }

    /// An instant device with the state that a loss of power surely leaves.
    #[must_use]
    pub fn durable_copy(&self) -> Device {
        self.copy(None)
    }

    /// The same, with one file empty.
    #[must_use]
    pub fn durable_copy_without(&self, file: File) -> Device {
        self.copy(Some(file))
    }

    fn copy(&self, without: Option<File>) -> Device {
        let copy = Device::new(Prng::new(0));
        let state = self.lock();
        let mut copied = copy.lock();
        copied.is_instant = true;
        for (of, (to, from)) in copied.files.iter_mut().zip(&state.files).enumerate() {
            if without.is_some_and(|file| of == file as usize) {
                continue;
            }
            to.durable.clone_from(&from.durable);
            to.visible.clone_from(&from.durable);
        }
        drop(copied);
        copy
    }
}

/// Changes a sector for sure.
fn damage(bytes: &mut Sector, rng: &mut Prng) {
    let before = *bytes;
    let at = rng.below(SECTOR as u64) as usize;
    match rng.below(3) {
        0 => bytes[at] ^= 1 << rng.below(8),
        1 => bytes.fill(0),
        _ => bytes.fill_with(|| rng.next_u64() as u8),
    }
    if *bytes == before {
        bytes[at] ^= 1;
    }
}

fn write_at(content: &mut Vec<u8>, sector: usize, bytes: &Sector) {
    let (start, end) = (sector * SECTOR, (sector + 1) * SECTOR);
    if content.len() < end {
        content.resize(end, 0);
    }
    content[start..end].copy_from_slice(bytes);
}

impl FileContent {
    /// A sector as readers see it.
    fn sector(&self, sector: usize) -> Sector {
        let mut bytes = [0; SECTOR];
        let start = sector * SECTOR;
        if let Some(found) = self.visible.get(start..start + SECTOR) {
            bytes.copy_from_slice(found);
        }
        bytes
    }

    fn show(&mut self, sector: usize, bytes: &Sector) {
        write_at(&mut self.visible, sector, bytes);
    }

    fn make_durable(&mut self, sector: usize, bytes: &Sector) {
        write_at(&mut self.durable, sector, bytes);
        self.rotten.remove(&sector);
    }

    /// A flush of a sector: `revert` and `roll_back` may later restore its old content.
    fn flush_sector(&mut self, sector: usize, bytes: &Sector, flush: u64) {
        let start = sector * SECTOR;
        if let Some(before) = self.durable.get(start..start + SECTOR)
            && before != bytes
        {
            let before = Box::new(before.try_into().expect("it is as long as a sector"));
            self.before.insert(sector, (flush, before));
        }
        self.make_durable(sector, bytes);
    }

    /// Makes readers see the durable state of all sectors without pending writes.
    fn drop_clean(&mut self) {
        let cached = std::mem::replace(&mut self.visible, self.durable.clone());
        for &sector in self.pending.keys() {
            let start = sector * SECTOR;
            if let Some(bytes) = cached.get(start..start + SECTOR) {
                let bytes = bytes.try_into().expect("it is as long as a sector");
                write_at(&mut self.visible, sector, bytes);
            }
        }
    }

    fn drop_version(&mut self, sector: usize, io: u64) {
        if let Some(versions) = self.pending.get_mut(&sector) {
            versions.retain(|version| version.io != io);
            if versions.is_empty() {
                self.pending.remove(&sector);
            }
        }
    }
}

impl DeviceState {
    /// Requests under way get no answer, and their numbers are used again.
    fn stop(&mut self) {
        for versions in self.files.iter_mut().flat_map(|content| content.pending.values_mut()) {
            versions.iter_mut().for_each(|version| version.io = ENDED);
        }
        self.under_way.clear();
        self.begun.clear();
        self.done.clear();
        self.cut_after = None;
    }

    fn is_under_way(&self, io: u64) -> bool {
        self.under_way.iter().any(|it| it.io.id() == io)
    }

    /// The writes of a request; discarded or truncated parts become zeros.
    fn writes<'io>(&self, io: &'io Io) -> Cow<'io, [Write]> {
        let zeros = |file: File, offset: u64, len: u64| Write {
            file,
            offset,
            bytes: Bytes::from(vec![0; len as usize]),
        };
        match io {
            Io::Store { writes, .. } => Cow::Borrowed(writes),
            Io::Discard { file, runs, .. } => {
                runs.iter().map(|&(offset, len)| zeros(*file, offset, len)).collect()
            }
            Io::Cut { file, len, .. } => {
                let end = self.files[*file as usize].visible.len() as u64;
                Cow::Owned(vec![zeros(*file, *len, end.saturating_sub(*len))])
            }
            Io::Read { .. } | Io::Verify { .. } => Cow::Owned(Vec::new()),
        }
    }

    /// Applies a write: readers see each sector at once or when the request finishes.
    fn write(&mut self, io: &Io) -> Vec<Late> {
        let id = &io.id();
        let writes = self.writes(io);
        let late_ppm = match self.is_instant {
            true => 0,
            false => *self.rng.pick(&[0, 500_000, 1_000_000]),
        };
        let mut late = Vec::new();
        for write in writes.iter() {
            let file = write.file;
            if !(write.offset as usize).is_multiple_of(SECTOR) {
                self.complaint =
                    Some(format!("a write begins in the middle of a sector: {write:?}"));
            }
            let first = write.offset as usize / SECTOR;
            for (index, part) in write.bytes.chunks(SECTOR).enumerate() {
                let sector = first + index;
                let newest = self.files[file as usize].pending.get(&sector);
                let newest = newest.and_then(|versions| versions.last());
                if !self.is_instant
                    && newest.is_some_and(|it| it.io == *id || self.is_under_way(it.io))
                {
                    let text =
                        format!("sector {sector} of {} is written twice at once", file.name());
                    self.complaint = Some(text);
                }
                let content = &mut self.files[file as usize];
                let mut bytes = Box::new(content.sector(sector));
                bytes[..part.len()].copy_from_slice(part);
                let version = SectorVersion { io: *id, bytes: bytes.clone() };
                content.pending.entry(sector).or_default().push(version);
                match self.rng.chance_ppm(late_ppm) {
                    true => late.push(Late { file, sector, bytes }),
                    false => content.show(sector, &bytes),
                }
            }
        }
        late
    }

    /// The answer to a request whose writes are all visible.
    fn end(&mut self, io: &Io) -> Done {
        let result = match io {
            Io::Read { file, offset, len, .. } | Io::Verify { file, offset, len, .. } => {
                Ok(self.read(*file, *offset as usize, *len))
            }
            Io::Store { writes, .. } if self.takes_too_much(writes) => {
                self.has_failed = true;
                Err("no space left on device".to_owned())
            }
            Io::Store { flush, .. } => self.flush(*flush).map(|()| Bytes::new()),
            Io::Discard { .. } => Ok(Bytes::new()),
            Io::Cut { file, .. } => self.flush(Files::of(*file)).map(|()| Bytes::new()),
        };
        Done { id: io.id(), result }
    }

    /// True where these writes do not fit.
    ///
    /// That is, where they extend a file, and sometimes for any write, as on file systems that
    /// never write in place.
    fn takes_too_much(&mut self, writes: &[Write]) -> bool {
        if !self.is_full || writes.is_empty() {
            return false;
        }
        let ends_beyond = |write: &Write| {
            write.offset as usize + write.bytes.len()
                > self.files[write.file as usize].durable.len()
        };
        writes.iter().any(ends_beyond) || self.rng.chance_ppm(FULL_FOR_ALL_PPM)
    }

    fn read(&self, file: File, offset: usize, len: usize) -> Bytes {
        let content = &self.files[file as usize].visible;
        let start = offset.min(content.len());
        let end = (offset + len).min(content.len());
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(&content[start..end]);
        bytes.resize(len, 0);
        Bytes::from(bytes)
    }

    /// Makes finished writes durable; writes in progress stay uncertain.
    fn flush(&mut self, flush: Files) -> Result<(), String> {
        let fails = flush != Files::default() && std::mem::take(&mut self.fails_next);
        self.has_failed |= fails;
        self.flushes += 1;
        for file in flush.iter() {
            let content = &mut self.files[file as usize];
            for (sector, mut versions) in std::mem::take(&mut content.pending) {
                let is_finished = |version: &SectorVersion| {
                    self.under_way.iter().all(|it| it.io.id() != version.io)
                };
                let unfinished = match versions.last() {
                    Some(newest) if !is_finished(newest) => versions.pop(),
                    _ => None,
                };
                if let Some(newest) = versions.last()
                    && (!fails || self.rng.chance_ppm(500_000))
                {
                    content.flush_sector(sector, &newest.bytes, self.flushes);
                }
                if let Some(unfinished) = unfinished {
                    content.pending.insert(sector, vec![unfinished]);
                }
            }
        }
        if fails { Err("the device says no".to_owned()) } else { Ok(()) }
    }
}

impl Medium for Device {
    fn submit(&mut self, io: Io) {
        let mut state = self.lock();
        if !state.is_instant {
            state.begun.push((io.id(), !matches!(io, Io::Read { .. } | Io::Verify { .. })));
            let late = state.write(&io);
            state.under_way.push(DeviceRequest { io, late });
            return;
        }
        let left = state.cut_after;
        if left == Some(0) {
            let result = Err("power fails".to_owned());
            state.done.push(Done { id: io.id(), result });
            return;
        }
        state.cut_after = left.map(|left| left - 1);
        state.write(&io);
        if state.cut_after == Some(0) {
            // Possibly written, and surely not flushed.
            state.done.push(Done { id: io.id(), result: Err("power fails".to_owned()) });
            return;
        }
        let done = state.end(&io);
        state.done.push(done);
    }

    fn poll(&mut self, done: &mut Vec<Done>) {
        done.append(&mut self.lock().done);
    }

    fn wait(&mut self, done: &mut Vec<Done>) {
        done.append(&mut self.lock().done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(id: u64, fill: u8, flush: Files) -> Io {
        let bytes = Bytes::from(vec![fill; 2 * SECTOR]);
        Io::Store { id, writes: vec![Write { file: File::Ring, offset: 0, bytes }], flush }
    }

    fn seen(device: &Device) -> (u8, u8) {
        let bytes = device.lock().read(File::Ring, 0, 2 * SECTOR);
        (bytes[0], bytes[SECTOR])
    }

    #[test]
    fn power_loss_keeps_any_unflushed_sectors() {
        let mut found = BTreeSet::new();
        for seed in 0..200 {
            let mut device = Device::new(Prng::new(seed));
            device.submit(store(1, 1, Files::of(File::Ring)));
            device.finish(1);
            device.submit(store(2, 2, Files::default()));
            device.lose_power(true);
            found.insert(seen(&device));
        }
        assert_eq!(found, BTreeSet::from([(1, 1), (1, 2), (2, 1), (2, 2)]));
    }

    #[test]
    fn visible_state_is_gone_after_power_loss() {
        let mut device = Device::new(Prng::new(1));
        device.submit(store(1, 1, Files::of(File::Ring)));
        device.finish(1);
        device.submit(store(2, 2, Files::default()));
        device.finish(2);
        device.kill();
        device.reopen();
        assert_eq!(seen(&device), (2, 2));
        device.lose_power(false);
        assert_eq!(seen(&device), (1, 1));
    }

    #[test]
    fn failed_flush_leaves_clean_cache_and_old_device() {
        let mut device = Device::new(Prng::new(3));
        device.set_failing(true);
        device.submit(store(1, 1, Files::of(File::Ring)));
        device.finish(1);
        let mut done = Vec::new();
        device.poll(&mut done);
        assert!(done[0].result.is_err() && device.has_failed());
        assert_eq!(seen(&device), (1, 1));
        device.lose_power(true);
        assert_ne!(seen(&device), (1, 1));
    }
}
