//! The models that serve, as clients of OpenAI's API list them.

use std::collections::BTreeMap;

use kushi_core::{Error, ErrorKind};
use kushi_dataplane::DataPlane;
use kushi_oip::json::write;

use super::failure;
use crate::answer::{self, HttpAnswer};

/// What `owned_by` says; OpenAI writes its own name there.
const OWNER: &str = "kushi";

/// All of them, or the one of this name.
pub(super) fn answer(plane: &DataPlane, name: Option<&str>) -> HttpAnswer {
    let mut models = BTreeMap::<String, u64>::new();
    for runner in plane.registry.runners() {
        let since = models.entry(runner.spec().name.clone()).or_default();
        *since = runner.started_at().max(*since);
    }
    let mut out = Vec::new();
    match name {
        None => {
            out.extend_from_slice(b"{\"object\":\"list\",\"data\":[");
            for (at, (name, since)) in models.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                model(&mut out, name, *since);
            }
            out.extend_from_slice(b"]}");
        }
        Some(name) => match models.get(name) {
            Some(since) => model(&mut out, name, *since),
            None => {
                let text = format!("no model '{name}' serves");
                return failure::answer(&Error::new(ErrorKind::ModelNotFound, text));
            }
        },
    }
    answer::json(200, out)
}

fn model(out: &mut Vec<u8>, name: &str, since: u64) {
    out.extend_from_slice(b"{\"id\":");
    write::string(out, name.as_bytes());
    out.extend_from_slice(b",\"object\":\"model\",\"created\":");
    write::integer(out, since);
    out.extend_from_slice(b",\"owned_by\":");
    write::string(out, OWNER.as_bytes());
    out.push(b'}');
}
