//! The layout of a figure: two panels over value sizes, and the legend below.

use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

use crate::plot::{Area, COLOURS, DrawResult, Drawing};

const WIDTH: u32 = 1400;
const HEIGHT: u32 = 640;

const TITLE_HEIGHT: u32 = 50;
const LEGEND_HEIGHT: u32 = 84;
/// Entries of the legend in a line.
const LEGEND_COLUMNS: usize = 4;
/// An axis is logarithmic when its largest value is more than so many times the smallest.
const LINEAR_MAX: f64 = 30.0;

/// One row of measurements over value sizes.
pub(super) struct PlotLine {
    pub label: &'static str,
    pub colour: usize,
    pub is_dashed: bool,
    /// Bytes; thousands or millions of writes per second.
    pub speed: Vec<(f64, f64)>,
    /// Bytes; time.
    pub p99: Vec<(f64, f64)>,
}

pub(super) struct Figure {
    pub title: String,
    /// Of writes per second.
    pub unit: &'static str,
    /// Of the time that a write takes.
    pub time: &'static str,
    pub lines: Vec<PlotLine>,
}

impl Drawing for Figure {
    fn size(&self) -> (u32, u32) {
        (WIDTH, HEIGHT)
    }

    fn draw<DB: DrawingBackend>(&self, area: &Area<DB>) -> DrawResult<DB> {
        area.fill(&WHITE)?;
        let title = ("sans-serif", 26).into_font().color(&BLACK);
        area.draw(&Text::new(self.title.as_str(), (24, 14), title))?;
        let (_, rest) = area.split_vertically(TITLE_HEIGHT);
        let (panels, legend) = rest.split_vertically(HEIGHT - TITLE_HEIGHT - LEGEND_HEIGHT);
        let (left, right) = panels.split_horizontally(WIDTH / 2);
        let speed = format!("{} writes per second", self.unit);
        panel(&left, &speed, &self.lines, |line| &line.speed)?;
        let p99 = format!("{} to persist, 99th percentile", self.time);
        panel(&right, &p99, &self.lines, |line| &line.p99)?;
        draw_legend(&legend, &self.lines)?;
        area.present()
    }
}

fn panel<DB: DrawingBackend>(
    area: &Area<DB>,
    label: &str,
    lines: &[PlotLine],
    points: impl Fn(&PlotLine) -> &Vec<(f64, f64)>,
) -> DrawResult<DB> {
    let values = || lines.iter().flat_map(|line| points(line).iter().map(|&(_, y)| y));
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    if high > low * LINEAR_MAX {
        axes(area, label, lines, points, (low / 1.3..high * 1.3).log_scale())
    } else {
        axes(area, label, lines, points, 0.0..high * 1.08)
    }
}

fn axes<DB: DrawingBackend, Y>(
    area: &Area<DB>,
    label: &str,
    lines: &[PlotLine],
    points: impl Fn(&PlotLine) -> &Vec<(f64, f64)>,
    range: Y,
) -> DrawResult<DB>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let sizes = || lines.iter().flat_map(|line| points(line).iter().map(|&(x, _)| x));
    let (first, last) = (sizes().fold(f64::INFINITY, f64::min), sizes().fold(0.0, f64::max));
    let mut chart = ChartBuilder::on(area)
        .margin(16)
        .margin_right(28)
        .x_label_area_size(52)
        .y_label_area_size(72)
        .build_cartesian_2d((first..last * 1.0001).log_scale().base(2.0), range)?;
    let text = ("sans-serif", 17).into_font().color(&BLACK);
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 225, 225))
        .axis_style(RGBColor(90, 90, 90))
        .label_style(text)
        .x_labels(20)
        .y_labels(9)
        .x_desc("bytes of a value")
        .y_desc(label)
        .x_label_formatter(&|&bytes| size_label(bytes))
        .y_label_formatter(&|&value| value_label(value))
        .draw()?;
    for line in lines {
        let colour = COLOURS[line.colour % COLOURS.len()];
        let style = colour.stroke_width(3);
        let path = points(line).iter().copied();
        if line.is_dashed {
            chart.draw_series(DashedLineSeries::new(path.clone(), 8, 6, style))?;
            chart.draw_series(path.map(|point| Circle::new(point, 5, colour.stroke_width(2))))?;
        } else {
            chart.draw_series(LineSeries::new(path.clone(), style))?;
            chart.draw_series(path.map(|point| Circle::new(point, 5, colour.filled())))?;
        }
    }
    Ok(())
}

fn size_label(bytes: f64) -> String {
    match bytes.round() as u64 {
        bytes if bytes >= 1024 && bytes.is_multiple_of(1024) => format!("{}K", bytes / 1024),
        bytes => bytes.to_string(),
    }
}

fn value_label(value: f64) -> String {
    match value {
        value if value >= 10.0 || value == 0.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.1}").trim_end_matches(".0").to_string(),
        value => format!("{value:.2}").trim_end_matches('0').to_string(),
    }
}

fn draw_legend<DB: DrawingBackend>(area: &Area<DB>, lines: &[PlotLine]) -> DrawResult<DB> {
    // Few long names take fewer columns.
    let columns = if lines.len() > 5 { LEGEND_COLUMNS } else { 3 };
    let column_width = (WIDTH as i32 - 60) / columns as i32;
    let text = ("sans-serif", 17).into_font().color(&BLACK);
    for (index, line) in lines.iter().enumerate() {
        let x = 60 + (index % columns) as i32 * column_width;
        let y = 18 + (index / columns) as i32 * 32;
        let colour = COLOURS[line.colour % COLOURS.len()];
        if line.is_dashed {
            for start in [x, x + 14, x + 28] {
                let ends = [(start, y), (start + 9, y)];
                area.draw(&PathElement::new(ends, colour.stroke_width(3)))?;
            }
            area.draw(&Circle::new((x + 20, y), 5, colour.stroke_width(2)))?;
        } else {
            area.draw(&PathElement::new([(x, y), (x + 40, y)], colour.stroke_width(3)))?;
            area.draw(&Circle::new((x + 20, y), 5, colour.filled()))?;
        }
        area.draw(&Text::new(line.label, (x + 52, y - 9), text.clone()))?;
    }
    Ok(())
}
