//! How often there is each resource: as stated, or as often as an instance asks for it at most.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{Error, ErrorKind, InstanceRate};

/// How often there is a resource.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceCount {
    pub name: String,
    pub count: u64,
    /// On this device alone; `None`: on each.
    pub device: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// One for all devices.
    Global,
    Cpu,
    Gpu(u32),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Resource {
    pub(super) name: String,
    pub(super) place: Place,
}

/// What an instance executes with. Of a resource that it names twice, the last count holds, as in Triton.
pub(super) type Demand = BTreeMap<Resource, u64>;

pub(super) fn demand(rate: &InstanceRate) -> Demand {
    let place = |global| match rate.device {
        _ if global => Place::Global,
        Some(gpu) => Place::Gpu(gpu),
        None => Place::Cpu,
    };
    let resource = |name: &String, global| Resource { name: name.clone(), place: place(global) };
    rate.resources.iter().map(|one| (resource(&one.name, one.is_global), one.count)).collect()
}

/// How often there is each resource that is asked for.
pub(super) fn supply<'a>(
    stated: &[ResourceCount],
    demands: impl Iterator<Item = &'a Demand>,
) -> Result<BTreeMap<Resource, u64>, Error> {
    let mut supply: BTreeMap<Resource, u64> = BTreeMap::new();
    for (resource, &count) in demands.flatten() {
        let most = supply.entry(resource.clone()).or_default();
        *most = count.max(*most);
    }
    if !stated.is_empty() {
        for (resource, most) in &mut supply {
            *most = limited(resource, stated, *most)?;
        }
    }
    let mut previous: Option<&Resource> = None;
    for resource in supply.keys() {
        // In order, a global one comes before others of its name.
        if previous.is_some_and(|one| one.name == resource.name && one.place == Place::Global) {
            return Err(invalid(format!(
                "Resource \"{}\" is present as both global and device-specific resource in the model configuration.",
                resource.name
            )));
        }
        previous = Some(resource);
    }
    Ok(supply)
}

fn limited(resource: &Resource, stated: &[ResourceCount], needed: u64) -> Result<u64, Error> {
    let is_here = |one: &&ResourceCount| {
        one.name == resource.name
            && match (resource.place, one.device) {
                (Place::Global, _) | (_, None) => true,
                // Triton has no device of its own for the CPU: it is device 0.
                (Place::Cpu, Some(device)) => device == 0,
                (Place::Gpu(gpu), Some(device)) => device == gpu,
            }
    };
    let count = stated.iter().filter(is_here).map(|one| one.count).max().unwrap_or(0);
    if count < needed {
        return Err(invalid(format!(
            "Resource count for \"{}\" is limited to {count} which will prevent scheduling of one or more model \
             instances, the minimum required count is {needed}",
            resource.name
        )));
    }
    Ok(count)
}

fn invalid(text: String) -> Error {
    Error::new(ErrorKind::ConfigInvalid, text)
}
