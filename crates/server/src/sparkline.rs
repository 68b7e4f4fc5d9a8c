//! Graphs of a series in four rows of characters, as `LATENCY GRAPH` draws them.

const ROWS: usize = 4;
const COLUMNS: usize = 80;
/// Heights within a row.
const HEIGHTS: &[u8] = b"_o#";

/// Values in order, each with a label that is written downwards below it.
pub(crate) fn render(samples: &[(u64, String)]) -> String {
    let values = samples.iter().map(|(value, _)| *value);
    let (min, max) = (values.clone().min().unwrap_or(0), values.max().unwrap_or(0));
    let mut out = String::new();
    for part in samples.chunks(COLUMNS) {
        for row in 0..ROWS {
            put_row(&mut out, part, |(value, _)| bar(value - min, (max - min).max(1), row));
        }
        put_row(&mut out, part, |_| ' ');
        let longest = part.iter().map(|(_, label)| label.len()).max().unwrap_or(0);
        for at in 0..longest {
            put_row(&mut out, part, |(_, label)| {
                label.as_bytes().get(at).map_or(' ', |&byte| char::from(byte))
            });
        }
    }
    out
}

fn put_row(
    out: &mut String,
    samples: &[(u64, String)],
    character: impl Fn(&(u64, String)) -> char,
) {
    out.extend(samples.iter().map(character));
    out.push('\n');
}

/// The character of a value between 0 and `range` in a row, the highest of which is the first.
fn bar(value: u64, range: u64, row: usize) -> char {
    let steps = (HEIGHTS.len() * ROWS) as u64;
    let step = (value.saturating_mul(steps) / range).min(steps - 1) as usize;
    match step.checked_sub((ROWS - 1 - row) * HEIGHTS.len()) {
        None => ' ',
        Some(height) => HEIGHTS.get(height).map_or('|', |&byte| char::from(byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As redis-server 7.0.15 draws it.
    #[test]
    fn a_graph_looks_as_in_redis() {
        let values = [(150, "6s"), (100, "5s"), (300, "3s"), (60, "2s"), (200, "1s")];
        let samples: Vec<(u64, String)> =
            values.iter().map(|(value, label)| (*value, (*label).to_string())).collect();
        let expected = "  #  \n  | o\no | |\n|#|_|\n     \n65321\nsssss\n";
        assert_eq!(render(&samples), expected);
    }
}
