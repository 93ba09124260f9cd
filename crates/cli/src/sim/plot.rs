//! `--plot`: lines over a common axis, as SVG.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

const WIDTH: u32 = 900;
const PANEL_HEIGHT: u32 = 420;
/// Lines with more points have no marks at them.
const MARKS_MAX: usize = 64;
/// Points nearer to one another than these parts of the axes are drawn as one.
const STEPS: f64 = 2000.0;
/// Okabe and Ito's colours, which those tell apart, too, who do not see all of them.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

/// Points in the order of their `x`.
#[derive(Clone, Debug)]
pub(super) struct Line<'a> {
    pub(super) name: &'a str,
    pub(super) points: Vec<(f64, f64)>,
}

/// Lines with axes.
#[derive(Clone, Debug)]
pub(super) struct Panel<'a> {
    pub(super) title: String,
    pub(super) x: &'static str,
    pub(super) y: &'static str,
    pub(super) lines: Vec<Line<'a>>,
}

/// Where plots go.
pub(super) struct Folder {
    path: PathBuf,
    names: HashSet<String>,
}

impl Folder {
    /// Makes it if it is not there.
    pub(super) fn new(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).with_context(|| format!("--plot {}", path.display()))?;
        Ok(Self { path: path.to_owned(), names: HashSet::new() })
    }

    /// Writes a file that is named after a trace and what else tells it from others.
    pub(super) fn write(&mut self, name: &[&str], svg: &str) -> Result<()> {
        let name = self.name(name);
        let path = self.path.join(name);
        fs::write(&path, svg).with_context(|| format!("--plot {}", path.display()))
    }

    fn name(&mut self, parts: &[&str]) -> String {
        let trace = Path::new(parts[0]).file_name().and_then(|name| name.to_str()).unwrap_or("trace");
        let trace = if trace == "-" { "stdin" } else { trace };
        let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '_' };
        let parts = [&[trace], &parts[1..]].concat();
        let stem: Vec<String> = parts.iter().map(|part| part.chars().map(plain).collect()).collect();
        let stem = stem.join("-");
        let mut name = format!("{stem}.svg");
        // Traces of one name from several directories.
        let mut number = 1;
        while !self.names.insert(name.clone()) {
            number += 1;
            name = format!("{stem}-{number}.svg");
        }
        name
    }
}

/// Misses in percent of references, by pages of memory.
pub(super) fn misses(trace: &str, mut lines: Vec<Line<'_>>) -> Result<String> {
    for line in &mut lines {
        line.points.sort_by(|one, next| one.0.total_cmp(&next.0));
    }
    draw(&[Panel { title: trace.to_owned(), x: "pages of memory", y: "misses, % of references", lines }])
}

/// Panels below one another.
pub(super) fn draw(panels: &[Panel<'_>]) -> Result<String> {
    let mut svg = String::new();
    draw_all(panels, &mut svg).map_err(|error| anyhow!("--plot: {error}"))?;
    Ok(svg)
}

type DrawError = Box<dyn std::error::Error>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn draw_all(panels: &[Panel<'_>], svg: &mut String) -> Result<(), DrawError> {
    let area = SVGBackend::with_string(svg, (WIDTH, PANEL_HEIGHT * panels.len() as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    for (place, panel) in area.split_evenly((panels.len(), 1)).iter().zip(panels) {
        draw_panel(place, panel)?;
    }
    area.present()?;
    Ok(())
}

fn draw_panel(area: &Area<'_>, panel: &Panel<'_>) -> Result<(), DrawError> {
    let points = || panel.lines.iter().flat_map(|line| &line.points);
    let end = |largest: f64| if largest > 0.0 { largest * 1.05 } else { 1.0 };
    let x_end = end(points().map(|point| point.0).fold(0.0, f64::max));
    let y_end = end(points().map(|point| point.1).fold(0.0, f64::max));
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..x_end, 0.0..y_end)?;
    chart.configure_mesh().x_desc(panel.x).y_desc(panel.y).draw()?;
    for (line, colour) in panel.lines.iter().zip(COLOURS.iter().cycle()) {
        let drawn = thinned(&line.points, x_end / STEPS, y_end / STEPS);
        chart
            .draw_series([PathElement::new(drawn.clone(), colour.stroke_width(2))])?
            .label(line.name)
            .legend(|(x, y)| Rectangle::new([(x, y - 3), (x + 16, y + 3)], colour.filled()));
        if line.points.len() <= MARKS_MAX {
            chart.draw_series(drawn.iter().map(|&point| Circle::new(point, 3, colour.filled())))?;
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}

/// The points that can be told apart, the first and the last among them.
fn thinned(points: &[(f64, f64)], x_step: f64, y_step: f64) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for (index, &point) in points.iter().enumerate() {
        let is_near = |last: &(f64, f64)| (point.0 - last.0).abs() < x_step && (point.1 - last.1).abs() < y_step;
        if index + 1 == points.len() || !kept.last().is_some_and(is_near) {
            kept.push(point);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `name` is in each element of a kind.
    fn attributes<'a>(svg: &'a str, element: &str, name: &str) -> Vec<&'a str> {
        let elements = svg.split('<').filter(|text| text.split([' ', '>']).next() == Some(element));
        elements.map(|text| text.split_once(&format!(" {name}=\"")).unwrap().1.split_once('"').unwrap().0).collect()
    }

    fn number(text: &str) -> f64 {
        text.parse().unwrap()
    }

    /// The pixel of 0 and the pixels of 1, from the labels of an axis: along `x` those with the middle at their place.
    fn axis(svg: &str, along: &str, anchor: &str) -> (f64, f64) {
        let labels: Vec<(f64, f64)> = svg
            .split("<text ")
            .skip(1)
            .filter(|text| text.contains(&format!("text-anchor=\"{anchor}\"")))
            .filter_map(|text| {
                let place = text.split_once(&format!("{along}=\"")).unwrap().1.split_once('"').unwrap().0;
                let label = text.split_once('>').unwrap().1.split_once('<').unwrap().0.trim();
                Some((label.parse().ok()?, number(place)))
            })
            .collect();
        let (first, last) = (labels[0], labels[labels.len() - 1]);
        let unit = (last.1 - first.1) / (last.0 - first.0);
        assert!(labels.iter().all(|label| (first.1 + (label.0 - first.0) * unit - label.1).abs() < 1.5), "{labels:?}");
        (first.1 - first.0 * unit, unit)
    }

    /// The points that a polyline or a row of circles shows, by the axes beside them.
    fn shown(svg: &str, pixels: &[(f64, f64)]) -> Vec<(f64, f64)> {
        let (x, y) = (axis(svg, "x", "middle"), axis(svg, "y", "end"));
        pixels.iter().map(|pixel| ((pixel.0 - x.0) / x.1, (pixel.1 - y.0) / y.1)).collect()
    }

    fn near(shown: &[(f64, f64)], expected: &[(f64, f64)], tolerance: (f64, f64)) {
        assert_eq!(shown.len(), expected.len());
        for (one, other) in shown.iter().zip(expected) {
            let is_near = (one.0 - other.0).abs() < tolerance.0 && (one.1 - other.1).abs() < tolerance.1;
            assert!(is_near, "{one:?} for {other:?}");
        }
    }

    #[test]
    fn each_point_is_at_its_place() {
        let lru = vec![(1000.0, 40.0), (2000.0, 22.5), (4000.0, 0.0)];
        let min = vec![(4000.0, 0.0), (1000.0, 11.0), (2000.0, 7.0)];
        let lines = vec![Line { name: "lru", points: lru.clone() }, Line { name: "min", points: min }];
        let svg = misses("a<b&c.trace", lines).unwrap();
        assert!(
            svg.contains("a&lt;b&amp;c.trace") && svg.contains("\nlru\n") && svg.contains("pages of memory"),
            "{svg}"
        );
        let circles: Vec<(f64, f64)> = attributes(&svg, "circle", "cx")
            .into_iter()
            .map(number)
            .zip(attributes(&svg, "circle", "cy").into_iter().map(number))
            .collect();
        let sorted = [(1000.0, 11.0), (2000.0, 7.0), (4000.0, 0.0)];
        // A pixel is 5 pages and an eighth of a percent; labels and points are each rounded to one.
        near(&shown(&svg, &circles), &[&lru[..], &sorted].concat(), (15.0, 0.4));
        let colours = attributes(&svg, "circle", "fill");
        assert!(colours[..3].iter().all(|colour| *colour == "#0072B2") && colours[3] == "#D55E00", "{colours:?}");
    }

    #[test]
    fn long_lines_have_no_marks_and_keep_their_shape() {
        let points: Vec<(f64, f64)> =
            (0..100_000).map(|x| (f64::from(x) * 1e-3, f64::from(x / 50_000) * 7.0)).collect();
        let panel = Panel { title: String::new(), x: "seconds", y: "MiB", lines: vec![Line { name: "pool", points }] };
        let svg = draw(std::slice::from_ref(&panel)).unwrap();
        assert!(!svg.contains("<circle") && svg.len() < 100_000, "{}", svg.len());
        let strokes = attributes(&svg, "polyline", "stroke");
        let line = strokes.iter().position(|stroke| *stroke == "#0072B2").unwrap();
        let pixels: Vec<(f64, f64)> = attributes(&svg, "polyline", "points")[line]
            .split_whitespace()
            .map(|point| point.split_once(',').map(|(x, y)| (number(x), number(y))).unwrap())
            .collect();
        let shown = shown(&svg, &pixels);
        assert!(shown.len() > 500);
        for (x, y) in shown {
            let is_there = (x < 50.4 && y.abs() < 0.1) || (x > 49.6 && (y - 7.0).abs() < 0.1);
            assert!(is_there, "{x} {y}");
        }
    }

    #[test]
    fn nothing_to_show_is_drawn_as_such() {
        let zero = vec![Line { name: "min", points: vec![(5.0, 0.0)] }, Line { name: "lru", points: vec![] }];
        assert!(misses("t", zero).unwrap().ends_with("</svg>\n"));
    }

    #[test]
    fn no_file_is_written_over_another_ones() {
        let mut folder = Folder { path: PathBuf::new(), names: HashSet::new() };
        let names = ["a/x.trace", "b/x.trace", "-", "a/y z"].map(|trace| folder.name(&[trace, "pleat", "31.2 MiB"]));
        let expected = ["x.trace-pleat-31.2_MiB.svg", "x.trace-pleat-31.2_MiB-2.svg"];
        assert_eq!(names[..2], expected);
        assert_eq!(names[2..], ["stdin-pleat-31.2_MiB.svg", "y_z-pleat-31.2_MiB.svg"]);
    }
}
