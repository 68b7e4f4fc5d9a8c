//! Registers of six bits each, four in three bytes, lowest bits first.

use super::REGISTERS;

/// Bytes of all registers.
pub(super) const LEN: usize = REGISTERS / 4 * 3;

/// Registers from first to last.
pub(super) fn registers(bytes: &[u8]) -> impl Iterator<Item = u8> {
    bytes.chunks_exact(3).flat_map(|group| {
        let word = u32::from_le_bytes([group[0], group[1], group[2], 0]);
        [0, 6, 12, 18].map(|shift| (word >> shift & 63) as u8)
    })
}

/// True when the register was lower.
pub(super) fn raise(bytes: &mut [u8], index: usize, rank: u8) -> bool {
    let (start, shift) = (index / 4 * 3, index % 4 * 6);
    let group = &mut bytes[start..start + 3];
    let word = u32::from_le_bytes([group[0], group[1], group[2], 0]);
    if word >> shift & 63 >= u32::from(rank) {
        return false;
    }
    let word = word & !(63 << shift) | u32::from(rank) << shift;
    group.copy_from_slice(&word.to_le_bytes()[..3]);
    true
}
