//! Opens the stores that a node's databases need.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use storage::Store;
use storage::pmem::Pmem;
use storage::volatile::{Beginning, VolatileStore};

use super::mailbox::{Mail, Mailbox};
use crate::config::{Durability, NodeConfig};
use crate::worker::DatabaseSpec;

/// Files of the data directory that are no medium's.
const IDENTITY: [&str; 2] = ["node", "node.new"];

/// Stores per worker, in the order that [`Media::specs`] counts them.
pub(crate) struct Media {
    pub(crate) stores: Vec<Vec<Box<dyn Store>>>,
    pub(crate) specs: Vec<DatabaseSpec>,
    /// Told to the operator.
    pub(crate) remarks: Vec<String>,
}

impl Media {
    /// Opens what is there, and creates what is missing with what `beginning` says of it.
    ///
    /// # Errors
    /// One line that says what to do.
    pub(crate) fn open(
        config: &NodeConfig,
        binding: u64,
        beginning: Beginning,
        wakers: &[Arc<Mailbox<Mail>>],
    ) -> Result<Media, String> {
        let mut kinds: Vec<Durability> =
            config.databases.iter().map(|one| one.durability).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let mut media = Media {
            stores: wakers.iter().map(|_| Vec::new()).collect(),
            specs: Vec::new(),
            remarks: Vec::new(),
        };
        for &kind in &kinds {
            media.open_one(kind, &config.data_dir, binding, beginning, wakers)?;
        }
        media.specs = config
            .databases
            .iter()
            .map(|one| DatabaseSpec {
                database: one.database,
                protocol: one.protocol,
                store: kinds
                    .iter()
                    .position(|&kind| kind == one.durability)
                    .expect("it was opened"),
                durable: one.durability != Durability::Volatile,
            })
            .collect();
        Ok(media)
    }

    fn open_one(
        &mut self,
        kind: Durability,
        dir: &Path,
        binding: u64,
        beginning: Beginning,
        wakers: &[Arc<Mailbox<Mail>>],
    ) -> Result<(), String> {
        let stores: Vec<Box<dyn Store>> = match kind {
            Durability::Volatile => wakers
                .iter()
                .map(|_| Box::new(VolatileStore::new(beginning)) as Box<dyn Store>)
                .collect(),
            Durability::Pmem => {
                open_pmem(dir, binding, beginning, wakers.len(), &mut self.remarks)?
            }
            Durability::Disk => open_disk(dir, binding, beginning, wakers)?,
        };
        for (worker, store) in self.stores.iter_mut().zip(stores) {
            worker.push(store);
        }
        Ok(())
    }

    /// Removes every file that a medium may have left: all but the identity.
    ///
    /// # Errors
    /// One line that names what could not be removed.
    pub(crate) fn wipe(dir: &Path) -> Result<(), String> {
        let failed = |error| format!("{}: cannot be emptied: {error}", dir.display());
        for entry in fs::read_dir(dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let is_file = entry.file_type().map_err(failed)?.is_file();
            if is_file && !IDENTITY.iter().any(|&name| entry.file_name() == name) {
                fs::remove_file(entry.path()).map_err(failed)?;
            }
        }
        fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed)
    }
}

fn open_pmem(
    dir: &Path,
    binding: u64,
    beginning: Beginning,
    workers: usize,
    remarks: &mut Vec<String>,
) -> Result<Vec<Box<dyn Store>>, String> {
    let medium = Pmem::open(dir, binding, beginning).map_err(|error| error.to_string())?;
    if medium.is_emulated() {
        remarks.push(format!(
            "pmem: emulated: {} is not on DAX storage; acknowledged writes survive a crash of the process only",
            dir.display()
        ));
    }
    Ok((0..workers).map(|worker| Box::new(medium.store(worker as u32)) as Box<dyn Store>).collect())
}

fn open_disk(
    _dir: &Path,
    _binding: u64,
    _beginning: Beginning,
    _wakers: &[Arc<Mailbox<Mail>>],
) -> Result<Vec<Box<dyn Store>>, String> {
    Err("disk".into())
}
