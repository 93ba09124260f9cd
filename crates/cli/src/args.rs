//! The command line: one definition for parsing, `--help`, the man page and the completions.

use std::ffi::OsString;
use std::path::PathBuf;

use cache::system::{Admission, PRESETS, SizingName, StoreName, WriteBack};
use clap::builder::FalseyValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use page::ByteCount;

use crate::bench::simulator;
use crate::record::{self, RecordArgs};
use crate::sim::{self, SimArgs};
use crate::size::{Ram, size};
use crate::synth::{self, SynthArgs};
use crate::system::{self, Preset};

/// Keeps a program's memory inside a RAM budget.
///
/// Cold pages are compressed inside RAM, and what does not fit goes to a swap file. The program is not changed and
/// its output stays the same.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, name = "pleat", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  pleat run --ram 256M -- python3 job.py    run job.py with its memory held inside 256 MiB
  pleat doctor                              what this machine allows, and how to allow more
  pleat bench codecs                        how small and how fast the page codecs are here
  pleat sim app.trace --replacement lru,min --pages 1000,2000
                                            how often replacement policies miss on a trace

Exit status of pleat run: that of the program; 125 when pleat itself fails, 126 when the program cannot be
executed, 127 when it is not found, 137 when --when-full stop ended it.";

const RUN_EXAMPLES: &str = "\
Examples:
  pleat run --ram 256M -- python3 job.py
  pleat run --ram 50% --swap none -- ./solver input.dat
  pleat run --ram auto --stats stats.json -v -- make -j8
  pleat run --ram 256M --system castro --codec wkdm -- ./solver input.dat
  PLEAT_RAM=1.5G pleat run -- sort big.txt

The budget holds for the program and everything it starts: resident anonymous pages, compressed pages, and pleat's
own tables. Files that the program maps or reads are not counted.";

const CODECS_EXAMPLES: &str = "\
Examples:
  pleat bench codecs                                        120 pages that are built in
  pleat bench codecs --pages pages/ --plot codecs.svg       all *.pages files of a directory, or all its files
  pleat bench codecs --pages core.1234 --codec fold,auto    the memory of a program, from its core dump
  pleat bench codecs --codec wkdm,wkdm@plain,fold@scalar    a codec beside its plain twin, and one path of fold
  pleat bench codecs --pages a.bin b.bin --json out.json --files

Any file is cut into pages of 4 KiB; of a core dump the memory in it is taken. Pages that are all zero are left out: they
need no codec. memcpy and lz4 (liblz4, in C) are measured in each run, as what the others are compared with. Files named
as those of pleat's corpus of heaps count in the set HEAP; all files but one named `random` count in ALL.

Exit status 0, or 125 if something is wrong.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program inside a RAM budget
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Say what this machine allows, and the command that would allow more
    ///
    /// Exit status 0 if `pleat run` would work here, otherwise 1.
    Doctor(DoctorArgs),
    /// Measure parts of pleat on this machine
    Bench {
        /// The part
        #[command(subcommand)]
        what: Bench,
    },
    /// Play a trace of page references: misses of replacement policies, run times inside some RAM
    #[command(after_help = sim::EXAMPLES)]
    Sim(Box<SimArgs>),
    /// Make a trace of page references with a known behaviour
    #[command(after_help = synth::EXAMPLES)]
    Synth(SynthArgs),
    /// Record every page that a program references, as a trace
    #[command(after_help = record::EXAMPLES)]
    Record(RecordArgs),
    /// Write the man pages, or print that of pleat
    Man(ManArgs),
    /// Print the completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(crate) struct RunArgs {
    /// The budget: a size (256M, 1.5G), a share of the machine's memory (50%), or what is free now (auto)
    ///
    /// At least 16M. K, M, G and T are binary, as are KB and KiB. A percentage is one of the machine's memory or, if
    /// that is lower, of the cgroup's limit. `auto` is what the cgroup's limit leaves, without a limit what is
    /// available on the machine, less a tenth.
    #[arg(
        verbatim_doc_comment,
        long,
        value_name = "SIZE|PERCENT%|auto",
        env = "PLEAT_RAM",
        hide_env_values = true,
        default_value = "auto"
    )]
    pub(crate) ram: Ram,

    /// Where pages go that do not fit into the budget: a directory, a file that is set aside for them, or none
    ///
    /// By default $TMPDIR or /var/tmp: the first on a disk, or in RAM (tmpfs), with a warning, if neither is. The file
    /// has no name while it is in use, is encrypted with a key that ends with the run, and is gone when the run ends,
    /// however it ends. A FILE that is there already serves one process at a time and stays; others have one beside it.
    #[arg(verbatim_doc_comment, long, value_name = "DIR|FILE|none", env = "PLEAT_SWAP", hide_env_values = true)]
    pub(crate) swap: Option<PathBuf>,

    /// The most the swap file of a process may take [default: four times the budget, at most half of what is free there]
    #[arg(long, value_name = "SIZE", env = "PLEAT_SWAP_SIZE", hide_env_values = true, value_parser = size)]
    pub(crate) swap_size: Option<ByteCount>,

    /// How cold pages are kept: pleat's own way, or that of a paper
    ///
    /// A system is a store, a codec, a sizing policy, an admission and a form of write-back; the options of these names replace a
    /// part. docs/systems.md explains them.
    #[arg(
        verbatim_doc_comment,
        long,
        value_name = "NAME",
        env = "PLEAT_SYSTEM",
        hide_env_values = true,
        default_value = PRESETS[0].0,
        value_parser = system::presets()
    )]
    pub(crate) system: Preset,

    /// How cold pages are encoded [default: that of the system]
    #[arg(long, value_enum, value_name = "NAME", env = "PLEAT_CODEC", hide_env_values = true)]
    pub(crate) codec: Option<CodecName>,

    /// How encodings lie in RAM [default: that of the system]
    #[arg(long, value_name = "NAME", env = "PLEAT_STORE", hide_env_values = true, value_parser = system::choice::<StoreName>())]
    pub(crate) store: Option<StoreName>,

    /// How much of the budget they may take [default: that of the system]
    #[arg(long, value_name = "NAME", env = "PLEAT_SIZING", hide_env_values = true, value_parser = system::choice::<SizingName>())]
    pub(crate) sizing: Option<SizingName>,

    /// Which pages the store takes [default: that of the system]
    #[arg(long, value_name = "NAME", env = "PLEAT_ADMISSION", hide_env_values = true, value_parser = system::choice::<Admission>())]
    pub(crate) admission: Option<Admission>,

    /// In what form they go from there to the swap file [default: that of the system]
    #[arg(long, value_name = "NAME", env = "PLEAT_WRITE_BACK", hide_env_values = true, value_parser = system::choice::<WriteBack>())]
    pub(crate) write_back: Option<WriteBack>,

    /// The size of the compressed area of each process, with --sizing fixed
    #[arg(long, value_name = "SIZE", env = "PLEAT_POOL_SIZE", hide_env_values = true, value_parser = size)]
    pub(crate) pool_size: Option<ByteCount>,

    /// What to do when the budget cannot be met: go on above it with a warning, or stop with status 137
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        env = "PLEAT_WHEN_FULL",
        hide_env_values = true,
        default_value = "exceed"
    )]
    pub(crate) when_full: WhenFull,

    /// Do without permission for userfaultfd: trap the program's system calls instead
    ///
    /// For containers, sandboxes and plain users. Each system call costs some microseconds more; io-uring, asynchronous
    /// I/O and seccomp filters are refused. docs/user-mode.md says what else is different.
    #[arg(verbatim_doc_comment, long, env = "PLEAT_USER_MODE", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub(crate) user_mode: bool,

    /// Let debuggers attach to running programs (lldb -p, gdbserver --attach)
    ///
    /// Without this `pleat run` keeps pleat's own threads in them to itself, and only gdb up to 13 attaches; `strace -f -p` works.
    /// With it strace may wait for ever for memory that those threads are to bring while it holds them.
    #[arg(verbatim_doc_comment, long, env = "PLEAT_ATTACHABLE", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub(crate) attachable: bool,

    /// Let programs that other users execute (gosu, su, runuser, setpriv, sudo -u) into the run, for containers and services
    ///
    /// For runs of root. Without this they run beside the budget. Use it where you trust those users: every process of theirs can then
    /// have `pleat run` end others, of the run or not.
    #[arg(verbatim_doc_comment, long, env = "PLEAT_OTHER_USERS", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub(crate) other_users: bool,

    /// Keep a JSON document of counters and latencies here, written every second and at the end
    #[arg(long, value_name = "FILE", env = "PLEAT_STATS", hide_env_values = true)]
    pub(crate) stats: Option<PathBuf>,

    /// Print a summary at the end
    #[arg(short, long, env = "PLEAT_VERBOSE", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub(crate) verbose: bool,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD", value_hint = clap::ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// `--codec`, in the order of `codec::ALL`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum CodecName {
    /// Good at everything
    Lz4,
    /// Words of 64 bits: five times as fast with AVX-512, twice with AVX2, for heaps of pointers and numbers; slow without
    Fold,
    /// `fold` with its parts coded once more: a tenth smaller, at half the speed
    FoldDeep,
    /// `fold-deep`, and `lz4` for pages that it makes smaller still
    Auto,
    /// The smallest encodings, made at a tenth of the speed of `auto`
    Dense,
    /// Words of 32 bits and a dictionary of sixteen of them (tuduce-gross, castro)
    Wkdm,
    /// The same with a dictionary of four sets of four (tuduce-gross)
    Wk4x4,
    /// Copies of up to 18 bytes, found at first sight (tuduce-gross)
    Lzrw1,
    /// The same with a search that misses less
    #[value(name = "lzrw1-a")]
    Lzrw1a,
    /// LZO's fast level (tuduce-gross, zswap)
    #[value(name = "lzo1x-1")]
    Lzo1x1,
    /// Frequent patterns and partial matches of 32-bit words, packed in one row (crames)
    Pbpm,
    /// The same, with a tape for each kind of part (crames)
    PbpmSeparate,
    /// The same, with one tape whose parts are aligned (crames)
    PbpmSingle,
    /// Lines of 1 KiB in four parts that share a dictionary; slow in software (mxt)
    #[value(name = "mxt-lz1")]
    MxtLz1,
}

/// `--when-full`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum WhenFull {
    /// Go on above the budget, with one warning
    Exceed,
    /// Stop, with a message and status 137
    Stop,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print a JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

/// `pleat bench`.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Measure how much smaller page codecs make pages, and how long that takes
    #[command(after_help = CODECS_EXAMPLES)]
    Codecs(CodecsArgs),
    /// Measure how fast replacement is simulated
    #[command(after_help = simulator::EXAMPLES)]
    Sim(simulator::SimSpeedArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CodecsArgs {
    /// Files or directories to take pages from [default: 120 pages of real programs, built in]
    #[arg(long, value_name = "DIR|FILE", num_args = 1..)]
    pub(crate) pages: Vec<PathBuf>,

    /// Only these codecs, and the references [default: all]
    ///
    /// wkdm@plain is the plain twin of wkdm, and so with each codec of the papers; fold@avx512, fold@avx2, fold@neon and fold@scalar
    /// are the paths of fold, as fold-deep@avx512 and so on are of fold-deep. liblzo2 is that library, if it is installed. These are
    /// measured only where they are named.
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    pub(crate) codec: Vec<String>,

    /// Write a JSON document with the figures of each codec and each file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Draw ratio against speed, as SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,

    /// Print a table for each file, too
    #[arg(long)]
    pub(crate) files: bool,

    /// The most pages to take from a file: runs of eight neighbours, evenly spaced
    #[arg(long, value_name = "PAGES", default_value = "1024", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) sample: u64,

    /// Memory among which cold times are measured; twice as much is used, at most a quarter of what is free. 0 for none
    #[arg(long, value_name = "SIZE", default_value = "625M", value_parser = size)]
    pub(crate) cold: ByteCount,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write pleat.1, pleat-run.1 and the others into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// The shells with completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Shell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn codecs_are_in_the_order_of_their_table() {
        let names = CodecName::value_variants().iter().map(|codec| codec.to_possible_value().unwrap());
        assert!(names.map(|name| name.get_name().to_owned()).eq(codec::ALL.iter().map(|codec| codec.name())));
        for (place, codec) in CodecName::value_variants().iter().enumerate() {
            assert_eq!(*codec as usize, place);
        }
    }

    #[test]
    fn options_end_where_the_command_starts() {
        let cli = Cli::parse_from(["pleat", "run", "--ram", "64M", "ls", "-v", "--stats"]);
        let Command::Run(run) = cli.command else { panic!("not run") };
        assert_eq!(run.command, ["ls", "-v", "--stats"]);
        assert!(!run.verbose && run.stats.is_none());
    }
}
