//! The guest's initramfs: a shell for the first steps, modules, and programs with their libraries.
//!
//! The programs are the host's own builds, so the test covers the shipped binaries.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::archive::Archive;
use super::kernel::Kernel;
use super::tool::run;

const INIT: &str = include_str!("init.sh");

/// Programs by their names in the guest.
pub type Programs<'a> = [(&'a str, &'a Path)];

/// Writes the archive to `to`; temporary files go to the folder `scratch`.
///
/// # Errors
/// When a program or one of its libraries cannot be read.
pub fn write(to: &Path, kernel: &Kernel, programs: &Programs, scratch: &Path) -> Result<()> {
    let mut archive = Archive::default();
    for folder in ["bin", "dev", "modules", "programs", "tmp"] {
        archive.folder(folder);
    }
    archive.file("init", INIT.as_bytes());
    let shell = which("busybox")?;
    archive.file("bin/busybox", &read(&shell)?);
    let mut order = String::new();
    for module in &kernel.modules {
        let name = module.file_name().context("a module has a name")?.to_string_lossy();
        archive.file(&format!("modules/{name}"), &read(module)?);
        order.push_str(&format!("{name}\n"));
    }
    archive.file("modules/order", order.as_bytes());
    // A static program is an error to ldd, and uses none.
    let mut libraries = libraries_of(&shell).unwrap_or_default();
    for &(name, path) in programs {
        archive.file(&format!("programs/{name}"), &stripped(path, scratch)?);
        libraries.extend(libraries_of(path)?);
    }
    add_libraries(&mut archive, &libraries)?;
    fs::write(to, archive.finish()).with_context(|| to.display().to_string())
}

/// At the same paths as on the host, where the programs expect them.
fn add_libraries(archive: &mut Archive, libraries: &BTreeSet<PathBuf>) -> Result<()> {
    let mut folders: BTreeSet<&Path> = BTreeSet::new();
    for library in libraries {
        folders.extend(library.ancestors().skip(1));
    }
    // A folder sorts before its content.
    for folder in folders {
        let name = folder.to_string_lossy();
        let name = name.trim_start_matches('/');
        if !name.is_empty() {
            archive.folder(name);
        }
    }
    for library in libraries {
        archive.file(library.to_string_lossy().trim_start_matches('/'), &read(library)?);
    }
    Ok(())
}

/// Those that the dynamic linker would load, and itself.
fn libraries_of(program: &Path) -> Result<BTreeSet<PathBuf>> {
    let text = run(Command::new("ldd").arg(program))?;
    let libraries = parse_libraries(&text);
    if libraries.is_empty() {
        bail!("{}: ldd names no library: {text}", program.display());
    }
    Ok(libraries)
}

/// Lines are `name => /path (address)` or `/path (address)`.
fn parse_libraries(text: &str) -> BTreeSet<PathBuf> {
    let path = |line: &str| {
        let path = line.split_once("=>").map_or(line, |(_, path)| path).trim();
        let path = path.split(" (").next().unwrap_or(path);
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    text.lines().filter_map(path).collect()
}

/// Debug information is nine tenths of a program, and of no use in the guest.
fn stripped(program: &Path, scratch: &Path) -> Result<Vec<u8>> {
    let copy = scratch.join("stripped");
    run(Command::new("strip").arg("-o").arg(&copy).arg(program))?;
    read(&copy)
}

fn which(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let candidates = std::env::split_paths(&path).map(|folder| folder.join(name));
    candidates
        .into_iter()
        .find(|path| path.is_file())
        .with_context(|| format!("there is no {name}"))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_those_with_a_path() {
        let text = "\tlinux-vdso.so.1 (0x7f)\n\tlibc.so.6 => /lib/libc.so.6 (0x7f)\n\t/lib64/ld.so (0x7f)\n";
        let expected: BTreeSet<PathBuf> = ["/lib/libc.so.6".into(), "/lib64/ld.so".into()].into();
        assert_eq!(parse_libraries(text), expected);
        assert!(parse_libraries("\tnot a dynamic executable\n").is_empty());
    }
}
