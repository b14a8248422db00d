//! Texts as a body has them: one or many, as text or as tokens.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};

/// Of one body.
const MOST_TEXTS: usize = 65_536;
const MOST_TOKENS: usize = 4 << 20;

/// Texts, each behind its length in four bytes, as tensors have them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Strings {
    bytes: Bytes,
    ends: Vec<usize>,
}

/// Texts that are still to come.
#[derive(Default)]
pub(super) struct Collected {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Collected {
    pub(super) fn push(&mut self, text: &str) {
        self.bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
        self.ends.push(self.bytes.len());
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn all(self) -> Strings {
        Strings { bytes: self.bytes.into(), ends: self.ends }
    }
}

impl Strings {
    /// One of them.
    pub(super) fn of(text: &str) -> Self {
        let mut collected = Collected::default();
        collected.push(text);
        collected.all()
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn get(&self, at: usize) -> &str {
        let begin = self.begin(at) + size_of::<u32>();
        std::str::from_utf8(&self.bytes[begin..self.ends[at]]).unwrap_or_default()
    }

    /// Those in these places, where they lie.
    pub(super) fn part(&self, places: Range<usize>) -> Bytes {
        let end = places.end.checked_sub(1).map_or(0, |last| self.ends[last]);
        self.bytes.slice(self.begin(places.start).min(end)..end)
    }

    fn begin(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(0, |before| self.ends[before])
    }
}

impl<'de> Deserialize<'de> for Strings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Given::deserialize(deserializer)? {
            Given { texts: Texts::Strings(strings), .. } => Ok(strings),
            Given { texts: Texts::Tokens(_), .. } => Err(de::Error::custom("expected texts, got tokens")),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Texts {
    Strings(Strings),
    Tokens(Vec<Vec<u32>>),
}

/// What a body has in the place of texts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) texts: Texts,
    /// Not in a list.
    pub(super) is_single: bool,
}

impl<'de> Deserialize<'de> for Given {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(GivenVisitor)
    }
}

struct GivenVisitor;

impl<'de> Visitor<'de> for GivenVisitor {
    type Value = Given;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, or a list of texts")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Given, E> {
        Ok(Given { texts: Texts::Strings(Strings::of(text)), is_single: true })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Given, A::Error> {
        let mut strings = Collected::default();
        let (mut tokens, mut numbers) = (Vec::<Vec<u32>>::new(), Vec::<u32>::new());
        let mut count = 0_usize;
        while let Some(element) = list.next_element::<Element<'de>>()? {
            match element {
                Element::Text(text) => strings.push(&text),
                Element::Number(number) => numbers.push(number),
                Element::Numbers(numbers) => {
                    count = count.saturating_add(numbers.len());
                    tokens.push(numbers);
                }
            }
            let kinds = [!strings.ends.is_empty(), !numbers.is_empty(), !tokens.is_empty()];
            if kinds.into_iter().filter(|&is_there| is_there).count() > 1 {
                return Err(de::Error::custom("texts and tokens are mixed"));
            }
            if strings.ends.len().max(tokens.len()) > MOST_TEXTS {
                return Err(de::Error::custom(format!("there are more than {MOST_TEXTS} texts")));
            }
            if count.max(numbers.len()) > MOST_TOKENS {
                return Err(de::Error::custom(format!("there are more than {MOST_TOKENS} tokens")));
            }
        }
        if !numbers.is_empty() {
            return Ok(Given { texts: Texts::Tokens(vec![numbers]), is_single: true });
        }
        let texts = if tokens.is_empty() { Texts::Strings(strings.all()) } else { Texts::Tokens(tokens) };
        Ok(Given { texts, is_single: false })
    }
}

/// Of a list.
enum Element<'a> {
    Text(Cow<'a, str>),
    Number(u32),
    Numbers(Vec<u32>),
}

impl<'de> Deserialize<'de> for Element<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ElementVisitor)
    }
}

struct ElementVisitor;

impl<'de> Visitor<'de> for ElementVisitor {
    type Value = Element<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, an object with a text, a token or a list of tokens")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Element<'de>, E> {
        Ok(Element::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Element<'de>, E> {
        Ok(Element::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Element<'de>, E> {
        let number = u32::try_from(number);
        number.map(Element::Number).map_err(|_| E::custom("a token is a number below 4294967296"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Element<'de>, A::Error> {
        let mut numbers = Vec::new();
        while let Some(number) = list.next_element()? {
            if numbers.len() == MOST_TOKENS {
                return Err(de::Error::custom(format!("there are more than {MOST_TOKENS} tokens")));
            }
            numbers.push(number);
        }
        Ok(Element::Numbers(numbers))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Element<'de>, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Object {
            text: String,
        }
        let object = Object::deserialize(de::value::MapAccessDeserializer::new(map))?;
        Ok(Element::Text(Cow::Owned(object.text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(json: &str) -> Result<Given, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    fn strings(texts: &[&str]) -> Texts {
        let mut strings = Collected::default();
        for text in texts {
            strings.push(text);
        }
        Texts::Strings(strings.all())
    }

    #[test]
    fn texts_come_alone_in_lists_and_in_objects() {
        for (json, texts, is_single) in [
            (r#""a""#, strings(&["a"]), true),
            (r#"["a", "\u00e9\n", ""]"#, strings(&["a", "\u{e9}\n", ""]), false),
            (r#"[{"text": "a"}, "b"]"#, strings(&["a", "b"]), false),
            ("[]", strings(&[]), false),
            ("[1, 2]", Texts::Tokens(vec![vec![1, 2]]), true),
            ("[[1, 2], []]", Texts::Tokens(vec![vec![1, 2], vec![]]), false),
        ] {
            assert_eq!(given(json), Ok(Given { texts, is_single }), "{json}");
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        for json in [
            "1",
            "null",
            "{}",
            r#"["a", 1]"#,
            r#"[1, "a"]"#,
            "[1, [2]]",
            "[-1]",
            "[4294967296]",
            "[1.5]",
            r#"[["a"]]"#,
            r#"[{"text": "a", "image": "b"}]"#,
            "[null]",
        ] {
            assert!(given(json).is_err(), "{json}");
        }
    }

    #[test]
    fn parts_are_as_tensors_have_them() {
        let Texts::Strings(strings) = strings(&["a", "", "bc"]) else { unreachable!() };
        assert_eq!(&*strings.part(0..3), b"\x01\0\0\0a\0\0\0\0\x02\0\0\0bc");
        assert_eq!(&*strings.part(1..3), b"\0\0\0\0\x02\0\0\0bc");
        assert_eq!((&*strings.part(0..0), &*strings.part(3..3)), (&b""[..], &b""[..]));
        assert_eq!([0, 1, 2].map(|at| strings.get(at)), ["a", "", "bc"]);
    }
}
