//! The part on the host: it builds the guest, boots it, cuts its power and judges the reads after
//! it.

pub mod archive;
pub mod boot;
pub mod initramfs;
pub mod kernel;
pub mod machine;
pub mod run;
pub mod tool;

use std::path::PathBuf;

/// Arguments of `./x pmem-vm`.
#[derive(clap::Args, Clone, Debug)]
pub struct Arguments {
    /// Cuts per CPU; about 20 s each
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub cuts: u64,
    /// The CPUs to emulate: `max` has clwb, `qemu64` only clflush
    #[arg(long, value_delimiter = ',', default_value = "max,qemu64")]
    pub cpus: Vec<String>,
    /// Draws the moments of the cuts; without it another one each time
    #[arg(long)]
    pub seed: Option<u64>,
    /// Folder for the unpacked kernel, and for the guest's output after a finding
    #[arg(long, default_value = "target/pmem-vm")]
    pub dir: PathBuf,
    /// The product; without it the one beside this program
    #[arg(long)]
    pub binary: Option<PathBuf>,
    /// The storage crate's tests of `pmem`, as a program
    #[arg(long)]
    pub storage_tests: PathBuf,
}
