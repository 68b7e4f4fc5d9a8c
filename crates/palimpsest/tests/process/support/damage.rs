//! Damage of stored values.

use std::fs;
use std::path::Path;

/// Flips a bit of each place of the directory's files where this word is stored; how many.
pub fn damage(dir: &Path, word: &str) -> usize {
    let mut flipped = 0;
    for entry in fs::read_dir(dir).expect("the directory is there").flatten() {
        let path = entry.path();
        if path.is_dir() {
            flipped += damage(&path, word);
            continue;
        }
        let mut bytes = fs::read(&path).expect("the file is there");
        let places: Vec<usize> = (0..bytes.len().saturating_sub(word.len()))
            .filter(|&at| bytes[at..].starts_with(word.as_bytes()))
            .collect();
        places.iter().for_each(|&at| bytes[at] ^= 0x20);
        if !places.is_empty() {
            fs::write(&path, bytes).expect("the file can be written");
        }
        flipped += places.len();
    }
    flipped
}
