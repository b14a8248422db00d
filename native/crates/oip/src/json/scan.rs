//! The checking pass: walks a document once, refuses what RapidJSON refuses, at the same offset.

use std::ops::Range;

use super::fault::{Fault, Syntax};

/// A value's bytes in the document.
pub type Span = Range<usize>;

/// Levels of nesting that are allowed, where nothing else is said.
pub const USUAL_DEPTH: u32 = 100;
/// What a protocol puts around a value that is nested as deeply as is allowed. The bits of
/// [`Scanner::kinds`] bound both together.
const AROUND: u32 = 20;

/// Moves over a document value by value. A NUL byte counts as its end, as RapidJSON has it.
pub struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: u32,
    most_depth: u32,
    /// One bit per open container inside [`Scanner::skip`]: 1 for an object, the innermost lowest.
    kinds: u128,
}

impl<'a> Scanner<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self::with_depth(bytes, USUAL_DEPTH)
    }

    /// `most_depth`: for a value in the document, at most [`USUAL_DEPTH`].
    pub fn with_depth(bytes: &'a [u8], most_depth: u32) -> Self {
        let at = if bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        Self { bytes, at, depth: 0, most_depth: most_depth.min(USUAL_DEPTH), kinds: 0 }
    }

    /// Runs `root` on the document's one value.
    pub fn document(&mut self, root: impl FnOnce(&mut Self) -> Result<(), Fault>) -> Result<(), Fault> {
        self.blanks();
        if matches!(self.peek(), 0 | b']' | b'}' | b',' | b':') {
            return self.fault(Syntax::Empty);
        }
        root(self)?;
        self.blanks();
        if self.peek() == 0 { Ok(()) } else { self.fault(Syntax::RootNotSingular) }
    }

    pub fn is_object(&self) -> bool {
        self.peek() == b'{'
    }

    pub fn is_array(&self) -> bool {
        self.peek() == b'['
    }

    /// Walks the members of the object that begins here; `member` must consume each value.
    pub fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, Key<'a>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.enter()?;
        if self.peek() == b'}' {
            return self.leave();
        }
        loop {
            let key = self.key()?;
            member(self, key)?;
            self.blanks();
            match self.peek() {
                b',' => self.step(),
                b'}' => return self.leave(),
                _ => return self.fault(Syntax::MissCommaOrBrace),
            }
        }
    }

    /// Walks the elements of the array that begins here; `element` must consume each value.
    pub fn array(&mut self, mut element: impl FnMut(&mut Self) -> Result<(), Fault>) -> Result<(), Fault> {
        self.enter()?;
        if self.peek() == b']' {
            return self.leave();
        }
        loop {
            element(self)?;
            self.blanks();
            match self.peek() {
                b',' => self.step(),
                b']' => return self.leave(),
                _ => return self.fault(Syntax::MissCommaOrBracket),
            }
        }
    }

    /// Passes over one value of any kind.
    pub fn skip(&mut self) -> Result<Span, Fault> {
        let start = self.at;
        match self.peek() {
            b'{' | b'[' => self.skip_containers()?,
            b'"' => drop(self.string()?),
            _ => self.scalar()?,
        }
        Ok(start..self.at)
    }

    fn skip_containers(&mut self) -> Result<(), Fault> {
        let base = self.depth;
        loop {
            match self.peek() {
                b'{' => {
                    self.enter()?;
                    self.kinds = self.kinds << 1 | 1;
                    if self.peek() != b'}' {
                        self.key()?;
                        continue;
                    }
                }
                b'[' => {
                    self.enter()?;
                    self.kinds <<= 1;
                    if self.peek() != b']' {
                        self.at += usual_numbers_length(&self.bytes[self.at..]);
                        self.blanks();
                        continue;
                    }
                }
                _ => self.scalar()?,
            }
            if !self.close_containers(base)? {
                return Ok(());
            }
        }
    }

    /// After a value inside [`Scanner::skip`]: closes what ends here. True when another value follows.
    fn close_containers(&mut self, base: u32) -> Result<bool, Fault> {
        while self.depth > base {
            self.blanks();
            let in_object = self.kinds & 1 == 1;
            match (self.peek(), in_object) {
                (b'}', true) | (b']', false) => {
                    self.kinds >>= 1;
                    self.leave()?;
                }
                (b',', true) => {
                    self.step();
                    self.key()?;
                    return Ok(true);
                }
                (b',', false) => {
                    self.step();
                    return Ok(true);
                }
                (_, true) => return self.fault(Syntax::MissCommaOrBrace),
                (_, false) => return self.fault(Syntax::MissCommaOrBracket),
            }
        }
        Ok(false)
    }

    fn scalar(&mut self) -> Result<(), Fault> {
        match self.peek() {
            b'"' => self.string().map(drop),
            b'n' => self.literal(b"null"),
            b't' => self.literal(b"true"),
            b'f' => self.literal(b"false"),
            _ => self.number(),
        }
    }

    fn peek(&self) -> u8 {
        self.bytes.get(self.at).copied().unwrap_or(0)
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
    }

    /// Over a punctuation mark to what follows it.
    fn step(&mut self) {
        self.at += 1;
        self.blanks();
    }

    fn enter(&mut self) -> Result<(), Fault> {
        self.depth += 1;
        if self.depth > self.most_depth + AROUND {
            return Err(Fault::TooDeep(self.most_depth));
        }
        self.step();
        Ok(())
    }

    #[allow(clippy::unnecessary_wraps, reason = "reads as the last word of its callers")]
    fn leave(&mut self) -> Result<(), Fault> {
        self.depth -= 1;
        self.at += 1;
        Ok(())
    }

    fn fault<T>(&self, what: Syntax) -> Result<T, Fault> {
        Err(Fault::Syntax { what, offset: self.at })
    }

    fn key(&mut self) -> Result<Key<'a>, Fault> {
        if self.peek() != b'"' {
            return self.fault(Syntax::MissName);
        }
        let key = self.string()?;
        self.blanks();
        if self.peek() != b':' {
            return self.fault(Syntax::MissColon);
        }
        self.step();
        Ok(key)
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), Fault> {
        for &expected in word {
            if self.peek() != expected {
                return self.fault(Syntax::ValueInvalid);
            }
            self.at += 1;
        }
        Ok(())
    }

    fn string(&mut self) -> Result<Key<'a>, Fault> {
        let start = self.at + 1;
        self.at = start;
        let mut escaped = false;
        loop {
            self.at += plain_length(&self.bytes[self.at..]);
            match self.peek() {
                b'"' => break,
                b'\\' => {
                    escaped = true;
                    self.escape()?;
                }
                0 => return self.fault(Syntax::MissQuotation),
                _ => return self.fault(Syntax::BadEncoding),
            }
        }
        let raw = &self.bytes[start..self.at];
        self.at += 1;
        Ok(Key { raw, escaped })
    }

    fn escape(&mut self) -> Result<(), Fault> {
        let offset = self.at;
        let fault = |what| Err(Fault::Syntax { what, offset });
        self.at += 1;
        match self.peek() {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {
                self.at += 1;
                Ok(())
            }
            b'u' => {
                self.at += 1;
                let Some(unit) = self.hex4() else { return fault(Syntax::BadHex) };
                match unit {
                    0xD800..0xDC00 => {
                        if !self.bytes[self.at..].starts_with(b"\\u") {
                            return fault(Syntax::BadSurrogate);
                        }
                        self.at += 2;
                        match self.hex4() {
                            None => fault(Syntax::BadHex),
                            Some(0xDC00..0xE000) => Ok(()),
                            Some(_) => fault(Syntax::BadSurrogate),
                        }
                    }
                    0xDC00..0xE000 => fault(Syntax::BadSurrogate),
                    _ => Ok(()),
                }
            }
            _ => fault(Syntax::BadEscape),
        }
    }

    fn hex4(&mut self) -> Option<u32> {
        let mut unit = 0;
        for _ in 0..4 {
            unit = unit << 4 | char::from(self.peek()).to_digit(16)?;
            self.at += 1;
        }
        Some(unit)
    }

    fn digits(&mut self) -> bool {
        let start = self.at;
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
        self.at > start
    }

    fn number(&mut self) -> Result<(), Fault> {
        let start = self.at;
        if self.peek() == b'-' {
            self.at += 1;
        }
        match self.peek() {
            b'0' => self.at += 1,
            b'1'..=b'9' => {
                self.digits();
            }
            b'N' => return self.literal(b"NaN"),
            b'I' => {
                self.literal(b"Inf")?;
                return if self.peek() == b'i' { self.literal(b"inity") } else { Ok(()) };
            }
            _ => return self.fault(Syntax::ValueInvalid),
        }
        let whole_digits = self.at - start;
        if self.peek() == b'.' {
            self.at += 1;
            if !self.digits() {
                return self.fault(Syntax::MissFraction);
            }
        }
        let mut has_exponent = false;
        if matches!(self.peek(), b'e' | b'E') {
            has_exponent = true;
            self.at += 1;
            if matches!(self.peek(), b'+' | b'-') {
                self.at += 1;
            }
            if !self.digits() {
                return self.fault(Syntax::MissExponent);
            }
        }
        // Only these can pass the largest double.
        if (has_exponent || whole_digits > 300)
            && super::read::double(&self.bytes[start..self.at]).is_infinite()
        {
            return Err(Fault::Syntax { what: Syntax::NumberTooBig, offset: start });
        }
        Ok(())
    }
}

/// How many bytes come before the first quote, backslash or control character. Looks at eight at once.
fn plain_length(text: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 0xff;
    // Sets the high bit of the first byte below `bound`, and perhaps of some behind it.
    let below = |word: u64, bound: u8| word.wrapping_sub(ONES * u64::from(bound)) & !word & (ONES << 7);
    let is_byte = |word: u64, byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    let (words, rest) = text.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let ends = below(word, 0x20) | is_byte(word, b'"') | is_byte(word, b'\\');
        if ends != 0 {
            return 8 * index + ends.trailing_zeros() as usize / 8;
        }
    }
    let plain = rest.iter().take_while(|byte| !matches!(byte, 0..0x20 | b'"' | b'\\'));
    text.len() - rest.len() + plain.count()
}

/// The length of the numbers that lead an array, each with the comma and the blank behind it, as far as they have
/// neither an exponent nor very many digits: what most tensors consist of. Blanks and a value follow.
fn usual_numbers_length(text: &[u8]) -> usize {
    const MANY_DIGITS: usize = 100;
    let byte = |at: usize| text.get(at).copied().unwrap_or(0);
    let behind_digits = |mut at: usize| {
        while byte(at).is_ascii_digit() {
            at += 1;
        }
        at
    };
    let mut length = 0;
    loop {
        let start = length + usize::from(byte(length) == b'-');
        let mut at = behind_digits(start);
        let digits = at - start;
        if digits == 0 || digits > MANY_DIGITS || (digits > 1 && byte(start) == b'0') {
            return length;
        }
        if byte(at) == b'.' {
            let fraction = at + 1;
            at = behind_digits(fraction);
            if at == fraction {
                return length;
            }
        }
        if byte(at) != b',' {
            return length;
        }
        length = at + 1 + usize::from(byte(at + 1) == b' ');
    }
}

/// A member's name or a string, still in its JSON form.
#[derive(Clone, Copy)]
pub struct Key<'a> {
    raw: &'a [u8],
    escaped: bool,
}

impl Key<'_> {
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "to compare with a constant takes less than the call")]
    pub fn is(&self, name: &str) -> bool {
        if self.escaped {
            super::read::unescape(self.raw) == name.as_bytes()
        } else {
            self.raw == name.as_bytes()
        }
    }

    pub fn to_text(self) -> String {
        String::from_utf8_lossy(&super::read::unescape(self.raw)).into_owned()
    }
}

#[cfg(test)]
mod tests;
