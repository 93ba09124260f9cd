//! What is run: the walks of `pleat-bench`, a Python job, GNU sort and shuf, a compiler.

use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use bench::content::Draw;

use crate::sh;

/// A program to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Case {
    /// Cycles through its working set, reading and writing all of it (tuduce-gross, section 5.1).
    Thrasher,
    /// Reads and writes at random (tuduce-gross, section 5.1).
    Rand,
    /// One word of each page, in order.
    Sweep,
    /// A Python dictionary.
    Python,
    /// GNU sort of log lines, all in memory.
    Sort,
    /// GNU shuf of the same lines: all are read, then taken at random.
    #[value(name = "shuf")]
    Shuffle,
    /// g++ on a file with many templates.
    #[value(name = "g++")]
    Compiler,
}

impl Case {
    pub(crate) const ALL: &'static [Self] =
        &[Self::Thrasher, Self::Rand, Self::Sweep, Self::Python, Self::Sort, Self::Shuffle, Self::Compiler];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Thrasher => "thrasher",
            Self::Rand => "rand",
            Self::Sweep => "sweep",
            Self::Python => "python",
            Self::Sort => "sort",
            Self::Shuffle => "shuf",
            Self::Compiler => "g++",
        }
    }

    /// Whether the content of its memory can be chosen.
    pub(crate) const fn is_walk(self) -> bool {
        matches!(self, Self::Thrasher | Self::Rand | Self::Sweep)
    }

    /// Its command line, with `bytes` of memory as near as can be told before. Makes its input if there is none yet.
    pub(crate) fn command(self, bytes: u64, compressible: f64, work: &Path) -> Result<Vec<String>> {
        Ok(match self {
            Self::Thrasher | Self::Rand | Self::Sweep => vec![
                text(&sh::release("pleat-bench"))?,
                self.name().to_owned(),
                format!("--bytes={bytes}"),
                format!("--compressible={compressible}"),
            ],
            Self::Python => {
                let job = text(&sh::root().join("bench/jobs/dictionary.py"))?;
                // 1.5 million entries take 600 MiB.
                vec!["python3".into(), job, (bytes * 1_500_000 / (600 << 20)).to_string()]
            }
            Self::Sort => {
                // A line takes its own length and 32 bytes of bookkeeping.
                let lines = log_lines(work, bytes / (LINE_BYTES + 32))?;
                let buffer = format!("--buffer-size={}", bytes * 2);
                vec!["sort".into(), "--parallel=1".into(), buffer, text(&lines)?]
            }
            Self::Shuffle => {
                // Of a line it keeps where it begins, and its place in the new order.
                let lines = log_lines(work, bytes / (LINE_BYTES + 16))?;
                vec!["shuf".into(), format!("--random-source={}", text(&lines)?), text(&lines)?]
            }
            Self::Compiler => {
                let source = text(&sh::root().join("crates/e2e/programs/templates.cpp"))?;
                // Headers take 45 MiB, and each turn of the templates 15.4.
                let count = bytes.saturating_sub(45 << 20) * 10 / (154 << 20);
                let words = ["g++", "-std=c++17", "-O1", "-S", "-o", "-", &source].map(str::to_owned);
                words.into_iter().chain([format!("-DCOUNT={}", count.max(1))]).collect()
            }
        })
    }
}

fn text(path: &Path) -> Result<String> {
    Ok(path.to_str().with_context(|| format!("{} is no UTF-8", path.display()))?.to_owned())
}

const LINE_BYTES: u64 = 103;

/// Log lines in no order.
fn log_lines(work: &Path, lines: u64) -> Result<PathBuf> {
    let path = work.join(format!("log-{lines}.txt"));
    if path.exists() {
        return Ok(path);
    }
    let half = path.with_extension("new");
    let mut out = BufWriter::new(fs::File::create(&half)?);
    let mut draw = Draw::new(9);
    for _ in 0..lines {
        let (time, code, user) =
            (draw.below(86_400_000), [200, 204, 304, 404, 500][draw.below(5) as usize], draw.below(50_000));
        writeln!(
            out,
            "2026-01-{:02}T{time:08} host-{:02} web[{user:05}]: GET /item/{:016x} status={code} bytes={:06} user=u{user:05}",
            draw.below(28) + 1,
            draw.below(16),
            draw.number(),
            draw.below(1_000_000),
        )?;
    }
    out.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
    fs::rename(half, &path)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_have_the_length_that_is_reckoned_with() {
        let work = std::env::temp_dir().join(format!("pleat-lines-{}", std::process::id()));
        fs::create_dir_all(&work).unwrap();
        let text = fs::read_to_string(log_lines(&work, 100).unwrap()).unwrap();
        fs::remove_dir_all(&work).unwrap();
        assert_eq!(text.len() as u64, 100 * LINE_BYTES, "{}", text.lines().next().unwrap());
    }
}
