//! liblzo2, the reference of `lzo1x-1`, where the user has installed it and names it.
//!
//! It is opened at run time, because of its license (GPL): nothing of it is built, linked or shipped with pleat, and a bench that does
//! not name it does not look for it.

use std::ffi::{CStr, c_int, c_ulong, c_void};
use std::ptr;

use codec::Corrupt;
use page::{PAGE_BYTES, PageBytes};

use crate::subjects::{ROOM_BYTES, Subject};

pub(crate) const NAME: &str = "liblzo2";
const FILE: &CStr = c"liblzo2.so.2";
/// What its functions return if all went well.
const LZO_E_OK: c_int = 0;
/// `LZO1X_1_MEM_COMPRESS`: 16,384 pointers, in words of that alignment.
const WORK_WORDS: usize = 16_384;

/// All of its functions that are used here: input and its length, output, the room there (which becomes its length), and
/// memory to work in.
type Function = unsafe extern "C" fn(*const u8, c_ulong, *mut u8, *mut c_ulong, *mut c_void) -> c_int;

/// The library, which stays open until the process ends.
pub(crate) struct LibLzo2 {
    compress: Function,
    decompress: Function,
    work: Box<[*mut c_void]>,
}

impl LibLzo2 {
    /// None where it is not installed.
    pub(crate) fn open() -> Option<Self> {
        // SAFETY: `FILE` ends with a zero. What runs at its loading is liblzo2's own, which has no constructors.
        let library = unsafe { libc::dlopen(FILE.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return None;
        }
        let find = |name: &CStr| {
            // SAFETY: `library` is open and `name` ends with a zero.
            let found = unsafe { libc::dlsym(library, name.as_ptr()) };
            // SAFETY: the functions of these names have had this type since liblzo2 1.0 (lzo1x.h); null becomes none.
            unsafe { std::mem::transmute::<*mut c_void, Option<Function>>(found) }
        };
        Some(Self {
            compress: find(c"lzo1x_1_compress")?,
            decompress: find(c"lzo1x_decompress_safe")?,
            work: vec![ptr::null_mut(); WORK_WORDS].into(),
        })
    }
}

impl Subject for LibLzo2 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn encode(&mut self, page: &PageBytes, out: &mut [u8; ROOM_BYTES]) -> Option<usize> {
        // It does not look at the room: at most a sixteenth and 67 bytes more than a page come out (LZO.FAQ).
        const { assert!(ROOM_BYTES >= PAGE_BYTES + PAGE_BYTES / 16 + 67) };
        let mut length = ROOM_BYTES as c_ulong;
        let work = self.work.as_mut_ptr().cast();
        // SAFETY: it reads a page, writes less than `out` holds, and works in as much memory as it asks for.
        let status =
            unsafe { (self.compress)(page.0.as_ptr(), PAGE_BYTES as c_ulong, out.as_mut_ptr(), &raw mut length, work) };
        assert_eq!(status, LZO_E_OK, "lzo1x_1_compress never fails");
        Some(length as usize).filter(|length| *length < PAGE_BYTES)
    }

    fn decode(&mut self, encoding: &[u8], page: &mut PageBytes) -> Result<(), Corrupt> {
        let mut length = PAGE_BYTES as c_ulong;
        let (from, to) = (encoding.as_ptr(), page.0.as_mut_ptr());
        // SAFETY: this decoder reads `encoding` and no further, writes no more than the page that `length` says, and
        // needs no memory to work in.
        let status =
            unsafe { (self.decompress)(from, encoding.len() as c_ulong, to, &raw mut length, ptr::null_mut()) };
        if status == LZO_E_OK && length as usize == PAGE_BYTES { Ok(()) } else { Err(Corrupt) }
    }
}

#[cfg(test)]
mod tests {
    use codec::{Codec as _, Lzo1x1, Scratch};

    use super::*;

    /// Each reads what the other has written.
    #[test]
    fn it_is_what_our_codec_is() {
        let Some(mut library) = LibLzo2::open() else {
            println!("skipped: liblzo2 is not installed");
            return;
        };
        for page in crate::pages::built_in().iter().flat_map(|source| &source.pages) {
            let (mut theirs, mut ours) = ([0; ROOM_BYTES], [0; ROOM_BYTES]);
            let mut decoded = PageBytes::ZERO;
            if let Some(length) = library.encode(page, &mut theirs) {
                Lzo1x1.decode(&theirs[..length], &mut decoded).unwrap();
                assert!(decoded.0 == page.0);
                assert_eq!(library.decode(&theirs[..length - 1], &mut decoded), Err(Corrupt));
            }
            let length = Lzo1x1.encode(page, &mut Scratch::new(), &mut ours).unwrap();
            decoded = PageBytes::ZERO;
            library.decode(&ours[..length], &mut decoded).unwrap();
            assert!(decoded.0 == page.0);
        }
    }
}
