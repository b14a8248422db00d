//! Which provider computes which operators of a model, as ONNX Runtime records it for a session that asks.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char};
use std::ptr::null;
use std::slice;

use ort::sys::OrtSession;

use crate::status::{OrtFailure, check};

/// The session configuration that makes the record.
pub(crate) const RECORD: (&str, &str) = ("session.record_ep_graph_assignment_info", "1");

/// Operators by their types, each once.
#[derive(Default)]
pub(crate) struct Assignment {
    pub provider: BTreeSet<String>,
    pub others: BTreeSet<String>,
}

/// What the provider of this name computes, and what others do.
///
/// # Safety
/// The session is alive, and was made with [`RECORD`].
pub(crate) unsafe fn assignment(session: *const OrtSession, name: &CStr) -> Result<Assignment, OrtFailure> {
    let api = ort::api();
    let mut assignment = Assignment::default();
    let (mut parts, mut part_count) = (null(), 0);
    // SAFETY: the caller's contract; lists and names belong to the session, and are copied.
    unsafe {
        check((api.Session_GetEpGraphAssignmentInfo)(session, &raw mut parts, &raw mut part_count))?;
        for &part in list(parts, part_count) {
            let mut provider: *const c_char = null();
            check((api.EpAssignedSubgraph_GetEpName)(part, &raw mut provider))?;
            let (mut nodes, mut node_count) = (null(), 0);
            check((api.EpAssignedSubgraph_GetNodes)(part, &raw mut nodes, &raw mut node_count))?;
            for &node in list(nodes, node_count) {
                let mut operator: *const c_char = null();
                check((api.EpAssignedNode_GetOperatorType)(node, &raw mut operator))?;
                let operator = CStr::from_ptr(operator).to_string_lossy().into_owned();
                let ours = CStr::from_ptr(provider) == name;
                let side = if ours { &mut assignment.provider } else { &mut assignment.others };
                side.insert(operator);
            }
        }
    }
    Ok(assignment)
}

/// # Safety
/// There are `count` elements, which outlive what is made of them.
unsafe fn list<'a, T>(start: *const T, count: usize) -> &'a [T] {
    // SAFETY: the caller's contract; of an empty list there may be no start.
    if count == 0 { &[] } else { unsafe { slice::from_raw_parts(start, count) } }
}

#[cfg(test)]
mod tests {
    use std::ptr::null;

    use super::list;

    #[test]
    fn an_empty_list_needs_no_start() {
        let some = [1, 2];
        // SAFETY: the elements outlive what is made of them.
        let (none, both) = unsafe { (list::<u8>(null(), 0), list(some.as_ptr(), 2)) };
        assert_eq!((none, both), (&[][..], &some[..]));
    }
}
