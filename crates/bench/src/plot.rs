//! Drawings as SVG and PNG.
//!
//! Text is drawn with an embedded font (`font`), so that a plot looks the same on every machine.

pub(crate) mod chart;

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Once;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::register_font;

use crate::{Error, Result};

const FONT: &[u8] = include_bytes!("plot/font/DejaVuSans-subset.ttf");

/// Distinct for colour-blind readers. [Okabe and Ito, *Color Universal Design*, 2008]
pub(crate) const COLOURS: [RGBColor; 8] = [
    RGBColor(110, 110, 110),
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

pub(crate) type Area<DB> = DrawingArea<DB, Shift>;
pub(crate) type DrawResult<DB> =
    std::result::Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

/// A drawing for any backend.
pub(crate) trait Drawing {
    /// In pixels.
    fn size(&self) -> (u32, u32);

    /// Draws all of it and hands it to the file.
    fn draw<DB: DrawingBackend>(&self, area: &Area<DB>) -> DrawResult<DB>;
}

/// Writes `path` with the extensions `svg` and `png`; returns both paths.
pub(crate) fn save(drawing: &impl Drawing, path: &Path) -> Result<[PathBuf; 2]> {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        let registered = register_font("sans-serif", FontStyle::Normal, FONT);
        assert!(registered.is_ok(), "the font is a part of this program");
    });
    let failed = |error: String| Error::Protocol(format!("{}: {error}", path.display()));
    let (size, svg, png) = (drawing.size(), path.with_extension("svg"), path.with_extension("png"));
    let area = SVGBackend::new(&svg, size).into_drawing_area();
    drawing.draw(&area).map_err(|error| failed(error.to_string()))?;
    drop(area);
    let mut pixels = vec![0; (size.0 * size.1 * 3) as usize];
    let area = BitMapBackend::with_buffer(&mut pixels, size).into_drawing_area();
    drawing.draw(&area).map_err(|error| failed(error.to_string()))?;
    drop(area);
    write_png(&png, size, &pixels)?;
    Ok([svg, png])
}

fn write_png(path: &Path, (width, height): (u32, u32), pixels: &[u8]) -> Result<()> {
    let file = File::create(path).map_err(Error::io(path.display().to_string()))?;
    let mut encoder = png::Encoder::new(BufWriter::new(file), width, height);
    encoder.set_color(png::ColorType::Rgb);
    // Plots are mostly white, which needs no filter.
    encoder.set_filter(png::Filter::NoFilter);
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(pixels));
    written.map_err(|error| Error::Protocol(format!("{}: {error}", path.display())))
}
