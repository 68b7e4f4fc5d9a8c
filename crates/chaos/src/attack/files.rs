//! Faults of files: full disks, damage between restarts, directories that are gone.
//!
//! One node's files are harmed at a time, because damage may be noticed late.
//! A damaged directory is checked afterwards and replaced unless it is whole.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use checker::Outcome;
use checker::model::kv::{Bytes, KvInput};

use super::{Attack, HeldFault, name, names};
use crate::calls::{Call, KeyKind, TestKey};
use crate::damage;
use crate::gaps::Window;
use crate::sh::{self, BrokenPromise};

/// Large values written while a disk is full: more than the media keep in reserve.
const FILLS: u16 = 100;
/// How long a node with a possibly failing start is watched.
const START_MAX: Duration = Duration::from_secs(20);

impl Attack<'_> {
    pub(super) fn full_disk(&mut self, victims: &[usize]) -> Result<HeldFault> {
        let survivors = self.survivors(victims);
        let from = self.recorder.now();
        for &node in victims {
            self.nodes.list[node].volume.fill()?;
        }
        let through = survivors.first().or(victims.first()).copied().unwrap_or_default();
        let fills = self.write_fills(through)?;
        self.stop.sleep(Duration::from_millis(500))?;
        let ended_full = self.note_ends(victims)?;
        // A start must report a full disk without needing space.
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
        // A node may still end because of an error from before space came back.
        self.revive(victims)?;
        self.remove_fills(through, &fills)?;
        let details = format!(
            "{}: {} large values, {ended_full} ended, {refused} ended or refused to start",
            names(victims),
            fills.len()
        );
        Ok(HeldFault { details, window, survivors })
    }

    /// Writes large values to new keys; returns the keys.
    fn write_fills(&mut self, through: usize) -> Result<Vec<TestKey>> {
        let generation = u32::try_from(self.recorder.now() / 1_000_000_000).unwrap_or(u32::MAX);
        let mut keys = Vec::new();
        let mut asker = self.recorder.client(through);
        for number in 0..FILLS {
            let key = TestKey { kind: KeyKind::Fill, generation, number };
            let token = self.recorder.new_token().to_string();
            let outcome = asker.ask(key, &Call::Kv(KvInput::Set(Bytes::from(&token))));
            if outcome.is_none() || self.stop.is_set() {
                break; // the node has ended
            }
            keys.push(key);
            if outcome == Some(Outcome::Unknown) && keys.len() > 3 {
                break; // a quorum is full: each further write would only take time
            }
        }
        Ok(keys)
    }

    fn remove_fills(&mut self, through: usize, keys: &[TestKey]) -> Result<()> {
        let all = self.nodes.all();
        self.wait_ready(&all)?;
        let mut asker = self.recorder.client(through);
        // The reads at the end decide whether it succeeded.
        for &key in keys.iter().skip(2) {
            asker.ask(key, &Call::Kv(KvInput::Del));
        }
        Ok(())
    }

    /// Counts nodes that have ended by themselves, and checks their exit codes.
    fn note_ends(&mut self, which: &[usize]) -> Result<usize> {
        let mut count = 0;
        for &index in which {
            let node = &mut self.nodes.list[index];
            match node.ended() {
                None => {}
                Some(Some(1 | 2)) => count += 1,
                Some(code) => {
                    let (said, name) = (node.log_tail(), name(index));
                    bail!(BrokenPromise(format!(
                        "{name} ended with {code:?} on a full disk: {said}"
                    )));
                }
            }
        }
        Ok(count)
    }

    /// Restarts nodes that have ended, until all serve.
    fn revive(&mut self, which: &[usize]) -> Result<()> {
        for &node in which {
            if !self.serves_or_ends(node)? {
                self.note_ends(&[node])?;
                self.nodes.start(node)?;
            }
        }
        Ok(())
    }

    /// Waits until the node serves or ends; true when it serves.
    fn serves_or_ends(&mut self, node: usize) -> Result<bool> {
        let node = &mut self.nodes.list[node];
        let mut has_ended = false;
        self.stop.wait(START_MAX, || {
            has_ended = !node.is_running();
            has_ended || bench::cluster::serves(node.resp)
        })?;
        Ok(!has_ended)
    }

    pub(super) fn damage(&mut self) -> Result<HeldFault> {
        let victim = self.one();
        let from = self.recorder.now();
        self.nodes.kill(&[victim]);
        let dir = self.nodes.list[victim].volume.data_dir();
        let mut done = Vec::new();
        for _ in 0..self.rng.between(1, 3) {
            done.push(damage::damage(&dir, &mut self.rng)?);
        }
        let window = self.hold(from)?;
        let mut details = format!("{}: {}", names(&[victim]), done.join("; "));
        self.nodes.start(victim)?;
        if !self.serves_or_ends(victim)? {
            self.refused(victim)?;
            details += "; refused";
            self.give_up_directory(victim)?;
        }
        self.wait_ready(&[victim])?;
        self.read_all(victim);
        self.wait_ready(&[victim])?;
        if !self.is_whole_offline(victim)? {
            details += "; given up afterwards";
            self.give_up_directory(victim)?;
        } else {
            self.nodes.start(victim)?;
        }
        Ok(HeldFault { details, window, survivors: self.survivors(&[victim]) })
    }

    fn refused(&mut self, node: usize) -> Result<()> {
        let ended = self.nodes.list[node].ended();
        if !matches!(ended, Some(Some(1 | 2))) {
            let said = self.nodes.list[node].log_tail();
            let name = name(node);
            bail!(BrokenPromise(format!("{name} ended with {ended:?} over damaged files: {said}")));
        }
        Ok(())
    }

    /// Replaces the directory, as an operator replaces a bad disk.
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

    /// Reads every key through this node, so that it meets the damage.
    fn read_all(&self, node: usize) {
        let mut asker = self.recorder.client(node);
        for key in self.recorder.keys() {
            if self.stop.is_set() || asker.ask(key, &Call::read(key.kind)).is_none() {
                return;
            }
        }
    }

    /// Stops a node and runs `palimpsest verify`.
    fn is_whole_offline(&mut self, node: usize) -> Result<bool> {
        let code = self.nodes.list[node].stop();
        if code != Some(0) {
            let said = self.nodes.list[node].log_tail();
            bail!(BrokenPromise(format!(
                "{} ended with {code:?} when asked to: {said}",
                name(node)
            )));
        }
        let binary = self.nodes.binary.display().to_string();
        let dir = self.nodes.list[node].volume.data_dir().display().to_string();
        Ok(sh::works(&[&binary, "verify", &dir]))
    }

    pub(super) fn wipe(&mut self) -> Result<HeldFault> {
        let victim = self.one();
        let from = self.recorder.now();
        self.nodes.kill(&[victim]);
        self.remove_directory(victim)?;
        let window = self.hold(from)?;
        self.nodes.start(victim)?;
        Ok(HeldFault { details: names(&[victim]), window, survivors: self.survivors(&[victim]) })
    }

    pub(super) fn forget_all(&mut self) -> Result<HeldFault> {
        let all = self.nodes.all();
        let from = self.recorder.now();
        self.nodes.kill(&all);
        for &node in &all {
            self.remove_directory(node)?;
        }
        self.start(&all)?;
        let window = Window { from, to: self.recorder.now() };
        Ok(HeldFault { details: "all acknowledged data".into(), window, survivors: Vec::new() })
    }
}
