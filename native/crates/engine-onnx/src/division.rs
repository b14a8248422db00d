//! The least whole number divided by -1 has no result, nor has a number divided by zero. Other processors answer the least
//! number again and 0, with what is left over; on x86-64 the instruction ends the process. Engines divide what clients
//! send, and not all of them look at it first, so x86-64 answers the same here: the signal is caught, and the thread goes
//! on behind the instruction.

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use libc::{
    REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RAX, REG_RBP, REG_RBX, REG_RCX,
    REG_RDI, REG_RDX, REG_RIP, REG_RSI, REG_RSP, greg_t, sigaction, siginfo_t, ucontext_t,
};

/// Registers in the order in which instructions number them.
const NUMBERED: [c_int; 16] = [
    REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI, REG_R8, REG_R9, REG_R10, REG_R11,
    REG_R12, REG_R13, REG_R14, REG_R15,
];
/// Of the kernel: a whole number was divided.
const DIVIDED: c_int = 1;

type Registers = [greg_t];

/// Somebody who had the signal before, and passes it to us in turn, gets it no more often.
const MOST_PASSED: u32 = 100;

/// What was to be done with the signal before. It is never freed: a handler may be reading it.
static BEFORE: AtomicPtr<sigaction> = AtomicPtr::new(ptr::null_mut());
static PASSED: AtomicU32 = AtomicU32::new(0);

/// From now on such a division has a result, in all threads, until somebody else sets a handler: call it again behind
/// whatever may do that.
pub fn survive_divisions() {
    let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_signal;
    // SAFETY: all fields are plain numbers, for which zero is a value.
    let (mut ours, mut before): (sigaction, sigaction) = unsafe { (mem::zeroed(), mem::zeroed()) };
    // SAFETY: nothing is set, and `before` is whole.
    let asked = unsafe { libc::sigaction(libc::SIGFPE, ptr::null(), &raw mut before) };
    if asked == 0 && before.sa_sigaction == handler as usize {
        return;
    }
    ours.sa_sigaction = handler as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    BEFORE.store(Box::into_raw(Box::new(before)), Ordering::Release);
    // SAFETY: `ours` is whole; the handler does nothing that a handler may not do.
    if asked != 0 || unsafe { libc::sigaction(libc::SIGFPE, &raw const ours, ptr::null_mut()) } != 0 {
        log::debug!("a division without a result ends the process: no handler can be set");
    }
}

extern "C" fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives what a handler with SA_SIGINFO is promised, and the registers are those of the
    // instruction that has failed.
    unsafe {
        let registers = &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs;
        if (*info).si_code == DIVIDED && step_over(registers) {
            return;
        }
        pass_on(signal, info, context);
    }
}

/// To whoever had the signal before; nobody: it ends the process.
///
/// # Safety
/// Within a handler of that signal, with its arguments.
unsafe fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: zero is a value of its fields, and means the system's own way.
    let usual: sigaction = unsafe { mem::zeroed() };
    let passed = PASSED.fetch_add(1, Ordering::Relaxed);
    // SAFETY: it is null, or was leaked for this.
    let before = unsafe { BEFORE.load(Ordering::Acquire).as_ref() };
    let before = before.filter(|_| passed < MOST_PASSED).unwrap_or(&usual);
    match before.sa_sigaction {
        // One that somebody has sent; the system does not let an instruction be ignored.
        // SAFETY: as of this function.
        libc::SIG_IGN if unsafe { (*info).si_code } <= 0 => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: as in `survive_divisions`; the signal comes when the handler has returned.
            unsafe {
                libc::sigaction(signal, &raw const usual, ptr::null_mut());
                libc::raise(signal);
            }
        }
        address if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: it was set as a function of this kind.
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                unsafe { mem::transmute(address) };
            handler(signal, info, context);
        }
        address => {
            // SAFETY: it was set as a function of this kind.
            let handler: extern "C" fn(c_int) = unsafe { mem::transmute(address) };
            handler(signal);
        }
    }
}

/// Whether the thread was at such a division. Then it has a result and stands behind it.
///
/// # Safety
/// `registers` are those of an instruction that was just tried: what it reads can be read.
unsafe fn step_over(registers: &mut Registers) -> bool {
    let start = registers[REG_RIP as usize] as *const u8;
    // SAFETY: as of this function.
    let Some(division) = (unsafe { Division::at(start, registers) }) else { return false };
    let (low, high) = division.dividend(registers);
    let width = division.width;
    let (quotient, rest) = match division.divisor {
        0 => (0, low),
        -1 if division.is_signed && low == width.least() && high == -1 => (low, 0),
        _ => return false,
    };
    if width == Width::Byte {
        // Both halves lie in one register.
        width.put(&mut registers[REG_RAX as usize], quotient);
        Width::put_second(&mut registers[REG_RAX as usize], rest);
    } else {
        width.put(&mut registers[REG_RAX as usize], quotient);
        width.put(&mut registers[REG_RDX as usize], rest);
    }
    registers[REG_RIP as usize] += division.length as i64;
    true
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Width {
    Byte,
    Word,
    Short,
    Long,
}

impl Width {
    /// The number that these bits of a value are.
    fn of(self, value: i64) -> i64 {
        match self {
            Self::Byte => i64::from(value as i8),
            Self::Word => i64::from(value as i16),
            Self::Short => i64::from(value as i32),
            Self::Long => value,
        }
    }

    fn least(self) -> i64 {
        match self {
            Self::Byte => i64::from(i8::MIN),
            Self::Word => i64::from(i16::MIN),
            Self::Short => i64::from(i32::MIN),
            Self::Long => i64::MIN,
        }
    }

    /// As an instruction of this width writes a register: that of 32 bits clears the rest, narrower ones leave it.
    fn put(self, register: &mut greg_t, value: i64) {
        *register = match self {
            Self::Byte => *register & !0xff | value & 0xff,
            Self::Word => *register & !0xffff | value & 0xffff,
            Self::Short => i64::from(value as u32),
            Self::Long => value,
        }
    }

    /// The second byte of a register.
    fn put_second(register: &mut greg_t, value: i64) {
        *register = *register & !0xff00 | (value & 0xff) << 8;
    }

    /// # Safety
    /// So many bytes can be read there.
    unsafe fn read(self, address: i64) -> i64 {
        // SAFETY: as of this function.
        unsafe {
            match self {
                Self::Byte => i64::from((address as *const i8).read()),
                Self::Word => i64::from((address as *const i16).read_unaligned()),
                Self::Short => i64::from((address as *const i32).read_unaligned()),
                Self::Long => (address as *const i64).read_unaligned(),
            }
        }
    }
}

/// The instruction `div` or `idiv`.
#[derive(Debug, PartialEq, Eq)]
struct Division {
    width: Width,
    is_signed: bool,
    divisor: i64,
    length: usize,
}

impl Division {
    /// # Safety
    /// An instruction begins at `start`, and what it reads can be read.
    unsafe fn at(start: *const u8, registers: &Registers) -> Option<Self> {
        // SAFETY: no more is read than the instruction has.
        let byte = |at: usize| unsafe { *start.add(at) };
        let is_word = byte(0) == 0x66;
        let mut at = usize::from(is_word);
        let rex = if byte(at) & 0xf0 == 0x40 { byte(at) } else { 0 };
        at += usize::from(rex != 0);
        let width = match byte(at) {
            0xf6 => Width::Byte,
            0xf7 if rex & 8 != 0 => Width::Long,
            0xf7 if is_word => Width::Word,
            0xf7 => Width::Short,
            _ => return None,
        };
        let more = usize::from(rex & 1) << 3;
        let form = byte(at + 1);
        let is_signed = match form >> 3 & 7 {
            6 => false,
            7 => true,
            _ => return None,
        };
        let (kind, low) = (form >> 6, usize::from(form & 7));
        let register = |number: usize| registers[NUMBERED[number] as usize];
        at += 2;
        if kind == 3 {
            // Of single bytes, without that prefix, these numbers are the second bytes of the first four registers.
            let value = if width == Width::Byte && rex == 0 && low > 3 {
                register(low - 4) >> 8
            } else {
                register(low | more)
            };
            return Some(Self { width, is_signed, divisor: width.of(value), length: at });
        }
        let mut base = Some(low | more);
        let mut address = 0_i64;
        if low == 4 {
            let scaled = byte(at);
            at += 1;
            let index = usize::from(scaled >> 3 & 7) | usize::from(rex & 2) << 2;
            // This number means that there is none.
            if index != 4 {
                address = register(index) << (scaled >> 6);
            }
            base = Some(usize::from(scaled & 7) | more);
        }
        let has_no_base = kind == 0 && base.is_some_and(|base| base & 7 == 5);
        let is_relative = has_no_base && low != 4;
        if has_no_base {
            base = None;
        }
        let offset_bytes = match kind {
            1 => 1,
            2 => 4,
            _ if has_no_base => 4,
            _ => 0,
        };
        let offset = match offset_bytes {
            1 => i64::from(byte(at) as i8),
            4 => i64::from(i32::from_le_bytes([byte(at), byte(at + 1), byte(at + 2), byte(at + 3)])),
            _ => 0,
        };
        at += offset_bytes;
        address = address.wrapping_add(offset).wrapping_add(base.map_or(0, register));
        if is_relative {
            address = address.wrapping_add(start as i64 + at as i64);
        }
        // SAFETY: the instruction has read it.
        let divisor = unsafe { width.read(address) };
        Some(Self { width, is_signed, divisor, length: at })
    }

    /// The lower and the higher half of what is divided.
    fn dividend(&self, registers: &Registers) -> (i64, i64) {
        let rax = registers[REG_RAX as usize];
        let high = if self.width == Width::Byte { rax >> 8 } else { registers[REG_RDX as usize] };
        (self.width.of(rax), self.width.of(high))
    }
}

#[cfg(test)]
mod tests {
    use std::arch::asm;
    use std::process::Command;

    use super::*;

    macro_rules! divided {
        ($kind:ty, $high:tt, $low:tt, $instruction:tt $(, $name:ident = $value:expr)*) => {{
            let (mut low, mut high) = (<$kind>::MIN, -1 as $kind);
            // SAFETY: the division reads nothing but its operands.
            unsafe {
asm!($instruction, $($name = in(reg) $value,)* inout($low) low, inout($high) high);
            }
            assert_eq!((low, high), (<$kind>::MIN, 0), "{}", $instruction);
        }};
    }

    #[test]
    fn the_least_number_by_minus_one_is_the_least_number_whatever_the_divisor_lies_in() {
        survive_divisions();
        let (short, long) = ([7, -1, 7_i32], [7, -1, 7_i64]);
        divided!(i32, "edx", "eax", "idiv {d:e}", d = -1_i32);
        divided!(i64, "rdx", "rax", "idiv {d}", d = -1_i64);
        divided!(i32, "edx", "eax", "idiv dword ptr [{p}]", p = &raw const short[1]);
        divided!(i64, "rdx", "rax", "idiv qword ptr [{p}]", p = &raw const long[1]);
        divided!(i32, "edx", "eax", "idiv dword ptr [{p} + 4]", p = &raw const short);
        divided!(i64, "rdx", "rax", "idiv qword ptr [{p} + 8]", p = &raw const long);
        divided!(i64, "rdx", "rax", "idiv qword ptr [{p} + 4096]", p = (&raw const long[1] as usize) - 4096);
        divided!(i32, "edx", "eax", "idiv dword ptr [{p} + {i} * 4]", p = &raw const short, i = 1_usize);
        divided!(i64, "rdx", "rax", "idiv qword ptr [{p} + {i} * 8 - 16]", p = &raw const long, i = 3_usize);
        divided!(
            i64,
            "rdx",
            "rax",
            "idiv qword ptr [{i} * 8 + 64]",
            i = ((&raw const long[1] as usize) - 64) / 8
        );
    }

    #[test]
    fn a_division_by_zero_is_zero_and_leaves_the_number_over_at_each_width() {
        survive_divisions();
        let (mut low, mut high) = (7_i64, 0_i64);
        // SAFETY: the divisions read nothing but registers.
        unsafe {
            asm!("idiv {d}", d = in(reg) 0_i64, inout("rax") low, inout("rdx") high);
            assert_eq!((low, high), (0, 7));
            (low, high) = (-7, -1);
            asm!("idiv {d:e}", d = in(reg) 0_i64, inout("rax") low, inout("rdx") high);
            assert_eq!((low, high), (0, i64::from(-7_i32 as u32)));
            (low, high) = (7, 0);
            asm!("div {d}", d = in(reg) 0_i64, inout("rax") low, inout("rdx") high);
            assert_eq!((low, high), (0, 7));
            (low, high) = (0x5_0007, 0x6_0000);
            asm!("idiv {d:x}", d = in(reg) 0_i64, inout("rax") low, inout("rdx") high);
            assert_eq!((low, high), (0x5_0000, 0x6_0007));
            low = 0x5_0007;
            asm!("idiv {d}", d = in(reg_byte) 0_i8, inout("rax") low);
            assert_eq!(low, 0x5_0700);
            low = 0x5_0007;
            asm!("xor ecx, ecx", "div ch", inout("rax") low, out("rcx") _);
            assert_eq!(low, 0x5_0700);
            low = 0xff80;
            asm!("idiv {d}", d = in(reg_byte) -1_i8, inout("rax") low);
            assert_eq!(low, 0x80);
            (low, high) = (0x8000, 0xffff);
            asm!("idiv {d:x}", d = in(reg) -1_i64, inout("rax") low, inout("rdx") high);
            assert_eq!((low, high), (0x8000, 0));
        }
    }

    static MINUS_ONE: i64 = -1;

    #[test]
    fn so_it_is_in_registers_and_places_of_their_own() {
        survive_divisions();
        let (mut high_register, mut stack, mut frame, mut global) = (i32::MIN, i64::MIN, i64::MIN, i64::MIN);
        // SAFETY: the divisions read nothing but their operands; what is pushed is popped.
        unsafe {
            asm!("mov r13d, -1", "cdq", "idiv r13d", inout("eax") high_register, out("edx") _, out("r13") _);
            asm!("push -1", "cqo", "idiv qword ptr [rsp]", "add rsp, 8", inout("rax") stack, out("rdx") _);
            asm!(
                "push rbp", "push -1", "mov rbp, rsp", "cqo", "idiv qword ptr [rbp]", "add rsp, 8", "pop rbp",
                inout("rax") frame, out("rdx") _
            );
            asm!("cqo", "idiv qword ptr [rip + {d}]", d = sym MINUS_ONE, inout("rax") global, out("rdx") _);
        }
        assert_eq!((high_register, stack, frame, global), (i32::MIN, i64::MIN, i64::MIN, i64::MIN));
    }

    /// In a process of its own: this test alone, told by a variable what to do.
    #[test]
    fn what_else_fails_in_a_division_ends_the_process_as_before() {
        const ASKED: &str = "KUSHI_TEST_DIVISION";
        if std::env::var_os(ASKED).is_some() {
            survive_divisions();
            // SAFETY: it ends the process.
            unsafe {
                asm!("mov ecx, 1", "xor eax, eax", "mov edx, 5", "idiv ecx", out("eax") _, out("ecx") _, out("edx") _);
            }
        }
        let this = "division::tests::what_else_fails_in_a_division_ends_the_process_as_before";
        let command = std::env::current_exe().unwrap();
        let ended = Command::new(command)
            .args(["--exact", this])
            .env(ASKED, "1")
            .env("ASAN_OPTIONS", "handle_sigfpe=0")
            .output()
            .unwrap()
            .status;
        let signal = std::os::unix::process::ExitStatusExt::signal(&ended);
        assert_eq!(signal, Some(libc::SIGFPE));
    }
}
