//! `./x pgo`: renews the profile that release builds are built by (`tools/pgo`).
//!
//! The program is built once so that it counts where it goes, three nodes of that serve a load that it makes itself, and what
//! was counted is kept. Functions that change later are built without it until it is renewed, and so is everything with
//! another compiler, version or dependency.

mod profile;

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::{root, run, target};

const FIRST_PORT: u16 = 16479;
const NODES: u16 = 3;
/// How long nodes may take until they serve: they count, and the machine may be busy.
const SERVING_MAX: Duration = Duration::from_secs(60);

const BUILD: [&str; 5] = ["build", "--release", "--locked", "--package", "palimpsest"];
/// How nodes keep what they are told, and for how many seconds each load goes to them: most of what is counted should be on
/// disk, where a second has the fewest commands.
const DURABILITIES: [(&str, &str); 3] = [("disk", "10"), ("pmem", "2"), ("volatile", "1")];

/// What they serve, for `palimpsest bench resp`: through one node or through all of them.
const LOADS: [(bool, &[&str]); 5] = [
    (false, &["--connections", "64"]),
    (true, &["--connections", "64"]),
    (true, &["--connections", "8"]),
    (true, &["--connections", "16", "--pipeline", "16", "--mix", "2,2,1"]),
    (false, &["--connections", "16", "--value-size", "1024", "--mix", "1,1,0"]),
];

/// Counts, keeps what was counted, and builds by it.
///
/// # Errors
/// When something cannot be built, the nodes do not serve, or a load fails.
pub fn renew(cargo: impl Fn() -> Command) -> Result<()> {
    let compiler = profile::Compiler::look()?;
    // A folder of its own, and empty: cargo cannot tell this build from others.
    let builds = target().join("pgo");
    if builds.exists() {
        std::fs::remove_dir_all(&builds).with_context(|| builds.display().to_string())?;
    }
    let counts = builds.join("counts");
    let build = || {
        let mut build = cargo();
        build.args(BUILD).env("RUSTC_WRAPPER", root().join(profile::WRAPPER));
        build
    };
    run(build().env("CARGO_TARGET_DIR", &builds).env("PGO_COUNT_INTO", &counts))?;
    for (durability, seconds) in DURABILITIES {
        serve(&builds.join("release/palimpsest"), durability, seconds)?;
    }
    let kept = profile::keep(&compiler, &counts)?;
    run(&mut build())?;
    println!("{}", kept.display());
    println!("{}", target().join("release/palimpsest").display());
    Ok(())
}

fn serve(program: &Path, durability: &str, seconds: &str) -> Result<()> {
    let folder = target().join("pgo-data");
    let _ = std::fs::remove_dir_all(&folder);
    let ports = FIRST_PORT..FIRST_PORT + NODES;
    for port in ports.clone() {
        // Whoever serves there would be taken for the node, and written to.
        TcpListener::bind(("127.0.0.1", port)).with_context(|| format!("port {port}"))?;
    }
    let mut command = Command::new(program);
    command.args(["dev", "--port", &FIRST_PORT.to_string(), "--durability", durability]);
    let mut nodes =
        Nodes(command.arg("--data-dir").arg(&folder).spawn().context("palimpsest dev")?);
    for port in ports.clone() {
        nodes.wait_for(port)?;
    }
    for (by_all, load) in LOADS {
        let mut bench = Command::new(program);
        bench.args(["bench", "resp", "--time", seconds]).args(load);
        for port in ports.clone().take(if by_all { usize::from(NODES) } else { 1 }) {
            bench.args(["--address", &format!("127.0.0.1:{port}")]);
        }
        run(&mut bench)?;
    }
    nodes.stop()?;
    std::fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())
}

/// Nodes in one process. They write what they have counted when they are told to stop.
struct Nodes(Child);

impl Nodes {
    fn wait_for(&mut self, port: u16) -> Result<()> {
        let end = Instant::now() + SERVING_MAX;
        while !serves(port).unwrap_or(false) {
            if let Some(status) = self.0.try_wait()? {
                bail!("the nodes ended: {status}");
            }
            ensure!(Instant::now() < end, "the node at port {port} does not serve");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn stop(mut self) -> Result<()> {
        run(Command::new("kill").arg(self.0.id().to_string()))?;
        let status = self.0.wait()?;
        ensure!(status.success(), "the nodes did not stop as they should: {status}");
        Ok(())
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        // Of no use to one that has stopped.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Takes a write, and so has found the others.
fn serves(port: u16) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"SET ready 1\r\n")?;
    let mut reply = String::new();
    BufReader::new(stream).read_line(&mut reply)?;
    Ok(reply == "+OK\r\n")
}
