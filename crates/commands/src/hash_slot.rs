//! The slot of a key, as cluster clients compute it.

/// How many slots there are.
pub const COUNT: u16 = 16_384;

/// The slot of `key`: of its hash tag, if it has one. A tag stands between the first `{` and the
/// next `}`, and is not empty.
#[must_use]
pub fn of(key: &[u8]) -> u16 {
    crc16(tag(key).unwrap_or(key)) % COUNT
}

fn tag(key: &[u8]) -> Option<&[u8]> {
    let (_, rest) = key.split_at(key.iter().position(|&byte| byte == b'{')? + 1);
    let end = rest.iter().position(|&byte| byte == b'}')?;
    (end > 0).then(|| &rest[..end])
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| crc << 8 ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

static TABLE: [u16; 256] = table();

const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of redis-server 7.4.1, but for the first, which is the CRC's check value.
    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (key, slot) in [
            ("", 0),
            ("a", 15_495),
            ("foo", 12_182),
            ("bar", 5_061),
            ("hello", 866),
            ("123456789", 12_739),
            ("somekey", 11_058),
            ("foo{hash_tag}", 2_515),
            ("bar{hash_tag}", 2_515),
            ("hash_tag", 2_515),
            ("foo{}{bar}", 8_363),
            ("foo{{bar}}zap", 4_015),
            ("{bar", 4_015),
            ("foo{bar}{zap}", 5_061),
            ("{user1000}.following", 3_443),
            ("foo}bar{", 11_073),
        ] {
            assert_eq!((key, of(key.as_bytes())), (key, slot));
        }
    }
}
