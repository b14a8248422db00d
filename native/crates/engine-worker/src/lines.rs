//! Lines of a text that comes in pieces, and how many of them are written.

use std::time::{Duration, Instant};

/// A longer line is written as several.
pub(crate) const LINE_BYTES: usize = 8 << 10;
/// Further lines in a second are counted and left out.
const LINES_PER_SECOND: usize = 1000;

/// The line that has begun.
#[derive(Default)]
pub(crate) struct Lines(Vec<u8>);

impl Lines {
    /// Hands over each line that ends in `bytes`, without its end.
    pub(crate) fn take(&mut self, mut bytes: &[u8], mut write: impl FnMut(&[u8])) {
        while !bytes.is_empty() {
            let room = LINE_BYTES - self.0.len();
            let near = &bytes[..bytes.len().min(room)];
            let end = near.iter().position(|&byte| byte == b'\n');
            let length = end.unwrap_or(near.len());
            self.0.extend_from_slice(&near[..length]);
            bytes = &bytes[length + usize::from(end.is_some())..];
            if end.is_some() || self.0.len() == LINE_BYTES {
                write(&self.0);
                self.0.clear();
            }
        }
    }

    /// Hands over what has no end.
    pub(crate) fn finish(&mut self, mut write: impl FnMut(&[u8])) {
        if !self.0.is_empty() {
            write(&self.0);
            self.0.clear();
        }
    }
}

/// The lines of one second that may be written; the others are counted.
pub(crate) struct Allowance {
    second: Instant,
    lines: usize,
}

impl Allowance {
    pub(crate) fn new(now: Instant) -> Self {
        Self { second: now, lines: 0 }
    }

    /// Whether one more line may be written.
    pub(crate) fn admits(&mut self) -> bool {
        self.lines += 1;
        self.lines <= LINES_PER_SECOND
    }

    /// Begins the next second where this one is over. Answers how many lines it has left out.
    pub(crate) fn renew(&mut self, now: Instant) -> usize {
        if now.saturating_duration_since(self.second) < Duration::from_secs(1) {
            return 0;
        }
        self.second = now;
        self.end()
    }

    /// The same for the last second.
    pub(crate) fn end(&mut self) -> usize {
        std::mem::take(&mut self.lines).saturating_sub(LINES_PER_SECOND)
    }
}

/// To be said once a second is over.
pub(crate) fn warn_left_out(name: &str, lines: usize) {
    if lines > 0 {
        log::warn!("{name}: {lines} lines in a second were left out");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines_of<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        for piece in pieces {
            lines.take(piece, |line| found.push(line.to_vec()));
        }
        lines.finish(|line| found.push(line.to_vec()));
        found
    }

    #[test]
    fn a_line_ends_with_its_end_and_not_with_the_piece_in_which_it_comes() {
        let pieces: [&[u8]; 5] = [b"on", b"e\n\ntwo", b"", b"\nthr", b"ee"];
        assert_eq!(lines_of(pieces), [&b"one"[..], b"", b"two", b"three"]);
    }

    #[test]
    fn a_line_that_is_too_long_is_written_as_several() {
        let long = vec![b'x'; 2 * LINE_BYTES + 5];
        let lengths: Vec<usize> = lines_of([&long[..]]).iter().map(Vec::len).collect();
        assert_eq!(lengths, [LINE_BYTES, LINE_BYTES, 5]);
    }

    #[test]
    fn of_a_second_with_too_many_lines_it_is_known_how_many_were_left_out() {
        let start = Instant::now();
        let mut allowance = Allowance::new(start);
        let admitted = (0..LINES_PER_SECOND + 7).filter(|_| allowance.admits()).count();
        assert_eq!(admitted, LINES_PER_SECOND);
        assert_eq!(allowance.renew(start + Duration::from_millis(999)), 0, "it is not over");
        assert_eq!(allowance.renew(start + Duration::from_secs(1)), 7);
        assert!(allowance.admits());
        assert_eq!(allowance.end(), 0);
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_their_text_is_cut(
            pieces in proptest::collection::vec(proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..40), 0..20),
        ) {
            let text = pieces.concat();
            let expected: Vec<&[u8]> = text.strip_suffix(b"\n").unwrap_or(&text).split(|&byte| byte == b'\n').collect();
            let found = lines_of(pieces.iter().map(Vec::as_slice));
            if text.is_empty() {
                prop_assert!(found.is_empty());
            } else {
                prop_assert_eq!(found, expected);
            }
        }
    }
}
