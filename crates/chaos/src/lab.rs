//! The nodes' network: one namespace each, joined by a bridge in this process's namespace.
//!
//! This process has its own network and mount namespace ([`enter`]), so all but names ends with it.
//! The names go with [`Lab`], or with the next run.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::host::{Host, Tool};
use crate::links::{self, HUB, NetworkRules};
use crate::sh;

/// Begins the name of every namespace and folder; the number of the process follows.
const NAME: &str = "palimpsest-chaos-";
const NAMESPACES: &str = "/run/netns";
const INSIDE: &str = "PALIMPSEST_CHAOS_INSIDE";

/// Runs this program once more, in namespaces of its own; returns in that process.
///
/// # Errors
/// When this user or this system may not have such namespaces.
pub fn enter() -> Result<()> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    ensure!(
        rustix::process::geteuid().is_root(),
        "network namespaces and mounts are for root: run `sudo ./x chaos`, or as root in a container that may \
         have them"
    );
    let unshare = ["unshare", "--mount", "--net", "--propagation", "private"];
    sh::run(&[&unshare[..], &["true"]].concat())
        .context("no namespaces here (a container needs CAP_SYS_ADMIN and CAP_NET_ADMIN)")?;
    let own = std::env::current_exe().context("this program's own path")?;
    let mut command = Command::new(unshare[0]);
    command.args(&unshare[1..]).arg("--").arg(own).args(std::env::args_os().skip(1));
    Err(command.env(INSIDE, "1").exec()).context("unshare")
}

/// A run's network, and the folder of its files.
pub struct Lab {
    /// Removed when this value is dropped.
    pub dir: PathBuf,
    name: String,
    nodes: usize,
    has_nft: bool,
    /// By node: the rules applied last.
    applied: Vec<String>,
}

impl Lab {
    /// Builds the network.
    ///
    /// # Errors
    /// When the system refuses; a partial network is removed again.
    pub fn build(nodes: usize, host: &Host) -> Result<Lab> {
        remove_leftovers();
        let name = format!("{NAME}{}", std::process::id());
        let dir = std::env::temp_dir().join(&name);
        std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        let applied = vec![String::new(); nodes];
        let lab = Lab { dir, name, nodes, has_nft: host.has(Tool::Nft), applied };
        ip("link set lo up")?;
        ip("link add name hub type bridge")?;
        ip(&format!("addr add {HUB}/24 dev hub"))?;
        ip("link set hub up")?;
        for node in 0..nodes {
            let namespace = lab.namespace(node);
            ip(&format!("netns add {namespace}"))?;
            ip(&format!("link add name n{node} type veth peer name eth0 netns {namespace}"))?;
            ip(&format!("link set n{node} master hub"))?;
            ip(&format!("link set n{node} up"))?;
            ip(&format!("-n {namespace} addr add {}/24 dev eth0", links::address(node)))?;
            ip(&format!("-n {namespace} link set eth0 up"))?;
            ip(&format!("-n {namespace} link set lo up"))?;
        }
        Ok(lab)
    }

    /// The words before a command that is to run in a node's namespace.
    pub fn inside(&self, node: usize) -> [String; 2] {
        ["nsenter".to_string(), format!("--net={NAMESPACES}/{}", self.namespace(node))]
    }

    /// Makes these rules the only ones.
    ///
    /// # Errors
    /// When the system refuses them.
    pub fn apply(&mut self, rules: &NetworkRules) -> Result<()> {
        for node in 0..self.nodes {
            match self.has_nft {
                true => self.tell_nft(node, rules.script(node))?,
                false => self.tell_routes(node, &rules.black_holes(node))?,
            }
        }
        Ok(())
    }

    fn tell_nft(&mut self, node: usize, script: String) -> Result<()> {
        if self.applied[node] != script {
            let [enter, namespace] = self.inside(node);
            sh::run_with(&[&enter, &namespace, "nft", "-f", "-"], &script)?;
            self.applied[node] = script;
        }
        Ok(())
    }

    fn tell_routes(&mut self, node: usize, holes: &[String]) -> Result<()> {
        let namespace = self.namespace(node);
        ip(&format!("-n {namespace} route flush type blackhole"))?;
        for hole in holes {
            ip(&format!("-n {namespace} route add blackhole {hole}"))?;
        }
        Ok(())
    }

    /// Gives a node's link a queueing discipline; an empty one removes it.
    ///
    /// # Errors
    /// When the kernel does not have it.
    pub fn shape(&self, node: usize, discipline: &str) -> Result<()> {
        let [enter, namespace] = self.inside(node);
        let mut words = vec![&*enter, &*namespace, "tc", "qdisc"];
        match discipline {
            "" => words.extend(["del", "dev", "eth0", "root"]),
            some => {
                words.extend(["replace", "dev", "eth0", "root"]);
                words.extend(some.split(' '));
            }
        }
        sh::run(&words).map(|_| ())
    }

    fn namespace(&self, node: usize) -> String {
        format!("{}-{}", self.name, node + 1)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for node in 0..self.nodes {
            remove_namespace(&self.namespace(node));
        }
        // Links in this process's own namespace went with the other ends.
        let _ = ip("link del hub");
        if let Err(error) = std::fs::remove_dir_all(&self.dir) {
            eprintln!("chaos: {} stays behind: {error}", self.dir.display());
        }
    }
}

fn ip(line: &str) -> Result<()> {
    let words: Vec<&str> = std::iter::once("ip").chain(line.split(' ')).collect();
    sh::run(&words).map(|_| ())
}

fn remove_namespace(name: &str) {
    // A name whose mount ended with its process is an empty file.
    if ip(&format!("netns del {name}")).is_err() {
        let _ = std::fs::remove_file(Path::new(NAMESPACES).join(name));
    }
}

/// Removes namespaces and folders of killed runs.
fn remove_leftovers() {
    for name in left_behind(Path::new(NAMESPACES)) {
        remove_namespace(&name);
    }
    let folders = std::env::temp_dir();
    for name in left_behind(&folders) {
        let _ = std::fs::remove_dir_all(folders.join(name));
    }
}

/// Entries of `folder` whose name belongs to a run that has ended.
fn left_behind(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| run_of(name).is_some_and(|pid| !is_running(pid))).collect()
}

/// The process in a name.
fn run_of(name: &str) -> Option<u32> {
    let rest = name.strip_prefix(NAME)?;
    rest.split('-').next()?.parse().ok()
}

fn is_running(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// A place for a node's data that can fill up.
pub struct Volume {
    mount: PathBuf,
    is_mounted: bool,
}

/// The kind of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ground {
    /// A file system in a file.
    Loop,
    /// Memory.
    Tmpfs,
    /// A folder of the system's own disk, which is not to fill up.
    Folder,
}

impl Volume {
    /// Makes one at `mount`, which must not exist.
    ///
    /// # Errors
    /// When it cannot be made or mounted.
    pub fn make(mount: PathBuf, ground: Ground, megabytes: u64) -> Result<Volume> {
        std::fs::create_dir_all(&mount).with_context(|| mount.display().to_string())?;
        let mut volume = Volume { mount, is_mounted: false };
        let path = volume.mount.display().to_string();
        match ground {
            Ground::Loop => {
                let image = format!("{path}.img");
                let size = format!("{megabytes}M");
                sh::run(&["mkfs.ext4", "-q", "-F", "-m", "0", &image, &size])?;
                sh::run(&["mount", "-o", "loop", &image, &path])?;
                volume.is_mounted = true;
            }
            Ground::Tmpfs => {
                let size = format!("size={megabytes}m");
                sh::run(&["mount", "-t", "tmpfs", "-o", &size, "palimpsest-chaos", &path])?;
                volume.is_mounted = true;
            }
            Ground::Folder => {}
        }
        Ok(volume)
    }

    /// The folder in which a node may write.
    pub fn data_dir(&self) -> PathBuf {
        self.mount.join("data")
    }

    fn ballast(&self) -> PathBuf {
        self.mount.join("ballast")
    }

    /// Takes all remaining space.
    ///
    /// # Errors
    /// When the volume cannot fill up, or the file cannot be written.
    pub fn fill(&self) -> Result<u64> {
        use rustix::fs::{FallocateFlags, fallocate};
        if !self.is_mounted {
            bail!("{} is not a file system of its own", self.mount.display());
        }
        let file = std::fs::File::create(self.ballast()).context("ballast")?;
        let mut size = 0;
        // Large pieces first, then smaller ones for the remaining gaps.
        for piece in [8 << 20, 1 << 20, 64 << 10, 4 << 10] {
            while fallocate(&file, FallocateFlags::empty(), size, piece).is_ok() {
                size += piece;
            }
        }
        Ok(size)
    }

    /// Gives the space back.
    pub fn relieve(&self) {
        let _ = std::fs::remove_file(self.ballast()); // absent unless the volume was filled
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if !self.is_mounted {
            return;
        }
        let path = self.mount.display().to_string();
        if sh::run(&["umount", &path]).is_err() {
            // Still in use by a process that is ending.
            let _ = sh::run(&["umount", "--lazy", &path]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_belong_to_ended_runs() {
        let folder = std::env::temp_dir().join(format!("chaos-test-{}", std::process::id()));
        let gone = format!("{NAME}4294967295-1");
        let own = format!("{NAME}{}", std::process::id());
        for name in [&gone, &own, &"other-1".to_string(), &format!("{NAME}x")] {
            std::fs::create_dir_all(folder.join(name)).expect("a folder can be made");
        }
        assert_eq!(left_behind(&folder), [gone]);
        std::fs::remove_dir_all(&folder).expect("the folder is there");
    }

    #[test]
    fn folder_volume_never_fills_up() {
        let folder = std::env::temp_dir().join(format!("chaos-volume-{}", std::process::id()));
        let volume = Volume::make(folder.clone(), Ground::Folder, 1).expect("a folder can be made");
        assert!(volume.fill().is_err());
        std::fs::remove_dir_all(&folder).expect("the folder is there");
    }
}
