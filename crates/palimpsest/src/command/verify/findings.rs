//! Faults and counts of a check: printed line by line, or kept for one JSON object.

use std::fmt::Display;
use std::path::Path;

use serde_json::{Value, json};
use types::NodeId;

/// Faults that a JSON object lists.
const LISTED_MAX: usize = 1_000;

pub(super) struct Findings {
    is_json: bool,
    pub(super) count: u64,
    faults: Vec<Value>,
    media: Vec<Value>,
}

impl Findings {
    pub(super) fn new(is_json: bool) -> Findings {
        Findings { is_json, count: 0, faults: Vec::new(), media: Vec::new() }
    }

    pub(super) fn fault(&mut self, medium: &str, fault: impl Display) {
        self.count += 1;
        if !self.is_json {
            println!("{medium}: {fault}");
        } else if self.faults.len() < LISTED_MAX {
            self.faults.push(json!({ "medium": medium, "fault": fault.to_string() }));
        }
    }

    /// Corrects the number of a medium's faults, `named` of which were passed to
    /// [`Findings::fault`].
    pub(super) fn set_count(&mut self, named_before: u64, count: u64) {
        self.count = named_before + count;
    }

    /// Counts of a medium's records; `lines` has the same for people.
    pub(super) fn medium(&mut self, medium: &str, counts: Value, lines: &[String]) {
        if self.is_json {
            self.media.push(json!({ "medium": medium, "counts": counts }));
        } else {
            lines.iter().for_each(|line| println!("{medium}: {line}"));
        }
    }

    pub(super) fn print_json(&self, dir: &Path, node: Option<NodeId>) {
        let result = match (node, self.count) {
            (None, _) => "empty",
            (Some(_), 0) => "whole",
            (Some(_), _) => "damaged",
        };
        let object = json!({
            "dir": dir.display().to_string(),
            "node": node.map(|node| node.0),
            "result": result,
            "faults_count": self.count,
            "faults": self.faults,
            "media": self.media,
        });
        println!("{object:#}");
    }
}
