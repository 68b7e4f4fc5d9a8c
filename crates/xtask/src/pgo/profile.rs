//! Profiles of branch counts, read and written by `llvm-profdata`.
//!
//! The text form is that of LLVM 22 (llvm/docs/CommandGuide/llvm-profdata).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::{root, run};

/// Functions below this share of all counts are dropped: the compiler would shrink a rarely used
/// function as if it were never used.
const SHARE_MIN: u128 = 100_000;

/// Merges the raw counts of a folder into one profile of the hot functions. Returns its path.
///
/// # Errors
/// When `llvm-profdata` fails, or the profile cannot be written.
pub fn merge(compiler: &Compiler, counts: &Path, into: &Path) -> Result<PathBuf> {
    let raw = std::fs::read_dir(counts).with_context(|| counts.display().to_string())?;
    let raw = raw.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    ensure!(!raw.is_empty(), "{}: the load left no counts", counts.display());
    let text = into.join("counts.txt");
    run(compiler.profdata().args(["--sparse", "--text", "-o"]).arg(&text).args(&raw))?;
    let all = std::fs::read_to_string(&text).with_context(|| text.display().to_string())?;
    std::fs::write(&text, hot(&all)?).with_context(|| text.display().to_string())?;
    let merged = into.join("merged.profdata");
    run(compiler.profdata().arg("-o").arg(&merged).arg(&text))?;
    Ok(merged)
}

/// The `llvm-profdata` that fits the compiler in use.
pub struct Compiler {
    profdata: PathBuf,
}

impl Compiler {
    /// Looks in the toolchain, then for the system's package of the same LLVM version.
    ///
    /// # Errors
    /// When neither has one.
    pub fn find() -> Result<Compiler> {
        let version = rustc(&["-vV"])?;
        let major = llvm_major(&version).context("rustc -vV names no LLVM version")?;
        let libraries = PathBuf::from(rustc(&["--print", "target-libdir"])?.trim());
        let bundled = libraries.with_file_name("bin").join("llvm-profdata");
        for profdata in [bundled, format!("llvm-profdata-{major}").into()] {
            let mut command = Command::new(&profdata);
            let output = command.arg("--version").stderr(Stdio::null()).output();
            if output.is_ok_and(|output| output.status.success()) {
                return Ok(Compiler { profdata });
            }
        }
        bail!("no llvm-profdata of LLVM {major}: rustup component add llvm-tools")
    }

    fn profdata(&self) -> Command {
        let mut command = Command::new(&self.profdata);
        command.arg("merge");
        command
    }
}

fn rustc(arguments: &[&str]) -> Result<String> {
    let output = Command::new("rustc").args(arguments).current_dir(root()).output();
    String::from_utf8(output.context("rustc")?.stdout).context("rustc")
}

fn llvm_major(version: &str) -> Option<&str> {
    version.lines().find_map(|line| line.strip_prefix("LLVM version: "))?.split('.').next()
}

/// Keeps the functions of a text profile that have a large share of its counts.
fn hot(text: &str) -> Result<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>();
    let header = lines.iter().take_while(|line| line.starts_with(':')).count();
    let functions = lines[header..].split(|line| line.is_empty()).filter(|it| !it.is_empty());
    let functions =
        functions.map(|it| Ok((sum(it)?, it))).collect::<Result<Vec<(u128, &[&str])>>>()?;
    let all = functions.iter().map(|(sum, _)| sum).sum::<u128>();
    let kept = functions.iter().filter(|(sum, _)| sum * SHARE_MIN >= all);
    let mut hot = lines[..header].join("\n");
    hot.extend(kept.map(|(_, lines)| format!("\n{}\n", lines.join("\n"))));
    Ok(hot)
}

/// Adds up the counters of one function: name, hash, number of counters, counters, indirect calls.
fn sum(function: &[&str]) -> Result<u128> {
    let bad = || format!("no function of a profile: {}", function.join(" "));
    let count = function.get(2).and_then(|it| it.parse::<usize>().ok()).with_context(bad)?;
    let counters = function.get(3..).and_then(|it| it.get(..count)).with_context(bad)?;
    counters.iter().map(|it| it.parse::<u128>().with_context(bad)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_keeps_hot_functions_only() {
        let often = "often\n7\n2\n100000\n5\n1\n0\n1\n1\ncallee:100000\n";
        let profile = format!(
            "# IR level Instrumentation Flag\n:ir\n{often}\nhardly\n# Func Hash:\n8\n1\n1\n\nonce\n8\n1\n0\n"
        );
        assert_eq!(hot(&profile).expect("it is a profile"), format!(":ir\n{often}"));
        let even = ":ir\nsome\n7\n1\n3\n\nothers\n7\n1\n4\n";
        assert_eq!(hot(even).expect("it is a profile"), even);
    }

    #[test]
    fn damaged_profile_is_refused() {
        for text in [":ir\nname\n7\n2\n1\n", ":ir\nname\n", ":ir\nname\n7\n1\nmany\n"] {
            let error = hot(text).expect_err("counters are missing");
            assert!(error.to_string().starts_with("no function of a profile: name"), "{error}");
        }
    }

    #[test]
    fn llvm_version_is_read_from_rustc() {
        let version = "rustc 1.95.0 (59807616e 2026-04-14)\nrelease: 1.95.0\nLLVM version: 22.1.2";
        assert_eq!(llvm_major(version), Some("22"));
        assert_eq!(llvm_major("rustc 1.95.0"), None);
    }
}
