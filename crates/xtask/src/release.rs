//! `./x release`: everything that ships, in `dist/`.
//!
//! The version is that of Cargo.toml, with `-dev` unless the commit has the tag `vVERSION`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::report::announce;
use crate::{pgo, root, run, target};

/// Shells, and the file names that they look for.
const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "palimpsest.bash"), ("zsh", "_palimpsest"), ("fish", "palimpsest.fish")];

/// Files of the repository in the tarball, besides binary, pages and completions.
const BESIDES: [&str; 4] = [
    "LICENSE",
    "README.md",
    "deploy/systemd/palimpsest.toml",
    "deploy/systemd/palimpsest@.service",
];

/// As in `crates/palimpsest/Cargo.toml`.
const MAINTAINER: &str = "Palimpsest authors <palimpsest-store@users.noreply.github.com>";

/// With debugging information the binary has 50 MB and more.
const BINARY_BYTES_MAX: u64 = 16 << 20;

const CHART: &str = "deploy/helm/palimpsest";

/// How the binary is built.
#[derive(Args)]
pub struct Arguments {
    /// Build without profile-guided optimisation: three times faster.
    #[arg(long)]
    plain: bool,
}

/// Builds all packages.
///
/// # Errors
/// When a build or a packaging tool fails.
pub fn build(cargo: impl Fn() -> Command, arguments: &Arguments) -> Result<()> {
    let version = version()?;
    announce(&format!("palimpsest {version}"));
    let with_version = || {
        let mut cargo = cargo();
        cargo.env("PALIMPSEST_VERSION", &version);
        cargo
    };
    let program = pgo::build(with_version, !arguments.plain)?;
    let dist = root().join("dist");
    if dist.exists() {
        std::fs::remove_dir_all(&dist).context("dist")?;
    }
    std::fs::create_dir_all(dist.join("completions")).context("dist")?;
    std::fs::copy(&program, dist.join("palimpsest")).context("dist/palimpsest")?;
    pages(&dist)?;
    let mut files = vec![tarball(&dist, &version)?, chart(&dist, &version)?];
    let deb = deb(cargo(), &dist, &version)?;
    check(&dist, &deb, &version)?;
    files.push(deb);
    let mut sums = Command::new("sha256sum");
    let output = sums.arg("palimpsest").args(&files).current_dir(&dist).output();
    let output = output.context("sha256sum")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::write(dist.join("SHA256SUMS"), &output.stdout).context("dist/SHA256SUMS")?;
    print!("{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

fn version() -> Result<String> {
    let git = |arguments: &[&str]| -> Result<String> {
        let output = Command::new("git").args(arguments).current_dir(root()).output();
        Ok(String::from_utf8_lossy(&output.context("git")?.stdout).into_owned())
    };
    Ok(full_version(env!("CARGO_PKG_VERSION"), &git(&["tag", "--points-at", "HEAD"])?))
}

/// `number` is the workspace's version; `tags` are those of the commit, one a line.
fn full_version(number: &str, tags: &str) -> String {
    let released = tags.lines().any(|tag| tag.strip_prefix('v') == Some(number));
    if released || number.contains('-') { number.to_string() } else { format!("{number}-dev") }
}

/// Manual pages and completions come from the binary's own command line.
fn pages(dist: &Path) -> Result<()> {
    let program = dist.join("palimpsest");
    run(Command::new(&program).arg("man").arg(dist.join("man")))?;
    for (shell, file) in COMPLETIONS {
        let output = Command::new(&program).args(["completions", shell]).output();
        let output = output.context("palimpsest completions")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let path = dist.join("completions").join(file);
        std::fs::write(&path, output.stdout).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn tarball(dist: &Path, version: &str) -> Result<String> {
    let name = format!("palimpsest-{version}-{}-linux", std::env::consts::ARCH);
    let folder = dist.join(&name);
    std::fs::create_dir(&folder).context("dist")?;
    for file in BESIDES {
        let source = root().join(file);
        let target = folder.join(source.file_name().expect("each is a file"));
        std::fs::copy(&source, target).context(file)?;
    }
    let ours = ["palimpsest", "man", "completions"].map(|it| dist.join(it));
    run(Command::new("cp").arg("-r").args(ours).arg(&folder))?;
    let archive = format!("{name}.tar.gz");
    archive_folder(dist, &name, &archive)?;
    std::fs::remove_dir_all(&folder).context("dist")?;
    Ok(archive)
}

/// A chart is an archive of its folder. `helm package` would do the same.
fn chart(dist: &Path, version: &str) -> Result<String> {
    let folder = dist.join("palimpsest-chart");
    std::fs::create_dir(&folder).context("dist")?;
    run(Command::new("cp").arg("-r").arg(root().join(CHART)).arg(&folder))?;
    let file = folder.join("palimpsest/Chart.yaml");
    let text = std::fs::read_to_string(&file).context("Chart.yaml")?;
    std::fs::write(&file, chart_version(&text, version)).context("Chart.yaml")?;
    let archive = format!("palimpsest-{version}.tgz");
    archive_folder(&folder, "palimpsest", &archive)?;
    std::fs::rename(folder.join(&archive), dist.join(&archive)).context("dist")?;
    std::fs::remove_dir_all(&folder).context("dist")?;
    Ok(archive)
}

/// The chart carries the version of the program.
fn chart_version(text: &str, version: &str) -> String {
    let line = |line: &str| match line.split_once(": ") {
        Some((key @ ("version" | "appVersion"), _)) => format!("{key}: {version}\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// Same input, same bytes.
fn archive_folder(within: &Path, folder: &str, archive: &str) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"]);
    tar.args(["--use-compress-program=gzip -n", "-cf", archive, folder]).current_dir(within);
    run(&mut tar)
}

/// `crates/palimpsest/Cargo.toml` lists the contents.
fn deb(mut cargo: Command, dist: &Path, version: &str) -> Result<String> {
    let version = format!("{}-1", version.replace('-', "~"));
    let mut architecture = Command::new("dpkg");
    let output = architecture.arg("--print-architecture").output().context("dpkg")?;
    let architecture = String::from_utf8_lossy(&output.stdout).trim().to_string();
    let name = format!("palimpsest_{version}_{architecture}.deb");
    let path: PathBuf = dist.join(&name);
    std::fs::write(dist.join("changelog"), debian_changelog(&version)).context("changelog")?;
    cargo.args(["deb", "--no-build", "--no-strip", "--quiet", "--package", "palimpsest"]);
    cargo.args(["--deb-version", &version, "--output"]).arg(path);
    run(&mut cargo)?;
    std::fs::remove_file(dist.join("changelog")).context("changelog")?;
    Ok(name)
}

/// Debian's format; the changes themselves stand in CHANGELOG.md.
fn debian_changelog(version: &str) -> String {
    format!(
        "palimpsest ({version}) unstable; urgency=medium\n\n  * CHANGELOG.md lists the changes.\n\n \
         -- {MAINTAINER}  Thu, 01 Jan 1970 00:00:00 +0000\n"
    )
}

/// Unpacks the package and runs its binary: it must carry the version and be stripped.
fn check(dist: &Path, deb: &str, version: &str) -> Result<()> {
    let folder = target().join("dist/unpacked");
    let _ = std::fs::remove_dir_all(&folder);
    run(Command::new("dpkg-deb").arg("-x").arg(dist.join(deb)).arg(&folder))?;
    let program = folder.join("usr/bin/palimpsest");
    let output = Command::new(&program).arg("version").output().context("the packaged binary")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(text.starts_with(&format!("palimpsest {version} ")), "it is not {version}: {text}");
    let bytes = std::fs::metadata(&program).context("the packaged binary")?.len();
    ensure!(bytes < BINARY_BYTES_MAX, "the binary has {bytes} bytes: it is not stripped");
    for file in [
        "etc/palimpsest/palimpsest.toml",
        "usr/lib/systemd/system/palimpsest@.service",
        "usr/share/man/man1/palimpsest-serve.1.gz",
        "usr/share/bash-completion/completions/palimpsest",
    ] {
        ensure!(folder.join(file).is_file(), "the package lacks {file}");
    }
    println!("palimpsest {version}: {bytes} bytes");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tagged_commits_lose_dev() {
        assert_eq!(full_version("0.1.0", ""), "0.1.0-dev");
        assert_eq!(full_version("0.1.0", "v0.0.9\nother\n"), "0.1.0-dev");
        assert_eq!(full_version("0.1.0", "other\nv0.1.0\n"), "0.1.0");
        assert_eq!(full_version("0.1.0-rc1", ""), "0.1.0-rc1");
    }

    #[test]
    fn chart_carries_program_version() {
        let text = std::fs::read_to_string(root().join(CHART).join("Chart.yaml"));
        let text = chart_version(&text.expect("the chart is there"), "1.2.3-dev");
        assert!(text.contains("\nversion: 1.2.3-dev\n"), "{text}");
        assert!(text.contains("\nappVersion: 1.2.3-dev\n"), "{text}");
        assert!(text.contains("\napiVersion: v2\n") || text.starts_with("apiVersion: v2\n"));
    }

    #[test]
    fn changelog_names_the_maintainer_of_the_package() {
        let text = std::fs::read_to_string(root().join("crates/palimpsest/Cargo.toml"));
        let package: toml::Table = text.expect("it is there").parse().expect("it is TOML");
        let deb = &package["package"]["metadata"]["deb"];
        assert_eq!(deb["maintainer"].as_str(), Some(MAINTAINER));
        assert!(debian_changelog("1-1").starts_with("palimpsest (1-1) unstable;"));
    }

    fn manifest() -> toml::Table {
        let text = std::fs::read_to_string(root().join("Cargo.toml")).expect("it is there");
        text.parse().expect("it is TOML")
    }

    #[test]
    fn shipped_binary_is_stripped_and_quick_one_unoptimised_at_link() {
        let manifest = manifest();
        let profile = |name: &str| manifest["profile"][name].clone();
        assert_eq!(profile("dist")["strip"].as_str(), Some("symbols"));
        assert_eq!(profile("dist")["inherits"].as_str(), Some("release"));
        assert_eq!(profile("release")["lto"].as_str(), Some("fat"));
        assert_eq!(profile("quick")["lto"].as_str(), Some("off"));
        assert_eq!(profile("quick")["debug"].as_bool(), Some(false));
    }

    #[test]
    fn ordinary_builds_use_no_wrapper() {
        let config = std::fs::read_to_string(root().join(".cargo/config.toml"));
        let config: toml::Table = config.expect("it is there").parse().expect("it is TOML");
        let build = config.get("build").and_then(|it| it.as_table());
        let wrapped = |name| build.is_some_and(|build| build.contains_key(name));
        assert!(!wrapped("rustc-wrapper") && !wrapped("rustc-workspace-wrapper"));
        assert!(!wrapped("rustflags"), "flags of the profile belong to ./x release");
    }
}
