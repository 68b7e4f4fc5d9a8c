//! Marks for branches that a long simulation must reach.

/// Marks a branch that random testing is expected to reach now and then.
///
/// It costs one relaxed store the first time and a load afterwards.
/// A campaign reports the marks that [`reached`](crate::assertions::reached) lacks.
#[macro_export]
macro_rules! sometimes {
    ($name:literal) => {{
        static REACHED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
        if !REACHED.load(std::sync::atomic::Ordering::Relaxed)
            && !REACHED.swap(true, std::sync::atomic::Ordering::Relaxed)
        {
            $crate::assertions::note($name);
        }
    }};
}

use std::collections::BTreeSet;
use std::sync::Mutex;

static NOTED: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// Records that the branch `name` was reached. Called once per mark by [`sometimes!`].
pub fn note(name: &'static str) {
    if let Ok(mut noted) = NOTED.lock() {
        noted.insert(name);
    }
}

/// The marks reached so far in this process.
#[must_use]
pub fn reached() -> Vec<&'static str> {
    NOTED.lock().map(|noted| noted.iter().copied().collect()).unwrap_or_default()
}
