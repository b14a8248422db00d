//! What must hold for any bytes, for the fuzz target in `native/fuzz` and the test that repeats what it has found.

use crate::frame_heads::FrameHeads;

/// What a client of HTTP/2 sends, in one piece and in two, cut where the first byte says.
pub fn frame_heads(bytes: &[u8]) {
    let Some((&cut, bytes)) = bytes.split_first() else { return };
    let (first, second) = bytes.split_at(bytes.len().min(usize::from(cut)));
    assert_eq!(told(&[bytes]), told(&[first, second]));
}

fn told(pieces: &[&[u8]]) -> ([usize; 4], bool, u32) {
    let (mut heads, mut frames) = (FrameHeads::new(), [0; 4]);
    for piece in pieces {
        heads.read(piece, |idle| frames[idle as usize] += 1);
    }
    (frames, heads.began_wrong(), heads.last_stream())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    #[test]
    fn what_a_fuzzer_began_with_or_found_holds() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/grpc_heads");
        let seeds: Vec<_> = fs::read_dir(folder).unwrap().collect();
        assert!(!seeds.is_empty());
        for seed in seeds {
            super::frame_heads(&fs::read(seed.unwrap().path()).unwrap());
        }
    }
}
