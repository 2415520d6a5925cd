//! What stands in `data/parity`, unpacked.

use controller_core::problem::Catalogue;
use std::io::Read;
use std::sync::Arc;

pub(crate) fn catalogue(packed: &[u8]) -> Arc<Catalogue> {
    Arc::new(Catalogue::read(&unpack(packed)).expect("a catalogue"))
}

pub(crate) fn unpack(packed: &[u8]) -> String {
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed).read_to_string(&mut text).expect("packed text");
    text
}
