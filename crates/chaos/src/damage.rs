//! Damage to the files of a node that is down.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use base::Prng;

const SECTOR: u64 = 512;

/// Damages one file below `dir`; returns a description.
///
/// # Errors
/// When there is no file, or it cannot be changed.
pub fn damage(dir: &Path, rng: &mut Prng) -> Result<String> {
    let files = files(dir)?;
    if files.is_empty() {
        bail!("{} holds no file to damage", dir.display());
    }
    // Prefer the longer of two files: the identity is a small file, and damaging it hides all other
    // damage.
    let drawn = [rng.pick(&files), rng.pick(&files)];
    let path = drawn.into_iter().max_by_key(|path| path.metadata().map_or(0, |about| about.len()));
    let path = path.expect("two were drawn");
    let name = path.strip_prefix(dir).unwrap_or(path).display().to_string();
    let file = File::options().read(true).write(true).open(path).context("a data file")?;
    let length = file.metadata().context("a data file")?.len();
    let change = match rng.below(10) {
        _ if length == 0 => return remove(path, &name),
        0 => return remove(path, &name),
        1 => {
            let kept = rng.below(length);
            file.set_len(kept).context("cutting a file off")?;
            format!("{name}: cut off at {kept} of {length} bytes")
        }
        2..=4 => overwrite(&file, length, rng, &name, 4096, |_| 0)?,
        5..=6 => overwrite(&file, length, rng, &name, 65_536, |rng| rng.below(256) as u8)?,
        _ => flip(&file, length, rng, &name)?,
    };
    file.sync_all().context("a damaged file")?;
    Ok(change)
}

fn remove(path: &Path, name: &str) -> Result<String> {
    fs::remove_file(path).context("removing a file")?;
    Ok(format!("{name}: removed"))
}

fn overwrite(
    file: &File,
    length: u64,
    rng: &mut Prng,
    name: &str,
    most: u64,
    mut byte: impl FnMut(&mut Prng) -> u8,
) -> Result<String> {
    let at = used_place(file, length, rng)? / SECTOR * SECTOR;
    let count = most.min(length - at);
    let bytes: Vec<u8> = (0..count).map(|_| byte(rng)).collect();
    file.write_all_at(&bytes, at).context("overwriting a part of a file")?;
    Ok(format!("{name}: {count} bytes from {at} overwritten"))
}

fn flip(file: &File, length: u64, rng: &mut Prng, name: &str) -> Result<String> {
    let count = rng.between(1, 8);
    for _ in 0..count {
        let at = used_place(file, length, rng)?;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).context("a data file")?;
        byte[0] ^= 1 << rng.below(8);
        file.write_all_at(&byte, at).context("flipping a bit")?;
    }
    Ok(format!("{name}: {count} bits flipped"))
}

/// An offset with data, if one is found soon: files are long and mostly empty.
fn used_place(file: &File, length: u64, rng: &mut Prng) -> Result<u64> {
    const TRIES: u64 = 200;
    let mut at = 0;
    for _ in 0..TRIES {
        at = rng.below(length);
        let mut sector = vec![0; SECTOR.min(length - at) as usize];
        file.read_exact_at(&mut sector, at).context("a data file")?;
        if sector.iter().any(|byte| *byte != 0) {
            break;
        }
    }
    Ok(at)
}

/// All files below `dir`, in order of their names.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry.context("a data directory")?.path();
        match path.is_dir() {
            true => found.extend(files(&path)?),
            false => found.push(path),
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_damage_changes_a_file() {
        let dir = std::env::temp_dir().join(format!("chaos-damage-{}", std::process::id()));
        let content: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
        for seed in 0..60 {
            fs::create_dir_all(dir.join("sub")).expect("a folder can be made");
            fs::write(dir.join("sub/file"), &content).expect("a file can be written");
            let change = damage(&dir, &mut Prng::new(seed)).expect("there is a file");
            let after = fs::read(dir.join("sub/file")).ok();
            // An even number of flips of one bit would undo each other.
            assert!(after.as_ref() != Some(&content) || change.contains("flipped"), "{change}");
            fs::remove_dir_all(&dir).expect("the folder is there");
        }
    }

    #[test]
    fn directory_without_files_cannot_be_damaged() {
        let dir = std::env::temp_dir().join(format!("chaos-bare-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a folder can be made");
        assert!(damage(&dir, &mut Prng::new(1)).is_err());
        fs::remove_dir_all(&dir).expect("the folder is there");
    }
}
