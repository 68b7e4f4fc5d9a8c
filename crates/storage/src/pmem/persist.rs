//! Getting cache lines to persistent memory: write back, then fence.
//!
//! `clwb` keeps the line in the cache, `clflushopt` drops it, `clflush` drops it and orders itself; which of
//! them there is, CPUID says. [Intel SDM, vol. 2: CLWB, CLFLUSHOPT, CLFLUSH; vol. 1, 13: persistence needs the
//! write-back *and* a following SFENCE.] Elsewhere there is no such instruction: a mapping is then never taken
//! for persistent memory, and only the order of stores is kept, which is enough against a crash of the process.
#![allow(unsafe_code)]

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Bytes that reach persistence together.
pub const LINE: u64 = 64;

/// How this CPU writes a cache line back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheFlush {
    Clwb,
    ClflushOpt,
    Clflush,
    /// None that is known: no promise of persistence can be made.
    Missing,
}

impl CacheFlush {
    /// Asks the CPU.
    #[must_use]
    pub fn detect() -> CacheFlush {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            x86::detect()
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        {
            CacheFlush::Missing
        }
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            CacheFlush::Clwb => "clwb",
            CacheFlush::ClflushOpt => "clflushopt",
            CacheFlush::Clflush => "clflush",
            CacheFlush::Missing => "none",
        }
    }

    /// Up to how many bytes, with a fence behind each write, are persistent sooner through the cache than past it: four
    /// lines on Intel, by measurement. Five are while the core has no other thread to run, by a tenth; beside one the
    /// stores before a fence no longer have room, and past the cache is faster by a quarter. None elsewhere; on AMD past
    /// the cache is faster for as few.
    #[must_use]
    pub fn cached_len_max(self) -> u64 {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self == CacheFlush::Clwb && x86::is_intel() {
            return 4 * LINE;
        }
        0
    }

    /// Starts writing back every line that `start..start + len` touches.
    ///
    /// # Safety
    /// The bytes must lie in memory mapped for as long as the call runs, and `self` must come from
    /// [`CacheFlush::detect`] on this machine.
    #[inline(always)]
    pub unsafe fn write_back(self, start: *const u8, len: usize) {
        let first = start.addr() & !(LINE as usize - 1);
        let end = start.addr() + len;
        for line in (first..end).step_by(LINE as usize) {
            // SAFETY: the line overlaps mapped memory, and mappings are made of whole lines.
            unsafe { self.line(start.with_addr(line)) };
        }
    }

    #[inline(always)]
    unsafe fn line(self, line: *const u8) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: the caller's promise: a mapped line, and an instruction that this CPU has.
        unsafe {
            match self {
                CacheFlush::Clwb => std::arch::asm!("clwb [{}]", in(reg) line, options(nostack)),
                CacheFlush::ClflushOpt => {
                    std::arch::asm!("clflushopt [{}]", in(reg) line, options(nostack));
                }
                CacheFlush::Clflush => {
                    std::arch::asm!("clflush [{}]", in(reg) line, options(nostack));
                }
                CacheFlush::Missing => {}
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = line;
    }

    /// Everything written back before is persistent before anything stored after.
    #[inline(always)]
    pub fn fence(self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: SFENCE is part of the x86-64 baseline and touches no memory.
        unsafe {
            std::arch::asm!("sfence", options(nostack));
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        fence(Ordering::SeqCst);
    }
}

/// Copies whole pieces of 16 bytes, in rising order, with stores that other threads see as stores
/// of words.
///
/// # Safety
/// `len` bytes at `from` are readable, as many at `to` are mapped and writable, `len` is a multiple
/// of 16 and not 0, and `to` is a multiple of 8. No other thread stores there meanwhile.
#[inline(always)]
pub unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as the caller promises; SSE2 is part of the x86-64 baseline.
    unsafe {
        std::arch::asm!(
            "2:",
            "movups {piece}, [{from} + {at}]",
            "movups [{to} + {at}], {piece}",
            "add {at}, 16",
            "jnz 2b",
            piece = out(xmm_reg) _,
            at = inout(reg) len.wrapping_neg() => _,
            from = in(reg) from.wrapping_add(len),
            to = in(reg) to.wrapping_add(len),
            options(nostack),
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    for at in (0..len).step_by(8) {
        // SAFETY: as the caller promises.
        unsafe {
            let word = from.add(at).cast::<[u8; 8]>().read();
            let word = u64::from_le_bytes(word);
            AtomicU64::from_ptr(to.add(at).cast()).store(word, Ordering::Relaxed);
        }
    }
}

/// As [`copy`], past the cache: no line is read first, the next fence makes it persistent, and the
/// cache does not hold it afterwards. A line goes off when all of it is stored, parts of it perhaps
/// before. [Intel SDM, vol. 1, 10.4.6.2]
///
/// # Safety
/// As for [`copy`], and `to` is a multiple of 16; a fence comes before anything that refers to it.
#[inline(always)]
pub unsafe fn stream(to: *mut u8, from: *const u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as the caller promises; SSE2 is part of the x86-64 baseline.
    unsafe {
        std::arch::asm!(
            "2:",
            "movups {piece}, [{from} + {at}]",
            "movntps [{to} + {at}], {piece}",
            "add {at}, 16",
            "jnz 2b",
            piece = out(xmm_reg) _,
            at = inout(reg) len.wrapping_neg() => _,
            from = in(reg) from.wrapping_add(len),
            to = in(reg) to.wrapping_add(len),
            options(nostack),
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: as the caller promises.
    unsafe {
        copy(to, from, len);
    }
}

/// Stores one word as [`stream`] does.
///
/// # Safety
/// `to` is mapped, writable and a multiple of 8, no other thread stores there meanwhile, and a
/// fence comes before anything that refers to it.
#[inline(always)]
pub unsafe fn stream_word(to: *mut u64, word: u64) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as the caller promises; MOVNTI is part of the x86-64 baseline.
    unsafe {
        std::arch::asm!(
            "movnti [{to}], {word}",
            to = in(reg) to,
            word = in(reg) word,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: as the caller promises.
    unsafe {
        AtomicU64::from_ptr(to).store(word, Ordering::Relaxed);
    }
}

/// Asks for a line that will be stored to. It is a hint, without effect if there is no such line.
/// [Intel SDM, vol. 2: PREFETCHW]
#[inline(always)]
pub fn expect_store(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch neither faults nor changes anything that a program can see.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use std::arch::x86_64::{__cpuid, __cpuid_count, __get_cpuid_max};

    use super::CacheFlush;

    const CLFLUSH_IN_EDX: u32 = 1 << 19;
    const CLFLUSHOPT_IN_EBX: u32 = 1 << 23;
    const CLWB_IN_EBX: u32 = 1 << 24;

    /// [Intel SDM, vol. 2, CPUID: leaf 0]
    pub(super) fn is_intel() -> bool {
        let leaf = __cpuid(0);
        let name = [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes);
        name.as_flattened() == b"GenuineIntel"
    }

    /// [Intel SDM, vol. 2, CPUID: leaf 1 EDX, leaf 7.0 EBX]
    pub(super) fn detect() -> CacheFlush {
        let leaf_max = __get_cpuid_max(0).0;
        let extended = if leaf_max >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
        if extended & CLWB_IN_EBX != 0 {
            CacheFlush::Clwb
        } else if extended & CLFLUSHOPT_IN_EBX != 0 {
            CacheFlush::ClflushOpt
        } else if __cpuid(1).edx & CLFLUSH_IN_EDX != 0 {
            CacheFlush::Clflush
        } else {
            CacheFlush::Missing
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_back_leaves_the_bytes_alone() {
        let bytes = vec![7_u8; 1000];
        let flush = CacheFlush::detect();
        // SAFETY: the bytes live until after the call, and `flush` was detected here.
        unsafe { flush.write_back(bytes.as_ptr().wrapping_add(3), 900) };
        flush.fence();
        assert!(bytes.iter().all(|&byte| byte == 7));
    }
}
