//! The trace that a request comes with: the headers of W3C Trace Context, <https://www.w3.org/TR/trace-context/>.

/// Longer lists are not passed on.
const MOST_STATE_BYTES: usize = 512;

/// Whose child a request is, outside of this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    pub trace_id: u128,
    pub span_id: u64,
    /// Whether the caller records its part.
    pub is_sampled: bool,
    /// What is passed on as it is; often empty.
    pub state: String,
}

impl Parent {
    /// `None` where `traceparent` is not one: then the request is as one that came without.
    pub fn read(traceparent: &[u8], tracestate: Option<&[u8]>) -> Option<Self> {
        let text = std::str::from_utf8(traceparent).ok()?.trim();
        let mut parts = text.split('-');
        let version = hexadecimal(parts.next()?, 2)?;
        let trace_id = hexadecimal(parts.next()?, 32)?;
        let span_id = hexadecimal(parts.next()?, 16)? as u64;
        let flags = hexadecimal(parts.next()?, 2)?;
        // Versions to come may say more behind it.
        let says_more = parts.next().is_some();
        if version == 0xff || (version == 0 && says_more) || trace_id == 0 || span_id == 0 {
            return None;
        }
        let state = tracestate.and_then(|state| std::str::from_utf8(state).ok()).map(str::trim);
        let state = state.filter(|state| state.len() <= MOST_STATE_BYTES).unwrap_or_default();
        Some(Self { trace_id, span_id, is_sampled: flags & 1 == 1, state: state.into() })
    }
}

fn hexadecimal(text: &str, digits: usize) -> Option<u128> {
    let is_lower = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let fits = text.len() == digits && text.bytes().all(is_lower);
    fits.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TRACE: u128 = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c;
    const SPAN: u64 = 0xb7ad_6b71_6920_3331;

    fn read(text: &str) -> Option<Parent> {
        Parent::read(text.as_bytes(), Some(b"vendor=1"))
    }

    #[test]
    fn a_parent_says_its_trace_and_whether_it_is_recorded() {
        for (flags, is_sampled) in [("00", false), ("01", true), ("03", true)] {
            let text = format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}");
            let expected = Parent { trace_id: TRACE, span_id: SPAN, is_sampled, state: "vendor=1".into() };
            assert_eq!(read(&text), Some(expected));
        }
        let later = "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more";
        assert!(read(later).is_some(), "a later version may say more");
    }

    #[test]
    fn what_is_no_parent_is_passed_over() {
        for text in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_state_that_is_too_long_is_left_out() {
        let text = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let long = vec![b'a'; MOST_STATE_BYTES + 1];
        assert_eq!(Parent::read(text, Some(&long)).map(|parent| parent.state), Some(String::new()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(text in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Parent::read(&text, Some(&text));
        }
    }
}
