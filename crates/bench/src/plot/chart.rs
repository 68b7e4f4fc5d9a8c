//! Charts of lines: panels side by side, and one legend below.

use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

use super::{Area, COLOURS, DrawResult, Drawing};

const PANEL_WIDTH: u32 = 700;
const PANEL_HEIGHT: u32 = 500;
const TITLE_HEIGHT: u32 = 50;
const LEGEND_LINE_HEIGHT: u32 = 32;
const LEGEND_ENTRY_WIDTH: u32 = 270;
/// An axis is logarithmic when its largest value is more than so many times the smallest.
const LINEAR_MAX: f64 = 8.0;

/// Points of a line that has more are drawn smaller.
const POINTS_MANY: usize = 20;

/// A line of points. Lines of one label look alike in all panels.
#[derive(Clone, Debug)]
pub(crate) struct ChartLine {
    pub(crate) label: String,
    pub(crate) colour: usize,
    /// Dashed, with hollow points.
    pub(crate) is_dashed: bool,
    /// Points without a line between them.
    pub(crate) is_loose: bool,
    pub(crate) points: Vec<(f64, f64)>,
}

/// The horizontal axis.
#[derive(Clone, Debug)]
pub(crate) enum Across {
    /// From 0 to 100.
    Percent,
    /// Any numbers, from the least to the largest.
    Numbers,
    /// The points 0, 1, … with these names.
    Names(Vec<String>),
}

#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) across: Across,
    pub(crate) x_label: String,
    pub(crate) y_label: String,
    /// The vertical axis is never logarithmic.
    pub(crate) is_linear: bool,
    /// Places of vertical lines.
    pub(crate) marks: Vec<f64>,
    pub(crate) lines: Vec<ChartLine>,
}

#[derive(Clone, Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) panels: Vec<Panel>,
}

impl Chart {
    fn width(&self) -> u32 {
        PANEL_WIDTH * self.panels.len() as u32
    }

    /// Each label once.
    fn legend(&self) -> Vec<&ChartLine> {
        let mut entries: Vec<&ChartLine> = Vec::new();
        for line in self.panels.iter().flat_map(|panel| &panel.lines) {
            if entries.iter().all(|entry| entry.label != line.label) {
                entries.push(line);
            }
        }
        entries
    }

    fn legend_columns(&self) -> u32 {
        (self.width() / LEGEND_ENTRY_WIDTH).max(1)
    }

    fn legend_height(&self) -> u32 {
        (self.legend().len() as u32).div_ceil(self.legend_columns()) * LEGEND_LINE_HEIGHT + 20
    }
}

impl Drawing for Chart {
    fn size(&self) -> (u32, u32) {
        (self.width(), TITLE_HEIGHT + PANEL_HEIGHT + self.legend_height())
    }

    fn draw<DB: DrawingBackend>(&self, area: &Area<DB>) -> DrawResult<DB> {
        area.fill(&WHITE)?;
        let title = ("sans-serif", 24).into_font().color(&BLACK);
        area.draw(&Text::new(self.title.as_str(), (24, 14), title))?;
        let (_, rest) = area.split_vertically(TITLE_HEIGHT);
        let (panels, legend) = rest.split_vertically(PANEL_HEIGHT);
        for (part, panel) in panels.split_evenly((1, self.panels.len())).iter().zip(&self.panels) {
            draw_panel(part, panel)?;
        }
        self.draw_legend(&legend)?;
        area.present()
    }
}

fn draw_panel<DB: DrawingBackend>(area: &Area<DB>, panel: &Panel) -> DrawResult<DB> {
    let values = || panel.lines.iter().flat_map(|line| line.points.iter().map(|&(_, y)| y));
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    if !panel.is_linear && low > 0.0 && high > low * LINEAR_MAX {
        let (low, high) = (low / 1.4, high * 1.4);
        draw_axes(area, panel, (low..high).log_scale().with_key_points(steps(low, high)))
    } else {
        draw_axes(area, panel, 0.0..high.max(1e-9) * 1.08)
    }
}

/// 1, 2 and 5 times the powers of ten in a range.
fn steps(low: f64, high: f64) -> Vec<f64> {
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let all = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|step| step * 10_f64.powi(decade)));
    all.filter(|step| (low..=high).contains(step)).collect()
}

fn draw_axes<DB: DrawingBackend, Y>(area: &Area<DB>, panel: &Panel, range: Y) -> DrawResult<DB>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let numbers = || panel.lines.iter().flat_map(|line| line.points.iter().map(|&(x, _)| x));
    let (across, labels) = match &panel.across {
        Across::Percent => (-2.0..102.0, 11),
        Across::Numbers => {
            let (low, high) =
                (numbers().fold(f64::INFINITY, f64::min), numbers().fold(0.0, f64::max));
            let margin = ((high - low) * 0.04).max(0.1);
            (low.min(high) - margin..high + margin, 9)
        }
        Across::Names(names) => (-0.4..names.len() as f64 - 0.6, names.len() + 1),
    };
    let mut chart = ChartBuilder::on(area)
        .margin(16)
        .margin_right(28)
        .x_label_area_size(56)
        .y_label_area_size(88)
        .build_cartesian_2d(across, range)?;
    let text = ("sans-serif", 17).into_font().color(&BLACK);
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 225, 225))
        .axis_style(RGBColor(90, 90, 90))
        .label_style(text)
        .x_labels(labels)
        .y_labels(9)
        .x_desc(panel.x_label.as_str())
        .y_desc(panel.y_label.as_str())
        .x_label_formatter(&|&x| x_text(&panel.across, x))
        .y_label_formatter(&|&y| y_text(y))
        .draw()?;
    let (bottom, top) = (chart.y_range().start, chart.y_range().end);
    for &mark in &panel.marks {
        let ends = [(mark, bottom), (mark, top)];
        let style = RGBColor(90, 90, 90).stroke_width(1);
        chart.draw_series(DashedLineSeries::new(ends, 4, 4, style))?;
    }
    for line in &panel.lines {
        let colour = COLOURS[line.colour % COLOURS.len()];
        let radius = if line.points.len() > POINTS_MANY { 2 } else { 5 };
        let path = line.points.iter().copied();
        let style = colour.stroke_width(3);
        match (line.is_loose, line.is_dashed) {
            (true, _) => {}
            (false, true) => {
                chart.draw_series(DashedLineSeries::new(path.clone(), 8, 6, style))?;
            }
            (false, false) => {
                chart.draw_series(LineSeries::new(path.clone(), style))?;
            }
        }
        let of_point = if line.is_dashed { colour.stroke_width(2) } else { colour.filled() };
        if line.is_dashed {
            // The line must not show inside of a hollow point.
            chart.draw_series(
                path.clone().map(|point| Circle::new(point, radius, WHITE.filled())),
            )?;
        }
        chart.draw_series(path.map(|point| Circle::new(point, radius, of_point)))?;
    }
    Ok(())
}

fn x_text(across: &Across, x: f64) -> String {
    let is_whole = (x - x.round()).abs() < 1e-6;
    match across {
        Across::Names(names) if is_whole && x > -0.5 => {
            names.get(x.round() as usize).cloned().unwrap_or_default()
        }
        Across::Names(_) => String::new(),
        Across::Percent | Across::Numbers if is_whole => format!("{x:.0}"),
        Across::Percent | Across::Numbers => format!("{x:.1}"),
    }
}

/// Three digits and a unit prefix.
pub(crate) fn y_text(value: f64) -> String {
    let (value, unit) = match value.abs() {
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let number = match value {
        value if value >= 100.0 || value == 0.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}").trim_end_matches(".0").to_string(),
        value => {
            let text = format!("{value:.2}");
            text.trim_end_matches('0').trim_end_matches('.').to_string()
        }
    };
    number + unit
}

impl Chart {
    fn draw_legend<DB: DrawingBackend>(&self, area: &Area<DB>) -> DrawResult<DB> {
        let text = ("sans-serif", 17).into_font().color(&BLACK);
        let columns = self.legend_columns();
        for (index, line) in self.legend().into_iter().enumerate() {
            let (column, row) = (index as u32 % columns, index as u32 / columns);
            let (x, y) = (40 + (column * LEGEND_ENTRY_WIDTH) as i32, 16 + (row * 32) as i32);
            let colour = COLOURS[line.colour % COLOURS.len()];
            let (style, of_point) = match line.is_dashed {
                true => (colour.stroke_width(3), colour.stroke_width(2)),
                false => (colour.stroke_width(3), colour.filled()),
            };
            let pieces: &[(i32, i32)] = match (line.is_loose, line.is_dashed) {
                (true, _) => &[],
                (false, true) => &[(0, 9), (14, 23), (28, 37)],
                (false, false) => &[(0, 38)],
            };
            for (from, to) in pieces {
                area.draw(&PathElement::new([(x + from, y), (x + to, y)], style))?;
            }
            if line.is_dashed {
                area.draw(&Circle::new((x + 19, y), 5, WHITE.filled()))?;
            }
            area.draw(&Circle::new((x + 19, y), 5, of_point))?;
            area.draw(&Text::new(line.label.as_str(), (x + 50, y - 9), text.clone()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_at_axes_are_short() {
        let texts = [0.0, 0.25, 7.5, 99.0, 1500.0, 12_500.0, 100_000.0, 2_500_000.0].map(y_text);
        assert_eq!(texts, ["0", "0.25", "7.5", "99", "1500", "12.5k", "100k", "2.5M"]);
    }

    #[test]
    fn logarithmic_axis_has_several_labels() {
        assert_eq!(steps(3.0, 60.0), [5.0, 10.0, 20.0, 50.0]);
    }

    #[test]
    fn legend_has_each_label_once() {
        let line = |label: &str| ChartLine {
            label: label.to_string(),
            colour: 1,
            is_dashed: false,
            is_loose: false,
            points: vec![(0.0, 1.0)],
        };
        let panel = |lines| Panel {
            across: Across::Percent,
            x_label: String::new(),
            y_label: String::new(),
            is_linear: false,
            marks: Vec::new(),
            lines,
        };
        let panels = vec![panel(vec![line("a"), line("b")]), panel(vec![line("b")])];
        let chart = Chart { title: String::new(), panels };
        assert_eq!(chart.legend().len(), 2);
    }
}
