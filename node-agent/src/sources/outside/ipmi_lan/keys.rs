//! Keys of a session of RMCP+, and the codes by which both sides prove that they have the password. Source:
//! "Intelligent Platform Management Interface Specification" 2.0, sections 13.28 to 13.32. Pure.

use std::fmt;

use aes::Aes128;
use aes::cipher::block_padding::NoPadding;
use aes::cipher::{BlockDecryptMut, BlockEncryptMut, KeyIvInit};
use hmac::digest::{Key, KeyInit};
use hmac::{Hmac, Mac};
use sha1::Sha1;
use sha2_10::Sha256;

/// Bytes of a block of AES, and of the numbers that both sides draw.
pub(super) const BLOCK_BYTES: usize = 16;

pub(super) type Block = [u8; BLOCK_BYTES];

/// Authentication, integrity and confidentiality of a session; the last is AES-CBC-128 in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Suite {
    /// Cipher suite 3, which each controller of IPMI 2.0 must have.
    Sha1,
    /// Cipher suite 17.
    Sha256,
}

impl Suite {
    /// Numbers of the algorithms of authentication, integrity and confidentiality.
    pub(super) const fn algorithms(self) -> [u8; 3] {
        match self {
            Self::Sha1 => [1, 1, 1],
            Self::Sha256 => [3, 4, 1],
        }
    }

    /// Bytes of a code in messages of a session, and in the last message before it.
    pub(super) const fn code_bytes(self) -> usize {
        match self {
            Self::Sha1 => 12,
            Self::Sha256 => 16,
        }
    }

    pub(super) fn code(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        match self {
            Self::Sha1 => code::<Hmac<Sha1>>(key, parts),
            Self::Sha256 => code::<Hmac<Sha256>>(key, parts),
        }
    }
}

/// Keyed hash of the parts behind one another. Keys are shorter than a block of the hash.
fn code<M: KeyInit + Mac>(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut block = Key::<M>::default();
    block.iter_mut().zip(key).for_each(|(place, byte)| *place = *byte);
    let mut mac = <M as KeyInit>::new(&block);
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

/// Ids, random numbers and names that both sides have told each other before a session.
#[derive(Debug, Clone)]
pub(super) struct Introduction {
    pub(super) suite: Suite,
    /// Session ids of this side and of the controller.
    pub(super) own_id: [u8; 4],
    pub(super) controller_id: [u8; 4],
    pub(super) own_number: Block,
    pub(super) controller_number: Block,
    pub(super) controller_guid: Block,
    /// Requested privilege, the length of the user's name, and the name.
    pub(super) role_and_user: Vec<u8>,
}

impl Introduction {
    /// Proves that the controller knows the password.
    pub(super) fn controller_code(&self, password: &[u8]) -> Vec<u8> {
        let parts: [&[u8]; 6] = [
            &self.own_id,
            &self.controller_id,
            &self.own_number,
            &self.controller_number,
            &self.controller_guid,
            &self.role_and_user,
        ];
        self.suite.code(password, &parts)
    }

    /// Proves it to the controller.
    pub(super) fn own_code(&self, password: &[u8]) -> Vec<u8> {
        self.suite.code(password, &[&self.controller_number, &self.own_id, &self.role_and_user])
    }

    /// `key` is the controller's own key, or the password.
    pub(super) fn session_key(&self, key: &[u8]) -> Vec<u8> {
        self.suite.code(key, &[&self.own_number, &self.controller_number, &self.role_and_user])
    }

    /// Ends the introduction.
    pub(super) fn final_code(&self, session_key: &[u8]) -> Vec<u8> {
        let parts: [&[u8]; 3] = [&self.own_number, &self.controller_id, &self.controller_guid];
        let mut code = self.suite.code(session_key, &parts);
        code.truncate(self.suite.code_bytes());
        code
    }
}

/// Keys of the messages of a session.
#[derive(Clone)]
pub(super) struct SessionKeys {
    suite: Suite,
    integrity: Vec<u8>,
    confidentiality: Block,
}

impl fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionKeys").field("suite", &self.suite).finish_non_exhaustive()
    }
}

impl SessionKeys {
    pub(super) fn new(suite: Suite, session_key: &[u8]) -> Self {
        // The constants have 20 bytes, whatever the hash.
        let derived = |constant: u8| suite.code(session_key, &[&[constant; 20]]);
        let mut confidentiality = Block::default();
        confidentiality.iter_mut().zip(derived(2)).for_each(|(place, byte)| *place = byte);
        Self { suite, integrity: derived(1), confidentiality }
    }

    pub(super) const fn code_bytes(&self) -> usize {
        self.suite.code_bytes()
    }

    pub(super) fn code(&self, packet: &[u8]) -> Vec<u8> {
        let mut code = self.suite.code(&self.integrity, &[packet]);
        code.truncate(self.suite.code_bytes());
        code
    }

    /// Returns the vector and the encrypted message.
    pub(super) fn encrypt(&self, vector: &Block, message: &[u8]) -> Vec<u8> {
        let mut padded = message.to_vec();
        // The padding counts from 1, and its length stands behind it.
        let mut pad: u8 = 0;
        while !(padded.len() + 1).is_multiple_of(BLOCK_BYTES) {
            pad += 1;
            padded.push(pad);
        }
        padded.push(pad);
        let cipher = cbc::Encryptor::<Aes128>::new(&self.confidentiality.into(), vector.into());
        let encrypted = cipher.encrypt_padded_vec_mut::<NoPadding>(&padded);
        [&vector[..], &encrypted].concat()
    }

    /// Returns none for what is no vector with whole blocks, or has another padding.
    pub(super) fn decrypt(&self, payload: &[u8]) -> Option<Vec<u8>> {
        let (vector, encrypted) = payload.split_first_chunk::<BLOCK_BYTES>()?;
        let cipher = cbc::Decryptor::<Aes128>::new(&self.confidentiality.into(), vector.into());
        let mut message = cipher.decrypt_padded_vec_mut::<NoPadding>(encrypted).ok()?;
        let pad = usize::from(message.pop()?);
        let kept = message.len().checked_sub(pad).filter(|_| pad < BLOCK_BYTES)?;
        let is_counted = message.get(kept..)?.iter().zip(1_u8..).all(|(byte, number)| *byte == number);
        message.truncate(kept);
        is_counted.then_some(message)
    }
}
