//! A [`ModelInferRequest`](crate::ModelInferRequest), read where it lies: nothing in it is copied, and
//! reading costs no more memory than the bounds allow.

use kushi_core::{Error, Parameter, Sequence, SequenceId, Shape};
use smallvec::SmallVec;

use crate::SlotRange;
use crate::wire::{Fields, Room, TOO_MANY_FIELDS, Value, WireError};

/// Of inputs and outputs together; each costs many times its bytes in the message.
pub const MAX_TENSORS: usize = 1024;
pub const MAX_PARAMETERS: usize = 1024;
/// Of one tensor.
pub const MAX_DIMENSIONS: usize = 1024;

/// Asks a stream to tell of an end without a response.
const EMPTY_FINAL: &str = "triton_enable_empty_final_response";

#[derive(Debug, Default, PartialEq)]
pub struct InferRequest<'a> {
    pub model_name: &'a str,
    pub model_version: &'a str,
    pub id: &'a str,
    /// Without those that have a meaning, which are below.
    pub parameters: Vec<(String, Parameter)>,
    pub priority: u32,
    /// The parameter `timeout`.
    pub queue_timeout_us: Option<u64>,
    pub sequence: Option<Box<Sequence>>,
    pub inputs: SmallVec<[Input<'a>; 4]>,
    pub outputs: SmallVec<[Output<'a>; 8]>,
    pub raw_input_contents: SmallVec<[&'a [u8]; 4]>,
    /// How long the client will wait from now; 0 is for ever.
    pub timeout_us: u64,
    /// The parameter `triton_enable_empty_final_response`: an end without a response is told as well.
    pub tells_end: bool,
    /// The trace that the caller is part of, as the headers of W3C say it; empty: none.
    pub trace_parent: &'a str,
    pub trace_state: &'a str,
}

#[derive(Debug, Default, PartialEq)]
pub struct Input<'a> {
    pub name: &'a str,
    pub datatype: &'a str,
    pub shape: Shape,
    pub slot: Option<SlotRange>,
    /// The message with the tensor in typed fields.
    pub contents: Option<&'a [u8]>,
    pub region: Region,
}

#[derive(Debug, Default, PartialEq)]
pub struct Output<'a> {
    pub name: &'a str,
    /// The parameter `classification`: how many of its classes are wanted in its place; 0: the output as it is.
    pub classes: usize,
    pub region: Region,
}

/// Where in shared memory a tensor lies, or is to lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// Empty: it does not.
    pub name: String,
    pub offset: u64,
    pub byte_size: u64,
}

impl Region {
    /// Others than those that name a region mean nothing.
    fn read(&mut self, (key, value): (&str, Option<Number>)) -> Result<(), Error> {
        let wrong = |expected: &str| {
            Err(Error::invalid(format!("invalid value type for '{key}' parameter, expected {expected}.")))
        };
        let number = match key {
            "shared_memory_region" => match value {
                Some(Number::Of(Parameter::String(name))) => {
                    self.name = name;
                    return Ok(());
                }
                _ => return wrong("string_param"),
            },
            "shared_memory_offset" => &mut self.offset,
            "shared_memory_byte_size" => &mut self.byte_size,
            _ => return Ok(()),
        };
        *number = match value {
            Some(Number::Of(Parameter::Int(value))) => value as u64,
            Some(Number::Unsigned(value)) => value,
            _ => return wrong("int64_param"),
        };
        Ok(())
    }
}

impl<'a> InferRequest<'a> {
    pub fn read(message: &'a [u8]) -> Result<Self, Error> {
        let mut request = Self::default();
        let mut room = Room::default();
        let mut fields = Fields::new(message);
        while let Some((field, value)) = fields.next_field().map_err(unreadable)? {
            room.take().map_err(unreadable)?;
            match field {
                1 => request.model_name = value.text().map_err(unreadable)?,
                2 => request.model_version = value.text().map_err(unreadable)?,
                3 => request.id = value.text().map_err(unreadable)?,
                4 => request.read_parameter(value, &mut room)?,
                5 => {
                    request.check_tensors()?;
                    request.inputs.push(input(value, &mut room)?);
                }
                6 => {
                    request.check_tensors()?;
                    request.outputs.push(output(value, &mut room)?);
                }
                7 if request.raw_input_contents.len() == MAX_TENSORS => return Err(too_many_tensors()),
                7 => request.raw_input_contents.push(value.bytes().map_err(unreadable)?),
                1001 => request.timeout_us = value.varint().map_err(unreadable)?,
                1002 => request.trace_parent = value.text().map_err(unreadable)?,
                1003 => request.trace_state = value.text().map_err(unreadable)?,
                _ => {}
            }
        }
        Ok(request)
    }

    fn check_tensors(&self) -> Result<(), Error> {
        if self.inputs.len() + self.outputs.len() < MAX_TENSORS { Ok(()) } else { Err(too_many_tensors()) }
    }

    fn read_parameter(&mut self, entry: Value<'a>, room: &mut Room) -> Result<(), Error> {
        let (key, value) = parameter(entry, room).map_err(unreadable)?;
        let wrong_type = |expected: &str| {
            Error::invalid(format!("invalid value type for '{key}' parameter, expected {expected}."))
        };
        let negative = || Error::invalid(format!("invalid value for '{key}', expected value >= 0."));
        match key {
            "timeout" => match value {
                Some(Number::Of(Parameter::Int(us))) => {
                    self.queue_timeout_us = Some(us.try_into().map_err(|_| negative())?);
                }
                Some(Number::Unsigned(us)) => self.queue_timeout_us = Some(us),
                _ => return Err(wrong_type("int64_param")),
            },
            "priority" => match value {
                Some(Number::Of(Parameter::Int(level))) => {
                    self.priority =
                        u64::try_from(level).map_err(|_| negative())?.try_into().unwrap_or(u32::MAX);
                }
                Some(Number::Unsigned(level)) => self.priority = level.try_into().unwrap_or(u32::MAX),
                _ => return Err(wrong_type("int64_param or uint64_param")),
            },
            "sequence_id" | "sequence_start" | "sequence_end" => {
                let value = match value {
                    Some(Number::Unsigned(id)) if key == "sequence_id" => {
                        Sequence::of(&mut self.sequence).id = SequenceId::Number(id);
                        return Ok(());
                    }
                    Some(Number::Of(value)) => value,
                    // Of no kind that one of them has.
                    Some(Number::Unsigned(_)) | None => Parameter::Double(0.0),
                };
                Sequence::read(&mut self.sequence, key, &value)?;
            }
            EMPTY_FINAL => match value {
                Some(Number::Of(Parameter::Bool(wanted))) => self.tells_end = wanted,
                _ => return Err(wrong_type("bool_param")),
            },
            _ if key.starts_with("triton_") => {
                let text = "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.";
                return Err(Error::invalid(text));
            }
            _ => {
                let value = match value {
                    Some(Number::Of(value)) => value,
                    Some(Number::Unsigned(value)) => Parameter::Int(value.try_into().map_err(|_| {
                        Error::invalid(format!(
                            "parameter '{key}' is {value}, at most {} is possible",
                            i64::MAX
                        ))
                    })?),
                    None => return Err(Error::invalid(format!("parameter '{key}' has no value"))),
                };
                if self.parameters.len() == MAX_PARAMETERS {
                    let text =
                        format!("request has more parameters than {MAX_PARAMETERS}, which is the most");
                    return Err(Error::invalid(text));
                }
                self.parameters.push((key.into(), value));
            }
        }
        Ok(())
    }
}

fn unreadable(error: WireError) -> Error {
    Error::invalid(format!("failed to parse the request: {error}"))
}

fn too_many_tensors() -> Error {
    Error::invalid(format!("request has more inputs and outputs than {MAX_TENSORS}, which is the most"))
}

/// Numbers of the protocol that a [`Parameter`] may have no room for.
enum Number {
    Of(Parameter),
    Unsigned(u64),
}

fn parameter<'a>(entry: Value<'a>, room: &mut Room) -> Result<(&'a str, Option<Number>), WireError> {
    let (mut key, mut found) = ("", None);
    let mut fields = Fields::new(entry.bytes()?);
    while let Some((field, value)) = fields.next_field()? {
        room.take()?;
        match field {
            1 => key = value.text()?,
            2 => {
                let mut choices = Fields::new(value.bytes()?);
                while let Some((choice, value)) = choices.next_field()? {
                    room.take()?;
                    found = match choice {
                        1 => Some(Number::Of(Parameter::Bool(value.varint()? != 0))),
                        2 => Some(Number::Of(Parameter::Int(value.varint()? as i64))),
                        3 => Some(Number::Of(Parameter::String(value.text()?.into()))),
                        4 => Some(Number::Of(Parameter::Double(value.double()?))),
                        5 => Some(Number::Unsigned(value.varint()?)),
                        _ => found,
                    };
                }
            }
            _ => {}
        }
    }
    Ok((key, found))
}

fn input<'a>(value: Value<'a>, room: &mut Room) -> Result<Input<'a>, Error> {
    let mut input = Input::default();
    let mut fields = Fields::new(value.bytes().map_err(unreadable)?);
    while let Some((field, value)) = fields.next_field().map_err(unreadable)? {
        room.take().map_err(unreadable)?;
        match field {
            1 => input.name = value.text().map_err(unreadable)?,
            2 => input.datatype = value.text().map_err(unreadable)?,
            3 => {
                let shape = &mut input.shape;
                let mut excess = false;
                let read = value.varints(|dim| {
                    if shape.len() == MAX_DIMENSIONS {
                        excess = true;
                        return Err(TOO_MANY_FIELDS);
                    }
                    shape.push(dim as i64);
                    Ok(())
                });
                if excess {
                    let text = format!(
                        "input '{}' has more dimensions than {MAX_DIMENSIONS}, which is the most",
                        input.name
                    );
                    return Err(Error::invalid(text));
                }
                read.map_err(unreadable)?;
            }
            4 => input.region.read(parameter(value, room).map_err(unreadable)?)?,
            5 => input.contents = Some(value.bytes().map_err(unreadable)?),
            1001 => input.slot = Some(slot_range(value, room).map_err(unreadable)?),
            _ => {}
        }
    }
    Ok(input)
}

fn output<'a>(value: Value<'a>, room: &mut Room) -> Result<Output<'a>, Error> {
    let mut output = Output::default();
    let mut fields = Fields::new(value.bytes().map_err(unreadable)?);
    while let Some((field, value)) = fields.next_field().map_err(unreadable)? {
        room.take().map_err(unreadable)?;
        match field {
            1 => output.name = value.text().map_err(unreadable)?,
            2 => match parameter(value, room).map_err(unreadable)? {
                (key, value) if key != "classification" => output.region.read((key, value))?,
                ("classification", Some(Number::Of(Parameter::Int(count)))) => {
                    let text = "invalid value for 'classification' parameter, expected >= 1";
                    let count = usize::try_from(count).ok().filter(|&count| count > 0);
                    output.classes = count.ok_or_else(|| Error::invalid(text))?;
                }
                _ => {
                    let text = "invalid value type for 'classification' parameter, expected int64_param";
                    return Err(Error::invalid(text));
                }
            },
            _ => {}
        }
    }
    Ok(output)
}

fn slot_range(value: Value<'_>, room: &mut Room) -> Result<SlotRange, WireError> {
    let mut range = SlotRange::default();
    let mut fields = Fields::new(value.bytes()?);
    while let Some((field, value)) = fields.next_field()? {
        room.take()?;
        match field {
            1 => range.slot = value.varint()?,
            2 => range.offset = value.varint()?,
            3 => range.length = value.varint()?,
            _ => {}
        }
    }
    Ok(range)
}
