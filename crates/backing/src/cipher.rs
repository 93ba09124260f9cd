//! One store's key, and the encryption of one extent (`docs/format/segment.md`, "Encryption").

use aes_gcm::aead::AeadInPlace;
use aes_gcm::{Aes256Gcm, KeyInit, Nonce, Tag};

/// Bytes that authenticate an encoding; they follow it on the medium.
pub(crate) const TAG_BYTES: usize = 16;

const VERSION: u32 = 1;

/// What an extent must be for its tag to be right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) place: u32,
    pub(crate) sequence: u64,
    pub(crate) entry: u32,
    /// Of the encoding, without its tag.
    pub(crate) bytes: u32,
}

impl Identity {
    fn nonce(self) -> [u8; 12] {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&self.sequence.to_le_bytes());
        nonce[8..].copy_from_slice(&self.entry.to_le_bytes());
        nonce
    }

    fn associated_data(self) -> [u8; 16] {
        let mut data = [0; 16];
        for (word, number) in data.chunks_exact_mut(4).zip([VERSION, self.place, self.entry, self.bytes]) {
            word.copy_from_slice(&number.to_le_bytes());
        }
        data
    }
}

/// The medium does not hold what was written, or holds it under another identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Forged;

pub(crate) struct Cipher(Aes256Gcm);

impl Cipher {
    pub(crate) fn new(key: [u8; 32]) -> Self {
        Self(Aes256Gcm::new(&key.into()))
    }

    /// Encrypts an encoding and puts its tag behind it. `extent` is both.
    pub(crate) fn encrypt(&self, identity: Identity, extent: &mut [u8]) {
        let (encoding, room) = extent.split_at_mut(identity.bytes as usize);
        let nonce = identity.nonce();
        let tag = self.0.encrypt_in_place_detached(Nonce::from_slice(&nonce), &identity.associated_data(), encoding);
        // Fails for messages of 64 GiB and more only.
        let Ok(tag) = tag else { unreachable!("an encoding is at most a page") };
        room.copy_from_slice(&tag);
    }

    /// Decrypts what [`Self::encrypt`] made. Leaves the bytes alone if the tag is wrong.
    pub(crate) fn decrypt(&self, identity: Identity, extent: &mut [u8]) -> Result<(), Forged> {
        let (encoding, tag) = extent.split_at_mut(identity.bytes as usize);
        let nonce = identity.nonce();
        self.0
            .decrypt_in_place_detached(
                Nonce::from_slice(&nonce),
                &identity.associated_data(),
                encoding,
                Tag::from_slice(tag),
            )
            .map_err(|_| Forged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The library's own tests check its AES-256-GCM; here we check what we feed it.
    #[test]
    fn each_part_of_the_identity_counts() {
        let cipher = Cipher::new([7; 32]);
        let right = Identity { place: 3, sequence: 1 << 40, entry: 9, bytes: 21 };
        let mut extent = [0x5a; 21 + TAG_BYTES];
        cipher.encrypt(right, &mut extent);
        assert_ne!(extent[..21], [0x5a; 21]);
        for wrong in [Identity { place: 4, ..right }, Identity { sequence: 1, ..right }, Identity { entry: 8, ..right }]
        {
            let before = extent;
            assert_eq!(cipher.decrypt(wrong, &mut extent), Err(Forged));
            assert_eq!(extent, before);
        }
        assert_eq!(Cipher::new([8; 32]).decrypt(right, &mut extent), Err(Forged));
        let short = Identity { bytes: 20, ..right };
        assert_eq!(cipher.decrypt(short, &mut extent[..20 + TAG_BYTES]), Err(Forged));
        assert_eq!(cipher.decrypt(right, &mut extent), Ok(()));
        assert_eq!(extent[..21], [0x5a; 21]);
    }

    #[test]
    fn a_nonce_holds_the_whole_sequence_number_and_entry() {
        let identity = Identity { place: 0, sequence: 0x0807_0605_0403_0201, entry: 0x0c0b_0a09, bytes: 1 };
        assert_eq!(identity.nonce(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    }
}
