//! What must hold for any bytes, for the fuzz target in `native/fuzz` and the test that repeats what it has found.

use bytes::Bytes;

use crate::decode;

/// An answer of a server over gRPC.
pub fn grpc_answer(bytes: &[u8]) {
    let Ok(answer) = decode::answer(&Bytes::copy_from_slice(bytes), |_| None) else { return };
    for (_, tensor) in &answer.outputs {
        // Texts say themselves how long they are, to whoever reads them.
        assert!(tensor.datatype.size().is_none() || tensor.fills_its_shape());
        // Typed fields are made eight bytes for one at most.
        assert!(tensor.data.len() <= 8 * bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    #[test]
    fn what_a_fuzzer_began_with_or_found_holds() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/grpc_answer");
        let seeds: Vec<_> = fs::read_dir(folder).unwrap().collect();
        assert!(!seeds.is_empty());
        for seed in seeds {
            super::grpc_answer(&fs::read(seed.unwrap().path()).unwrap());
        }
    }
}
