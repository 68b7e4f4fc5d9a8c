//! Faults of files: full disks, damage between restarts, directories that are gone.
//!
//! One node's files are harmed at a time. Damage may be noticed late, so a damaged directory is checked afterwards, and
//! given up if anything in it is still not whole: then the next node may be harmed.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use checker::Outcome;
use checker::model::kv::{Bytes, KvInput};

use super::{Attack, Held, name, names};
use crate::calls::{Call, Key, Kind};
use crate::damage;
use crate::gaps::Window;
use crate::sh::{self, Finding};

/// Large values written while a disk is full: more than the media keep in reserve.
const FILLS: u16 = 100;
/// How long a node whose start may fail is watched.
const START_MAX: Duration = Duration::from_secs(20);

impl Attack<'_> {
    pub(super) fn full_disk(&mut self, victims: &[usize]) -> Result<Held> {
        let survivors = self.survivors(victims);
        let from = self.recorder.now();
        for &node in victims {
            self.nodes.list[node].volume.fill()?;
        }
        let through = survivors.first().or(victims.first()).copied().unwrap_or_default();
        let fills = self.write_fills(through)?;
        self.stop.sleep(Duration::from_millis(500))?;
        let ended_full = self.note_ends(victims)?;
        // A start must not need space to say that there is none.
        self.nodes.kill(victims);
        self.start(victims)?;
        let hold = self.hold_time();
        self.stop.sleep(hold)?;
        let refused = self.note_ends(victims)?;
        for &node in victims {
            self.nodes.list[node].volume.relieve();
        }
        let window = Window { from, to: self.recorder.now() };
        for &node in victims {
            if !self.nodes.list[node].is_running() {
                self.nodes.start(node)?;
            }
        }
        // Those that were running when space came back may still end of what they met before.
        self.revive(victims)?;
        self.remove_fills(through, &fills)?;
        let what = format!(
            "{}: {} large values, {ended_full} ended, {refused} ended or refused to start",
            names(victims),
            fills.len()
        );
        Ok(Held { what, window, survivors })
    }

    /// Writes large values to new keys; the keys.
    fn write_fills(&mut self, through: usize) -> Result<Vec<Key>> {
        let generation = u32::try_from(self.recorder.now() / 1_000_000_000).unwrap_or(u32::MAX);
        let mut keys = Vec::new();
        let mut asker = self.recorder.client(through);
        for number in 0..FILLS {
            let key = Key { kind: Kind::Fill, generation, number };
            let token = self.recorder.new_token().to_string();
            let outcome = asker.ask(key, &Call::Kv(KvInput::Set(Bytes::from(&token))));
            if outcome.is_none() || self.stop.is_set() {
                break; // nobody listens there any more
            }
            keys.push(key);
            if outcome == Some(Outcome::Unknown) && keys.len() > 3 {
                break; // a quorum is full; each further one would take its time
            }
        }
        Ok(keys)
    }

    fn remove_fills(&mut self, through: usize, keys: &[Key]) -> Result<()> {
        let all = self.nodes.all();
        self.wait_ready(&all)?;
        let mut asker = self.recorder.client(through);
        // Whether it succeeds is seen by the reads at the end, which must explain it.
        for &key in keys.iter().skip(2) {
            asker.ask(key, &Call::Kv(KvInput::Del));
        }
        Ok(())
    }

    /// How many have ended by themselves; each with an exit code that says so.
    fn note_ends(&mut self, which: &[usize]) -> Result<usize> {
        let mut count = 0;
        for &index in which {
            let node = &mut self.nodes.list[index];
            match node.ended() {
                None => {}
                Some(Some(1 | 2)) => count += 1,
                Some(code) => {
                    let (said, name) = (node.log_tail(), name(index));
                    bail!(Finding(format!("{name} ended with {code:?} on a full disk: {said}")));
                }
            }
        }
        Ok(count)
    }

    /// Starts those again that have ended, until all serve.
    fn revive(&mut self, which: &[usize]) -> Result<()> {
        for &node in which {
            if !self.serves_or_ends(node)? {
                self.note_ends(&[node])?;
                self.nodes.start(node)?;
            }
        }
        Ok(())
    }

    /// Waits for one of both; true when it serves, false when it has ended.
    fn serves_or_ends(&mut self, node: usize) -> Result<bool> {
        let node = &mut self.nodes.list[node];
        let mut has_ended = false;
        self.stop.wait(START_MAX, || {
            has_ended = !node.is_running();
            has_ended || bench::cluster::serves(node.resp)
        })?;
        Ok(!has_ended)
    }

    pub(super) fn damage(&mut self) -> Result<Held> {
        let victim = self.one();
        let from = self.recorder.now();
        self.nodes.kill(&[victim]);
        let dir = self.nodes.list[victim].volume.data_dir();
        let mut done = Vec::new();
        for _ in 0..self.rng.between(1, 3) {
            done.push(damage::damage(&dir, &mut self.rng)?);
        }
        let window = self.hold(from)?;
        let mut what = format!("{}: {}", names(&[victim]), done.join("; "));
        self.nodes.start(victim)?;
        if !self.serves_or_ends(victim)? {
            self.refused(victim)?;
            what += "; refused";
            self.give_up_directory(victim)?;
        }
        self.wait_ready(&[victim])?;
        self.read_all(victim);
        self.wait_ready(&[victim])?;
        if !self.is_whole_offline(victim)? {
            what += "; given up afterwards";
            self.give_up_directory(victim)?;
        } else {
            self.nodes.start(victim)?;
        }
        Ok(Held { what, window, survivors: self.survivors(&[victim]) })
    }

    fn refused(&mut self, node: usize) -> Result<()> {
        let ended = self.nodes.list[node].ended();
        if !matches!(ended, Some(Some(1 | 2))) {
            let said = self.nodes.list[node].log_tail();
            let name = name(node);
            bail!(Finding(format!("{name} ended with {ended:?} over damaged files: {said}")));
        }
        Ok(())
    }

    /// What an operator does with a disk that is no good.
    fn give_up_directory(&mut self, node: usize) -> Result<()> {
        self.nodes.kill(&[node]);
        self.remove_directory(node)?;
        self.nodes.start(node)
    }

    fn remove_directory(&self, node: usize) -> Result<()> {
        let dir = self.nodes.list[node].volume.data_dir();
        match dir.exists() {
            true => std::fs::remove_dir_all(&dir).context("a data directory"),
            false => Ok(()),
        }
    }

    /// Reads every key through this node, so that it meets what is damaged.
    fn read_all(&self, node: usize) {
        let mut asker = self.recorder.client(node);
        for key in self.recorder.keys() {
            if self.stop.is_set() || asker.ask(key, &Call::read(key.kind)).is_none() {
                return;
            }
        }
    }

    /// Stops a node and asks `palimpsest verify`.
    fn is_whole_offline(&mut self, node: usize) -> Result<bool> {
        let code = self.nodes.list[node].stop();
        if code != Some(0) {
            let said = self.nodes.list[node].log_tail();
            bail!(Finding(format!("{} ended with {code:?} when asked to: {said}", name(node))));
        }
        let binary = self.nodes.binary.display().to_string();
        let dir = self.nodes.list[node].volume.data_dir().display().to_string();
        Ok(sh::works(&[&binary, "verify", &dir]))
    }

    pub(super) fn wipe(&mut self) -> Result<Held> {
        let victim = self.one();
        let from = self.recorder.now();
        self.nodes.kill(&[victim]);
        self.remove_directory(victim)?;
        let window = self.hold(from)?;
        self.nodes.start(victim)?;
        Ok(Held { what: names(&[victim]), window, survivors: self.survivors(&[victim]) })
    }

    pub(super) fn forget_all(&mut self) -> Result<Held> {
        let all = self.nodes.all();
        let from = self.recorder.now();
        self.nodes.kill(&all);
        for &node in &all {
            self.remove_directory(node)?;
        }
        self.start(&all)?;
        let window = Window { from, to: self.recorder.now() };
        Ok(Held { what: "all that was acknowledged".into(), window, survivors: Vec::new() })
    }
}
