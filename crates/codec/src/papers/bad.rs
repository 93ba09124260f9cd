//! The bad encodings that the format documents of the word codecs show: made by hand, refused by the codecs and their plain twins.

use alloc::vec::Vec;

use page::PageBytes;

use super::{PLAIN, Pbpm, PbpmSeparate, PbpmSingle, Wk4x4, Wkdm};
use crate::{Codec, Corrupt};

const WORD_CODECS: [&dyn Codec; 5] = [&Wkdm, &Wk4x4, &Pbpm, &PbpmSeparate, &PbpmSingle];

/// 256 bytes of tags, or of first codes, of which all but the first are zero; then the rest.
fn encoding(first: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = std::vec![0; 256];
    bytes[0] = first;
    bytes.extend(rest);
    bytes
}

/// What a codec and its twin make of it.
fn decoded(codec: &dyn Codec, encoding: &[u8]) -> Result<[u8; 4], Corrupt> {
    let twin = PLAIN.into_iter().find(|twin| twin.name().strip_suffix("@plain") == Some(codec.name())).unwrap();
    let [fast, slow] = [codec, twin].map(|codec| {
        let mut page = PageBytes([0xee; page::PAGE_BYTES]);
        codec.decode(encoding, &mut page).map(|()| {
            assert!(page.0[4..].iter().all(|&byte| byte == 0), "{}", codec.name());
            *page.0.first_chunk().unwrap()
        })
    });
    assert_eq!(fast, slow, "{}", codec.name());
    fast
}

#[test]
fn those_of_wk() {
    for codec in &WORD_CODECS[..2] {
        let name = codec.name();
        assert_eq!(decoded(*codec, &encoding(2, &[0x78, 0x56, 0x34, 0x12])), Ok([0x78, 0x56, 0x34, 0x12]), "{name}");
        assert_eq!(decoded(*codec, &encoding(2, &[])), Err(Corrupt), "{name}: a miss without its word");
        assert_eq!(decoded(*codec, &encoding(0, &[0; 4])), Err(Corrupt), "{name}: a word that no tag asks for");
        assert_eq!(decoded(*codec, &encoding(1, &[0; 4])), Err(Corrupt), "{name}: a partial match without low bits");
    }
}

#[test]
fn those_of_pbpm() {
    for codec in &WORD_CODECS[2..] {
        let name = codec.name();
        assert_eq!(decoded(*codec, &encoding(2, &[0; 4])), Ok([0; 4]), "{name}: an entry of the first dictionary");
        assert_eq!(decoded(*codec, &encoding(3, &[])), Err(Corrupt), "{name}: half a code");
        assert_eq!(decoded(*codec, &encoding(2, &[0; 5])), Err(Corrupt), "{name}: data that no code asks for");
        assert_eq!(decoded(*codec, &encoding(1, &[1, 2, 3])), Err(Corrupt), "{name}: a word of three bytes");
    }
}
