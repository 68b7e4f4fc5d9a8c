//! The profile that is kept: what counts in it, and its name.
//!
//! `llvm-profdata` reads and writes profiles; its text form is the one of LLVM 22 (llvm/docs/CommandGuide/llvm-profdata).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::{root, run};

/// Where profiles and what calls the compiler with them lie.
const FOLDER: &str = "tools/pgo";
/// What calls the compiler with them.
pub const WRAPPER: &str = "tools/pgo/rustc";
/// A function is kept if at least one of so many counts is its own. What a load hardly uses is built as without a profile,
/// not as what is never used.
const KEPT: u128 = 100_000;

/// Keeps what was counted into a folder, in place of what was kept before.
///
/// # Errors
/// When `llvm-profdata` fails, or the profile cannot be written.
pub fn keep(compiler: &Compiler, counts: &Path) -> Result<PathBuf> {
    let text = counts.join("text");
    let raw = std::fs::read_dir(counts).with_context(|| counts.display().to_string())?;
    let raw = raw.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    ensure!(!raw.is_empty(), "{}: nothing was counted", counts.display());
    run(compiler.profdata().args(["--sparse", "--text", "-o"]).arg(&text).args(&raw))?;
    let all = std::fs::read_to_string(&text).with_context(|| text.display().to_string())?;
    std::fs::write(&text, hot(&all)?).with_context(|| text.display().to_string())?;
    let folder = root().join(FOLDER);
    let (made, kept) = (folder.join("made"), folder.join(&compiler.profile));
    run(compiler.profdata().arg("-o").arg(&made).arg(&text))?;
    std::fs::rename(&made, &kept).with_context(|| kept.display().to_string())?;
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path != kept && path.extension().is_some_and(|it| it == "profdata") {
            std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
        }
    }
    Ok(kept)
}

/// The compiler in use: its own tools, and the name of what it is given as a profile.
pub struct Compiler {
    tools: PathBuf,
    profile: String,
}

impl Compiler {
    /// # Errors
    /// When there is none, or it has no `llvm-profdata`.
    pub fn look() -> Result<Compiler> {
        let ask = |argument: &[&str]| -> Result<String> {
            let output = Command::new("rustc").args(argument).current_dir(root()).output();
            String::from_utf8(output.context("rustc")?.stdout).context("rustc")
        };
        let profile = profile_name(&ask(&["-vV"])?).context("rustc -vV names no version")?;
        let libraries = PathBuf::from(ask(&["--print", "target-libdir"])?.trim());
        let compiler = Compiler { tools: libraries.with_file_name("bin"), profile };
        run(compiler.profdata().arg("--version").stdout(Stdio::null()))?;
        Ok(compiler)
    }

    fn profdata(&self) -> Command {
        let mut command = Command::new(self.tools.join("llvm-profdata"));
        command.arg("merge");
        command
    }
}

/// By what `rustc -vV` says: another compiler calls functions by other names, another LLVM may not read the file.
fn profile_name(version: &str) -> Option<String> {
    let of = |name: &str| version.lines().find_map(|line| line.strip_prefix(name));
    let llvm = of("LLVM version: ")?.split('.').next()?;
    Some(format!("rustc-{}-llvm-{llvm}.profdata", of("release: ")?))
}

/// The functions of a profile in its text form that much of what was counted falls to.
fn hot(text: &str) -> Result<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>();
    let header = lines.iter().take_while(|line| line.starts_with(':')).count();
    let functions = lines[header..].split(|line| line.is_empty()).filter(|it| !it.is_empty());
    let functions =
        functions.map(|it| Ok((counted(it)?, it))).collect::<Result<Vec<(u128, &[&str])>>>()?;
    let all = functions.iter().map(|(counted, _)| counted).sum::<u128>();
    let kept = functions.iter().filter(|(counted, _)| counted * KEPT >= all);
    let mut hot = lines[..header].join("\n");
    hot.extend(kept.map(|(_, lines)| format!("\n{}\n", lines.join("\n"))));
    Ok(hot)
}

/// The sum of a function's counters. Its lines are its name, a hash, how many counters there are, and the counters; what
/// follows says what it called indirectly.
fn counted(function: &[&str]) -> Result<u128> {
    let bad = || format!("no function of a profile: {}", function.join(" "));
    let count = function.get(2).and_then(|it| it.parse::<usize>().ok()).with_context(bad)?;
    let counters = function.get(3..).and_then(|it| it.get(..count)).with_context(bad)?;
    counters.iter().map(|it| it.parse::<u128>().with_context(bad)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION: &str = "rustc 1.95.0 (59807616e 2026-04-14)\nbinary: rustc\nhost: x86_64-unknown-linux-gnu\n\
                           release: 1.95.0\nLLVM version: 22.1.2\n";

    #[test]
    fn a_function_is_kept_that_much_was_counted_in() {
        let often = "often\n7\n2\n100000\n5\n1\n0\n1\n1\nwhat_it_called:100000\n";
        let profile = format!(
            "# IR level Instrumentation Flag\n:ir\n{often}\nhardly\n# Func Hash:\n8\n1\n1\n\nonce\n8\n1\n0\n"
        );
        assert_eq!(hot(&profile).expect("it is a profile"), format!(":ir\n{often}"));
        let even = ":ir\nsome\n7\n1\n3\n\nothers\n7\n1\n4\n";
        assert_eq!(hot(even).expect("it is a profile"), even);
    }

    #[test]
    fn what_is_no_profile_is_told() {
        for text in [":ir\nname\n7\n2\n1\n", ":ir\nname\n", ":ir\nname\n7\n1\nmany\n"] {
            let error = hot(text).expect_err("counters are missing");
            assert!(error.to_string().starts_with("no function of a profile: name"), "{error}");
        }
    }

    #[test]
    fn a_profile_is_called_by_its_compiler() {
        assert_eq!(profile_name(VERSION).as_deref(), Some("rustc-1.95.0-llvm-22.profdata"));
        assert_eq!(profile_name("rustc 1.95.0"), None);
    }

    #[cfg(unix)]
    #[test]
    fn the_pinned_compiler_is_given_its_profile_for_release_builds_of_our_crates() {
        /// What is in place of the compiler: it says a version and, else, what it is called with.
        const SAYS: &str = "#!/bin/sh\n[ \"$1\" = -vV ] && cat \"$0.version\" || echo \"$@\"\n";
        let pinned =
            std::fs::read_to_string(root().join("rust-toolchain.toml")).expect("it is there");
        assert!(pinned.contains("channel = \"1.95.0\""), "take the profile anew: ./x pgo");
        let name = format!("palimpsest-wrapper-{}", std::process::id());
        let compiler = std::env::temp_dir().join(name);
        let version = compiler.with_extension("version");
        std::fs::write(&version, VERSION).expect("temporary files can be written");
        // Written by another process: what this one has open a child of another test may have open still.
        let write = "printf %s \"$1\" > \"$0\" && chmod +x \"$0\"";
        run(Command::new("sh").args(["-c", write]).args([compiler.as_os_str(), SAYS.as_ref()]))
            .expect("temporary files can be written");
        let called = |package: &Path, arguments: &str, count_into: Option<&str>| {
            let mut command = Command::new(root().join(WRAPPER));
            command.arg(&compiler).args(arguments.split(' ')).env("CARGO_MANIFEST_DIR", package);
            command.env_remove("PGO_COUNT_INTO").envs(count_into.map(|it| ("PGO_COUNT_INTO", it)));
            let output = command.output().expect("the wrapper runs");
            String::from_utf8(output.stdout).expect("it is text").trim().to_string()
        };
        let (ours, others) = (root().join("crates/node"), root().join("vendor/libc"));
        let profile = root().join(FOLDER).join(profile_name(VERSION).expect("it is a version"));
        assert!(profile.exists(), "take the profile anew: ./x pgo");
        let config = std::fs::read_to_string(root().join(".cargo/config.toml"));
        assert!(config.expect("it is there").contains(&format!("rustc-wrapper = \"{WRAPPER}\"")));
        for linked in ["a.rs -C lto=fat", "a.rs -C linker-plugin-lto"] {
            let follows =
                format!("-Cprofile-use={} -Cllvm-args=-no-pgo-warn-mismatch", profile.display());
            assert_eq!(called(&ours, linked, None), format!("{linked} {follows}"));
            assert_eq!(called(&ours, linked, Some("x")), format!("{linked} -Cprofile-generate=x"));
            assert_eq!(called(&others, linked, None), linked);
            assert_eq!(called(&others, linked, Some("x")), linked);
        }
        assert_eq!(called(&ours, "a.rs -C opt-level=3", Some("x")), "a.rs -C opt-level=3");
        for other in
            ["-C lto=off", "-C lto=fat -Cprofile-use=x", "-C lto=fat -C instrument-coverage"]
        {
            assert_eq!(called(&ours, other, Some("x")), other);
        }
        assert_eq!(called(&ours, "-vV", None), VERSION.trim());
        std::fs::write(&version, VERSION.replace("1.95.0", "1.96.0")).expect("it is our own file");
        assert_eq!(called(&ours, "a.rs -C lto=fat", None), "a.rs -C lto=fat");
        for path in [compiler, version] {
            std::fs::remove_file(path).expect("it is our own file");
        }
    }
}
