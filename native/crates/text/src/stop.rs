//! Texts at which an answer ends, found although they come in pieces.

/// The most of them, and the most bytes of one.
pub const MOST_STOPS: usize = 64;
pub const LONGEST_STOP: usize = 1024;

/// Takes a text in pieces, and lets out what cannot be part of a stop any more.
#[derive(Clone, Debug, Default)]
pub struct Stops {
    ends: std::sync::Arc<[String]>,
    /// Whether the stop itself belongs to the text.
    included: bool,
    /// May be the beginning of a stop.
    held: String,
}

/// What became of a piece.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LetOut {
    pub text: String,
    /// Which of the stops has come: nothing follows.
    pub stop: Option<usize>,
}

impl Stops {
    /// `stops`: none of them is empty.
    pub fn new(stops: std::sync::Arc<[String]>, included: bool) -> Self {
        Self { ends: stops, included, held: String::new() }
    }

    pub fn take(&mut self, piece: &str) -> LetOut {
        if self.ends.is_empty() {
            return LetOut { text: piece.to_owned(), stop: None };
        }
        self.held.push_str(piece);
        // the one that ends first, however the text is cut
        let found = self.ends.iter().enumerate().filter_map(|(which, stop)| {
            let at = self.held.find(&**stop)?;
            Some((at + stop.len(), at, which))
        });
        if let Some((end, at, which)) = found.min() {
            self.held.truncate(if self.included { end } else { at });
            return LetOut { text: std::mem::take(&mut self.held), stop: Some(which) };
        }
        let kept = self.ends.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or_default();
        let kept = self.held.split_off(self.held.len() - kept);
        LetOut { text: std::mem::replace(&mut self.held, kept), stop: None }
    }

    /// What was held back, where nothing follows.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// How many bytes at the end of a text are the beginning of `stop`, and not all of it.
pub(crate) fn overlap(text: &str, stop: &str) -> usize {
    let longest = text.len().min(stop.len() - 1);
    (1..=longest)
        .rev()
        .find(|&length| text.as_bytes().ends_with(&stop.as_bytes()[..length]))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stops(of: &[&str], included: bool) -> Stops {
        Stops::new(of.iter().map(|&stop| stop.to_owned()).collect(), included)
    }

    fn all(mut stops: Stops, pieces: &[&str]) -> (String, Option<usize>) {
        let mut text = String::new();
        for piece in pieces {
            let out = stops.take(piece);
            text.push_str(&out.text);
            if out.stop.is_some() {
                return (text, out.stop);
            }
        }
        text.push_str(&stops.finish());
        (text, None)
    }

    #[test]
    fn a_stop_is_found_across_pieces_and_never_let_out() {
        for pieces in [&["one END two"][..], &["one E", "ND two"], &["one ", "E", "N", "D"]] {
            assert_eq!(all(stops(&["END"], false), pieces), ("one ".to_owned(), Some(0)));
        }
    }

    #[test]
    fn it_may_belong_to_the_text() {
        assert_eq!(all(stops(&["END"], true), &["one E", "ND two"]), ("one END".to_owned(), Some(0)));
    }

    #[test]
    fn what_only_began_as_a_stop_comes_whole() {
        assert_eq!(all(stops(&["ENDS"], false), &["E", "N", "D", "."]), ("END.".to_owned(), None));
        assert_eq!(all(stops(&["ENDS"], false), &["END"]), ("END".to_owned(), None));
    }

    #[test]
    fn of_several_the_one_that_ends_first_counts() {
        assert_eq!(all(stops(&["two", "one"], false), &["0 one two"]), ("0 ".to_owned(), Some(1)));
        assert_eq!(all(stops(&["abc", "b"], false), &["abc"]), ("a".to_owned(), Some(1)));
        assert_eq!(all(stops(&["b", "ab"], false), &["ab"]), (String::new(), Some(1)));
    }

    #[test]
    fn what_repeats_itself_is_found() {
        assert_eq!(all(stops(&["aab"], false), &["a", "a", "a", "b"]), ("a".to_owned(), Some(0)));
    }

    proptest! {
        #[test]
        fn pieces_give_what_the_whole_gives(
            pieces in prop::collection::vec("[abä]{0,3}", 0..12),
            first in "[abä]{1,4}",
            second in "[abä]{1,4}",
            included: bool,
        ) {
            let whole = pieces.concat();
            let cut: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let of = [&*first, &*second];
            prop_assert_eq!(all(stops(&of, included), &cut), all(stops(&of, included), &[&whole]));
        }
    }
}
