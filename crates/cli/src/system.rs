//! `--system` and the options that replace a part of it.

use anyhow::{Result, bail};
use cache::system::{Choice, PRESETS, SizingName, System};
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

/// The system that the options ask for.
pub(crate) fn chosen(args: &RunArgs) -> Result<System> {
    let preset = args.system.system;
    // Slabs are sized by what no other store has, so that another one grows on demand.
    let is_replaced = preset.sizing == SizingName::Marginal && args.store.is_some_and(|store| store != preset.store);
    let system = System {
        store: args.store.unwrap_or(preset.store),
        codec: args.codec.map_or(preset.codec, |codec| codec::ALL[codec as usize].name()),
        sizing: args.sizing.unwrap_or(if is_replaced { SizingName::Demand } else { preset.sizing }),
        admission: args.admission.unwrap_or(preset.admission),
        write_back: args.write_back.unwrap_or(preset.write_back),
    };
    if let Some(reason) = system.obstacle() {
        bail!("this system cannot be: {reason}");
    }
    match (system.sizing, args.pool_size) {
        (SizingName::Fixed, None) => bail!("--sizing fixed needs --pool-size"),
        (sizing, Some(_)) if sizing != SizingName::Fixed => bail!("--pool-size is only for --sizing fixed"),
        (SizingName::Off, _) if args.swap.as_deref().is_some_and(|swap| swap.as_os_str() == "none") => {
            bail!("--sizing off needs a swap file: without one and without compression nothing makes room")
        }
        _ => Ok(system),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use cache::system::StoreName;

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
