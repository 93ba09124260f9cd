//! What `pleat record --light` is told: each fault, what a scan has found, and how short pages get.

use core::time::Duration;

use page::PageIndex;
use store::Store;
use sys::kernel::Kernel;

use crate::Pager;
use crate::ledger::Counter;
use crate::ledger::reference_log::Noted;
use crate::pager::Fault;

/// Who finds no room waits for the reader, so often and so long.
const PAUSES: u32 = 10_000;
const PAUSE: Duration = Duration::from_micros(100);

impl<K: Kernel, S: Store> Pager<K, S> {
    /// Whether somebody wants to know. Then pages come one by one, for what comes along with another is used unseen.
    pub(crate) fn is_recorded(&self) -> bool {
        self.references.is_some()
    }

    /// The program's own time: without the time that serving its faults has taken.
    fn program_ns(&self) -> u64 {
        self.kernel.now_ns().saturating_sub(self.entry.count(Counter::ServeNs))
    }

    /// A fault has been served.
    pub(crate) fn note_reference(&self, Fault { page, thread, is_write }: Fault) {
        let Some(log) = self.references else { return };
        let noted = Noted::Reference { page, thread, is_write, ns: self.program_ns() };
        log.put_patiently(noted, PAUSES, || sys::thread::sleep(PAUSE));
    }

    /// A scan has found a page that the program has filled before anybody looked.
    pub(crate) fn note_found(&self, page: PageIndex) {
        let Some(log) = self.references else { return };
        // The lock is held: nobody waits here.
        if !log.put(Noted::Reference { page, thread: 0, is_write: true, ns: self.program_ns() }) {
            log.lose();
        }
    }

    /// A page that has left has been encoded. Where there is no room it is passed over.
    pub(crate) fn note_length(&self, page: PageIndex, bytes: usize) {
        if let Some(log) = self.references {
            let _ = log.put(Noted::Sample { page, bytes: bytes as u16 });
        }
    }
}
