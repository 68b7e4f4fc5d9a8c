//! Dumps, which `RESTORE` reads.

use values::rdb;

use super::Target;

pub(super) const TARGET: Target = Target {
    name: "dumps",
    claim: "a dump is refused, or is a value that comes back out of its own dump",
    run,
    seeds,
    short: 200_000,
};

/// Bytes that reading may allocate.
const LIMIT: usize = 1 << 20;

/// The input is the content of a dump: its checksum is put behind it.
fn run(data: &[u8]) {
    drop(rdb::load(data, LIMIT));
    let Ok(content) = rdb::load(&rdb::sealed(data), LIMIT) else { return };
    let value = content.encode();
    assert_eq!(values::check(&value), Ok(()));
    let dump = rdb::save(&value).expect("the value is sound");
    let again = rdb::load(&dump, 4 * LIMIT).expect("a dump is read").encode();
    let twice = rdb::save(&again).expect("the value is sound");
    assert_eq!(rdb::load(&twice, 4 * LIMIT).map(|content| content.encode()), Ok(again));
}

fn seeds() -> Vec<Vec<u8>> {
    const BODIES: &[&[u8]] = &[
        b"\x00\xc1\x01\x02",
        b"\x00\xc3\x05\x19\x00a\xe0\x0f\x00",
        b"\x01\x03\x01a\xc0\x05\x00",
        b"\x02\x02\x01a\xc0\x05",
        b"\x04\x02\x01a\x011\x01b\x012",
        b"\x05\x01\x01a\0\0\0\0\0\0\x04\x40",
        b"\x0b\x0c\x02\0\0\0\x02\0\0\0\x01\0\x02\0",
        b"\x0c\x10\x10\0\0\0\x0d\0\0\0\x02\0\x00\x01a\x03\xf2\xff",
        b"\x0e\x01\x10\x10\0\0\0\x0d\0\0\0\x02\0\x00\x01b\x03\xf6\xff",
        b"\x10\x0e\x0e\0\0\0\x02\0\x81a\x02\x82bc\x03\xff",
        b"\x11\x0c\x0c\0\0\0\x02\0\x81a\x02\x01\x01\xff",
        b"\x12\x02\x02\x0c\x0c\0\0\0\x02\0\x81a\x02\x05\x01\xff\x01\x01x",
        b"\x14\x0a\x0a\0\0\0\x01\0\x81a\x02\xff",
        b"\x18\x05\0\0\0\0\0\0\0\x02\x00\x01a\x011\x03\x01b\x012",
        b"\x19\x05\0\0\0\0\0\0\0\x0f\x0f\0\0\0\x03\0\x81a\x02\x81b\x02\x05\x01\xff",
    ];
    BODIES.iter().map(|body| body.to_vec()).collect()
}
