//! The least whole number divided by -1 has no result. NumPy and other processors answer the least one again, with a
//! remainder of 0; on x86-64 the instruction ends the process. Engines divide what clients send, so it answers the same
//! here: the signal is caught, and the thread goes on behind the instruction.

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::OnceLock;

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

/// What was to be done with the signal before.
static BEFORE: OnceLock<sigaction> = OnceLock::new();

/// From now on such a division has a result, in all threads. It is enough to call it once.
pub fn survive_divisions() {
    BEFORE.get_or_init(|| {
        // SAFETY: all fields are plain numbers, for which zero is a value.
        let (mut ours, mut before): (sigaction, sigaction) = unsafe { (mem::zeroed(), mem::zeroed()) };
        let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_signal;
        ours.sa_sigaction = handler as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: both are whole; the handler does nothing that a handler may not do.
        let failed = unsafe { libc::sigaction(libc::SIGFPE, &raw const ours, &raw mut before) } != 0;
        if failed {
            log::debug!("the least number divided by -1 ends the process: no handler can be set");
        }
        before
    });
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
    let before = BEFORE.get().unwrap_or(&usual);
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
    let (rax, rdx) = (registers[REG_RAX as usize], registers[REG_RDX as usize]);
    let is_least = if division.is_long {
        rax == i64::MIN && rdx == -1
    } else {
        rax as i32 == i32::MIN && rdx as i32 == -1
    };
    if !is_least || division.divisor != -1 {
        return false;
    }
    if !division.is_long {
        registers[REG_RAX as usize] = i64::from(i32::MIN as u32);
    }
    registers[REG_RDX as usize] = 0;
    registers[REG_RIP as usize] += division.length as i64;
    true
}

/// The instruction `idiv` of 32 or 64 bits.
#[derive(Debug, PartialEq, Eq)]
struct Division {
    is_long: bool,
    divisor: i64,
    length: usize,
}

impl Division {
    /// # Safety
    /// An instruction begins at `start`, and what it reads can be read.
    unsafe fn at(start: *const u8, registers: &Registers) -> Option<Self> {
        // SAFETY: no more is read than the instruction has.
        let byte = |at: usize| unsafe { *start.add(at) };
        let (rex, opcode_at) = if byte(0) & 0xf0 == 0x40 { (byte(0), 1) } else { (0, 0) };
        if byte(opcode_at) != 0xf7 {
            return None;
        }
        let (is_long, more) = (rex & 8 != 0, usize::from(rex & 1) << 3);
        let form = byte(opcode_at + 1);
        if form >> 3 & 7 != 7 {
            return None;
        }
        let (kind, low) = (form >> 6, usize::from(form & 7));
        let register = |number: usize| registers[NUMBERED[number] as usize];
        let mut at = opcode_at + 2;
        if kind == 3 {
            let value = register(low | more);
            let divisor = if is_long { value } else { i64::from(value as i32) };
            return Some(Self { is_long, divisor, length: at });
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
        let divisor = unsafe {
            if is_long {
                (address as *const i64).read_unaligned()
            } else {
                i64::from((address as *const i32).read_unaligned())
            }
        };
        Some(Self { is_long, divisor, length: at })
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
                asm!("xor ecx, ecx", "mov eax, 1", "cdq", "idiv ecx", out("eax") _, out("ecx") _, out("edx") _);
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
