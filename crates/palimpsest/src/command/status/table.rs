//! The cluster as a table for people.

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use admin::cluster::{Cluster, NodeView};
use admin::group::Group;

const RESET: &str = "\x1b[0m";
const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";

/// Whether there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Coloured,
}

impl Style {
    /// Colours on a terminal, unless NO_COLOR is set or the terminal has none.
    pub(super) fn of_stdout() -> Style {
        let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        match std::io::stdout().is_terminal() && !is_unwanted {
            true => Style::Coloured,
            false => Style::Plain,
        }
    }

    fn paint(self, colour: &str, text: &str) -> String {
        match self {
            Style::Plain => text.to_owned(),
            Style::Coloured => format!("{colour}{text}{RESET}"),
        }
    }
}

const HEADER: [&str; 10] =
    ["ID", "ADDRESS", "STATE", "VERSION", "UPTIME", "KEYS", "BYTES", "DISK FREE", "CLIENTS", "RTT"];
/// Columns of numbers stand to the right.
const IS_RIGHT: [bool; 10] = [true, false, false, false, true, true, true, true, true, true];
const STATE: usize = 2;

const GROUP_HEADER: [&str; 8] =
    ["DATABASE", "PROTOCOL", "GROUP", "EPOCH", "WANTED", "FULL", "SHADOWS", "LEASE"];
const GROUP_IS_RIGHT: [bool; 8] = [true, false, false, true, true, false, false, false];

/// The tables, the warnings, and a last line on how many failures are tolerated.
pub(super) fn render(cluster: &Cluster, style: Style) -> String {
    let mut text = String::new();
    let nodes = cluster.nodes.iter().map(|node| (row(node), colour(node)));
    table(&mut text, (HEADER, IS_RIGHT), nodes.collect(), style);
    if !cluster.groups.is_empty() {
        let groups = cluster.groups.iter().map(|group| (group_row(group), group_colour(group)));
        table(&mut text, (GROUP_HEADER, GROUP_IS_RIGHT), groups.collect(), style);
    }
    for warning in &cluster.warnings {
        let _ = writeln!(text, "{} {warning}", style.paint(YELLOW, "warning:"));
    }
    if let Some(level) = cluster.feature_level {
        let _ = writeln!(text, "feature level {level}");
    }
    let colour = if cluster.serving { GREEN } else { RED };
    let _ = writeln!(text, "{}", style.paint(colour, &summary(cluster)));
    text
}

/// Rows with the colour of their state.
fn table<const N: usize>(
    text: &mut String,
    (header, is_right): ([&str; N], [bool; N]),
    rows: Vec<([String; N], &str)>,
    style: Style,
) {
    let mut widths = header.map(|title| title.chars().count());
    for (row, _) in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let shape = (widths, is_right);
    let title = line(&header.map(str::to_owned), shape, |_, cell| style.paint(BOLD, &cell));
    let _ = writeln!(text, "{title}");
    for (row, colour) in &rows {
        let painted = line(row, shape, |column, cell| match column {
            STATE => style.paint(colour, &cell),
            _ => cell,
        });
        let _ = writeln!(text, "{painted}");
    }
}

fn line<const N: usize>(
    cells: &[String; N],
    (widths, is_right): ([usize; N], [bool; N]),
    paint: impl Fn(usize, String) -> String,
) -> String {
    let mut text = String::new();
    for (at, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let padding = " ".repeat(width - cell.chars().count());
        let cell = paint(at, cell.clone());
        if is_right[at] {
            text += &padding;
        }
        text += &cell;
        if at + 1 < N {
            if !is_right[at] {
                text += &padding;
            }
            text += "  ";
        }
    }
    text
}

fn group_row(group: &Group) -> [String; 8] {
    let nodes = |role: &str| {
        let nodes: Vec<String> = group.with_role(role).map(|node| node.to_string()).collect();
        if nodes.is_empty() { "-".to_owned() } else { nodes.join(",") }
    };
    [
        group.database.to_string(),
        group.protocol.clone(),
        group.state.clone(),
        group.epoch.to_string(),
        group.wanted.to_string(),
        nodes("full"),
        nodes("shadow"),
        if group.lease { "yes" } else { "no" }.to_owned(),
    ]
}

fn group_colour(group: &Group) -> &'static str {
    match group.state.as_str() {
        "active" if group.with_role("full").count() == group.wanted => GREEN,
        "lost" => RED,
        _ => YELLOW,
    }
}

fn row(node: &NodeView) -> [String; 10] {
    let missing = || "-".to_owned();
    // Figures of a node that is down would be taken for those of now.
    let live = |number: Option<u64>| number.filter(|_| node.up);
    let bytes = |number: Option<u64>| live(number).map_or_else(missing, show_bytes);
    let count =
        |number: Option<u64>| live(number).map_or_else(missing, |number| number.to_string());
    let round_trip = match node.is_self {
        true => "self".to_owned(),
        false => live(node.round_trip_us).map_or_else(missing, show_micros),
    };
    [
        node.node.to_string(),
        node.address.clone(),
        state(node),
        node.version.clone().filter(|_| node.up).unwrap_or_else(missing),
        live(node.uptime_ms).map_or_else(missing, |ms| show_seconds(ms / 1_000)),
        count(node.keys),
        bytes(node.bytes),
        bytes(node.disk_free_bytes),
        count(node.clients),
        round_trip,
    ]
}

fn state(node: &NodeView) -> String {
    match (node.up, node.last_seen_ms_ago, node.recovery_left) {
        (false, Some(ago), _) => format!("down ({} ago)", show_seconds(ago / 1_000)),
        (false, None, _) => "down (not seen)".into(),
        (true, _, Some(left)) if left > 0 => format!("{} ({left} left)", node.state),
        _ => node.state.clone(),
    }
}

fn colour(node: &NodeView) -> &'static str {
    match (node.up, node.is_ready()) {
        (false, _) => RED,
        (true, true) => GREEN,
        (true, false) => YELLOW,
    }
}

fn summary(cluster: &Cluster) -> String {
    let (ready, all, quorum) = (cluster.ready, cluster.nodes.len(), cluster.quorum);
    if !cluster.serving {
        return format!("no quorum: {ready} of {all} nodes are ready, {quorum} are needed");
    }
    let tolerated = match cluster.tolerates {
        0 => "no more failures are tolerated".to_owned(),
        1 => "1 more failure is tolerated".to_owned(),
        more => format!("{more} more failures are tolerated"),
    };
    format!("{ready} of {all} nodes are ready, {quorum} are needed: {tolerated}")
}

fn show_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KB", "MB", "GB", "TB", "PB"];
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1}{}", UNITS[unit])
}

/// The two largest units: `3d 4h`, `5m 6s`.
fn show_seconds(seconds: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let largest = UNITS.iter().position(|(scale, _)| seconds >= *scale).unwrap_or(UNITS.len() - 1);
    let (scale, name) = UNITS[largest];
    let mut text = format!("{}{name}", seconds / scale);
    if let Some((next, name)) = UNITS.get(largest + 1) {
        let rest = seconds % scale / next;
        if rest > 0 {
            text += &format!(" {rest}{name}");
        }
    }
    text
}

fn show_micros(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros}us"),
        _ => format!("{:.1}ms", micros as f64 / 1_000.0),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::command::status) fn node(id: u16, state: &str) -> NodeView {
        let up = state != "down";
        let json = serde_json::json!({
            "node": id, "address": format!("127.0.0.1:{}", 6378 + id), "admin": null, "state": state,
            "up": up, "is_self": id == 1, "last_seen": null, "last_seen_ms_ago": 12_000,
            "round_trip_us": if up { Some(140) } else { None }, "version": "0.1.0", "uptime_ms": 93_784_000,
            "writes": "ok", "remarks": [], "recovery_left": 0, "clients": 3, "commands_per_second": 0,
            "latency_p50_us": null, "latency_p99_us": null, "keys": 1_234, "bytes": null,
            "disk_free_bytes": 12_500_000_000_u64, "disk_total_bytes": null, "memory_bytes": null,
            "ring_bytes": null, "ring_used_bytes": null, "round_trips_us": {},
        });
        serde_json::from_value(json).expect("it is a node")
    }

    pub(in crate::command::status) fn cluster(asked: u16, mut nodes: Vec<NodeView>) -> Cluster {
        nodes.iter_mut().for_each(|node| node.is_self = node.node == asked);
        let cluster = Cluster::judged(Some("c0ffee".into()), asked, nodes);
        Cluster { feature_level: Some(1), ..cluster }
    }

    #[test]
    fn columns_fit_their_content() {
        let cluster = cluster(1, vec![node(1, "ready"), node(2, "ready"), node(3, "down")]);
        assert_eq!(
            render(&cluster, Style::Plain),
            "ID  ADDRESS         STATE           VERSION  UPTIME  KEYS  BYTES  DISK FREE  CLIENTS    RTT\n \
             1  127.0.0.1:6379  ready           0.1.0     1d 2h  1234      -     11.6GB        3   self\n \
             2  127.0.0.1:6380  ready           0.1.0     1d 2h  1234      -     11.6GB        3  140us\n \
             3  127.0.0.1:6381  down (12s ago)  -             -     -      -          -        -      -\n\
             warning: node 3 is down: last seen 12s ago\n\
             feature level 1\n\
             2 of 3 nodes are ready, 2 are needed: no more failures are tolerated\n"
        );
    }

    #[test]
    fn groups_have_a_table_of_their_own() {
        let json = serde_json::json!({
            "database": 12, "protocol": "toy", "state": "active", "epoch": 7, "wanted": 3,
            "members": [
                { "node": 3, "role": "full" }, { "node": 1, "role": "full" }, { "node": 2, "role": "shadow" }
            ],
            "role": "full", "lease": true, "images": [],
        });
        let group: Group = serde_json::from_value(json).expect("it is a group");
        let cluster = cluster(1, vec![node(1, "ready")]).with_groups(vec![group]);
        let text = render(&cluster, Style::Plain);
        let lines: Vec<&str> = text.lines().skip(2).take(3).collect();
        assert_eq!(
            lines,
            [
                "DATABASE  PROTOCOL  GROUP   EPOCH  WANTED  FULL  SHADOWS  LEASE",
                "      12  toy       active      7       3  3,1   2        yes",
                "warning: database 12: 2 of 3 members are full"
            ]
        );
    }

    #[test]
    fn colours_do_not_move_columns() {
        let cluster = cluster(1, vec![node(1, "ready"), node(2, "recovering"), node(3, "down")]);
        let coloured = render(&cluster, Style::Coloured);
        assert!(coloured.contains(GREEN) && coloured.contains(RED) && coloured.contains(YELLOW));
        let mut bare = coloured;
        for code in [RESET, BOLD, RED, GREEN, YELLOW] {
            bare = bare.replace(code, "");
        }
        assert_eq!(bare, render(&cluster, Style::Plain));
    }

    #[test]
    fn the_last_line_counts_failures() {
        let of = |states: &[&str]| {
            let nodes = (1..).zip(states).map(|(id, state)| node(id, state)).collect();
            summary(&cluster(1, nodes))
        };
        assert!(of(&["ready"; 3]).ends_with("1 more failure is tolerated"));
        assert!(of(&["ready"; 5]).ends_with("2 more failures are tolerated"));
        assert!(of(&["ready", "no quorum", "down"]).starts_with("no quorum: 1 of 3"));
    }

    #[test]
    fn figures_are_short() {
        assert_eq!(show_bytes(0), "0B");
        assert_eq!(show_bytes(1_023), "1023B");
        assert_eq!(show_bytes(1_536), "1.5KB");
        assert_eq!(show_bytes((1 << 20) - 1), "1.0MB");
        assert_eq!(show_bytes(u64::MAX), "16384.0PB");
        assert_eq!(show_seconds(0), "0s");
        assert_eq!(show_seconds(3_725), "1h 2m");
        assert_eq!((show_micros(999), show_micros(1_500)), ("999us".into(), "1.5ms".into()));
    }
}
