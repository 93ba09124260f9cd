//! `pleat sim --system`: whole runs on a clock of their own.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use cache::system::Choice as _;
use indicatif::{ParallelProgressIterator, ProgressBar, ProgressFinish};
use page::{ByteCount, PAGE_BYTES, PageCount};
use rayon::prelude::*;
use serde::Deserialize;
use serde::Serialize;
use sim::mxt::Latencies;
use sim::replacement::Contest;
use sim::timed::{self, Basis, Cost, Device, Machine, Moment, Outcome, Setup, System};
use trace::Trace;

use super::plot::{Folder, Line, Panel, draw};
use super::{SimArgs, truncated_at, warn};
use crate::size::{Human, Ram};
use crate::system::Replaced;

/// The least RAM: below it pleat's marks have no room.
const RAM_BYTES_MIN: u64 = 1 << 20;

/// A row of `--json`.
#[derive(Serialize)]
pub(super) struct Row {
    trace: String,
    system: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parts: Option<Parts>,
    /// Of a fixed size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool_size_bytes: Option<u64>,
    ram_bytes: u64,
    machine: String,
    backing: String,
    /// Those of the costs that are guesses.
    estimates: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated_at_byte: Option<u64>,
    #[serde(flatten)]
    outcome: Outcome,
}

/// What a system is made of, by name.
#[derive(Clone, Copy, Serialize)]
struct Parts {
    store: &'static str,
    codec: &'static str,
    sizing: &'static str,
    admission: &'static str,
    write_back: &'static str,
}

impl From<cache::system::System> for Parts {
    fn from(system: cache::system::System) -> Self {
        Self {
            store: system.store.name(),
            codec: system.codec,
            sizing: system.sizing.name(),
            admission: system.admission.name(),
            write_back: system.write_back.name(),
        }
    }
}

/// What is simulated of a trace.
#[derive(Clone, Copy)]
struct Cell<'a> {
    path: &'a Path,
    system: System,
    ram: ByteCount,
    pool_size: Option<ByteCount>,
}

/// `--system`.
pub(super) fn system(name: &str) -> Result<System, String> {
    let names = || System::all().map(System::name).collect::<Vec<_>>().join(", ");
    let missing = || match name {
        "mxt-hardware" => "that is an option of its own, --mxt-hardware, for traces of lines".to_owned(),
        _ => format!("there is no such system; there are {}", names()),
    };
    System::named(name).ok_or_else(missing)
}

/// What `--calibrate` writes.
#[derive(Serialize, Deserialize)]
pub(super) struct Profile {
    pub(super) machine: Machine,
    /// None where the temporary directory cannot be read past the system's caches.
    pub(super) device: Option<Device>,
}

fn profile(path: &str) -> Result<Profile, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    serde_json::from_slice(&bytes).map_err(|error| format!("no profile: {error}"))
}

/// `--machine`.
pub(super) fn machine(name: &str) -> Result<Machine, String> {
    if let Some(found) = Machine::ALL.into_iter().find(|machine| machine.name == name) {
        return Ok(found);
    }
    let names = || Machine::ALL.map(|machine| machine.name).join(", ");
    profile(name).map(|profile| profile.machine).map_err(|why| format!("there are {}, and as a file: {why}", names()))
}

/// `--backing`.
pub(super) fn device(name: &str) -> Result<Device, String> {
    if let Some(found) = Device::ALL.into_iter().find(|device| device.name == name) {
        return Ok(found);
    }
    let names = || Device::ALL.map(|device| device.name).join(", ");
    let found = profile(name).and_then(|profile| profile.device.ok_or_else(|| "it has no device".to_owned()));
    found.map_err(|why| format!("there are {}, and as a file: {why}", names()))
}

/// `--costs`.
pub(super) fn costs() -> String {
    let mut lines = vec!["| profile | step | ns | | source |\n|---|---|---|---|---|\n".to_owned()];
    let mut add = |name: &str, costs: &[(&'static str, &Cost)]| {
        lines.extend(costs.iter().map(|(step, cost)| {
            let basis = if cost.basis == Basis::Measured { "measured" } else { "estimate" };
            format!("| {name} | {step} | {} | {basis} | {} |\n", cost.ns, cost.source)
        }));
    };
    for machine in Machine::ALL {
        add(&machine.name, &machine.costs());
        for own in machine.codecs.iter() {
            add(&format!("{}, {}", machine.name, own.codec), &[("encode", &own.encode), ("decode", &own.decode)]);
        }
    }
    add("mxt-hardware", &Latencies::PAPER.costs());
    for device in Device::ALL {
        add(&device.name, &device.costs());
    }
    lines.concat()
}

/// The costs that are guesses.
fn estimates(args: &SimArgs, system: System) -> Vec<&'static str> {
    let (mut machine, device) = (args.machine.costs(), args.backing.costs());
    let (encode, decode) = args.machine.codec(system.codec().unwrap_or_default());
    for (step, cost) in &mut machine {
        match *step {
            "encode" => *cost = encode,
            "decode" => *cost = decode,
            _ => {}
        }
    }
    let all = machine.iter().chain(&device);
    all.filter(|(_, cost)| cost.basis == Basis::Estimate).map(|(step, _)| *step).collect()
}

/// `--ram`.
pub(super) fn ram(text: &str) -> Result<Ram, String> {
    match text.parse()? {
        Ram::Auto => Err("a simulation has no machine: give a size or a percentage of the trace's pages".to_owned()),
        Ram::Bytes(bytes) if bytes.0 < RAM_BYTES_MIN => Err("at least 1M".to_owned()),
        ram => Ok(ram),
    }
}

/// `--pool-size`.
pub(super) fn pool_size(text: &str) -> Result<Ram, String> {
    match text.parse()? {
        Ram::Auto => Err("a size or a percentage of the RAM".to_owned()),
        size => Ok(size),
    }
}

/// So many bytes, or such a part of `whole`.
fn bytes_of(size: Ram, whole: ByteCount) -> ByteCount {
    match size {
        Ram::Percent(percent) => ByteCount((whole.0 as f64 * percent / 100.0) as u64),
        Ram::Bytes(bytes) => bytes,
        Ram::Auto => unreachable!("refused when the options were read"),
    }
}

/// The systems with the parts that the options name.
fn systems(args: &SimArgs) -> Result<Vec<System>> {
    if args.codec.len() > 1 {
        bail!("--codec: one for all systems");
    }
    let replaced = Replaced {
        store: args.store,
        codec: args.codec.first().copied(),
        sizing: args.sizing,
        admission: args.admission,
        write_back: args.write_back,
        has_pool_size: !args.pool_size.is_empty(),
    };
    let with = |&system: &System| match system {
        System::Cached(name, parts) => replaced.of(parts).map(|parts| System::Cached(name, parts)),
        System::Off if replaced == Replaced::default() => Ok(system),
        System::Off => bail!("off has no parts that others could replace"),
    };
    args.system.iter().map(with).collect()
}

/// Plays all traces with all systems and sizes.
pub(super) fn run(args: &SimArgs) -> Result<Vec<Row>> {
    let systems = systems(args)?;
    let mut cells = Vec::new();
    for path in &args.traces {
        let pages = count_pages(path)?;
        for &system in &systems {
            for &ram in &args.ram {
                let ram = bytes_of(ram, pages.bytes());
                if ram.0 < RAM_BYTES_MIN {
                    bail!("{}: {} is too little RAM to simulate; at least 1M", path.display(), Human(ram.0));
                }
                let sizes = args.pool_size.iter().map(|&size| Some(bytes_of(size, ram)));
                let sizes = sizes.chain(args.pool_size.is_empty().then_some(None));
                cells.extend(sizes.map(|pool_size| Cell { path, system, ram, pool_size }));
            }
        }
    }
    let bar = ProgressBar::new(cells.len() as u64).with_finish(ProgressFinish::AndClear);
    cells.into_par_iter().progress_with(bar).map(|cell| play(cell, args)).collect()
}

/// The pages of a trace. What is wrong with it is told here, before the work, and once.
fn count_pages(path: &Path) -> Result<PageCount> {
    if path == Path::new("-") {
        bail!("--system reads a trace several times: it cannot come from standard input");
    }
    let mut contest = Contest::new(&[], &[]);
    let mut trace = open(path)?;
    contest.play(&mut *trace, &mut |_| ()).map_err(|error| anyhow!("{}: {error}", path.display()))?;
    warn(path, trace.ending());
    Ok(contest.pages())
}

fn open(path: &Path) -> Result<Box<dyn Trace>> {
    let name = path.display();
    trace::open(File::open(path).with_context(|| name.to_string())?).map_err(|error| anyhow!("{name}: {error}"))
}

fn play(cell: Cell<'_>, args: &SimArgs) -> Result<Row> {
    let Cell { path, system, ram, pool_size } = cell;
    let name = path.display();
    let mut trace = open(path)?;
    let pool = pool_size.unwrap_or_default();
    let setup = Setup { system, ram, machine: &args.machine, device: &args.backing, ratio: args.ratio, pool };
    let outcome = timed::play(setup, &mut *trace).map_err(|error| anyhow!("{name}: {error}"))?;
    Ok(Row {
        trace: name.to_string(),
        system: system.name(),
        parts: system.parts().map(Parts::from),
        pool_size_bytes: pool_size.map(|size| size.0),
        ram_bytes: ram.0,
        machine: args.machine.name.to_string(),
        backing: args.backing.name.to_string(),
        estimates: estimates(args, system),
        truncated_at_byte: truncated_at(trace.ending()),
        outcome,
    })
}

/// A file for each row.
pub(super) fn plot(rows: &[Row], plots: &mut Folder) -> Result<()> {
    for row in rows {
        let ram = Human(row.ram_bytes).to_string();
        let mut parts = vec![&*row.trace, row.system, &ram];
        let pool = row.pool_size_bytes.map(|size| Human(size).to_string());
        parts.extend(pool.as_deref());
        plots.write(&parts, &draw(&panels(row))?)?;
    }
    Ok(())
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// How a run went: what is in memory, above how often it faulted until then.
fn panels(row: &Row) -> [Panel<'static>; 2] {
    let moments = &row.outcome.over_time;
    let line = |name, value: fn(&Moment) -> f64| Line {
        name,
        points: moments.iter().map(|moment| (moment.seconds, value(moment))).collect(),
    };
    let ends = [0.0, row.outcome.run_seconds].map(|seconds| (seconds, mib(row.ram_bytes)));
    let memory = vec![
        line("resident", |moment| mib(moment.resident_bytes)),
        line("pool", |moment| mib(moment.pool_bytes)),
        Line { name: "RAM", points: ends.to_vec() },
    ];
    let faults = vec![
        line("first touch", |moment| moment.faults.first_touch as f64),
        line("soft", |moment| moment.faults.soft as f64),
        line("compressed", |moment| (moment.faults.compressed + moment.faults.same_filled) as f64),
        line("backed", |moment| moment.faults.backed as f64),
    ];
    let title = format!("{}: {} in {}", row.trace, name(row), Human(row.ram_bytes));
    [
        Panel { title, x: "seconds", y: "MiB", lines: memory },
        Panel { title: String::new(), x: "seconds", y: "faults so far", lines: faults },
    ]
}

/// A system, and the size of its pool if it is one of several.
fn name(row: &Row) -> String {
    let pool = row.pool_size_bytes.map(|size| format!(", pool of {}", Human(size)));
    format!("{}{}", row.system, pool.unwrap_or_default())
}

/// Rows for people.
pub(super) fn table(rows: &[Row]) -> String {
    const HEAD: &str =
        "| system | RAM | seconds | slowdown | soft | compressed | backed | swapped out | a second | largest pool |";
    let mut lines = Vec::new();
    for of_trace in rows.chunk_by(|one, next| one.trace == next.trace) {
        let Row { trace, machine, backing, estimates, outcome, .. } = &of_trace[0];
        let size = Human(outcome.trace_pages * PAGE_BYTES as u64);
        let seconds = outcome.unlimited_seconds;
        lines.push(format!("{trace}: {size}, {seconds:.3} s with RAM enough, on {machine} with {backing}"));
        lines.push(format!("estimates, not measured: {}\n", estimates.join(", ")));
        lines.push(format!("{HEAD}\n|{}", "---|".repeat(10)));
        lines.extend(of_trace.iter().map(line));
    }
    lines.join("\n") + "\n"
}

fn line(row: &Row) -> String {
    let Outcome { run_seconds, slowdown, faults, pages_swapped_out, swapped_out_per_second, .. } = &row.outcome;
    let cells = [
        name(row),
        Human(row.ram_bytes).to_string(),
        format!("{run_seconds:.3}"),
        format!("{slowdown:.2}"),
        faults.soft.to_string(),
        (faults.compressed + faults.same_filled).to_string(),
        faults.backed.to_string(),
        pages_swapped_out.to_string(),
        format!("{swapped_out_per_second:.0}"),
        Human(row.outcome.pool_bytes_max).to_string(),
    ];
    format!("| {} |", cells.join(" | "))
}
