//! Getting cache lines to persistent memory: write back, then fence.
//!
//! `clwb` keeps the line in the cache, `clflushopt` drops it, `clflush` drops it and orders itself; which of
//! them there is, CPUID says. [Intel SDM, vol. 2: CLWB, CLFLUSHOPT, CLFLUSH; vol. 1, 13: persistence needs the
//! write-back *and* a following SFENCE.] Elsewhere there is no such instruction: a mapping is then never taken
//! for persistent memory, and only the order of stores is kept, which is enough against a crash of the process.
#![allow(unsafe_code)]

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

    /// Starts writing back every line that `start..start + len` touches.
    ///
    /// # Safety
    /// The bytes must lie in memory mapped for as long as the call runs, and `self` must come from
    /// [`CacheFlush::detect`] on this machine.
    #[inline]
    pub unsafe fn write_back(self, start: *const u8, len: usize) {
        let first = start.addr() & !(LINE as usize - 1);
        let end = start.addr() + len;
        for line in (first..end).step_by(LINE as usize) {
            // SAFETY: the line overlaps mapped memory, and mappings are made of whole lines.
            unsafe { self.line(start.with_addr(line)) };
        }
    }

    #[inline]
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
    #[inline]
    pub fn fence(self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: SFENCE is part of the x86-64 baseline and touches no memory.
        unsafe {
            std::arch::asm!("sfence", options(nostack));
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }
}

/// Copies whole pieces of 16 bytes, in rising order, with stores that other threads see as stores of words.
///
/// # Safety
/// `len` bytes at `from` are readable, as many at `to` are mapped and writable, `len` is a multiple of 16 and `to` is
/// a multiple of 8. Nobody else stores there meanwhile.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
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
}

/// As [`copy`], past the cache: nothing is read first, the next fence makes it persistent, and the cache does not hold
/// it afterwards. [Intel SDM, vol. 1, 10.4.6.2]
///
/// # Safety
/// As for [`copy`], and `to` is a multiple of 64 and `len` too; a fence comes before anything that refers to it.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub unsafe fn stream(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: as the caller promises; SSE2 is part of the x86-64 baseline.
    unsafe {
        std::arch::asm!(
            "2:",
            "movups {one}, [{from} + {at}]",
            "movups {two}, [{from} + {at} + 16]",
            "movups {three}, [{from} + {at} + 32]",
            "movups {four}, [{from} + {at} + 48]",
            "movntps [{to} + {at}], {one}",
            "movntps [{to} + {at} + 16], {two}",
            "movntps [{to} + {at} + 32], {three}",
            "movntps [{to} + {at} + 48], {four}",
            "add {at}, 64",
            "jnz 2b",
            one = out(xmm_reg) _,
            two = out(xmm_reg) _,
            three = out(xmm_reg) _,
            four = out(xmm_reg) _,
            at = inout(reg) len.wrapping_neg() => _,
            from = in(reg) from.wrapping_add(len),
            to = in(reg) to.wrapping_add(len),
            options(nostack),
        );
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use std::arch::x86_64::{__cpuid, __cpuid_count, __get_cpuid_max};

    use super::CacheFlush;

    const CLFLUSH_IN_EDX: u32 = 1 << 19;
    const CLFLUSHOPT_IN_EBX: u32 = 1 << 23;
    const CLWB_IN_EBX: u32 = 1 << 24;

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
