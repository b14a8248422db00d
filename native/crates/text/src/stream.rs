//! The text of tokens that come one after another: no half character, no lost space.

use crate::Tokenizer;

/// So many tokens before the first one are looked at: what stands in front of a word decides about its space.
pub const TOKENS_BEFORE: usize = 8;
/// So many tokens may be without a text of their own, as bytes of a character are. What still makes no text then is
/// let out as it is.
const MOST_WITHOUT_TEXT: usize = 64;
const NO_CHARACTER: char = char::REPLACEMENT_CHARACTER;

#[derive(Clone, Debug)]
pub struct TextStream {
    /// The last tokens whose text has been let out, and those that have none yet.
    window: Vec<u32>,
    /// How many of them have been let out.
    out: usize,
    /// The text of those.
    text_out: String,
    skip_special: bool,
}

impl TextStream {
    /// Behind these tokens, whose text is not part of it.
    pub fn after(tokenizer: &Tokenizer, before: &[u32], skip_special: bool) -> Result<Self, String> {
        let window = before[before.len().saturating_sub(TOKENS_BEFORE)..].to_vec();
        let text_out = tokenizer.text_of(&window, skip_special)?;
        Ok(Self { out: window.len(), window, text_out, skip_special })
    }

    /// The text that the next token adds: nothing where it is part of a character.
    pub fn push(&mut self, tokenizer: &Tokenizer, token: u32) -> Result<String, String> {
        if tokenizer.is_silent(token, self.skip_special) {
            return Ok(String::new());
        }
        self.window.push(token);
        let text = tokenizer.text_of(&self.window, self.skip_special)?;
        let has_more = text.len() > self.text_out.len() && !text.ends_with(NO_CHARACTER);
        if has_more || self.window.len() - self.out >= MOST_WITHOUT_TEXT {
            self.let_out(tokenizer, &text)
        } else {
            Ok(String::new())
        }
    }

    /// The rest, where no token follows.
    pub fn finish(&mut self, tokenizer: &Tokenizer) -> Result<String, String> {
        let text = tokenizer.text_of(&self.window, self.skip_special)?;
        self.let_out(tokenizer, &text)
    }

    fn let_out(&mut self, tokenizer: &Tokenizer, text: &str) -> Result<String, String> {
        let new = text[common(&self.text_out, text)..].to_owned();
        self.window.drain(..self.out);
        self.out = self.window.len();
        self.text_out = tokenizer.text_of(&self.window, self.skip_special)?;
        Ok(new)
    }
}

/// How many bytes both texts begin with.
fn common(first: &str, second: &str) -> usize {
    if second.starts_with(first) {
        return first.len();
    }
    let both = first.chars().zip(second.chars());
    both.take_while(|(one, other)| one == other).map(|(one, _)| one.len_utf8()).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Pieces of words with a mark for the space before them, and bytes for all else, as models of Llama's kind have them.
    fn with_marks() -> Tokenizer {
        let words = ["\u{2581}", "\u{2581}one", "two", "\u{2581}\u{e4}", "\u{fffd}", "."];
        let bytes = (0..=255u8).map(|byte| format!("<0x{byte:02X}>"));
        let special = ["<s>".to_owned(), "</s>".to_owned()];
        let vocabulary: Vec<String> =
            special.into_iter().chain(bytes).chain(words.map(str::to_owned)).collect();
        let vocab: serde_json::Map<_, _> =
            vocabulary.iter().enumerate().map(|(id, token)| (token.clone(), id.into())).collect();
        let added = |id: u32, content: &str| {
            serde_json::json!({"id": id, "content": content, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true})
        };
        let file = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null,
            "added_tokens": [added(0, "<s>"), added(1, "</s>")],
            "normalizer": null, "pre_tokenizer": null, "post_processor": null,
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "},
                {"type": "ByteFallback"}, {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            "model": {"type": "BPE", "vocab": vocab, "merges": [], "byte_fallback": true, "unk_token": null},
        });
        Tokenizer::new(file.to_string().as_bytes(), Some(1000)).expect("a tokenizer")
    }

    /// Bytes, each under another character's name, as GPT-2 has them.
    fn of_bytes() -> Tokenizer {
        let shown = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
        let mut hidden = 256;
        let mut name = |byte: u8| {
            let code = if shown(byte) {
                u32::from(byte)
            } else {
                hidden += 1;
                hidden - 1
            };
            char::from_u32(code).expect("a character").to_string()
        };
        let vocab: serde_json::Map<_, _> =
            (0..=255u8).map(|byte| (name(byte), u32::from(byte).into())).collect();
        let file = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
            "added_tokens": [{"id": 256, "content": "<|end|>", "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true}],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
            "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
            "model": {"type": "BPE", "vocab": vocab, "merges": []},
        });
        Tokenizer::new(file.to_string().as_bytes(), Some(1000)).expect("a tokenizer")
    }

    fn streamed(tokenizer: &Tokenizer, before: &[u32], tokens: &[u32]) -> (Vec<String>, String) {
        let mut stream = TextStream::after(tokenizer, before, true).expect("a stream");
        let mut pieces: Vec<_> =
            tokens.iter().map(|&token| stream.push(tokenizer, token).expect("text")).collect();
        pieces.push(stream.finish(tokenizer).expect("text"));
        let whole = pieces.concat();
        (pieces, whole)
    }

    #[test]
    fn a_character_comes_when_it_is_whole() {
        let (pieces, whole) = streamed(
            &of_bytes(),
            &[],
            "aäb".as_bytes().iter().map(|&b| b.into()).collect::<Vec<_>>().as_slice(),
        );
        assert_eq!(pieces, ["a", "", "ä", "b", ""]);
        assert_eq!(whole, "aäb");
        let snowman: Vec<u32> = "☃".bytes().map(|byte| u32::from(byte) + 2).collect();
        assert_eq!(streamed(&with_marks(), &[], &snowman).0, ["", "", "☃", ""]);
    }

    #[test]
    fn half_a_character_at_the_end_is_one_that_there_is_not() {
        assert_eq!(streamed(&of_bytes(), &[], &[0x61, 0xc3]).0, ["a", "", "\u{fffd}"]);
    }

    #[test]
    fn a_space_stands_between_what_was_asked_and_the_first_word() {
        let tokenizer = with_marks();
        let one = 2 + 256 + 1;
        assert_eq!(streamed(&tokenizer, &[], &[one, one]).1, "one one");
        assert_eq!(streamed(&tokenizer, &[one], &[one]).1, " one");
        // special tokens make no text, and take none
        assert_eq!(streamed(&tokenizer, &[one], &[0, one, 1]).1, " one");
        assert_eq!(streamed(&tokenizer, &[], &[one, 0, one]).1, "one one");
    }

    #[test]
    fn what_never_becomes_text_is_let_out_in_the_end() {
        let tokenizer = of_bytes();
        let mut stream = TextStream::after(&tokenizer, &[], true).expect("a stream");
        let silent = (0..1000).take_while(|_| stream.push(&tokenizer, 0xc3).expect("text").is_empty());
        assert!(silent.count() < MOST_WITHOUT_TEXT);
    }

    #[test]
    fn tokens_that_are_not_there_have_no_text() {
        assert_eq!(streamed(&of_bytes(), &[], &[0x61, 70_000, 0x62]).1, "ab");
    }

    proptest! {
        #[test]
        fn pieces_are_the_whole_text(tokens in prop::collection::vec(prop_oneof![0u32..258, 190u32..246], 0..40)) {
            let tokenizer = of_bytes();
            let whole = tokenizer.text_of(&tokens, true).expect("text");
            prop_assert_eq!(streamed(&tokenizer, &[], &tokens).1, whole);
        }

        /// Bytes that are no character make their neighbours none there, which nobody knows when those come.
        #[test]
        fn pieces_of_whole_characters_are_the_whole_text(parts in prop::collection::vec(
            prop_oneof![
                (0u32..2).prop_map(|special| vec![special]),
                (258u32..264).prop_map(|word| vec![word]),
                any::<char>().prop_map(|char| char.to_string().bytes().map(|byte| u32::from(byte) + 2).collect()),
            ],
            0..20,
        )) {
            let (tokenizer, tokens) = (with_marks(), parts.concat());
            let whole = tokenizer.text_of(&tokens, true).expect("text");
            prop_assert_eq!(streamed(&tokenizer, &[], &tokens).1, whole);
        }

        #[test]
        fn behind_others_they_are_what_the_whole_text_has_more(
            text in "[ a-cä☃.]{0,20}",
            before in "[a-c ]{1,12}",
        ) {
            let tokenizer = of_bytes();
            let tokens = |text: &str| text.bytes().map(u32::from).collect::<Vec<_>>();
            prop_assert_eq!(streamed(&tokenizer, &tokens(&before), &tokens(&text)).1, text);
        }
    }
}
