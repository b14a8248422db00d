//! What a request says about the sequence that it belongs to.

use crate::{Error, Parameter};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    pub id: SequenceId,
    pub start: bool,
    pub end: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SequenceId {
    /// 0 is none.
    Number(u64),
    Text(String),
}

impl Default for SequenceId {
    fn default() -> Self {
        Self::Number(0)
    }
}

impl Sequence {
    /// What a parameter says of it. False: it is about something else.
    pub fn read(sequence: &mut Option<Box<Self>>, name: &str, value: &Parameter) -> Result<bool, Error> {
        let wrong_type = |expected: &str| {
            Error::invalid(format!("invalid value type for '{name}' parameter, expected {expected}."))
        };
        match (name, value) {
            // The protocol has no other way to send the upper half of them.
            ("sequence_id", Parameter::Int(id)) => Self::of(sequence).id = SequenceId::Number(*id as u64),
            ("sequence_id", Parameter::String(id)) => {
                Self::of(sequence).id = SequenceId::Text(id.clone());
            }
            ("sequence_id", _) => return Err(wrong_type("int64_param or string_param")),
            ("sequence_start", Parameter::Bool(value)) => Self::of(sequence).start = *value,
            ("sequence_end", Parameter::Bool(value)) => Self::of(sequence).end = *value,
            ("sequence_start" | "sequence_end", _) => return Err(wrong_type("bool_param")),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// To be filled in.
    pub fn of(sequence: &mut Option<Box<Self>>) -> &mut Self {
        sequence.get_or_insert_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_say_which_sequence_it_is() {
        let mut sequence = None;
        let mut read = |name, value| Sequence::read(&mut sequence, name, &value);
        assert_eq!(read("other", Parameter::Int(1)), Ok(false));
        for (name, value) in [
            ("sequence_id", Parameter::String("a".into())),
            ("sequence_id", Parameter::Int(-1)),
            ("sequence_end", Parameter::Bool(true)),
        ] {
            assert_eq!(read(name, value), Ok(true));
        }
        let text = read("sequence_id", Parameter::Double(1.0)).unwrap_err().message;
        assert_eq!(
            text,
            "invalid value type for 'sequence_id' parameter, expected int64_param or string_param."
        );
        let text = read("sequence_start", Parameter::Int(1)).unwrap_err().message;
        assert_eq!(text, "invalid value type for 'sequence_start' parameter, expected bool_param.");
        let expected = Sequence { id: SequenceId::Number(u64::MAX), start: false, end: true };
        assert_eq!(sequence.as_deref(), Some(&expected));
    }
}
