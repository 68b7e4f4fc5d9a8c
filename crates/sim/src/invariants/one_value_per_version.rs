//! ABD: a version names one value, from every sender, for ever.

use bytes::Bytes;
use hashbrown::HashMap;
use protocols::abd::{Message, Version};
use types::key::ByHash;
use types::{Key, Wire};

use super::{Sent, Watcher};

/// Values by key and version.
#[derive(Debug, Default)]
pub struct OneValuePerVersion {
    values: HashMap<Key, Vec<(Version, Option<Bytes>)>, ByHash>,
}

impl OneValuePerVersion {
    fn note(&mut self, key: &Key, version: Version, value: Option<&Bytes>) -> Result<(), String> {
        if version == Version::NONE {
            return Ok(());
        }
        let values = self.values.entry(key.clone()).or_default();
        match values.iter().rev().find(|(known, _)| *known == version) {
            Some((_, known)) if known.as_ref() != value => {
                Err(format!("{key:?}: {version:?} names both {known:?} and {value:?}"))
            }
            Some(_) => Ok(()),
            None => {
                values.push((version, value.cloned()));
                Ok(())
            }
        }
    }
}

impl Watcher for OneValuePerVersion {
    fn on_message(&mut self, sent: &Sent<'_>) -> Result<(), String> {
        match Message::from_bytes(sent.bytes) {
            Ok(Message::Store { key, register, .. }) => {
                self.note(&key, register.version, register.content.value.as_ref())
            }
            // Its value may be left out.
            Ok(Message::State { key, report, .. }) => {
                match report.register.content.value.as_ref().filter(|value| !value.is_empty()) {
                    Some(value) => self.note(&key, report.register.version, Some(value)),
                    None => Ok(()),
                }
            }
            Ok(_) => Ok(()),
            Err(_) => Err(format!("{:?} sent a message that is not one of abd", sent.from)),
        }
    }
}
