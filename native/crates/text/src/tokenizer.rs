//! A `tokenizer.json`, bounded: of a long text no more is looked at than its tokens need.

use tokenizers::utils::truncation::TruncationDirection;
use tokenizers::{Encoding, PostProcessor};

/// A text has more bytes than this for each of its tokens only where it is odd: one word of many characters.
const USUAL_BYTES: usize = 16;
const LEAST_BYTES: usize = 4096;
/// Of one text, for each of its tokens and in all: what comes behind is not looked at, however few tokens there are.
const MOST_BYTES: usize = 64;
const LEAST_OF_MOST: usize = 64 << 10;
const MOST_OF_ALL: usize = 1 << 20;
/// Tokens beside a cut may be others than those of the whole text.
const MARGIN: usize = 16;
const PADS: [&str; 4] = ["[PAD]", "<pad>", "<|endoftext|>", "<|padding|>"];

pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    longest: usize,
    /// Of a text that is too long, its end is kept.
    keeps_end: bool,
    pad: u32,
}

/// What a model takes of one text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    pub ids: Vec<u32>,
    /// Of the parts of the text, as the tokenizer numbers them.
    pub types: Vec<u32>,
}

/// A token, as one who looks at a text's tokens wants to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub id: u32,
    pub token: String,
    pub special: bool,
    /// Where its characters begin and end in the text; `None`: it stands for none of them.
    pub place: Option<(usize, usize)>,
}

/// A text of two that belong together, made tokens by itself.
#[derive(Clone)]
pub struct Part(Encoding);

/// How many tokens are kept of two texts where there is room for so many: the longer one is cut first.
fn shares(first: usize, second: usize, room: usize) -> (usize, usize) {
    let (short, long) = (first.min(second), first.max(second));
    let (mut of_short, mut of_long) = (short.min(room), long.min(room.saturating_sub(short)));
    if of_long < of_short {
        (of_short, of_long) = (room / 2, room - room / 2);
    }
    if first <= second { (of_short, of_long) } else { (of_long, of_short) }
}

impl Tokenizer {
    /// From the content of the file. `longest`: tokens of a text, special ones among them; the rest is left out. `None`:
    /// what the file says, if it says anything.
    pub fn new(json: &[u8], longest: Option<usize>) -> Result<Self, String> {
        let mut inner = tokenizers::Tokenizer::from_bytes(json).map_err(|error| error.to_string())?;
        let stated = inner.get_truncation().map(|truncation| truncation.max_length);
        let keeps_end = inner
            .get_truncation()
            .is_some_and(|truncation| matches!(truncation.direction, TruncationDirection::Left));
        let Some(longest) = longest.or(stated) else {
            return Err("nothing says how many tokens a text may have".to_owned());
        };
        let pad = match inner.get_padding() {
            Some(padding) => padding.pad_id,
            None => PADS.iter().find_map(|token| inner.token_to_id(token)).unwrap_or_default(),
        };
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|error| error.to_string())?;
        let made = Self { inner, longest, keeps_end, pad };
        let special = made.special(false);
        if longest <= special {
            return Err(format!("a text may have {longest} tokens, {special} of which are special ones"));
        }
        Ok(made)
    }

    /// Tokens of a text at most.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// What stands in the place of tokens behind the end of a text.
    pub fn pad(&self) -> u32 {
        self.pad
    }

    /// As much of a text behind a prompt as is looked at.
    pub fn seen(&self, prompt: &str, text: &str) -> String {
        let part = self.cut(text, self.most_bytes());
        if self.keeps_end && part.len() < text.len() {
            // What stands before it is cut off as well.
            return part.to_owned();
        }
        format!("{prompt}{part}")
    }

    /// How many bytes of a text are looked at, at most.
    fn most_bytes(&self) -> usize {
        self.longest.saturating_mul(MOST_BYTES).clamp(LEAST_OF_MOST, MOST_OF_ALL)
    }

    /// The tokens of a text, or of two that belong together, cut where they are more than [`Self::longest`]: of two the
    /// longer one first.
    pub fn encode(&self, text: &str, second: Option<&str>) -> Result<Tokens, String> {
        self.join(self.part(text)?, second.map(|text| self.part(text)).transpose()?)
    }

    /// The same of what was made of each.
    pub fn join(&self, Part(mut first): Part, second: Option<Part>) -> Result<Tokens, String> {
        let mut second = second.map(|Part(second)| second);
        let room = self.longest.checked_sub(self.special(second.is_some())).filter(|&room| room > 0);
        let room = room.ok_or_else(|| "the special tokens leave no room for two texts".to_owned())?;
        let (kept, kept_of_second) = shares(first.len(), second.as_ref().map_or(0, Encoding::len), room);
        self.truncate(&mut first, kept);
        if let Some(second) = &mut second {
            self.truncate(second, kept_of_second);
            second.set_type_ids(vec![1; second.len()]);
        }
        let whole = self.inner.post_process(first, second, true).map_err(|error| error.to_string())?;
        Ok(Tokens { ids: whole.get_ids().to_vec(), types: whole.get_type_ids().to_vec() })
    }

    /// What it makes of a text, with the special tokens around it where they are wanted. It is not cut.
    pub fn pieces(&self, text: &str, special: bool) -> Result<Vec<Piece>, String> {
        let made = self.inner.encode_char_offsets(text, special).map_err(|error| error.to_string())?;
        let marks = made.get_special_tokens_mask();
        let pieces = made.get_ids().iter().zip(made.get_tokens()).zip(made.get_offsets()).zip(marks);
        Ok(pieces
            .map(|(((&id, token), &(begin, end)), &mark)| Piece {
                id,
                token: token.clone(),
                special: mark != 0,
                place: (mark == 0).then_some((begin, end)),
            })
            .collect())
    }

    /// The text of tokens, without the special ones. Fails where one of them is none of its own.
    pub fn decode(&self, ids: &[u32]) -> Result<String, String> {
        if let Some(id) = ids.iter().find(|&&id| self.inner.id_to_token(id).is_none()) {
            let size = self.inner.get_vocab_size(true);
            return Err(format!("{id} is none of the {size} tokens of the model"));
        }
        self.inner.decode(ids, true).map_err(|error| error.to_string())
    }

    /// Bytes of a text at most that is not cut.
    pub fn longest_text(&self) -> usize {
        self.longest.saturating_mul(MOST_BYTES).max(LEAST_OF_MOST)
    }

    /// Whether texts leave out this token.
    pub fn is_special(&self, token: &str) -> bool {
        self.inner.get_added_vocabulary().is_special_token(token)
    }

    /// All tokens of a text, with the special ones around it where they are wanted. Fails where it cannot have [`Self::longest`] or fewer, in
    /// time that does not grow with it.
    pub fn whole(&self, text: &str, special: bool) -> Result<Vec<u32>, String> {
        let most = self.longest_text();
        if text.len() > most {
            return Err(format!("it has {} bytes, expected at most {most}", text.len()));
        }
        let made = self.inner.encode_fast(text, special).map_err(|error| error.to_string())?;
        Ok(made.get_ids().to_vec())
    }

    /// Whether a token never has a text: a special one, where those are left out, and one that there is not.
    pub(crate) fn is_silent(&self, token: u32, skip_special: bool) -> bool {
        let Some(text) = self.inner.id_to_token(token) else { return true };
        skip_special && self.inner.get_added_vocabulary().is_special_token(&text)
    }

    /// What one token stands for, by itself.
    pub fn token_text(&self, token: u32) -> String {
        self.text_of(&[token], false).unwrap_or_default()
    }

    /// The text of tokens, whatever they are: those that it does not know have none.
    pub fn text_of(&self, ids: &[u32], skip_special: bool) -> Result<String, String> {
        self.inner.decode(ids, skip_special).map_err(|error| error.to_string())
    }

    /// The tokens of as much of a text as there may be room for, and of some more.
    pub fn part(&self, text: &str) -> Result<Part, String> {
        let most = self.most_bytes();
        let mut bytes = self.longest.saturating_mul(USUAL_BYTES).clamp(LEAST_BYTES, most);
        loop {
            let made = self.inner.encode_fast(self.cut(text, bytes), false);
            let made = made.map_err(|error| error.to_string())?;
            if text.len() <= bytes || bytes == most || made.len() >= self.longest + MARGIN {
                return Ok(Part(made));
            }
            bytes = bytes.saturating_mul(4).min(most);
        }
    }

    fn truncate(&self, part: &mut Encoding, length: usize) {
        if part.len() <= length {
            return;
        }
        let from = if self.keeps_end { TruncationDirection::Left } else { TruncationDirection::Right };
        part.truncate(length, 0, from);
        // Of two texts each piece would be put together with each.
        part.take_overflowing();
    }

    /// How many tokens stand around a text, or two of them.
    fn special(&self, pair: bool) -> usize {
        self.inner.get_post_processor().map_or(0, |processor| processor.added_tokens(pair))
    }

    /// The bytes of it that are kept, from where a word begins or up to where one ends.
    fn cut<'a>(&self, text: &'a str, bytes: usize) -> &'a str {
        let length = text.len();
        if length <= bytes {
            return text;
        }
        if self.keeps_end {
            let begin = (length - bytes..=length).find(|&begin| text.is_char_boundary(begin));
            let part = &text[begin.unwrap_or(length)..];
            return match part.find(char::is_whitespace) {
                Some(begin) if begin <= bytes / 2 => &part[begin..],
                _ => part,
            };
        }
        let end = (0..=bytes).rev().find(|&end| text.is_char_boundary(end));
        let part = &text[..end.unwrap_or_default()];
        match part.rfind(char::is_whitespace) {
            Some(end) if end >= bytes / 2 => &part[..end],
            _ => part,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words of letters, each with a number, between a beginning and an end.
    const WORDS: &str = r#"{
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0},
        "padding": null,
        "added_tokens": [],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {
            "type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]
        },
        "decoder": null,
        "model": {
            "type": "WordLevel",
            "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "a": 4, "b": 5, "c": 6},
            "unk_token": "[UNK]"
        }
    }"#;

    fn words(longest: Option<usize>) -> Tokenizer {
        Tokenizer::new(WORDS.as_bytes(), longest).expect("a tokenizer")
    }

    #[test]
    fn a_text_has_its_tokens_and_the_special_ones() {
        let tokens = words(None).encode("A b nobody", None).expect("tokens");
        assert_eq!(tokens, Tokens { ids: vec![2, 4, 5, 1, 3], types: vec![0; 5] });
    }

    #[test]
    fn an_empty_text_has_the_special_ones_alone() {
        assert_eq!(words(None).encode("", None).expect("tokens").ids, [2, 3]);
    }

    #[test]
    fn the_file_or_the_caller_says_how_long_a_text_may_be() {
        let text = "a b c ".repeat(100);
        for (stated, expected) in [(None, 8), (Some(5), 5)] {
            let tokenizer = words(stated);
            assert_eq!(tokenizer.longest(), expected);
            let tokens = tokenizer.encode(&text, None).expect("tokens");
            assert_eq!((tokens.ids.len(), tokens.ids[0], *tokens.ids.last().expect("one")), (expected, 2, 3));
        }
        let without = WORDS.replace(r#""truncation": {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0},"#, "");
        assert!(Tokenizer::new(without.as_bytes(), None).is_err());
    }

    #[test]
    fn what_is_cut_has_the_tokens_of_the_whole() {
        let tokenizer = words(Some(64));
        let long = "a nobody-knows-these c b ".repeat(50_000);
        let whole = "a nobody-knows-these c b ".repeat(100);
        assert_eq!(
            tokenizer.encode(&long, None).expect("tokens"),
            tokenizer.encode(&whole, None).expect("tokens")
        );
    }

    #[test]
    fn words_without_an_end_are_looked_at_up_to_a_bound() {
        let tokenizer = words(Some(64));
        let word = "ä".repeat(10 << 20);
        assert_eq!(tokenizer.encode(&word, None).expect("tokens").ids, [2, 1, 3]);
        // Behind the first word stands what is far beyond the usual length of tokens, and still counts.
        let late = format!("{} a", "b".repeat(30_000));
        assert_eq!(tokenizer.encode(&late, None).expect("tokens").ids, [2, 1, 4, 3]);
        let too_late = format!("{} a", "b".repeat(100_000));
        assert_eq!(tokenizer.encode(&too_late, None).expect("tokens").ids, [2, 1, 3]);
    }

    #[test]
    fn the_end_of_a_text_is_kept_where_the_file_says_so() {
        let left = WORDS.replace(r#""direction": "Right""#, r#""direction": "Left""#);
        let tokenizer = Tokenizer::new(left.as_bytes(), Some(4)).expect("a tokenizer");
        for text in ["a a a a b c".to_owned(), format!("{}b c", "a ".repeat(100_000))] {
            assert_eq!(tokenizer.encode(&text, None).expect("tokens").ids, [2, 5, 6, 3]);
        }
    }

    #[test]
    fn a_text_has_room_for_more_than_special_tokens() {
        assert!(Tokenizer::new(WORDS.as_bytes(), Some(2)).is_err());
        assert!(Tokenizer::new(WORDS.as_bytes(), Some(3)).is_ok());
    }

    #[test]
    fn the_pad_is_that_of_the_file_or_a_token_of_that_name() {
        assert_eq!(words(None).pad(), 0);
        let other = WORDS.replace(
            r#""padding": null"#,
            r#""padding": {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": null, "pad_id": 6, "pad_type_id": 0, "pad_token": "c"}"#,
        );
        assert_eq!(Tokenizer::new(other.as_bytes(), None).expect("a tokenizer").pad(), 6);
    }

    #[test]
    fn what_is_no_tokenizer_is_refused() {
        assert!(Tokenizer::new(b"{}", Some(8)).is_err());
        assert!(Tokenizer::new(b"\xff", Some(8)).is_err());
    }

    #[test]
    fn two_texts_have_a_border_between_them_and_types_of_their_own() {
        let tokens = words(None).encode("a", Some("b c")).expect("tokens");
        assert_eq!(tokens, Tokens { ids: vec![2, 4, 3, 5, 6, 3], types: vec![0, 0, 0, 1, 1, 1] });
    }

    #[test]
    fn of_two_texts_the_longer_one_is_cut_first() {
        let tokenizer = words(Some(9));
        let long = "c ".repeat(100_000);
        for (first, second, expected) in [
            ("a", &*long, vec![2, 4, 3, 6, 6, 6, 6, 6, 3]),
            (&*long, "a b", vec![2, 6, 6, 6, 6, 3, 4, 5, 3]),
            (&*long, &*long, vec![2, 6, 6, 6, 3, 6, 6, 6, 3]),
        ] {
            assert_eq!(tokenizer.encode(first, Some(second)).expect("tokens").ids, expected);
        }
        assert_eq!(words(Some(8)).encode(&long, Some(&long)).expect("tokens").ids, [2, 6, 6, 3, 6, 6, 6, 3]);
    }

    #[test]
    fn two_texts_need_room_behind_the_special_tokens() {
        assert!(words(Some(3)).encode("a", Some("b")).is_err());
        assert!(words(Some(4)).encode("a", Some("b")).is_ok());
    }

    #[test]
    fn pieces_say_where_they_are_in_the_text() {
        let pieces = words(Some(4)).pieces("\u{e4} b", true).expect("pieces");
        let seen: Vec<_> =
            pieces.iter().map(|piece| (piece.id, &*piece.token, piece.special, piece.place)).collect();
        let expected = [
            (2, "[CLS]", true, None),
            (1, "[UNK]", false, Some((0, 1))),
            (5, "b", false, Some((2, 3))),
            (3, "[SEP]", true, None),
        ];
        assert_eq!(seen, expected);
        let bare = words(Some(4)).pieces("a a a a a a", false).expect("pieces");
        assert_eq!(bare.len(), 6);
    }

    #[test]
    fn tokens_become_text_if_they_are_its_own() {
        let tokenizer = words(None);
        assert_eq!(tokenizer.decode(&[2, 4, 5, 3]).as_deref(), Ok("[CLS] a b [SEP]"));
        assert_eq!(tokenizer.decode(&[4, 7]), Err("7 is none of the 7 tokens of the model".to_owned()));
    }
}
