//! Numbers, arrays and texts in a row of bytes, little-endian, as Treelite writes them.

/// Why a checkpoint cannot be read, in words.
pub(crate) type Fault = String;

pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

pub(crate) trait Number: Copy {
    const SIZE: usize;

    fn read(bytes: &[u8]) -> Self;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Number for $number {
            const SIZE: usize = size_of::<$number>();

            fn read(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().unwrap_or_default())
            }
        }
    )*};
}

numbers!(i8, u8, i32, u32, u64, f32, f64);

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn number<T: Number>(&mut self) -> Result<T, Fault> {
        self.take(T::SIZE).map(T::read)
    }

    pub fn array<T: Number>(&mut self) -> Result<Vec<T>, Fault> {
        let bytes = self.counted(T::SIZE)?;
        Ok(bytes.chunks_exact(T::SIZE).map(T::read).collect())
    }

    pub fn skip_array(&mut self, size: usize) -> Result<(), Fault> {
        self.counted(size).map(drop)
    }

    pub fn text(&mut self) -> Result<String, Fault> {
        let bytes = self.counted(1)?;
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    /// Fields of a later version: a name, and values of a size of their own.
    pub fn skip_fields(&mut self) -> Result<(), Fault> {
        let count: i32 = self.number()?;
        for _ in 0..count {
            self.skip_array(1)?;
            let size: u64 = self.number()?;
            self.skip_array(usize::try_from(size).map_err(|_| short())?)?;
        }
        Ok(())
    }

    fn counted(&mut self, size: usize) -> Result<&'a [u8], Fault> {
        let count: u64 = self.number()?;
        let count = usize::try_from(count).ok().and_then(|count| count.checked_mul(size));
        self.take(count.ok_or_else(short)?)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or_else(short)?;
        self.rest = rest;
        Ok(taken)
    }
}

fn short() -> Fault {
    "it ends too soon".into()
}
