//! The two text formats of Prometheus, by the scraper's wish.

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// The format of `prometheus-client`: ends with `# EOF`, names units.
    OpenMetrics,
    /// Version 0.0.4, for scrapers and people that do not ask for the other.
    Classic,
}

impl Format {
    /// The format that headers `Accept` prefer: the one with the higher quality, or OpenMetrics
    /// where both have the same. OpenMetrics is sent only by name, never for `*/*`.
    pub(crate) fn accepted<'a>(headers: impl Iterator<Item = &'a str>) -> Format {
        let (mut open, mut classic) = (0.0_f32, 0.0_f32);
        for range in headers.flat_map(|header| header.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let quality = parts.find_map(|part| part.strip_prefix("q="));
            let quality = quality.map_or(1.0, |text| text.parse().unwrap_or(0.0));
            match kind.as_str() {
                "application/openmetrics-text" => open = open.max(quality),
                "text/plain" | "text/*" | "*/*" => classic = classic.max(quality),
                _ => {}
            }
        }
        if open > 0.0 && open >= classic { Format::OpenMetrics } else { Format::Classic }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Classic => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Turns a text in OpenMetrics into this format.
    pub(super) fn convert(self, text: String) -> String {
        match self {
            Format::OpenMetrics => text,
            Format::Classic => classic(&text),
        }
    }
}

/// The classic format has no units and no end, and its counters carry `_total` in their
/// descriptions, too.
fn classic(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut help = None;
    for line in text.lines() {
        let words = line.strip_prefix("# ").and_then(|rest| rest.split_once(' '));
        match words {
            Some(("HELP", rest)) => help = Some(rest),
            Some(("TYPE", rest)) => {
                let (name, kind) = rest.split_once(' ').unwrap_or((rest, "untyped"));
                let suffix = if kind == "counter" { "_total" } else { "" };
                if let Some(help) = help.take().and_then(|help| help.strip_prefix(name)) {
                    out.push_str(&format!("# HELP {name}{suffix}{help}\n"));
                }
                out.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
            }
            Some(("UNIT", _)) => {}
            _ if line == "# EOF" => {}
            _ => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scraper_chooses() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,\
                          application/openmetrics-text;version=0.0.1;q=0.4,\
                          text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, expected) in [
            ("", Format::Classic),
            ("*/*", Format::Classic),
            ("text/plain", Format::Classic),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Format::Classic),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("application/openmetrics-text; version=1.0.0, text/plain", Format::OpenMetrics),
            ("application/openmetrics-text;q=0.1, text/plain", Format::Classic),
            ("application/openmetrics-text;q=0, */*;q=0.1", Format::Classic),
            ("application/vnd.google.protobuf", Format::Classic),
            (prometheus, Format::OpenMetrics),
        ] {
            assert_eq!(Format::accepted([accept].into_iter()), expected, "{accept}");
        }
        assert_eq!(Format::accepted([].into_iter()), Format::Classic);
    }

    #[test]
    fn the_classic_format_names_counters_in_full() {
        let open = "# HELP a_bytes Some help\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\n\
                    a_bytes_total{x=\"# EOF\"} 1\n# HELP b Other\n# TYPE b gauge\nb 2.5\n# EOF\n";
        let expected = "# HELP a_bytes_total Some help\n# TYPE a_bytes_total counter\n\
                        a_bytes_total{x=\"# EOF\"} 1\n# HELP b Other\n# TYPE b gauge\nb 2.5\n";
        assert_eq!(Format::Classic.convert(open.into()), expected);
        assert_eq!(Format::OpenMetrics.convert(open.into()), open);
    }
}
