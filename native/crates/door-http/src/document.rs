//! The first pass over a request's JSON: checks it, and remembers where the members lie that matter.

use kushi_oip::json::{Fault, Key, Scanner, Span};

use crate::limits::HttpLimits;

/// More than this are rare in one list.
const USUAL_TENSORS: usize = 4;

/// The members that matter, by their place in the document; the first of a name counts.
#[derive(Default)]
pub(crate) struct Document {
    pub id: Option<Span>,
    pub parameters: Option<Span>,
    pub inputs: Option<List<InputSpans>>,
    pub outputs: Option<List<OutputSpans>>,
    pub tensors: usize,
}

pub(crate) enum List<T> {
    Items(Vec<T>),
    NotAnArray,
}

#[derive(Default)]
pub(crate) struct InputSpans {
    pub name: Option<Span>,
    pub datatype: Option<Span>,
    pub shape: Option<Span>,
    pub data: Option<Span>,
    pub binary_data_size: Option<Span>,
    pub region: RegionSpans,
}

#[derive(Default)]
pub(crate) struct OutputSpans {
    pub name: Option<Span>,
    pub binary_data: Option<Span>,
    pub classification: Option<Span>,
    pub region: RegionSpans,
}

/// The parameters that place a tensor in shared memory.
#[derive(Default)]
pub(crate) struct RegionSpans {
    pub name: Option<Span>,
    pub offset: Option<Span>,
    pub byte_size: Option<Span>,
}

impl RegionSpans {
    /// Where the value of the parameter `key` goes; `None` for another parameter.
    fn place(&mut self, key: Key<'_>) -> Option<&mut Option<Span>> {
        match () {
            () if key.is("shared_memory_region") => Some(&mut self.name),
            () if key.is("shared_memory_offset") => Some(&mut self.offset),
            () if key.is("shared_memory_byte_size") => Some(&mut self.byte_size),
            () => None,
        }
    }
}

/// Checks the whole document, and refuses what is no JSON at the offset that RapidJSON names.
pub(crate) fn scan(json: &[u8], limits: &HttpLimits) -> Result<Document, Fault> {
    let most = limits.max_tensors;
    let mut document = Document::default();
    Scanner::with_depth(json, limits.max_json_depth).document(|scanner| {
        if !scanner.is_object() {
            return scanner.skip().map(drop);
        }
        scanner.object(|scanner, key| {
            let Document { id, parameters, inputs, outputs, tensors } = &mut document;
            if key.is("inputs") && inputs.is_none() {
                *inputs = Some(scan_list(scanner, tensors, most, scan_input)?);
            } else if key.is("outputs") && outputs.is_none() {
                *outputs = Some(scan_list(scanner, tensors, most, scan_output)?);
            } else if key.is("id") {
                keep(id, scanner)?;
            } else if key.is("parameters") {
                keep(parameters, scanner)?;
            } else {
                scanner.skip()?;
            }
            Ok(())
        })
    })?;
    Ok(document)
}

/// Passes over one value, and remembers where it lies if that matters.
fn keep<'a>(place: impl Into<Option<&'a mut Option<Span>>>, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
    let span = scanner.skip()?;
    if let Some(place) = place.into() {
        place.get_or_insert(span);
    }
    Ok(())
}

fn scan_list<T: Default>(
    scanner: &mut Scanner<'_>,
    tensors: &mut usize,
    most: usize,
    mut item: impl FnMut(&mut Scanner<'_>, &mut T) -> Result<(), Fault>,
) -> Result<List<T>, Fault> {
    if !scanner.is_array() {
        scanner.skip()?;
        return Ok(List::NotAnArray);
    }
    let mut items = Vec::with_capacity(USUAL_TENSORS);
    scanner.array(|scanner| {
        *tensors += 1;
        if *tensors > most {
            return scanner.skip().map(drop);
        }
        items.push(T::default());
        items.last_mut().map_or(Ok(()), |spans| item(scanner, spans))
    })?;
    Ok(List::Items(items))
}

fn scan_input(scanner: &mut Scanner<'_>, spans: &mut InputSpans) -> Result<(), Fault> {
    if !scanner.is_object() {
        return scanner.skip().map(drop);
    }
    let mut seen_parameters = false;
    scanner.object(|scanner, key| {
        let place = if key.is("name") {
            &mut spans.name
        } else if key.is("shape") {
            &mut spans.shape
        } else if key.is("datatype") {
            &mut spans.datatype
        } else if key.is("data") {
            &mut spans.data
        } else if key.is("parameters") && !seen_parameters && scanner.is_object() {
            seen_parameters = true;
            return scanner.object(|scanner, key| {
                let place = match () {
                    () if key.is("binary_data_size") => Some(&mut spans.binary_data_size),
                    () => spans.region.place(key),
                };
                keep(place, scanner)
            });
        } else {
            return scanner.skip().map(drop);
        };
        keep(place, scanner)
    })
}

fn scan_output(scanner: &mut Scanner<'_>, spans: &mut OutputSpans) -> Result<(), Fault> {
    if !scanner.is_object() {
        return scanner.skip().map(drop);
    }
    scanner.object(|scanner, key| {
        if key.is("name") {
            return keep(&mut spans.name, scanner);
        }
        if !key.is("parameters") || !scanner.is_object() {
            return scanner.skip().map(drop);
        }
        scanner.object(|scanner, key| {
            let place = match () {
                () if key.is("binary_data") => Some(&mut spans.binary_data),
                () if key.is("classification") => Some(&mut spans.classification),
                () => spans.region.place(key),
            };
            keep(place, scanner)
        })
    })
}
