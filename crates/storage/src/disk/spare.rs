//! The double-write buffer: images of the pages that a write-back is about to overwrite in place.
//!
//! A write-back first puts all its page images here, in one sequential write, and flushes; only
//! then it writes them in place. So a write torn by a loss of power is redone from the images at
//! the next start, and the pages of one write-back change together. There is one buffer: the next
//! write-back uses it after this one is in place.

use std::ops::Range;

use base::checksum::checksum;
use bytes::Bytes;

use super::aligned::AlignedBuffer;
use super::bytes_at::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use super::io::{Blocking, File, Files, Write};
use super::page::PageHead;
use crate::disk::place::{COPIES, PAGE, PagePlace};

const MAGIC: u32 = u32::from_le_bytes(*b"PSPR");
const FORMAT: u16 = 1;
const HEAD_LEN: usize = 32;
const ROW_LEN: usize = 24;

/// Most images that a double-write buffer may be created for.
pub(super) const IMAGES_MAX: u64 = 4096;

/// Bytes of the double-write buffer's head for this many images, in whole pages.
fn head_len(count: usize) -> usize {
    (HEAD_LEN + count * ROW_LEN).next_multiple_of(PAGE)
}

/// Bytes of a double-write buffer with room for this many images.
pub(super) fn file_len(images: u64) -> u64 {
    (head_len(images as usize) + images as usize * PAGE) as u64
}

/// The writes of so many images, as [`assemble`] has laid them out, to the double-write buffer.
///
/// The head comes last: a process that is killed between the two leaves the head of a write-back
/// that is in place. The next start then need not look for pages of one that was never begun.
pub(super) fn writes(bytes: &Bytes, count: usize) -> Vec<Write> {
    let part = |range: Range<usize>| {
        let offset = range.start as u64;
        Write { file: File::Spare, offset, bytes: bytes.slice(range) }
    };
    let start = head_len(count);
    vec![part(start..bytes.len()), part(0..start)]
}

/// The buffer's bytes for these images, and the writes that put them in place, which share its
/// memory. Neighbours are one write; the last image has one of its own.
pub(super) fn assemble<'a>(
    binding: u64,
    batch: u64,
    images: impl ExactSizeIterator<Item = (PagePlace, &'a [u8])>,
) -> (Bytes, Vec<Write>) {
    let count = images.len();
    let start = head_len(count);
    // A device takes them from where they are.
    let mut bytes = AlignedBuffer::default();
    bytes.reserve(start + count * PAGE);
    bytes.fill_to(start);
    let mut places = Vec::with_capacity(count);
    for (i, (place, image)) in images.enumerate() {
        let row = &mut bytes[HEAD_LEN + i * ROW_LEN..][..ROW_LEN];
        row[0] = place.file as u8;
        put_u64(row, 8, place.offset);
        put_u64(row, 16, image_checksum(binding, place, image));
        bytes.extend_from_slice(image);
        places.push(place);
    }
    put_u32(&mut bytes, 8, MAGIC);
    put_u16(&mut bytes, 12, FORMAT);
    put_u32(&mut bytes, 16, count as u32);
    put_u64(&mut bytes, 24, batch);
    let sum = checksum(binding, &bytes[8..HEAD_LEN + count * ROW_LEN]);
    put_u64(&mut bytes, 0, sum);
    let bytes = bytes.into_bytes();
    let write = |run: Range<usize>| {
        let PagePlace { file, offset } = places[run.start];
        Write { file, offset, bytes: bytes.slice(start + run.start * PAGE..start + run.end * PAGE) }
    };
    let last = count.saturating_sub(1);
    let (mut writes, mut begun) = (Vec::new(), 0);
    for at in 1..=last {
        let (before, here) = (places[at - 1], places[at]);
        let goes_on = here.file == before.file && here.offset == before.offset + PAGE as u64;
        if at == last || !goes_on {
            writes.push(write(begun..at));
            begun = at;
        }
    }
    if count > 0 {
        writes.push(write(last..count));
    }
    (bytes, writes)
}

fn image_checksum(binding: u64, place: PagePlace, image: &[u8]) -> u64 {
    checksum(place.seed(binding).rotate_left(13), image)
}

/// The whole images found in a double-write buffer.
#[derive(Debug, Default)]
pub(super) struct Images {
    pub(super) batch: u64,
    /// Places of all images that the head names.
    pub(super) places: Vec<PagePlace>,
    /// Those of them that are whole.
    pub(super) whole: Vec<Write>,
}

/// The buffer's head: its bytes, the number of images, and the write-back; `None` if it is not
/// whole.
fn head(medium: &mut Blocking<'_>, binding: u64) -> Result<Option<(Bytes, usize, u64)>, String> {
    let mut first = medium.read(File::Spare, 0, PAGE)?;
    let count = u32_at(&first, 16) as usize;
    if u32_at(&first, 8) != MAGIC || u16_at(&first, 12) != FORMAT || count as u64 > IMAGES_MAX {
        return Ok(None);
    }
    if head_len(count) > PAGE {
        // No more than there is: the bytes behind need not be readable.
        first = medium.read(File::Spare, 0, head_len(count))?;
    }
    let is_whole = u64_at(&first, 0) == checksum(binding, &first[8..HEAD_LEN + count * ROW_LEN]);
    let batch = u64_at(&first, 24);
    Ok(is_whole.then_some((first, count, batch)))
}

/// True where the head of a double-write buffer is whole: then every write-back whose pages were
/// touched is known.
pub(super) fn has_head(medium: &mut Blocking<'_>, binding: u64) -> Result<bool, String> {
    Ok(head(medium, binding)?.is_some())
}

/// Reads the double-write buffer; `None` where its head is not whole, because its write never
/// finished or because it is damaged, and where it is of a write-back that is `complete`.
pub(super) fn read(
    medium: &mut Blocking<'_>,
    binding: u64,
    complete: Option<u64>,
) -> Result<Option<Images>, String> {
    let Some((first, count, batch)) = head(medium, binding)? else { return Ok(None) };
    if complete.is_some_and(|complete| batch <= complete) {
        return Ok(None);
    }
    let bytes = medium.read(File::Spare, head_len(count) as u64, count * PAGE)?;
    let mut images = Images { batch, ..Images::default() };
    for i in 0..count {
        let row = &first[HEAD_LEN + i * ROW_LEN..][..ROW_LEN];
        let Some(file) = File::ALL.into_iter().find(|&file| file as u8 == row[0]) else { continue };
        let place = PagePlace { file, offset: u64_at(row, 8) };
        images.places.push(place);
        let image = bytes.slice(i * PAGE..(i + 1) * PAGE);
        if u64_at(row, 16) == image_checksum(binding, place, &image) {
            images.whole.push(Write { file, offset: place.offset, bytes: image });
        }
    }
    Ok(Some(images))
}

impl Images {
    /// True if every image that the head names is whole.
    pub(super) fn are_whole(&self) -> bool {
        self.whole.len() == self.places.len()
    }

    /// True if the write-back may have reached the pages: then its images must be put in place,
    /// those of them that are whole. `known` is the newest write-back that a superblock speaks of.
    ///
    /// Pages are touched only after the double-write buffer was flushed. So a double-write buffer
    /// that is not whole, while no page has anything of its write-back, either never finished or is
    /// not needed.
    pub(super) fn may_be_in_place(
        &self,
        medium: &mut Blocking<'_>,
        binding: u64,
        known: Option<u64>,
    ) -> Result<bool, String> {
        if known.is_some_and(|known| known >= self.batch) || self.are_whole() {
            return Ok(known.is_none_or(|known| known <= self.batch));
        }
        let mut unread = None;
        // Superblocks have been read, and are no pages of a bucket.
        let is_page =
            |place: &&PagePlace| place.file != File::Slots || place.offset >= COPIES * PAGE as u64;
        for &place in self.places.iter().filter(is_page) {
            match medium.read(place.file, place.offset, PAGE) {
                Ok(page) => {
                    let head = PageHead::read(&page, place, binding);
                    if head.is_ok_and(|head| head.batch == self.batch) {
                        return Ok(true);
                    }
                }
                Err(reason) => unread = Some(reason),
            }
        }
        // Where no other page says so it may be the one that cannot be read.
        unread.map_or(Ok(false), Err)
    }
}

/// Writes the images of the last write-back in place again, in case it did not get there.
pub(super) fn redo(medium: &mut Blocking<'_>, images: &Images) -> Result<(), String> {
    // The last image is the second superblock, which must not be torn together with the first.
    let (first, last) = images.whole.split_at(images.whole.len().saturating_sub(1));
    medium.store(first.to_vec(), HOMES)?;
    medium.store(last.to_vec(), HOMES)
}

/// The files that images belong to.
pub(super) const HOMES: Files = Files::of(File::Slots).with(File::Extents);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_spare_are_these() {
        let image = [7; PAGE];
        let place = PagePlace { file: File::Slots, offset: 8192 };
        let (bytes, writes) = assemble(3, 5, [(place, &image[..])].into_iter());
        assert_eq!(bytes.len(), 2 * PAGE);
        assert_eq!(&bytes[8..32], b"PSPR\x01\0\0\0\x01\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0");
        assert_eq!(bytes[32..48], [1, 0, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0]);
        assert_eq!(writes, [Write { file: File::Slots, offset: 8192, bytes: bytes.slice(PAGE..) }]);
        assert_eq!(base::checksum::hash(&bytes), GOLDEN);
        let parts: Vec<_> =
            super::writes(&bytes, 1).into_iter().map(|w| (w.offset, w.bytes)).collect();
        assert_eq!(parts, [(4096, bytes.slice(PAGE..)), (0, bytes.slice(..PAGE))]);
    }

    #[test]
    fn images_that_lie_side_by_side_go_home_together_but_for_the_last() {
        let image = [7; PAGE];
        let places = [
            (File::Slots, 0),
            (File::Slots, 2),
            (File::Slots, 3),
            (File::Extents, 4),
            (File::Extents, 5),
        ];
        let places = places.map(|(file, page)| PagePlace { file, offset: page * PAGE as u64 });
        let (_, writes) = assemble(3, 5, places.into_iter().map(|place| (place, &image[..])));
        let wrote = writes.iter().map(|w| (w.file, w.offset / PAGE as u64, w.bytes.len() / PAGE));
        let wanted = [
            (File::Slots, 0, 1),
            (File::Slots, 2, 2),
            (File::Extents, 4, 1),
            (File::Extents, 5, 1),
        ];
        assert!(wrote.eq(wanted));
    }

    const GOLDEN: u64 = 0x26c9_8df1_270d_fc5e;
}
