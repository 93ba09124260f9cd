//! `--system` and the options that replace a part of it.

use anyhow::{Result, bail};
use cache::system::{Admission, Choice, PRESETS, SizingName, StoreName, System, WriteBack};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use crate::args::RunArgs;

/// A line of the table of systems.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Preset {
    pub(crate) name: &'static str,
    pub(crate) system: System,
}

/// The names of the systems.
pub(crate) fn presets() -> impl TypedValueParser<Value = Preset> {
    let values = PRESETS.iter().map(|(name, system)| PossibleValue::new(name).help(parts(system)));
    PossibleValuesParser::new(values).map(|wanted| {
        let (name, system) = *PRESETS.iter().find(|(name, _)| *name == wanted).expect("a possible value");
        Preset { name, system }
    })
}

/// The names of one kind of part.
pub(crate) fn choice<C: Choice>() -> impl TypedValueParser<Value = C> {
    let values = C::ALL.iter().map(|choice| PossibleValue::new(choice.name()).help(choice.about()));
    PossibleValuesParser::new(values).map(|name| C::named(&name).expect("a possible value"))
}

/// The parts by name.
fn parts(system: &System) -> String {
    let System { store, codec, sizing, admission, write_back } = system;
    let names = [store.name(), codec, sizing.name(), admission.name(), write_back.name()];
    names.join(", ")
}

/// The parts that options put in the place of a system's own.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Replaced {
    pub(crate) store: Option<StoreName>,
    pub(crate) codec: Option<&'static str>,
    pub(crate) sizing: Option<SizingName>,
    pub(crate) admission: Option<Admission>,
    pub(crate) write_back: Option<WriteBack>,
    /// Whether a size of the pool is given.
    pub(crate) has_pool_size: bool,
}

impl Replaced {
    /// The system with these parts, if that can be.
    pub(crate) fn of(self, preset: System) -> Result<System> {
        // Slabs are sized by what no other store has, so that another one grows on demand.
        let grows_alone = preset.sizing == SizingName::Marginal;
        let is_area = grows_alone && self.store.is_some_and(|store| store != preset.store);
        let system = System {
            store: self.store.unwrap_or(preset.store),
            codec: self.codec.unwrap_or(preset.codec),
            sizing: self.sizing.unwrap_or(if is_area { SizingName::Demand } else { preset.sizing }),
            admission: self.admission.unwrap_or(preset.admission),
            write_back: self.write_back.unwrap_or(preset.write_back),
        };
        if let Some(reason) = system.obstacle() {
            bail!("this system cannot be: {reason}");
        }
        match (system.sizing, self.has_pool_size) {
            (SizingName::Fixed, false) => bail!("--sizing fixed needs --pool-size"),
            (sizing, true) if sizing != SizingName::Fixed => bail!("--pool-size is only for --sizing fixed"),
            _ => Ok(system),
        }
    }
}

/// The system that the options ask for.
pub(crate) fn chosen(args: &RunArgs) -> Result<System> {
    let replaced = Replaced {
        store: args.store,
        codec: args.codec.map(|codec| codec::ALL[codec as usize].name()),
        sizing: args.sizing,
        admission: args.admission,
        write_back: args.write_back,
        has_pool_size: args.pool_size.is_some(),
    };
    let system = replaced.of(args.system.system)?;
    let is_without_swap = args.swap.as_deref().is_some_and(|swap| swap.as_os_str() == "none");
    if system.sizing == SizingName::Off && is_without_swap {
        bail!("--sizing off needs a swap file: without one and without compression nothing makes room");
    }
    Ok(system)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn chosen_by(options: &str) -> Result<System, String> {
        let words = format!("pleat run {options} -- true");
        let cli = Cli::try_parse_from(words.split_whitespace()).map_err(|error| error.to_string())?;
        let Command::Run(args) = cli.command else { panic!("not run") };
        chosen(&args).map_err(|error| error.to_string())
    }

    #[test]
    fn a_system_is_a_line_and_its_parts_can_be_replaced() {
        assert_eq!(chosen_by(""), Ok(PRESETS[0].1));
        for (name, system) in PRESETS {
            assert_eq!(chosen_by(&format!("--system {name}")), Ok(system));
        }
        let castro = PRESETS.iter().find(|(name, _)| *name == "castro").unwrap().1;
        assert_eq!(chosen_by("--system castro --codec wkdm"), Ok(System { codec: "wkdm", ..castro }));
        let parts = "--store cells --codec lzo1x-1 --sizing expense-profit --admission all --write-back encodings";
        assert_eq!(chosen_by(parts), Ok(castro));
        let ours = PRESETS[0].1;
        assert_eq!(chosen_by("--sizing demand"), Ok(System { sizing: SizingName::Demand, ..ours }));
        let cells = System { store: StoreName::Cells, sizing: SizingName::Demand, ..ours };
        assert_eq!(chosen_by("--store cells"), Ok(cells));
    }

    #[test]
    fn what_cannot_be_is_refused_in_one_line() {
        for (options, reason) in [
            ("--system mxt --codec wkdm", "mxt-lz1"),
            ("--sizing off", "slabs grow by themselves"),
            ("--store cells --sizing marginal", "--store slabs"),
            ("--store buddies", "--admission reject-poor"),
            ("--store cells --sizing fixed", "needs --pool-size"),
            ("--system castro --pool-size 8M", "only for --sizing fixed"),
            ("--store cells --sizing off --swap none", "needs a swap file"),
            ("--system nobody", "nobody"),
        ] {
            let error = chosen_by(options).unwrap_err();
            assert!(error.contains(reason), "{options}: {error}");
        }
        for store in ["cells", "slabs"] {
            assert!(chosen_by(&format!("--store {store} --sizing fixed --pool-size 8M")).is_ok());
        }
    }
}
