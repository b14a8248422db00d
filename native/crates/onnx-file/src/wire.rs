//! Protobuf's bytes: fields one after the other, of which only what is asked for is read.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};

use crate::MOST_DEPTH;

pub(crate) struct Reader<R> {
    inner: BufReader<R>,
    position: u64,
}

/// One whose content is there has a length, and ends at `position + length`.
pub(crate) struct Field {
    pub number: u32,
    pub length: Option<u64>,
}

const VARINT: u32 = 0;
const EIGHT_BYTES: u32 = 1;
const LENGTH: u32 = 2;
const GROUP: u32 = 3;
const GROUP_END: u32 = 4;
const FOUR_BYTES: u32 = 5;

impl<R: Read + Seek> Reader<R> {
    /// The reader, and how much there is.
    pub fn new(mut file: R) -> io::Result<(Self, u64)> {
        let length = file.seek(SeekFrom::End(0))?;
        file.rewind()?;
        Ok((Self { inner: BufReader::new(file), position: 0 }, length))
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next field of a message that ends at `end`. Of one without a length the content is behind it already.
    pub fn field(&mut self, end: u64) -> io::Result<Option<Field>> {
        if self.position >= end {
            return Ok(None);
        }
        let (number, form) = self.tag(end)?;
        let length = match form {
            LENGTH => Some(self.length(end)?),
            _ => self.pass(form, number, end, 0).map(|()| None)?,
        };
        Ok(Some(Field { number, length }))
    }

    pub fn skip(&mut self, count: u64) -> io::Result<()> {
        self.position += count;
        self.inner.seek_relative(i64::try_from(count).map_err(|_| unreadable())?)
    }

    /// The first bytes of a content of that length, at most so many; all of it is behind the reader then.
    pub fn take(&mut self, length: u64, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let taken = length.min(most);
        self.inner.by_ref().take(taken).read_to_end(&mut bytes)?;
        self.position += taken;
        self.skip(length - taken)?;
        Ok(bytes)
    }

    fn length(&mut self, end: u64) -> io::Result<u64> {
        let length = self.varint(end)?;
        if length > end - self.position { Err(unreadable()) } else { Ok(length) }
    }

    fn pass(&mut self, form: u32, number: u32, end: u64, depth: usize) -> io::Result<()> {
        let count = match form {
            VARINT => return self.varint(end).map(drop),
            GROUP => return self.group(number, end, depth),
            EIGHT_BYTES => 8,
            FOUR_BYTES => 4,
            LENGTH => self.length(end)?,
            _ => return Err(unreadable()),
        };
        if count > end - self.position { Err(unreadable()) } else { self.skip(count) }
    }

    /// Fields up to the end of the group, which has its number.
    fn group(&mut self, number: u32, end: u64, depth: usize) -> io::Result<()> {
        if depth > MOST_DEPTH {
            return Err(unreadable());
        }
        loop {
            let (inner, form) = self.tag(end)?;
            if form == GROUP_END {
                return if inner == number { Ok(()) } else { Err(unreadable()) };
            }
            self.pass(form, inner, end, depth + 1)?;
        }
    }

    /// The number and the form of a field. In protobuf they have 32 bits, and what is written beyond them is lost.
    fn tag(&mut self, end: u64) -> io::Result<(u32, u32)> {
        let tag = self.number(end, 5)? as u32;
        // As of a file of zeros.
        if tag >> 3 == 0 { Err(unreadable()) } else { Ok((tag >> 3, tag & 7)) }
    }

    fn varint(&mut self, end: u64) -> io::Result<u64> {
        self.number(end, 10)
    }

    fn number(&mut self, end: u64, most_bytes: u32) -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..most_bytes).map(|place| 7 * place) {
            if self.position >= end {
                break;
            }
            let byte = *self.inner.fill_buf()?.first().ok_or_else(unreadable)?;
            self.inner.consume(1);
            self.position += 1;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(unreadable())
    }
}

pub(crate) fn unreadable() -> io::Error {
    ErrorKind::InvalidData.into()
}
