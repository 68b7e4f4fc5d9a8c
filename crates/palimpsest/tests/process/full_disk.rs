//! A disk that has no room even for facts about the node, as if its file system copied on write.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use bench::client::Value;
use bench::cluster::Config;
use bench::process::ScratchDir;
use rustix::fs::{FallocateFlags, fallocate};

use crate::support::{Nodes, config, eventually, http_get};

/// A small file system of its own; only root can have one.
pub struct Small(ScratchDir);

impl Small {
    pub fn mount(megabytes: u32) -> Option<Small> {
        let scratch = ScratchDir::new(&std::env::temp_dir(), "small").expect("a folder");
        let size = format!("size={megabytes}m");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(scratch.path());
        let is_mounted = mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        if !is_mounted {
            eprintln!("skipped: a file system can be mounted by root only");
        }
        is_mounted.then_some(Small(scratch))
    }

    pub fn path(&self) -> PathBuf {
        self.0.path().to_path_buf()
    }

    /// Takes all room that is left.
    pub fn fill(&self) {
        let mut options = File::options();
        let mut file = options.create(true).append(true).open(self.filler()).expect("a file");
        while file.write(&[b'x'; 65536]).is_ok_and(|count| count > 0) {}
    }

    pub fn make_room(&self) {
        std::fs::remove_file(self.filler()).expect("the filler is there");
    }

    fn filler(&self) -> PathBuf {
        self.0.path().join("filler")
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// Nodes of which the first has its data on `small`.
fn prepare(small: &Small) -> Nodes {
    let arguments = ["--ring-size", "1048576"].map(str::to_string).to_vec();
    let nodes = Nodes::prepare_with(Config { arguments, ..config() });
    let (link, dir) = (nodes.data_dir(0), small.path().join("data"));
    std::fs::create_dir(&dir).expect("a folder");
    std::os::unix::fs::symlink(&dir, link).expect("a link");
    nodes
}

/// From now on the next write to the first node's identity finds no room.
fn leave_no_room(nodes: &mut Nodes, small: &Small) {
    let identity = File::options().write(true).open(nodes.data_dir(0).join("node"));
    let identity = identity.expect("it was started");
    let len = identity.metadata().expect("a file").len();
    // A running process could take the room before the filler does.
    nodes.process(0).pause();
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&identity, flags, 0, len).expect("a hole");
    small.fill();
    nodes.process(0).resume();
}

/// Whether the first node is linked to the last.
fn is_linked(nodes: &Nodes) -> bool {
    let (_, body) =
        http_get(nodes.cluster.nodes[0].admin, "/api/v1/status").expect("the admin port");
    let status: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    status["members"][2]["up"].as_bool().expect("it is a member")
}

#[test]
fn restarted_member_waits_until_a_full_disk_notes_it() {
    let Some(small) = Small::mount(64) else { return };
    let mut nodes = prepare(&small);
    nodes.start_all();
    nodes.wait_for_answer(0, "SET key 1", &Value::ok());
    nodes.wait_for_answer(0, "SET lease 1 EX 3600", &Value::ok());
    nodes.wait_for_answer(0, "SET lock 1 EX 60", &Value::ok());
    leave_no_room(&mut nodes, &small);
    let clocks = "disk full: clocks of times to live cannot be saved";
    eventually("clocks are not saved", || nodes.log(0).contains(clocks));

    nodes.kill(2);
    eventually("the member's end was noticed", || !is_linked(&nodes));
    nodes.cluster.start_node(2).expect("the program starts");
    let notes = "disk full: a restarted member cannot be noted";
    eventually("the member is not noted", || nodes.log(0).contains(notes));
    nodes.wait_for_answer(2, "GET key", &Value::text("1"));
    nodes.wait_for_answer(0, "GET key", &Value::text("1"));
    assert!(!is_linked(&nodes), "its former words are not durably void");
    assert!(nodes.process(0).is_running(), "{}", nodes.log(0));

    small.make_room();
    for text in ["clocks of times to live are saved again", "restarted members are noted again"] {
        eventually(text, || nodes.log(0).contains(text));
    }
    eventually("the member is linked", || is_linked(&nodes));
    for text in [clocks, notes] {
        assert_eq!(nodes.log(0).matches(text).count(), 1, "{}", nodes.log(0));
    }
    nodes.kill(1);
    nodes.wait_for_answer(0, "SET key 2", &Value::ok());
    nodes.kill(0);
    nodes.restart(0);
    nodes.wait_for_answer(0, "GET key", &Value::text("2"));
}
