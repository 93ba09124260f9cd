//! What a run writes its pages to: a sound file, a small one, none, or one that fails. Its seed decides, unless the user has.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

/// The agent's environment: which of its devices is to fail.
const FAULT: &str = "PLEAT_FAULT";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Swap {
    Sound,
    /// Full after a moment: the program has 64 MiB in use in two processes, and each of them has such a file. With one of 4 MiB
    /// the budget is met.
    Small,
    None,
    /// Each write fails.
    Unwritable,
    /// As the user's options or environment say.
    Asked,
}

impl Swap {
    /// That of a seed. Half of all are sound, a fourth small.
    pub(super) fn of(seed: u64, is_asked: bool) -> Self {
        match seed % 8 {
            _ if is_asked => Self::Asked,
            2 | 6 => Self::Small,
            4 => Self::None,
            0 => Self::Unwritable,
            _ => Self::Sound,
        }
    }

    /// Whether the user decides: by an option of `pleat run` or by what is found in the environment.
    pub(super) fn is_asked(with: &[String], variable: impl Fn(&str) -> Option<OsString>) -> bool {
        let is_option = |word: &String| ["--swap", "--swap-size"].contains(&word.split('=').next().unwrap_or_default());
        with.iter().any(is_option) || [FAULT, "PLEAT_SWAP_SIZE"].iter().any(|name| variable(name).is_some())
    }

    /// Options of `pleat run`; swap files are to be in `dir`.
    pub(super) fn options(self, dir: &Path, with: &[String]) -> Vec<OsString> {
        let has_a_place = with.iter().any(|word| word == "--swap" || word.starts_with("--swap="));
        let mut options: Vec<OsString> = match self {
            Self::None => vec!["--swap".into(), "none".into()],
            _ if has_a_place => Vec::new(),
            _ => vec!["--swap".into(), dir.into()],
        };
        if self == Self::Small {
            options.extend(["--swap-size".into(), "1M".into()]);
        }
        options
    }

    /// What to add to the environment.
    pub(super) fn fault(self) -> Option<(&'static str, &'static str)> {
        (self == Self::Unwritable).then_some((FAULT, "swap-unwritable"))
    }

    /// What pleat says, once, because of it: then the budget is passed, and the contents are right.
    pub(super) fn excuse(self) -> Option<&'static str> {
        match self {
            Self::Sound => None,
            Self::Small => Some("cannot be met, the program goes on above it: raise --ram, or allow more swap"),
            Self::None => Some("cannot be met, the program goes on above it: there is no swap file"),
            Self::Unwritable => Some("cannot be met, the program goes on above it: the swap file cannot be written"),
            Self::Asked => Some("cannot be met, the program goes on above it"),
        }
    }
}

impl fmt::Display for Swap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sound => "a sound swap file",
            Self::Small => "a swap file of 1 MiB for each process",
            Self::None => "no swap file",
            Self::Unwritable => "a swap file that cannot be written",
            Self::Asked => "swap as asked for",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_kind_comes_by_the_seed_and_again_by_the_same() {
        let mut counts = BTreeMap::new();
        for seed in 1000..1080 {
            assert_eq!(Swap::of(seed, false), Swap::of(seed, false));
            *counts.entry(Swap::of(seed, false)).or_insert(0) += 1;
        }
        let all = [(Swap::Sound, 40), (Swap::Small, 20), (Swap::None, 10), (Swap::Unwritable, 10)];
        assert_eq!(counts, BTreeMap::from(all));
    }

    #[test]
    fn what_the_user_says_wins() {
        let nothing = |_: &str| None;
        let asks =
            |words: &[&str]| Swap::is_asked(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(), nothing);
        assert!(asks(&["--swap=none"]) && asks(&["--user-mode", "--swap-size=1G"]) && asks(&["--swap", "/tmp"]));
        assert!(!asks(&[]) && !asks(&["--user-mode", "--store=zones"]));
        assert!(Swap::is_asked(&[], |name| (name == FAULT).then(|| "swap-hangs".into())));
        let dir = Path::new("/folder");
        assert_eq!(Swap::Asked.options(dir, &["--swap=none".to_owned()]), [""; 0]);
        assert_eq!(Swap::Asked.options(dir, &["--swap-size=1G".to_owned()]), ["--swap", "/folder"]);
        assert_eq!(Swap::of(4, true).fault(), None);
    }
}
