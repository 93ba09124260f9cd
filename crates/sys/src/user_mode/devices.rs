//! What an ioctl uses: the structure that it is given, and what that counts or points at.

use super::memory::{Memory, STRUCTURE_BYTES, TRANSFER_MAX, copy_in, number_at};

/// The type of terminals' numbers.
const TERMINAL: u64 = 0x54;

impl Memory<'_> {
    /// Adds what ioctl `request` uses, whose argument is this.
    pub(super) fn device(&mut self, request: u64, argument: u64) {
        // Small structures without pointers, and numbers that say nothing of their size.
        if request >> 8 & 0xffff == TERMINAL {
            return self.add(argument, 64);
        }
        // _IOC_SIZE, where the number was made by _IOC: it counts no array behind the structure.
        let has_size = !(request >> 30).is_multiple_of(4);
        let size = if has_size { request >> 16 & 0x3fff } else { 0 };
        self.add(argument, size.max(STRUCTURE_BYTES).max(with_array(request & 0xffff_ffff, argument)));
        self.words(argument, if size == 0 { 64 } else { size.min(128) });
        self.behind(request & 0xffff_ffff, argument);
    }

    /// Adds what a structure points at, where that can be longer than a page.
    fn behind(&mut self, request: u64, argument: u64) {
        const SG_IO: u64 = 0x2285;
        const SIOCGIFCONF: u64 = 0x8912;
        const SIOCETHTOOL: u64 = 0x8946;
        let number = |at: u64| number_at(argument.saturating_add(at));
        let pointer = |at: u64| copy_in(argument.saturating_add(at)).map_or(0, |[word]| word);
        match request {
            // dxferp, of dxfer_len bytes, or of iovec_count vectors.
            SG_IO => match number(10) & 0xffff {
                0 => self.add(pointer(16), number(12).min(TRANSFER_MAX)),
                count => self.vector(pointer(16), count),
            },
            // ifc_buf, of ifc_len bytes.
            SIOCGIFCONF => self.add(pointer(8), number(0).min(TRANSFER_MAX)),
            // ifr_data.
            SIOCETHTOOL => self.add(pointer(16), network_card(pointer(16))),
            _ => {}
        }
    }
}

/// Bytes of a structure and the array behind it, for ioctls whose structure counts one; 0 for others.
fn with_array(request: u64, argument: u64) -> u64 {
    const FS_IOC_FIEMAP: u64 = 0xc020_660b;
    const FIDEDUPERANGE: u64 = 0xc018_9436;
    const BTRFS_IOC_TREE_SEARCH_V2: u64 = 0xc070_9411;
    /// The type of the device mapper's numbers.
    const DM_IOCTL: u64 = 0xfd;
    let word = |at: u64| copy_in(argument.saturating_add(at)).map_or(0, |[word]| word);
    let bytes = match request {
        // fm_extent_count, of struct fiemap_extent.
        FS_IOC_FIEMAP => 32 + (word(24) & 0xffff_ffff) * 56,
        // dest_count, of struct file_dedupe_range_info.
        FIDEDUPERANGE => 24 + (word(16) & 0xffff) * 32,
        // buf_size.
        BTRFS_IOC_TREE_SEARCH_V2 => word(104).saturating_add(112),
        // data_size.
        _ if request >> 8 & 0xff == DM_IOCTL => word(8) >> 32,
        _ => 0,
    };
    bytes.min(TRANSFER_MAX)
}

/// Bytes of a structure of SIOCETHTOOL with the array behind it.
fn network_card(at: u64) -> u64 {
    const GET_REGISTERS: u64 = 0x4;
    const GET_EEPROM: u64 = 0xb;
    const SET_EEPROM: u64 = 0xc;
    const TEST: u64 = 0x1a;
    const GET_STRINGS: u64 = 0x1b;
    const GET_STATISTICS: u64 = 0x1d;
    const GET_RULES: u64 = 0x30;
    const GET_INDIRECTION: u64 = 0x38;
    const SET_INDIRECTION: u64 = 0x39;
    const GET_DUMP: u64 = 0x40;
    const GET_MODULE_EEPROM: u64 = 0x43;
    const GET_HASH: u64 = 0x46;
    const SET_HASH: u64 = 0x47;
    const GET_PHY_STATISTICS: u64 = 0x4a;
    /// For what this table does not know: settings of each queue, for one.
    const OTHER_BYTES: u64 = 64 << 10;
    let number = |offset: u64| number_at(at.saturating_add(offset));
    let bytes = match number(0) {
        GET_REGISTERS => 12 + number(8),
        GET_EEPROM | SET_EEPROM | GET_MODULE_EEPROM | GET_DUMP => 16 + number(12),
        TEST => 16 + number(12) * 8,
        GET_STRINGS => 12 + number(8) * 32,
        GET_STATISTICS | GET_PHY_STATISTICS => 8 + number(4) * 8,
        // rule_cnt, of struct ethtool_rxnfc.
        GET_RULES => 192 + number(184) * 4,
        GET_INDIRECTION | SET_INDIRECTION => 8 + number(4) * 4,
        // indir_size and key_size, of struct ethtool_rxfh.
        GET_HASH | SET_HASH => 24 + number(8) * 4 + number(12),
        _ => OTHER_BYTES,
    };
    bytes.min(TRANSFER_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_behind_structures_are_counted() {
        let bytes = |request: u64, at: usize, word: u64| {
            let mut structure = [0xffff_ffff_u64; 16];
            structure[at] = word;
            with_array(request, core::hint::black_box(&structure).as_ptr() as u64)
        };
        assert_eq!(bytes(0xc020_660b, 3, 5 | 7 << 32), 32 + 5 * 56);
        assert_eq!(bytes(0xc018_9436, 2, 3 | 9 << 16), 24 + 3 * 32);
        assert_eq!(bytes(0xc070_9411, 13, 70_000), 112 + 70_000);
        assert_eq!(bytes(0xc138_fd09, 1, 1 | 20_000 << 32), 20_000);
        assert_eq!(bytes(0xc020_660c, 3, 5), 0);
        assert_eq!(bytes(0xc020_660b, 3, u64::MAX), TRANSFER_MAX);
        assert_eq!(bytes(0xc070_9411, 13, u64::MAX), TRANSFER_MAX);
    }

    #[test]
    fn structures_of_network_cards_are_counted() {
        let bytes = |command: u32, at: usize, number: u32| {
            let mut structure = [0_u32; 64];
            (structure[0], structure[at / 4]) = (command, number);
            network_card(core::hint::black_box(&structure).as_ptr() as u64)
        };
        assert_eq!(bytes(0x4, 8, 9000), 12 + 9000);
        assert_eq!(bytes(0xb, 12, 9000), 16 + 9000);
        assert_eq!(bytes(0x1b, 8, 1000), 12 + 32_000);
        assert_eq!(bytes(0x1d, 4, 1000), 8 + 8000);
        assert_eq!(bytes(0x30, 184, 5000), 192 + 20_000);
        assert_eq!(bytes(0x38, 4, 4000), 8 + 16_000);
        assert_eq!(bytes(0x46, 8, 2048), 24 + 8192);
        assert_eq!(bytes(0x46, 12, 52), 24 + 52);
        assert_eq!(bytes(0x4b, 8, 1), 64 << 10);
        assert_eq!(bytes(0x1b, 8, u32::MAX), TRANSFER_MAX);
    }
}
