//! The table of protocols: their names on the command line and their engines.
//!
//! Besides a protocol's own folder, only this module knows its name.

use protocols::abd::Abd;
use protocols::caspaxos::CasPaxos;
use protocols::classic_paxos::{ClassicPaxos, Waiting};
use protocols::configured::Configured;
use protocols::craq::Craq;
use protocols::hermes::Hermes;
use protocols::rmwpaxos::RmwPaxos;
use protocols::zab::Zab;
use protocols::{Message, Properties, Protocol, Touches};
use types::{Key, Wire};

use crate::engine::{Engine, EngineOf, EngineParts};

/// A protocol that databases may choose.
#[derive(Clone, Copy)]
pub struct Registration {
    pub name: &'static str,
    pub properties: Properties,
    open: fn(EngineParts) -> Box<dyn Engine>,
    describe: fn(&[u8]) -> Option<Described>,
}

/// A message for a person to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// The register it is about, where it is about one.
    pub key: Option<Key>,
    pub text: String,
}

impl Registration {
    #[must_use]
    pub const fn of<P: Protocol>() -> Registration {
        Registration {
            name: P::NAME,
            properties: P::PROPERTIES,
            open: EngineOf::<P>::open,
            describe: describe::<P>,
        }
    }

    /// The meaning of a message's bytes; `None` when they are not a message of this protocol.
    #[must_use]
    pub fn describe(&self, message: &[u8]) -> Option<Described> {
        (self.describe)(message)
    }

    pub(crate) fn open(&self, parts: EngineParts) -> Box<dyn Engine> {
        (self.open)(parts)
    }
}

fn describe<P: Protocol>(bytes: &[u8]) -> Option<Described> {
    let message = P::Message::from_bytes(bytes).ok()?;
    let key = match message.touches() {
        Touches::Key(key) => Some(key.clone()),
        Touches::Shard(_) | Touches::Nothing => None,
    };
    Some(Described { key, text: format!("{message:?}") })
}

/// Every protocol of this build.
pub const PROTOCOLS: &[Registration] = &[
    Registration::of::<RmwPaxos>(),
    Registration::of::<ClassicPaxos>(),
    Registration::of::<CasPaxos>(),
    Registration::of::<Abd>(),
    Registration::of::<Configured<Hermes>>(),
    Registration::of::<Configured<Craq>>(),
    Registration::of::<Zab>(),
];

/// Variants of protocols for measurements. A node runs them; no configuration of users names one.
/// The name is that of the protocol with a suffix: `-y5`.
pub const VARIANTS: &[Registration] = &[Registration::of::<Waiting>()];

/// The protocol of the system database, and of hidden keyspaces.
pub const SYSTEM: &str = <RmwPaxos as Protocol>::NAME;

/// The protocol of this name, or the variant.
#[must_use]
pub fn find(name: &str) -> Option<&'static Registration> {
    PROTOCOLS.iter().chain(VARIANTS).find(|registration| registration.name == name)
}

/// The protocols that run on a configured group of members.
#[must_use]
pub fn names_of_groups() -> Vec<&'static str> {
    PROTOCOLS.iter().filter(|one| one.properties.needs_config).map(|one| one.name).collect()
}
