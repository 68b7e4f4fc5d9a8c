//! A device that fails once, and its remains.

use base::Prng;
use bytes::Bytes;
use storage::disk::{Done, File, Files, Io};

use super::{Inner, SECTOR, write_at, writes};

/// The failure of a device, once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    Read,
    Verify,
    /// Some sectors may have been written, and no file is flushed.
    Write,
    /// Some of the writes are durable, some are shown and never become durable, some may become so
    /// later.
    Flush,
    Cut,
    /// No space is given back.
    Discard,
}

impl Fault {
    pub const ALL: [Fault; 6] =
        [Fault::Read, Fault::Verify, Fault::Write, Fault::Flush, Fault::Cut, Fault::Discard];

    pub(super) fn is_of(self, io: &Io) -> bool {
        match io {
            Io::Read { .. } => self == Fault::Read,
            Io::Verify { .. } => self == Fault::Verify,
            Io::Store { writes, flush, .. } => {
                (self == Fault::Write && !writes.is_empty())
                    || (self == Fault::Flush && *flush != Files::default())
            }
            Io::Discard { .. } => self == Fault::Discard,
            Io::Cut { .. } => self == Fault::Cut,
        }
    }
}

impl Inner {
    /// True for the request that is to fail.
    pub(super) fn is_faulty(&mut self, io: &Io) -> bool {
        match &mut self.fault {
            Some((fault, 0)) if fault.is_of(io) => {
                (self.fault, self.has_failed) = (None, true);
                true
            }
            Some((fault, after)) if fault.is_of(io) => {
                *after -= 1;
                false
            }
            _ => false,
        }
    }

    /// The remains of a request that fails.
    pub(super) fn finish_badly(&mut self, io: &Io, fault: Fault) -> Done {
        let id = io.id();
        let mut prng = self.prng.fork();
        let keep_ppm = *prng.pick(&[0, 300_000, 900_000, 1_000_000]);
        match (io, fault) {
            (Io::Discard { .. }, _) => return Done { id, result: Ok(Bytes::new()) },
            (Io::Store { .. }, Fault::Write) => self.apply_some(io, &mut prng, keep_ppm),
            (Io::Store { flush, .. }, _) => {
                self.apply(io);
                self.lose_some(*flush, &mut prng);
            }
            (Io::Cut { file, len, .. }, _) if prng.chance(0.5) => {
                let content = &mut self.files[*file as usize];
                content.visible.truncate(*len as usize);
                content.pending.retain(|&sector, _| sector * SECTOR < *len as usize);
            }
            _ => {}
        }
        Done { id, result: Err("the disk says no".to_owned()) }
    }

    /// Files are flushed in order, up to one whose pages the system takes for clean though the device has not got them.
    fn lose_some(&mut self, files: Files, prng: &mut Prng) {
        let files: Vec<File> = files.iter().collect();
        let bad = prng.below(files.len() as u64) as usize;
        let (taken, kept) = (*prng.pick(&[0, 500_000, 1_000_000]), *prng.pick(&[0, 300_000]));
        for (at, &file) in files.iter().enumerate().take(bad + 1) {
            let content = &mut self.files[file as usize];
            for (sector, versions) in std::mem::take(&mut content.pending) {
                if at < bad || prng.chance_ppm(taken) {
                    let newest = versions.last().expect("a pending sector has a version");
                    write_at(&mut content.durable, sector * SECTOR, newest);
                } else if prng.chance_ppm(kept) {
                    content.pending.insert(sector, versions);
                }
            }
        }
    }

    pub(super) fn apply_some(&mut self, io: &Io, prng: &mut Prng, keep_ppm: u32) {
        for write in writes(io).iter() {
            let content = &mut self.files[write.file as usize];
            for (i, sector) in write.bytes.chunks(SECTOR).enumerate() {
                if prng.chance_ppm(keep_ppm) {
                    let at = write.offset as usize + i * SECTOR;
                    write_at(&mut content.visible, at, sector);
                    content.pending.entry(at / SECTOR).or_default().push(sector.to_vec());
                }
            }
        }
    }
}
