//! Texts of errors and of the log, of a length that can be read whatever names and values stand in them.

use std::borrow::Cow;

/// A name or value has so many characters at most: more than any that is valid.
const LONGEST_WORD: usize = 1024;
/// A text as a whole ends behind so many bytes.
const LONGEST: usize = 32 << 10;

/// The text with words cut that no reader wants whole.
pub fn shortened(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.len() <= LONGEST_WORD {
        return text;
    }
    let (mut short, mut word) = (String::with_capacity(text.len().min(LONGEST)), 0);
    for character in text.chars() {
        let between = character.is_whitespace() || matches!(character, '/' | '\'' | '"');
        word = if between { 0 } else { word + 1 };
        if word <= LONGEST_WORD {
            short.push(character);
        } else if word == LONGEST_WORD + 1 {
            short.push('…');
        }
        if short.len() >= LONGEST {
            short.push('…');
            break;
        }
    }
    short.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_words_are_cut_and_the_rest_is_kept() {
        let long = "é".repeat(1_000_000);
        let text = format!("model '{long}' is not in /{}/{}", "a".repeat(1000), "b".repeat(1000));
        let cut = format!(
            "model '{}…' is not in /{}/{}",
            "é".repeat(LONGEST_WORD),
            "a".repeat(1000),
            "b".repeat(1000)
        );
        assert_eq!(shortened(text.into()), cut);
    }

    #[test]
    fn many_short_words_end_somewhere() {
        let text = shortened("a b ".repeat(1 << 20).into());
        assert_eq!((text.len(), text.ends_with('…')), (LONGEST + '…'.len_utf8(), true));
        let usual = "unexpected inference input 'X' for model 'm'";
        assert!(matches!(shortened(usual.into()), Cow::Borrowed(_)));
    }
}
