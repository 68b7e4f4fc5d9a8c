//! `palimpsest version`.

use types::features::{HIGHEST, LOWEST, Supported};

use crate::Failure;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// `./x release` adds `-dev` to the version of a commit that is not released.
pub(crate) const VERSION: &str = match option_env!("PALIMPSEST_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};
const COMMIT: &str = match option_env!("PALIMPSEST_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let host = storage::probe::host();
    let protocols: Vec<&str> = node::registry::PROTOCOLS.iter().map(|one| one.name).collect();
    let flush = format!("{:?}", host.cache_flush).to_lowercase();
    let dax = storage::probe::is_dax(std::path::Path::new(".")).unwrap_or(false);
    if args.json {
        let json = serde_json::json!({
            "version": VERSION,
            "commit": COMMIT,
            "features": features(),
            "feature_levels": [LOWEST.0, HIGHEST.0],
            "protocols": protocols,
            "media": ["volatile", "pmem", "disk"],
            "cache_flush": flush,
            "io_uring": host.has_io_uring,
            "dax_here": dax,
        });
        println!("{json:#}");
        return Ok(());
    }
    let yes_no = |yes: bool| if yes { "yes" } else { "no" };
    println!("palimpsest {VERSION} (commit {COMMIT})");
    println!(
        "features     {}",
        if features().is_empty() { "none".into() } else { features().join(", ") }
    );
    println!("levels       {}", Supported::HERE);
    println!("protocols    {}", protocols.join(", "));
    println!(
        "media        volatile, pmem ({flush}, DAX here: {}), disk (pwrite + fdatasync)",
        yes_no(dax)
    );
    println!("io_uring     {}", yes_no(host.has_io_uring));
    Ok(())
}

fn features() -> Vec<&'static str> {
    if cfg!(feature = "etcd") { vec!["etcd"] } else { Vec::new() }
}
