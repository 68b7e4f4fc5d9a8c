//! Files of later versions: a start and `verify` name file and formats, and change no byte of it.

use std::path::Path;

use base::checksum::checksum;

use crate::directories::contents;
use crate::support::{LIMIT, Nodes, exit_of};

const PAGE: usize = 4096;

/// A file whose head is kept twice, each copy behind its checksum.
struct Head {
    file: &'static str,
    /// Bytes of a copy that its checksum covers, the checksum included.
    len: usize,
    /// Where the number of the format begins in a copy.
    format_at: usize,
    known: u8,
    /// Of the checksum of each copy.
    seeds: [u64; 2],
}

const IDENTITY: Head = Head { file: "node", len: PAGE, format_at: 16, known: 9, seeds: [0, 1] };
const DISK: Head = Head { file: "slots", len: PAGE, format_at: 12, known: 3, seeds: [0, 1] };
const PMEM: Head = Head { file: "pmem", len: 48, format_at: 16, known: 2, seeds: [0, PAGE as u64] };

impl Head {
    /// Adds to the number of the format in both copies, and seals them.
    fn shift(&self, dir: &Path, by: i8) {
        let path = dir.join(self.file);
        let mut bytes = std::fs::read(&path).expect("the file is there");
        for (copy, seed) in bytes.chunks_exact_mut(PAGE).zip(self.seeds) {
            let copy = &mut copy[..self.len];
            copy[self.format_at] = copy[self.format_at].wrapping_add_signed(by);
            let sum = checksum(seed, &copy[8..]);
            copy[..8].copy_from_slice(&sum.to_le_bytes());
        }
        std::fs::write(path, bytes).expect("it can be written");
    }

    fn is_refused(&self, nodes: &mut Nodes) {
        let dir = nodes.data_dir(2).to_owned();
        let text = dir.display().to_string();
        self.shift(&dir, 1);
        let before = contents(&dir);
        let Head { file, known, .. } = self;
        let named = format!("{file} has format {}, this version knows {known}: ", known + 1);
        let (code, said) = exit_of(&["verify", &text]);
        assert!(matches!(code, Some(1 | 2)), "{code:?}: {said}");
        assert!(said.contains(&named), "{said}");
        assert_eq!(contents(&dir), before, "verify changed something");
        nodes.cluster.start_node(2).expect("the program starts");
        assert_eq!(nodes.wait_exit(2), Some(2), "{}", nodes.log(2));
        assert!(nodes.log(2).contains(&named), "{}", nodes.log(2));
        let mut after = contents(&dir);
        if *file != "node" {
            // The identity counts the start.
            let path = dir.join("node");
            after.insert(path.clone(), before[&path]);
        }
        assert_eq!(after, before, "the start changed something");
        self.shift(&dir, -1);
    }
}

fn are_refused(durability: &str, heads: &[Head]) {
    let mut nodes = Nodes::start(durability);
    assert_eq!(nodes.process(2).stop(LIMIT), Some(0));
    heads.iter().for_each(|head| head.is_refused(&mut nodes));
    // With its former bytes it goes on.
    nodes.restart(2);
}

#[test]
fn unknown_formats_of_a_disk_node_are_refused() {
    are_refused("disk", &[IDENTITY, DISK]);
}

#[test]
fn unknown_formats_of_a_pmem_node_are_refused() {
    are_refused("pmem", &[IDENTITY, PMEM]);
}
