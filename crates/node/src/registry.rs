//! The one table of protocols: names on the command line and what they run.
//!
//! Besides a protocol's own folder this is the only place that knows its name.

use protocols::{Properties, Protocol};

use crate::engine::{Engine, EngineOf, EngineParts};

/// A protocol that databases may choose.
#[derive(Clone, Copy)]
pub struct Registration {
    pub name: &'static str,
    pub properties: Properties,
    open: fn(EngineParts) -> Box<dyn Engine>,
}

impl Registration {
    #[must_use]
    pub const fn of<P: Protocol>() -> Registration {
        Registration { name: P::NAME, properties: P::PROPERTIES, open: EngineOf::<P>::open }
    }

    pub(crate) fn open(&self, parts: EngineParts) -> Box<dyn Engine> {
        (self.open)(parts)
    }
}

/// Every protocol of this build.
pub const PROTOCOLS: &[Registration] = &[];

/// The protocol of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Registration> {
    PROTOCOLS.iter().find(|registration| registration.name == name)
}
