//! Which operators a model file has, without a session.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;

/// Stands behind the first four bytes of a file in ONNX Runtime's own format.
const ORT: &[u8] = b"ORTM";
const PIECE_BYTES: usize = 1 << 20;

/// Whether a file of ONNX or of ONNX Runtime has an operator of these types, in whatever graph or function.
pub fn has_operator(path: &Path, types: &[impl AsRef<str>]) -> io::Result<bool> {
    Ok(first_operator(path, types)?.is_some())
}

/// The first of these types that it has.
pub(crate) fn first_operator<'a, T: AsRef<str>>(path: &Path, types: &'a [T]) -> io::Result<Option<&'a T>> {
    let mut file = File::open(path)?;
    let mut head = Vec::new();
    file.by_ref().take(8).read_to_end(&mut head)?;
    file.rewind()?;
    // a file of ONNX may say so as well
    if head.ends_with(ORT)
        && let Some(found) = search(&file, types, PIECE_BYTES)?
    {
        return Ok(Some(found));
    }
    let operators = kushi_onnx_file::names(file)?.operators;
    Ok(types.iter().find(|name| operators.contains(name.as_ref().as_bytes())))
}

/// By their texts: weights that look like one count as one.
fn search<T: AsRef<str>>(mut file: impl Read, types: &[T], piece_bytes: usize) -> io::Result<Option<&T>> {
    let patterns: Vec<_> = types.iter().map(|name| (name, as_in_ort(name.as_ref()))).collect();
    let longest = patterns.iter().map(|(_, pattern)| pattern.len()).max().unwrap_or(0);
    let mut bytes = Vec::new();
    loop {
        let came = file.by_ref().take(piece_bytes as u64).read_to_end(&mut bytes)?;
        for (name, pattern) in &patterns {
            if memchr::memmem::find(&bytes, pattern).is_some() {
                return Ok(Some(name));
            }
        }
        if came == 0 {
            return Ok(None);
        }
        // one may lie across two pieces
        bytes.drain(..bytes.len().saturating_sub(longest - 1));
    }
}

/// Its length stands before a text, and a zero behind it.
fn as_in_ort(name: &str) -> Vec<u8> {
    let length = name.len() as u32;
    [&length.to_le_bytes(), name.as_bytes(), &[0]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_one_wherever_it_lies() {
        for at in 0..40 {
            let file = [vec![7; at], as_in_ort("GRU"), vec![7; 9]].concat();
            let found = search(&file[..], &["LSTM", "GRU"], 16).expect("it is read");
            assert_eq!(found, Some(&"GRU"), "at {at}");
        }
    }

    #[test]
    fn another_text_is_none() {
        let found = search(&b"\x05\0\0\0LSTMs\0\x04\0\0\0LSTM"[..], &["LSTM"], 16).expect("it is read");
        assert_eq!(found, None);
        assert_eq!(search(&b""[..], &["LSTM"], 16).expect("it is read"), None);
    }
}
