//! What a client of `manypath perf` says first, and what either end says last.

use manypath_proxy::perf::{Header, Trailer};

/// A header or a trailer: what was understood is written as it was read.
pub fn perf(data: &[u8]) {
    if let Some(bytes) = data.first_chunk() {
        if let Ok(header) = Header::parse(bytes) {
            assert_eq!(Header::parse(&header.to_bytes()), Ok(header));
        }
    }
    if let Some(bytes) = data.first_chunk() {
        let trailer = Trailer::parse(bytes);
        assert_eq!(trailer.to_bytes(), *bytes);
    }
}
