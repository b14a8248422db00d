//! Numbers in texts as C's library reads them.

/// A number as C reads it: blanks, a sign and digits, whatever follows. Saturates far out of range.
pub fn leading_integer(text: &str) -> Option<i64> {
    let text = text.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    if end == 0 {
        return None;
    }
    let magnitude: i64 = digits[..end].parse().unwrap_or(i64::MAX);
    Some(if negative { -magnitude } else { magnitude })
}
