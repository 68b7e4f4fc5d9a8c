//! The progress of each worker with the entries.

/// The entries handed to each worker.
#[derive(Debug)]
pub struct Outlets {
    /// All entries up to here are handed over.
    pub handed: u64,
    /// The registers had included all entries up to here before the first of them.
    pub start: u64,
    /// As the workers know it.
    pub told: u64,
    /// The workers' registers are void: no entry is handed over.
    pub is_held: bool,
    /// Counts the copies of a leader's state. Entries handed over before are void.
    pub copy: u64,
    pub workers: Vec<Outlet>,
}

#[derive(Clone, Debug, Default)]
pub struct Outlet {
    /// Entries handed over.
    pub place: u64,
    /// Everything up to here is applied, durably.
    pub kept: u64,
    pub is_erased: bool,
    pub is_copied: bool,
}

impl Outlets {
    pub fn new(workers: usize) -> Outlets {
        let workers = vec![Outlet::default(); workers];
        Outlets { handed: 0, start: 0, told: 0, is_held: false, copy: 0, workers }
    }

    /// Entries behind `applied` may be new to the registers.
    pub fn restart(&mut self, applied: u64) {
        (self.handed, self.start) = (applied, applied);
    }

    pub fn start(&self) -> u64 {
        self.start
    }

    pub fn handed(&self) -> u64 {
        self.handed
    }

    pub fn copy(&self) -> u64 {
        self.copy
    }

    pub fn hold(&mut self) {
        self.is_held = true;
    }

    /// Everything up to here is in the registers, durably.
    pub fn kept(&self) -> u64 {
        self.workers.iter().map(|it| it.kept).min().unwrap_or(0)
    }

    pub fn on_kept(&mut self, copy: u64, worker: usize, upto: u64) {
        if copy == self.copy
            && let Some(outlet) = self.workers.get_mut(worker)
        {
            outlet.kept = outlet.kept.max(upto);
        }
    }

    /// The registers are replaced by a state that includes entries up to `base`.
    pub fn begin_copy(&mut self, base: u64) -> u64 {
        (self.handed, self.start, self.told, self.is_held) = (base, base, 0, true);
        self.copy += 1;
        for outlet in &mut self.workers {
            *outlet = Outlet::default();
        }
        self.copy
    }

    /// Entries on their way to workers are lost.
    pub fn again(&mut self) -> u64 {
        let kept = self.kept().max(self.start);
        (self.handed, self.start, self.told) = (kept, kept, 0);
        self.copy += 1;
        for outlet in &mut self.workers {
            *outlet = Outlet { kept: outlet.kept, ..Outlet::default() };
        }
        self.copy
    }

    pub fn on_erased(&mut self, copy: u64, worker: usize) {
        if copy == self.copy
            && let Some(outlet) = self.workers.get_mut(worker)
        {
            outlet.is_erased = true;
            if self.workers.iter().all(|it| it.is_erased) {
                self.is_held = false;
            }
        }
    }

    /// True once all workers have copied.
    pub fn on_copied(&mut self, copy: u64, worker: usize) -> bool {
        if copy == self.copy
            && let Some(outlet) = self.workers.get_mut(worker)
        {
            outlet.is_copied = true;
        }
        copy == self.copy && self.workers.iter().all(|it| it.is_copied)
    }
}
