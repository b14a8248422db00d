//! What the driver says of GPUs.

use kushi_gpu::Reading;

use super::names::GPUS;
use super::text::{escape, family, sample};

/// A GPU that does not tell something has no sample of it, and what none of them tells is no family.
pub(super) fn write(out: &mut String, readings: &[Reading]) {
    for (name, help, kind, read) in GPUS {
        let mut told = readings.iter().filter_map(|gpu| Some((gpu, read(gpu)?))).peekable();
        if told.peek().is_some() {
            family(out, name, help, kind);
        }
        for (gpu, value) in told {
            sample(out, name, &format!("gpu_uuid=\"{}\"", escape(&gpu.uuid)), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(readings: &[Reading]) -> String {
        let mut out = String::new();
        write(&mut out, readings);
        out
    }

    fn named(uuid: &str) -> Reading {
        Reading { uuid: uuid.into(), ..Reading::default() }
    }

    #[test]
    fn without_a_gpu_there_is_nothing() {
        assert_eq!(page(&[]), "");
        assert_eq!(page(&[named("GPU-a")]), "");
    }

    #[test]
    fn every_gpu_has_its_samples() {
        let used = |uuid, bytes| Reading { memory_used_bytes: Some(bytes), ..named(uuid) };
        let expected = "# HELP nv_gpu_memory_used_bytes GPU used memory, in bytes
# TYPE nv_gpu_memory_used_bytes gauge
nv_gpu_memory_used_bytes{gpu_uuid=\"GPU-a\"} 85899345920
nv_gpu_memory_used_bytes{gpu_uuid=\"GPU-b\"} 0
";
        assert_eq!(page(&[used("GPU-a", 80 << 30), used("GPU-b", 0)]), expected);
    }

    #[test]
    fn what_one_gpu_does_not_tell_another_may() {
        let told = Reading { power_usage_watts: Some(71.25), energy_joules: Some(1.5), ..named("GPU-b") };
        let expected = "# HELP nv_gpu_power_usage GPU power usage in watts
# TYPE nv_gpu_power_usage gauge
nv_gpu_power_usage{gpu_uuid=\"GPU-b\"} 71.25
# HELP nv_energy_consumption GPU energy consumption in joules since the Triton Server started
# TYPE nv_energy_consumption counter
nv_energy_consumption{gpu_uuid=\"GPU-b\"} 1.5
";
        assert_eq!(page(&[named("GPU-a"), told]), expected);
    }
}
