//! Reductions of a drawn run, so that a failure has little around it.
//!
//! A cut run draws the same profile as the whole one and then leaves parts of it out.
//! With less to do, all events fall on other moments.
//! So a cut comes with a salt that chooses the schedule.

use std::fmt;

use crate::faults::{Fault, FaultSet};
use crate::network::Links;
use crate::profile::Profile;

/// See the module. The default keeps the whole run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cuts {
    /// Another schedule of the same profile; zero: the seed's own.
    pub salt: u64,
    /// Clients stop after so many operations.
    pub ops: Option<u64>,
    /// Only this key is used, and is called `k0`.
    pub key: Option<usize>,
    pub clients: Option<usize>,
    /// Spontaneous faults happen so many times, then stop.
    pub faults: Option<u64>,
    /// One operation per client at a time, and one worker per node.
    pub is_plain: bool,
    /// Drawn faults that do not happen.
    pub without: FaultSet,
}

impl Default for Cuts {
    fn default() -> Cuts {
        Cuts {
            salt: 0,
            ops: None,
            key: None,
            clients: None,
            faults: None,
            is_plain: false,
            without: FaultSet::NONE,
        }
    }
}

impl Cuts {
    /// Applies the reductions to a drawn profile.
    pub fn apply(&self, profile: &mut Profile) {
        for fault in self.without.iter() {
            leave_out(fault, profile);
        }
        let one = self.key.and_then(|key| profile.keys.get(key)).copied();
        if let Some(mix) = one.filter(|mix| !mix.is_of_several_keys()) {
            profile.keys = vec![mix];
        }
        if let Some(clients) = self.clients {
            profile.clients = profile.clients.min(clients).max(1);
        }
        if self.is_plain {
            (profile.pipeline, profile.workers) = (1, 1);
        }
    }

    /// Parses the printed form.
    ///
    /// # Errors
    /// One line that names the invalid part.
    pub fn parse(text: &str) -> Result<Cuts, String> {
        let mut cuts = Cuts::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let number = || value.parse::<u64>().map_err(|_| format!("'{part}' has no number"));
            match name {
                "salt" => cuts.salt = number()?,
                "ops" => cuts.ops = Some(number()?),
                "key" => cuts.key = Some(number()? as usize),
                "clients" => cuts.clients = Some(number()? as usize),
                "strikes" => cuts.faults = Some(number()?),
                "plain" => cuts.is_plain = true,
                "without" => cuts.without = FaultSet::parse(&value.replace('+', ","))?,
                _ => return Err(format!("'{name}' cannot be cut")),
            }
        }
        Ok(cuts)
    }
}

impl fmt::Display for Cuts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let numbers = [
            ("ops", self.ops),
            ("key", self.key.map(|key| key as u64)),
            ("clients", self.clients.map(|clients| clients as u64)),
            ("strikes", self.faults),
            ("salt", (self.salt > 0).then_some(self.salt)),
        ];
        for (name, number) in numbers {
            parts.extend(number.map(|number| format!("{name}={number}")));
        }
        if self.is_plain {
            parts.push("plain".to_owned());
        }
        if self.without != FaultSet::NONE {
            parts.push(format!("without={}", self.without.to_string().replace(',', "+")));
        }
        write!(f, "{}", parts.join(","))
    }
}

fn leave_out(fault: Fault, profile: &mut Profile) {
    profile.faults = profile.faults.without(fault);
    profile.gaps.retain(|(known, _)| *known != fault);
    let links = &mut profile.links;
    let calm = Links::default();
    match fault {
        Fault::Loss => links.loss_ppm = calm.loss_ppm,
        Fault::Duplication => links.duplicate_ppm = calm.duplicate_ppm,
        Fault::Delay => links.tail_ppm = calm.tail_ppm,
        Fault::Reorder => links.reorders = calm.reorders,
        Fault::Lifo => links.lifo_window = calm.lifo_window,
        Fault::CrashAfterTurn => profile.crash_after_turn_ppm = 0,
        Fault::Eviction => {
            profile.cells_max = crate::profile::CELLS_MANY;
            profile.slow_read_ppm = 0;
        }
        Fault::Drift => profile.agree_on_rates(),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_form_parses() {
        let cuts = Cuts {
            salt: 7,
            ops: Some(12),
            key: Some(0),
            clients: Some(2),
            faults: Some(3),
            is_plain: true,
            without: FaultSet::NONE.with(Fault::Loss).with(Fault::OneWay),
        };
        for cuts in [cuts, Cuts::default()] {
            assert_eq!(Cuts::parse(&cuts.to_string()), Ok(cuts));
        }
        assert!(Cuts::parse("corners=4").unwrap_err().contains("corners"));
    }
}
