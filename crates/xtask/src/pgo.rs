//! Profile-guided optimisation for `./x release`.
//!
//! An instrumented binary serves three nodes under load and counts its branches. The final build
//! reads these counts. Other builds know nothing of this.

mod profile;

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::{run, target};

const FIRST_PORT: u16 = 16479;
const NODES: u16 = 3;
/// Instrumented nodes start slowly on a busy machine.
const READY_MAX: Duration = Duration::from_secs(60);

/// Durability modes under load, and seconds per load. `disk` serves the fewest commands a second.
const DURABILITIES: [(&str, &str); 3] = [("disk", "10"), ("pmem", "2"), ("volatile", "1")];

/// Arguments of `palimpsest bench resp`, through one node or through all of them.
const LOADS: [(bool, &[&str]); 5] = [
    (false, &["--connections", "64"]),
    (true, &["--connections", "64"]),
    (true, &["--connections", "8"]),
    (true, &["--connections", "16", "--pipeline", "16", "--mix", "2,2,1"]),
    (false, &["--connections", "16", "--value-size", "1024", "--mix", "1,1,0"]),
];

/// Builds the binary of the `dist` profile, with or without counts of a load. Returns its path.
///
/// # Errors
/// When a build, a node or a load fails.
pub fn build(cargo: impl Fn() -> Command, guided: bool) -> Result<PathBuf> {
    let folder = target().join("dist");
    if !guided {
        return compile(cargo(), &folder.join("plain"), "");
    }
    let compiler = profile::Compiler::find()?;
    let counts = folder.join("counts");
    if counts.exists() {
        std::fs::remove_dir_all(&counts).with_context(|| counts.display().to_string())?;
    }
    let flags = format!("-Cprofile-generate={}", counts.display());
    let instrumented = compile(cargo(), &folder.join("instrumented"), &flags)?;
    for (durability, seconds) in DURABILITIES {
        train(&instrumented, durability, seconds)?;
    }
    let merged = profile::merge(&compiler, &counts, &folder)?;
    let flags = format!("-Cprofile-use={} -Cllvm-args=-no-pgo-warn-mismatch", merged.display());
    compile(cargo(), &folder.join("guided"), &flags)
}

/// `--target` keeps the flags from build scripts and procedural macros.
fn compile(mut cargo: Command, folder: &Path, flags: &str) -> Result<PathBuf> {
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    cargo.args(["build", "--profile", "dist", "--locked", "--package", "palimpsest"]);
    cargo.args(["--target", &host]).env("CARGO_TARGET_DIR", folder).env("RUSTFLAGS", flags);
    run(&mut cargo)?;
    Ok(folder.join(host).join("dist/palimpsest"))
}

fn train(program: &Path, durability: &str, seconds: &str) -> Result<()> {
    let folder = target().join("dist/nodes");
    let _ = std::fs::remove_dir_all(&folder);
    let ports = FIRST_PORT..FIRST_PORT + NODES;
    for port in ports.clone() {
        // The load would write to any other server on this port.
        TcpListener::bind(("127.0.0.1", port)).with_context(|| format!("port {port}"))?;
    }
    let mut command = Command::new(program);
    command.args(["dev", "--port", &FIRST_PORT.to_string(), "--durability", durability]);
    let mut nodes =
        Nodes(command.arg("--data-dir").arg(&folder).spawn().context("palimpsest dev")?);
    for port in ports.clone() {
        nodes.wait_for(port)?;
    }
    for (through_all, load) in LOADS {
        let mut bench = Command::new(program);
        bench.args(["bench", "resp", "--time", seconds]).args(load);
        for port in ports.clone().take(if through_all { usize::from(NODES) } else { 1 }) {
            bench.args(["--address", &format!("127.0.0.1:{port}")]);
        }
        run(&mut bench)?;
    }
    nodes.stop()?;
    std::fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())
}

/// Nodes in one process. It writes its counts when it ends by SIGTERM.
struct Nodes(Child);

impl Nodes {
    fn wait_for(&mut self, port: u16) -> Result<()> {
        let end = Instant::now() + READY_MAX;
        while !accepts_writes(port).unwrap_or(false) {
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
        ensure!(status.success(), "the nodes did not stop cleanly: {status}");
        Ok(())
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        // Both fail harmlessly after `stop`.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An accepted write implies a quorum.
fn accepts_writes(port: u16) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"SET ready 1\r\n")?;
    let mut reply = String::new();
    BufReader::new(stream).read_line(&mut reply)?;
    Ok(reply == "+OK\r\n")
}
