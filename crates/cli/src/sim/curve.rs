//! `pleat sim --curve`: misses at every size of memory.

use anyhow::{Result, anyhow};
use page::PageCount;
use serde::Serialize;
use sim::replacement::{Curve, Curves, Policy};

use super::plot::{Folder, Line, misses};
use super::{SimArgs, policy, truncated_at, with_trace};

/// Lines of a table: so many parts of the trace's pages.
const PARTS: u64 = 16;

/// A row of `--json`.
#[derive(Serialize)]
pub(super) struct Row {
    trace: String,
    policy: &'static str,
    references: u64,
    cold_misses: u64,
    /// Sizes in pages from which on there are fewer misses, and how many.
    curve: Vec<(u64, u64)>,
    /// Where a truncated trace stops being whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated_at_byte: Option<u64>,
}

/// `--curve`.
pub(super) fn curved(name: &str) -> Result<Policy, String> {
    let found = policy(name)?;
    if Curves::has(found) {
        Ok(found)
    } else {
        Err("only lru and min have a curve; --replacement plays others".to_owned())
    }
}

/// Plays all traces.
pub(super) fn run(args: &SimArgs) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for path in &args.traces {
        let name = path.display().to_string();
        let mut curves = Curves::new(&args.curve);
        let mut reduced = PageCount(1);
        let played = with_trace(path, |trace| {
            reduced = PageCount(u64::from(trace.header().reduced_pages).max(1));
            Ok(curves.play(trace)?)
        });
        let ending = played.map_err(|error| anyhow!("{name}: {error:#}"))?;
        rows.extend(curves.curves().iter().map(|curve| Row {
            trace: name.clone(),
            policy: curve.policy.name(),
            references: curve.references,
            cold_misses: curve.cold_misses,
            curve: from(curve, reduced),
            truncated_at_byte: truncated_at(ending),
        }));
    }
    Ok(rows)
}

/// The curve from a size on: smaller memories do not see a reduced trace as they would see the whole one.
fn from(curve: &Curve, least: PageCount) -> Vec<(u64, u64)> {
    let later = curve.steps.iter().filter(|step| step.0 > least).map(|step| (step.0.0, step.1));
    [(least.0, curve.misses(least))].into_iter().chain(later).collect()
}

impl Row {
    /// Misses with so many pages, if the curve reaches there.
    fn misses(&self, pages: u64) -> Option<u64> {
        let reached = self.curve.partition_point(|step| step.0 <= pages);
        reached.checked_sub(1).map(|step| self.curve[step].1)
    }
}

/// Rows for people: a column for each policy.
pub(super) fn table(rows: &[Row], has_many: bool) -> String {
    let mut lines = Vec::new();
    for of_trace in rows.chunk_by(|one, next| one.trace == next.trace) {
        let Row { trace, references, cold_misses, .. } = &of_trace[0];
        let name = if has_many { format!("{trace}: ") } else { String::new() };
        let policies: Vec<&str> = of_trace.iter().map(|row| row.policy).collect();
        lines.push(format!("{name}{references} references, {cold_misses} of them the first to a page; misses:\n"));
        lines.push(format!("| pages | {} |\n|{}", policies.join(" | "), "---|".repeat(policies.len() + 1)));
        let mut sizes: Vec<u64> = (1..=PARTS).map(|part| (cold_misses * part / PARTS).max(1)).collect();
        sizes.dedup();
        for size in sizes {
            let misses = |row: &Row| row.misses(size).map_or("-".to_owned(), |misses| misses.to_string());
            let misses: Vec<String> = of_trace.iter().map(misses).collect();
            lines.push(format!("| {size} | {} |", misses.join(" | ")));
        }
    }
    lines.join("\n") + "\n"
}

/// A file for each trace, a line for each policy.
pub(super) fn plot(rows: &[Row], plots: &mut Folder) -> Result<()> {
    for of_trace in rows.chunk_by(|one, next| one.trace == next.trace) {
        let trace = &of_trace[0].trace;
        let lines = of_trace.iter().map(|row| Line { name: row.policy, points: corners(row) }).collect();
        plots.write(&[trace, "curve"], &misses(trace, lines)?)?;
    }
    Ok(())
}

/// A curve is level from each of its sizes to the next, and at the end to where all pages fit.
fn corners(row: &Row) -> Vec<(f64, f64)> {
    let share = |misses: u64| misses as f64 * 100.0 / row.references.max(1) as f64;
    let level = row.curve.windows(2).flat_map(|pair| {
        let (at, misses) = pair[0];
        [(at as f64, share(misses)), (pair[1].0 as f64, share(misses))]
    });
    let last = row.curve.last().copied().unwrap_or_default();
    let ends = [last.0, last.0.max(row.cold_misses)].map(|pages| (pages as f64, share(last.1)));
    level.chain(ends).collect()
}
