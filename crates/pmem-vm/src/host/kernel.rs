//! The distribution's kernel, unpacked and not installed, and the modules that ext4 with DAX needs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::tool::run;

/// In the order in which they can be loaded. DAX itself is built in.
const MODULES: [&str; 9] = [
    "libnvdimm",
    "nfit",
    "nd_btt",
    "nd_pmem",
    "crc32c_generic",
    "jbd2",
    "mbcache",
    "crc16",
    "ext4",
];

/// Names the current kernel package, which changes with each update.
const META_PACKAGE: &str = "linux-image-amd64";

/// A kernel that qemu can start.
#[derive(Debug)]
pub struct Kernel {
    pub image: PathBuf,
    /// In the order in which they are loaded.
    pub modules: Vec<PathBuf>,
}

/// Fetches and unpacks the kernel below `cache`, unless it is there already.
///
/// # Errors
/// When it cannot be had, or lacks something.
pub fn obtain(cache: &Path) -> Result<Kernel> {
    fs::create_dir_all(cache).with_context(|| cache.display().to_string())?;
    let package = package()?;
    let folder = cache.join(&package);
    if !folder.is_dir() {
        unpack(cache, &package, &folder)?;
    }
    find(&folder)
}

fn package() -> Result<String> {
    let depends = run(Command::new("apt-cache").args(["depends", META_PACKAGE]))?;
    let package = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    Ok(package.with_context(|| format!("{META_PACKAGE} has no dependency"))?.to_string())
}

/// Renames the unpacked folder last, so that a partial one is never used.
fn unpack(cache: &Path, package: &str, folder: &Path) -> Result<()> {
    let fresh = cache.join("fresh");
    if fresh.exists() {
        fs::remove_dir_all(&fresh).context("folder of an earlier run")?;
    }
    fs::create_dir_all(&fresh).with_context(|| fresh.display().to_string())?;
    run(Command::new("apt-get").args(["download", package]).current_dir(&fresh))?;
    let archive =
        children(&fresh)?.into_iter().find(|path| path.extension().is_some_and(|e| e == "deb"));
    let archive = archive.with_context(|| format!("apt-get downloaded no {package}"))?;
    let unpacked = fresh.join("unpacked");
    run(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&unpacked))?;
    fs::rename(&unpacked, folder).context("the unpacked kernel")?;
    fs::remove_dir_all(&fresh).context("the downloaded kernel")
}

fn find(folder: &Path) -> Result<Kernel> {
    let is_image = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"))
    };
    let image = children(&folder.join("boot"))?.into_iter().find(is_image);
    let mut files = Vec::new();
    let usr = folder.join("usr/lib/modules");
    list(&if usr.is_dir() { usr } else { folder.join("lib/modules") }, &mut files)?;
    let mut modules = Vec::new();
    for module in MODULES {
        let is_it = |path: &&PathBuf| {
            let name = path.file_name().map(|name| name.to_string_lossy().replace('-', "_"));
            name.is_some_and(|name| name.strip_suffix(".ko") == Some(module))
        };
        let path = files.iter().find(is_it);
        modules.push(path.with_context(|| format!("the kernel has no module {module}"))?.clone());
    }
    Ok(Kernel { image: image.context("the package has no kernel")?, modules })
}

fn children(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.with_context(|| folder.display().to_string())?.path());
    }
    paths.sort();
    Ok(paths)
}

/// Every file below `folder`; links are not followed.
fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for path in children(folder)? {
        match path.is_symlink() {
            false if path.is_dir() => list(&path, files)?,
            false => files.push(path),
            true => {}
        }
    }
    Ok(())
}
