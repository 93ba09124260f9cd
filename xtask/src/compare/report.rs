//! What came out: one JSON line a run, and a summary of ratios with their spread.

use std::collections::BTreeMap;

use bench::loads::Outcome;
use bench::measure::Measured;
use serde_json::{Value, json};

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// Same output as without a limit.
    Ok,
    /// Killed for want of memory.
    Killed,
    /// Ended because it took too long.
    Timeout,
    /// Ended with another status.
    Failed,
    /// Other output: a bug.
    Wrong,
}

/// One run.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Run {
    pub(crate) round: u32,
    pub(crate) case: String,
    pub(crate) system: String,
    pub(crate) compressible: f64,
    pub(crate) fraction: f64,
    /// Anonymous memory without a limit.
    pub(crate) wants_bytes: u64,
    /// What each system may hold.
    pub(crate) total_bytes: u64,
    /// Limit of the cgroup, for the kernel's systems.
    pub(crate) limit_bytes: Option<u64>,
    /// Pool that no cgroup is charged for.
    pub(crate) outside_bytes: u64,
    pub(crate) cgroup_peak_bytes: Option<u64>,
    /// Codec of zram or zswap.
    pub(crate) codec: Option<String>,
    pub(crate) verdict: Verdict,
    #[serde(flatten)]
    pub(crate) measured: Measured,
    /// What the program says of itself.
    pub(crate) own: Option<Outcome>,
}

/// Middle, least and most of some numbers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

pub(crate) fn spread(mut numbers: Vec<f64>) -> Option<Spread> {
    numbers.sort_by(f64::total_cmp);
    let (min, max) = (*numbers.first()?, *numbers.last()?);
    let middle = numbers.len() / 2;
    let median =
        if numbers.len() % 2 == 1 { numbers[middle] } else { f64::midpoint(numbers[middle - 1], numbers[middle]) };
    Some(Spread { median, min, max })
}

/// A line for each case and system: wall time, and its ratio to the baseline of the same round.
pub(crate) fn summary(runs: &[Run], baseline: &str) -> Vec<Value> {
    let mut groups: BTreeMap<(String, String, String), Vec<&Run>> = BTreeMap::new();
    for run in runs {
        let key =
            (format!("{} c={} f={}", run.case, run.compressible, run.fraction), run.case.clone(), run.system.clone());
        groups.entry(key).or_default().push(run);
    }
    let mut lines = Vec::new();
    for ((setting, _, system), group) in &groups {
        let good: Vec<_> = group.iter().filter(|run| run.verdict == Verdict::Ok).collect();
        let base = |round| {
            let same = |run: &&Run| run.round == round && run.system == baseline && run.verdict == Verdict::Ok;
            let fits = |run: &&Run| {
                same(run)
                    && (&run.case, run.fraction, run.compressible)
                        == (&group[0].case, group[0].fraction, group[0].compressible)
            };
            runs.iter().find(fits)
        };
        let ratios = |number: fn(&Run) -> Option<f64>| {
            let ratio = |run: &&&Run| Some(number(run)? / number(base(run.round)?)?);
            spread(good.iter().filter_map(ratio).collect()).map(shown)
        };
        let numbers =
            |number: fn(&Run) -> Option<f64>| spread(good.iter().filter_map(|run| number(run)).collect()).map(shown);
        lines.push(json!({ "summary": {
            "setting": setting, "system": system, "baseline": baseline,
            "runs": group.len(), "ok": good.len(),
            "verdicts": group.iter().map(|run| format!("{:?}", run.verdict).to_lowercase()).collect::<Vec<_>>(),
            "wall_s": numbers(|run| Some(run.measured.wall_s)),
            "wall_ratio": ratios(|run| Some(run.measured.wall_s)),
            "cpu_s": numbers(|run| Some(run.measured.user_s + run.measured.system_s)),
            "anon_peak_bytes": numbers(|run| run.measured.anon_peak_bytes.map(|bytes| bytes as f64)),
            "peak_share_of_total": numbers(|run| {
                run.measured.anon_peak_bytes.map(|bytes| (bytes + run.outside_bytes) as f64 / run.total_bytes as f64)
            }),
            "max_rss_bytes": numbers(|run| Some(run.measured.max_rss_bytes as f64)),
            "ns_per_access": numbers(|run| run.own.as_ref().map(|own| own.ns_per_access)),
            "ns_per_access_ratio": ratios(|run| run.own.as_ref().map(|own| own.ns_per_access)),
            "ns_p50": numbers(|run| run.own.as_ref().map(|own| own.ns_p50 as f64)),
            "ns_p99": numbers(|run| run.own.as_ref().map(|own| own.ns_p99 as f64)),
            "ns_p999": numbers(|run| run.own.as_ref().map(|own| own.ns_p999 as f64)),
        }}));
    }
    lines
}

/// A system that has held more than the others may have is not compared with them on equal terms: that stands out.
fn held(share: &Value) -> String {
    const TOLERANCE: f64 = 1.02;
    share
        .as_f64()
        .map_or("–".into(), |share| if share > TOLERANCE { format!("**{share:.2}**") } else { format!("{share:.2}") })
}

fn shown(spread: Spread) -> Value {
    let round = |number: f64| (number * 1000.0).round() / 1000.0;
    json!({ "median": round(spread.median), "min": round(spread.min), "max": round(spread.max) })
}

/// The summary as a Markdown table.
pub(crate) fn table(summary: &[Value]) -> String {
    let mut text = String::from(
        "| setting | system | ok | wall s (min–max) | × baseline (min–max) | peak anon MiB | of the total | ns/access | p50 / p99 / p99.9 ns |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for line in summary.iter().map(|line| &line["summary"]) {
        let number =
            |value: &Value, digits: usize| value.as_f64().map_or("–".into(), |number| format!("{number:.digits$}"));
        let range = |value: &Value| match value {
            Value::Null => "–".into(),
            _ => format!("{} ({}–{})", number(&value["median"], 2), number(&value["min"], 2), number(&value["max"], 2)),
        };
        let peak = line["anon_peak_bytes"]["median"]
            .as_f64()
            .map_or("–".into(), |bytes| format!("{:.0}", bytes / 1_048_576.0));
        let cells = [
            line["setting"].as_str().unwrap_or_default().to_owned(),
            line["system"].as_str().unwrap_or_default().to_owned(),
            verdicts(line),
            range(&line["wall_s"]),
            range(&line["wall_ratio"]),
            peak,
            held(&line["peak_share_of_total"]["median"]),
            number(&line["ns_per_access"]["median"], 0),
            match &line["ns_p50"] {
                Value::Null => "–".into(),
                _ => ["ns_p50", "ns_p99", "ns_p999"].map(|name| number(&line[name]["median"], 0)).join(" / "),
            },
        ];
        text.extend(["| ", &cells.join(" | "), " |\n"]);
    }
    text
}

/// `5`, or `3, 2 killed`.
fn verdicts(line: &Value) -> String {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for verdict in line["verdicts"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        *counts.entry(verdict).or_default() += 1;
    }
    let good = counts.remove("ok").unwrap_or(0);
    let others = counts.iter().map(|(verdict, count)| format!("{count} {verdict}"));
    std::iter::once(good.to_string()).chain(others).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(round: u32, system: &str, wall_s: f64, verdict: Verdict) -> Run {
        Run {
            round,
            case: "rand".into(),
            system: system.into(),
            compressible: 0.5,
            fraction: 0.5,
            wants_bytes: 0,
            total_bytes: 0,
            limit_bytes: None,
            outside_bytes: 0,
            cgroup_peak_bytes: None,
            codec: None,
            verdict,
            measured: Measured { wall_s, ..Measured::default() },
            own: None,
        }
    }

    #[test]
    fn spreads() {
        assert_eq!(spread(vec![]), None);
        assert_eq!(spread(vec![3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(spread(vec![4.0, 1.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
    }

    #[test]
    fn ratios_pair_runs_of_one_round_and_leave_bad_ones_out() {
        let runs = [
            run(0, "none", 1.0, Verdict::Ok),
            run(0, "pleat", 2.0, Verdict::Ok),
            run(1, "none", 2.0, Verdict::Ok),
            run(1, "pleat", 6.0, Verdict::Ok),
            run(2, "none", 1.0, Verdict::Killed),
            run(2, "pleat", 9.0, Verdict::Ok),
            run(0, "zram", 9.0, Verdict::Killed),
        ];
        let lines = summary(&runs, "none");
        let pleat = &lines[1]["summary"];
        assert_eq!(pleat["wall_ratio"], json!({ "median": 2.5, "min": 2.0, "max": 3.0 }));
        assert_eq!(lines[2]["summary"]["wall_ratio"], Value::Null);
        assert!(table(&lines).contains("| zram | 0, 1 killed |"), "{}", table(&lines));
    }
}
