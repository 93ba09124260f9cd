//! The plot: ratio against speed, one point a codec, encoding beside decoding.

use plotters::prelude::*;

use crate::report::{Figures, Report};
use crate::subjects::MEMCPY;

const SIZE: (u32, u32) = (1200, 560);

/// Draws the first of the averages, as SVG. `Err` says why that cannot be.
pub fn plot(report: &Report) -> Result<String, String> {
    let set = report.sets().first().copied().unwrap_or_default().to_owned();
    let results: Vec<&Figures> =
        report.results.iter().filter(|result| result.set == set && result.codec != MEMCPY).collect();
    let mut text = String::new();
    draw(&set, &results, &mut text).map_err(|error| error.to_string())?;
    Ok(text)
}

type DrawError = Box<dyn std::error::Error>;

fn draw(set: &str, results: &[&Figures], text: &mut String) -> Result<(), DrawError> {
    let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let (left, right) = area.split_horizontally(SIZE.0 / 2);
    let points = |ns: fn(&Figures) -> f64| -> Vec<(f64, f64, &'static str)> {
        let point = |figures: &&Figures| (page::PAGE_BYTES as f64 / ns(figures).max(1.0), figures.ratio, figures.codec);
        results.iter().map(point).collect()
    };
    panel(&left, &format!("{set}: encoding"), &points(|figures| figures.encode_ns_mean))?;
    panel(&right, &format!("{set}: decoding"), &points(|figures| figures.decode_ns_mean))?;
    area.present()?;
    Ok(())
}

/// `points`: gigabytes of pages a second, ratio, name.
fn panel<DB>(
    area: &DrawingArea<DB, plotters::coord::Shift>,
    title: &str,
    points: &[(f64, f64, &str)],
) -> Result<(), DrawError>
where
    DB: DrawingBackend,
    DB::ErrorType: 'static,
{
    let fastest = points.iter().map(|point| point.0).fold(0.01, f64::max);
    let slowest = points.iter().map(|point| point.0).fold(fastest, f64::min);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(52)
        // Room on the right for the names.
        .build_cartesian_2d((slowest / 1.5..fastest * 3.0).log_scale(), 0.0..1.0)?;
    chart
        .configure_mesh()
        .x_desc("GB/s of pages (faster →)")
        .y_desc("encoded / original (↓ smaller)")
        .x_label_formatter(&|speed| format!("{speed}"))
        .draw()?;
    chart.draw_series(points.iter().map(|&(speed, ratio, _)| Circle::new((speed, ratio), 4, BLUE.filled())))?;
    let name = |&(speed, ratio, name): &(f64, f64, &str)| {
        EmptyElement::at((speed, ratio)) + Text::new(name.to_owned(), (7, -6), ("sans-serif", 14))
    };
    chart.draw_series(points.iter().map(name))?;
    Ok(())
}
