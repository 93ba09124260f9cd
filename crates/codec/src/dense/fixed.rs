//! The codes that the format has for tokens and distances: lengths that were usual in heaps and files of many programs. Every
//! symbol has one, so that any page can be told with them.

use super::code::{Lengths, SYMBOLS, Table};

/// Of literals, which differ too much from page to page, of tokens and of distances.
pub(super) static LENGTHS: [Option<&Lengths>; 3] = [None, Some(&TOKENS), Some(&DISTANCES)];
/// The same, ready to decode with.
pub(super) static TABLES: [Option<&Table>; 3] = [None, Some(&Table::of(&TOKENS)), Some(&Table::of(&DISTANCES))];
/// For what a fixed or an own one will take the place of.
pub(super) static NO_TABLE: Table = Table::EMPTY;

static TOKENS: Lengths = digits(
    b"\
      9877668688888865566648886798598588757998989699859958999999699996\
      9789999998999998999899999999999999999998999999989999999999999999\
      9999999999999999999999999999999999999999999999999999999999999999\
      9999999999999999999999999999999999999999999999999999999999999999",
);
static DISTANCES: Lengths = digits(
    b"\
      2557587868797889799879998999898989999999899999999999999999999999\
      9999999999999999999999999999999999999999999999999999999999999999\
      9999999999999999999999999999999999999999999999994567788889899999\
      9999999999999999999999999999999999999999999999990000000000000000",
);

/// A length for each symbol, as a digit.
const fn digits(text: &[u8; SYMBOLS]) -> Lengths {
    let mut lengths = [0; SYMBOLS];
    let mut at = 0;
    while at < SYMBOLS {
        lengths[at] = text[at] - b'0';
        at += 1;
    }
    lengths
}
