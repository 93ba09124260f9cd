//! `pleat sim --estimate`: how probable it is that memory does not shrink to a target.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use codec::{Codec, Scratch};
use page::{PAGE_BYTES, PageBytes, PageCount};
use rayon::prelude::*;
use serde::Serialize;
use sim::estimate::{Estimate, Sizes};
use trace::{Ending, Header, TraceError};

use super::plot::{Folder, Line, Panel, draw};
use super::{SimArgs, truncated_at, with_trace};

/// Of a file of pages no more are encoded: runs of neighbours, evenly spaced.
const SAMPLED_PAGES_MAX: u64 = 16_384;
/// What CRAMES encodes with.
const CODEC: &str = "pbpm";
/// Points of a density, from this many deviations below the mean to as many above.
const DENSITY_POINTS: u32 = 400;
const DENSITY_DEVIATIONS: f64 = 6.0;

/// A row of `--json`.
#[derive(Serialize)]
pub(super) struct Row {
    trace: String,
    codec: String,
    sampled_pages: u64,
    /// Of a page's ratio.
    deviation: f64,
    #[serde(flatten)]
    estimate: Estimate,
    /// Where a truncated trace stops being whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated_at_byte: Option<u64>,
    #[serde(skip)]
    sizes: Sizes,
}

/// What was sampled of one input with one codec.
struct Sampled {
    codec: String,
    sizes: Sizes,
    /// Pages of memory that the samples stand for.
    pages: PageCount,
}

/// `--estimate`.
pub(super) fn target(text: &str) -> Result<f64, String> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    match number.parse::<f64>() {
        Ok(target) if target > 0.0 && target <= unit => Ok(target / unit),
        _ => Err("expected a ratio such as 50% or 0.5".to_owned()),
    }
}

/// `--codec`.
pub(super) fn codec(name: &str) -> Result<&'static str, String> {
    let names = || codec::ALL.map(Codec::name).join(", ");
    codec::named(name).map(Codec::name).ok_or_else(|| format!("there is no such codec; there are {}", names()))
}

/// Estimates from all traces and files.
pub(super) fn run(args: &SimArgs) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for path in &args.traces {
        let (all, truncated_at_byte) = sampled(path, &args.codec)?;
        for Sampled { codec, sizes, pages } in all {
            let pages = if args.pages.is_empty() { vec![pages] } else { args.pages.clone() };
            let cells = args.estimate.iter().flat_map(|&target| pages.iter().map(move |&pages| (target, pages)));
            rows.extend(cells.map(|(target, pages)| Row {
                trace: path.display().to_string(),
                codec: codec.clone(),
                sampled_pages: sizes.pages().0,
                deviation: sizes.deviation(),
                estimate: sizes.estimate(target, pages),
                truncated_at_byte,
                sizes: sizes.clone(),
            }));
        }
    }
    Ok(rows)
}

/// The sizes in a trace, or of a file's pages if it is none; and where a truncated trace stops.
fn sampled(path: &Path, codecs: &[&'static str]) -> Result<(Vec<Sampled>, Option<u64>)> {
    let name = path.display();
    match of_trace(path, codecs) {
        Ok((sampled, ending)) => Ok((sampled, truncated_at(ending))),
        Err(error) if path != Path::new("-") && is_foreign(&error) => Ok((of_pages(path, codecs)?, None)),
        Err(error) => Err(anyhow!("{name}: {error:#}")),
    }
}

fn is_foreign(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(TraceError::Foreign { .. }))
}

fn of_trace(path: &Path, codecs: &[&'static str]) -> Result<(Vec<Sampled>, Ending)> {
    let mut columns = Vec::new();
    let mut pages = std::collections::HashSet::new();
    let ending = with_trace(path, |trace| {
        columns = of_header(trace.header(), codecs)?;
        let (mut batch, mut samples) = (Vec::new(), Vec::new());
        loop {
            trace.read(&mut batch, &mut samples)?;
            for sample in &samples {
                pages.insert(sample.page);
                for (at, sampled) in &mut columns {
                    sampled.sizes.push(usize::from(sample.sizes[*at]));
                }
            }
            if batch.is_empty() {
                return Ok(());
            }
        }
    })?;
    if pages.is_empty() {
        bail!("no samples of how small pages get; a core dump or any file of pages does, too");
    }
    let count = PageCount(pages.len() as u64);
    Ok((columns.into_iter().map(|(_, sampled)| Sampled { pages: count, ..sampled }).collect(), ending))
}

/// The columns of a trace's samples that are asked for: all, if none is.
fn of_header(header: &Header, codecs: &[&'static str]) -> Result<Vec<(usize, Sampled)>> {
    let has = |name: &&str| header.codecs.iter().any(|own| own == name);
    if let Some(missing) = codecs.iter().find(|&name| !header.codecs.is_empty() && !has(name)) {
        bail!("--codec: no samples of {missing}; of {}", header.codecs.join(", "));
    }
    let is_wanted = |name: &String| codecs.is_empty() || codecs.contains(&name.as_str());
    let wanted = header.codecs.iter().enumerate().filter(|(_, name)| is_wanted(name));
    let empty = |codec: &String| Sampled { codec: codec.clone(), sizes: Sizes::default(), pages: PageCount::ZERO };
    Ok(wanted.map(|(at, codec)| (at, empty(codec))).collect())
}

/// Encodes the pages of a file, or what of a core dump is memory.
fn of_pages(path: &Path, codecs: &[&'static str]) -> Result<Vec<Sampled>> {
    let sources = codec_bench::pages::read(&[PathBuf::from(path)], SAMPLED_PAGES_MAX)?;
    let source = sources.first().context("no file")?;
    let codecs = if codecs.is_empty() { &[CODEC] } else { codecs };
    let of = |name: &&'static str| {
        let codec = codec::named(name).expect("a name that was read is one of them");
        let mut sizes = Sizes::default();
        let encoded = source.pages.par_iter().map_init(Scratch::new, |scratch, page| length(codec, page, scratch));
        let zeros = (0..source.zero_pages).map(|_| 0);
        for bytes in encoded.collect::<Vec<usize>>().into_iter().chain(zeros) {
            sizes.push(bytes);
        }
        Sampled { codec: (*name).to_owned(), sizes, pages: PageCount(source.file_pages) }
    };
    Ok(codecs.iter().map(of).collect())
}

/// As a trace samples it: nothing for a page of one repeated word, a whole page where the codec gains nothing.
fn length(codec: &dyn Codec, page: &PageBytes, scratch: &mut Scratch) -> usize {
    if codec::same_filled(page).is_some() {
        return 0;
    }
    codec.encode(page, scratch, &mut [0; PAGE_BYTES]).unwrap_or(PAGE_BYTES)
}

/// Rows for people.
pub(super) fn table(rows: &[Row]) -> String {
    let mut lines = Vec::new();
    for of_one in rows.chunk_by(|one, next| (&one.trace, &one.codec) == (&next.trace, &next.codec)) {
        let Row { trace, codec, sampled_pages, deviation, estimate, .. } = &of_one[0];
        let (mean, deviation) = (estimate.mean_ratio * 100.0, deviation * 100.0);
        lines.push(format!(
            "{trace}: {sampled_pages} pages sampled with {codec}, {mean:.1} % ± {deviation:.1} % of their size\n"
        ));
        lines.push("| target | pages | probability of exceeding it | not above |\n|---|---|---|---|".to_owned());
        lines.extend(of_one.iter().map(|Row { estimate, .. }| {
            let Estimate { target, pages, log10_probability, log10_bound, .. } = estimate;
            let (probability, bound) = (scientific(*log10_probability), scientific(*log10_bound));
            format!("| {} % | {pages} | {probability} | {bound} |", target * 100.0)
        }));
    }
    lines.join("\n") + "\n"
}

/// A number by its logarithm, however small.
fn scientific(log10: Option<f64>) -> String {
    let Some(log10) = log10 else { return "0".to_owned() };
    if log10 > -3.0 {
        return format!("{:.4}", 10_f64.powf(log10));
    }
    let exponent = log10.floor();
    format!("{:.2}e{exponent}", 10_f64.powf(log10 - exponent))
}

/// A file for each trace and codec: how many pages have which ratio, above the densities of the ratio of all of them.
pub(super) fn plot(rows: &[Row], plots: &mut Folder) -> Result<()> {
    for of_one in rows.chunk_by(|one, next| (&one.trace, &one.codec) == (&next.trace, &next.codec)) {
        let Row { trace, codec, sizes, .. } = &of_one[0];
        let mut seen = 0.0;
        let points = sizes.shares().flat_map(|(ratio, share)| {
            let before = seen;
            seen += share;
            [(ratio, before * 100.0), (ratio, seen * 100.0)]
        });
        let pages = vec![Line { name: "pages", points: points.collect() }];
        let mut names: Vec<(u64, String)> =
            of_one.iter().map(|row| (row.estimate.pages, format!("{} pages", row.estimate.pages))).collect();
        names.sort();
        names.dedup();
        let densities = names.iter().map(|(pages, name)| {
            let row = of_one.iter().find(|row| row.estimate.pages == *pages).expect("it is a row's");
            Line { name, points: density(&row.estimate) }
        });
        let panels = [
            Panel { title: format!("{trace}: {codec}"), x: "ratio of a page", y: "pages up to it, %", lines: pages },
            Panel { title: String::new(), x: "ratio of all pages", y: "density", lines: densities.collect() },
        ];
        plots.write(&[trace, codec, "estimate"], &draw(&panels)?)?;
    }
    Ok(())
}

/// The paper's aggregate density.
fn density(estimate: &Estimate) -> Vec<(f64, f64)> {
    let Estimate { mean_ratio, aggregate_deviation, .. } = *estimate;
    if aggregate_deviation == 0.0 {
        return vec![(mean_ratio, 0.0)];
    }
    let height = 1.0 / (aggregate_deviation * std::f64::consts::TAU.sqrt());
    let at = |point: u32| (f64::from(point) * 2.0 / f64::from(DENSITY_POINTS) - 1.0) * DENSITY_DEVIATIONS;
    let point = |z: f64| (mean_ratio + z * aggregate_deviation, height * (-z * z / 2.0).exp());
    (0..=DENSITY_POINTS).map(|step| point(at(step))).filter(|(ratio, _)| *ratio >= 0.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_however_small() {
        let logs = [None, Some(0.0), Some(-2.0), Some(-157.468_521), Some(-4000.5)];
        assert_eq!(logs.map(scientific), ["0", "1.0000", "0.0100", "3.40e-158", "3.16e-4001"]);
    }

    #[test]
    fn targets_are_parts_or_percentages() {
        assert_eq!([target("50%"), target("0.5"), target("1")], [Ok(0.5), Ok(0.5), Ok(1.0)]);
        assert!(["0", "1.1", "101%", "half", "-5%", "nan"].iter().all(|text| target(text).is_err()));
    }
}
