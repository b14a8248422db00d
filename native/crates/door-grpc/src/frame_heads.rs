//! The heads of frames, read before HTTP/2 itself sees them: it answers pings without saying so.

const PREFACE_BYTES: usize = 24;
const HEAD_BYTES: usize = 9;
const ACK: u8 = 1;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const STREAM_BITS: u32 = u32::MAX >> 1;

/// Of a frame that belongs to no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    Ping,
    Settings,
    /// Room for answers.
    Window,
    Other,
}

pub(crate) struct FrameHeads {
    /// Bytes that are no head.
    skipped: usize,
    head: [u8; HEAD_BYTES],
    held: usize,
    /// The first frame has come.
    has_begun: bool,
    /// It was not the one that has to be the first.
    began_wrong: bool,
    /// The highest stream that a client has begun.
    last_stream: u32,
}

impl FrameHeads {
    pub(crate) fn new() -> Self {
        Self {
            skipped: PREFACE_BYTES,
            head: [0; HEAD_BYTES],
            held: 0,
            has_begun: false,
            began_wrong: false,
            last_stream: 0,
        }
    }

    /// The client does not begin as HTTP/2 does, which nobody else looks at.
    pub(crate) fn began_wrong(&self) -> bool {
        self.began_wrong
    }

    pub(crate) fn last_stream(&self) -> u32 {
        self.last_stream
    }

    /// Tells of each frame that belongs to no call, and answers nothing.
    pub(crate) fn read(&mut self, mut bytes: &[u8], mut tell: impl FnMut(Idle)) {
        while !bytes.is_empty() {
            let skipped = self.skipped.min(bytes.len());
            self.skipped -= skipped;
            bytes = &bytes[skipped..];
            let taken = (HEAD_BYTES - self.held).min(bytes.len());
            self.head[self.held..self.held + taken].copy_from_slice(&bytes[..taken]);
            self.held += taken;
            bytes = &bytes[taken..];
            if self.held == HEAD_BYTES {
                self.held = 0;
                let [high, middle, low, kind, flags, stream @ ..] = self.head;
                if !std::mem::replace(&mut self.has_begun, true) {
                    self.began_wrong = kind != SETTINGS || flags & ACK != 0;
                }
                if kind == HEADERS {
                    self.last_stream = self.last_stream.max(u32::from_be_bytes(stream) & STREAM_BITS);
                }
                self.skipped = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
                if let Some(idle) = idle(kind, flags) {
                    tell(idle);
                }
            }
        }
    }
}

fn idle(kind: u8, flags: u8) -> Option<Idle> {
    match kind {
        // DATA, HEADERS, RST_STREAM, GOAWAY, CONTINUATION
        0 | 1 | 3 | 7 | 9 => None,
        8 => Some(Idle::Window),
        // SETTINGS and PING that answer ours
        4 | 6 if flags & ACK != 0 => None,
        6 => Some(Idle::Ping),
        SETTINGS => Some(Idle::Settings),
        _ => Some(Idle::Other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: usize) -> Vec<u8> {
        let [.., high, middle, low] = length.to_be_bytes();
        let mut frame = vec![high, middle, low, kind, flags, 0, 0, 0, 0];
        // As if more heads followed.
        frame.extend(std::iter::repeat_n(6, length));
        frame
    }

    #[test]
    fn heads_are_found_however_the_bytes_are_cut() {
        let frames =
            [frame(4, 0, 18), frame(6, 0, 8), frame(6, ACK, 8), frame(1, 4, 300), frame(0, 1, 70_000)];
        let rest = [frame(2, 0, 5), frame(4, ACK, 0), frame(6, 0, 8)];
        let all = [vec![b'*'; PREFACE_BYTES], frames.concat(), rest.concat()].concat();
        for step in [1, 2, 7, 9, 24, 1000, all.len()] {
            let (mut heads, mut told) = (FrameHeads::new(), Vec::new());
            for piece in all.chunks(step) {
                heads.read(piece, |idle| told.push(idle));
            }
            assert_eq!(told, [Idle::Settings, Idle::Ping, Idle::Other, Idle::Ping], "{step}");
        }
    }

    #[test]
    fn the_first_frame_is_the_settings_of_the_client() {
        for (first, is_wrong) in [(frame(4, 0, 6), false), (frame(4, ACK, 0), true), (frame(6, 0, 8), true)] {
            let mut heads = FrameHeads::new();
            heads.read(&[vec![b'*'; PREFACE_BYTES], first, frame(1, 4, 3)].concat(), |_| {});
            assert_eq!(heads.began_wrong(), is_wrong);
        }
    }
}
