//! The GPUs that are visible, read one after the other. One thread has them.

use crate::nvml::{Device, Nothing, Nvml, NvmlFailure};
use crate::visible::visible;

/// What one GPU said. `None`: it cannot say that.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    pub uuid: String,
    /// Of 1.0.
    pub utilization: Option<f64>,
    pub memory_total_bytes: Option<u64>,
    pub memory_used_bytes: Option<u64>,
    pub power_usage_watts: Option<f64>,
    pub power_limit_watts: Option<f64>,
    /// Since the first reading.
    pub energy_joules: Option<f64>,
}

pub(crate) struct Gpus {
    nvml: Nvml,
    gpus: Vec<Gpu>,
}

struct Gpu {
    uuid: String,
    device: Device,
    energy: Energy,
    complaints: Complaints,
}

impl Gpus {
    /// Answers why there are none.
    pub(crate) fn open(library: &str, list: Option<&str>) -> Result<Self, Nothing> {
        let nvml = Nvml::open(library)?;
        let count = nvml.count().map_err(|failure| format!("{library}: {failure}"))?;
        let found: Vec<_> = (0..count)
            .map(|index| {
                let ask = || nvml.device(index).and_then(|device| Ok((device, nvml.uuid(device)?)));
                ask().inspect_err(|failure| log::warn!("GPU {index} has no metrics: {failure}")).ok()
            })
            .collect();
        let uuids: Vec<_> = found.iter().map(|gpu| gpu.as_ref().map(|(_, uuid)| uuid.clone())).collect();
        let whole = |part: &str| nvml.whole(part).and_then(|device| nvml.uuid(device).ok());
        let gpus: Vec<_> = visible(list, &uuids, whole)
            .into_iter()
            .filter_map(|index| found[index].clone())
            .map(|(device, uuid)| Gpu {
                uuid,
                device,
                energy: Energy::default(),
                complaints: Complaints::default(),
            })
            .collect();
        if gpus.is_empty() {
            let why = match list {
                Some(list) if count > 0 => {
                    format!("none of {count} is visible with CUDA_VISIBLE_DEVICES={list:?}")
                }
                _ => "there is none".into(),
            };
            return Err(why.into());
        }
        Ok(Self { nvml, gpus })
    }

    pub(crate) fn read(&mut self) -> Vec<Reading> {
        let nvml = &self.nvml;
        self.gpus.iter_mut().map(|gpu| gpu.read(nvml)).collect()
    }
}

impl Gpu {
    fn read(&mut self, nvml: &Nvml) -> Reading {
        let Self { uuid, device, energy, complaints } = self;
        let mut told = Told { uuid, complaints };
        let watts = |milliwatts: u32| f64::from(milliwatts) / 1000.0;
        let memory = told.value("memory", nvml.memory(*device));
        Reading {
            utilization: told
                .value("utilization", nvml.utilization(*device))
                .map(|percent| f64::from(percent.gpu) / 100.0),
            memory_total_bytes: memory.as_ref().map(|memory| memory.total),
            memory_used_bytes: memory.as_ref().map(|memory| memory.used),
            power_usage_watts: told.value("power usage", nvml.power_milliwatts(*device)).map(watts),
            power_limit_watts: told.value("power limit", nvml.power_limit_milliwatts(*device)).map(watts),
            energy_joules: told
                .value("energy consumption", nvml.energy_millijoules(*device))
                .map(|millijoules| energy.grown_to(millijoules)),
            uuid: uuid.clone(),
        }
    }
}

/// What was said to be missing, which is not said again.
type Complaints = Vec<&'static str>;

struct Told<'a> {
    uuid: &'a str,
    complaints: &'a mut Complaints,
}

impl Told<'_> {
    fn value<T>(&mut self, what: &'static str, told: Result<T, NvmlFailure>) -> Option<T> {
        told.inspect_err(|failure| {
            if !self.complaints.contains(&what) {
                self.complaints.push(what);
                log::warn!("GPU {} does not tell its {what}: {failure}", self.uuid);
            }
        })
        .ok()
    }
}

#[derive(Default)]
struct Energy {
    last_millijoules: Option<u64>,
    sum_millijoules: u64,
}

impl Energy {
    /// Answers joules since the first reading. A driver that is loaded again counts from 0.
    fn grown_to(&mut self, millijoules: u64) -> f64 {
        let before = self.last_millijoules.replace(millijoules).unwrap_or(millijoules);
        self.sum_millijoules += millijoules.checked_sub(before).unwrap_or(millijoules);
        self.sum_millijoules as f64 / 1000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn energy_counts_from_the_first_reading() {
        let mut energy = Energy::default();
        let read: Vec<f64> = [7000, 7000, 8500, 9000].map(|now| energy.grown_to(now)).into();
        assert_eq!(read, [0.0, 0.0, 1.5, 2.0]);
    }

    #[test]
    fn energy_never_falls() {
        let mut energy = Energy::default();
        let read: Vec<f64> = [5000, 6000, 250, 1250].map(|now| energy.grown_to(now)).into();
        assert_eq!(read, [0.0, 1.0, 1.25, 2.25]);
    }

    #[test]
    fn what_a_gpu_cannot_tell_is_complained_about_once() {
        let mut complaints = Complaints::default();
        for _ in 0..3 {
            let mut told = Told { uuid: "GPU-a", complaints: &mut complaints };
            assert_eq!(told.value("power usage", Err::<u32, _>(NvmlFailure::default())), None);
            assert_eq!(told.value("memory", Ok(3)), Some(3));
        }
        assert_eq!(complaints, ["power usage"]);
    }

    #[test]
    fn a_library_that_is_not_there_is_named_and_usual() {
        let nothing = Gpus::open("libnvidia-ml-of-nowhere.so.1", None).err();
        let why =
            "libnvidia-ml-of-nowhere.so.1: cannot open shared object file: No such file or directory".into();
        assert_eq!(nothing, Some(Nothing { why, is_usual: true }));
    }

    #[test]
    fn a_library_that_is_no_driver_is_not_usual() {
        let nothing = Gpus::open("libc.so.6", None).err();
        assert!(nothing.is_some_and(|nothing| !nothing.is_usual && nothing.why.contains("nvmlInit_v2")));
    }
}
