//! What Linux keeps of one process: mappings, the pages that are present, and messages that nobody has read yet.

use crate::{PAGES, Page, Value};

/// A page's mapping.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Mapping {
    /// With the userfaultfd: its missing pages are ours to bring.
    pub is_registered: bool,
    /// What is there; `None` where the page is missing.
    pub present: Option<Value>,
    /// A forked process holds it, too.
    pub is_shared: bool,
}

impl Mapping {
    /// Just mapped.
    pub const NEW: Self = Self { is_registered: false, present: None, is_shared: false };
}

/// A layout message, or one about a fork.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Message {
    /// madvise is about to discard a page.
    Remove(Page),
    /// munmap has unmapped it, or it is what an mremap has left.
    Unmap(Page),
    /// mremap has moved it.
    Remap {
        /// From here.
        from: Page,
        /// To there.
        to: Page,
    },
    /// The memory has been copied.
    Fork,
}

/// A message, and the thread that waits until it has been read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Told {
    /// What it says.
    pub message: Message,
    /// Who waits.
    pub thread: usize,
}

/// Why a page is not filled or moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// EAGAIN: the layout is changing.
    Changing,
    /// EEXIST: there is one already.
    Exists,
    /// ENOENT: nothing is mapped there, or no page is.
    Missing,
}

/// One process.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Memory {
    /// By address.
    pub pages: [Option<Mapping>; PAGES],
    /// Posted and not read.
    pub messages: Vec<Told>,
    /// Layout changes that have begun and whose threads do not run again (`mmap_changing`).
    pub changing: u8,
}

impl Memory {
    /// A copy for a forked process; what was present is shared from now on.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        self.pages.iter_mut().flatten().for_each(|mapping| mapping.is_shared = mapping.present.is_some());
        Self { pages: self.pages, messages: Vec::new(), changing: 0 }
    }

    /// What is present at a page.
    pub fn present(&self, page: Page) -> Option<Value> {
        self.pages[page].and_then(|mapping| mapping.present)
    }

    /// Whether a page is registered.
    pub fn is_registered(&self, page: Page) -> bool {
        self.pages[page].is_some_and(|mapping| mapping.is_registered)
    }

    /// `UFFDIO_COPY`, or `UFFDIO_MOVE` back to the program.
    pub fn fill(&mut self, page: Page, value: Value) -> Result<(), Refusal> {
        if self.changing > 0 {
            return Err(Refusal::Changing);
        }
        match &mut self.pages[page] {
            Some(Mapping { is_registered: true, present: Some(_), .. }) => Err(Refusal::Exists),
            Some(Mapping { is_registered: true, present, is_shared }) => {
                (*present, *is_shared) = (Some(value), false);
                Ok(())
            }
            _ => Err(Refusal::Missing),
        }
    }

    /// `UFFDIO_MOVE` away from the program, after a copy of its own of what is shared (`MADV_POPULATE_WRITE`). Through the
    /// program's userfaultfd, which refuses while the layout is changing, or through another one, which does not know of that. Where
    /// the page comes from need not be registered.
    pub fn move_out(&mut self, page: Page, is_through_its_own: bool) -> Result<Value, Refusal> {
        if is_through_its_own && self.changing > 0 {
            return Err(Refusal::Changing);
        }
        let mapping = self.pages[page].as_mut().ok_or(Refusal::Missing)?;
        mapping.is_shared = false;
        mapping.present.take().ok_or(Refusal::Missing)
    }
}
