//! Which method a call is for.

use kushi_oip::Category;
use kushi_verbs::{MOST_BYTES, MOST_BYTES_TO_LOAD};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method<'a> {
    Infer,
    StreamInfer,
    /// A verb of the data plane, by its name.
    Manage(&'a str),
    HealthCheck,
    HealthWatch,
    Reflection,
}

/// `None`: there is no such method.
pub(crate) fn find(path: &str) -> Option<Method<'_>> {
    match path.strip_prefix('/')?.split_once('/')? {
        ("inference.GRPCInferenceService", "ModelInfer") => Some(Method::Infer),
        ("inference.GRPCInferenceService", "ModelStreamInfer") => Some(Method::StreamInfer),
        ("kushi.Management", "Metrics") => Some(Method::Manage("Metrics")),
        ("inference.GRPCInferenceService", name) if name != "Metrics" => {
            managed(name).map(|_| Method::Manage(name))
        }
        ("grpc.health.v1.Health", "Check") => Some(Method::HealthCheck),
        ("grpc.health.v1.Health", "Watch") => Some(Method::HealthWatch),
        (
            "grpc.reflection.v1.ServerReflection" | "grpc.reflection.v1alpha.ServerReflection",
            "ServerReflectionInfo",
        ) => Some(Method::Reflection),
        _ => None,
    }
}

impl Method<'_> {
    pub(crate) fn is_inference(self) -> bool {
        matches!(self, Self::Infer | Self::StreamInfer)
    }

    /// Of a message of the client, where tensors may take `of_tensors`.
    pub(crate) fn most_bytes(self, of_tensors: usize) -> usize {
        match self {
            Self::Infer | Self::StreamInfer => of_tensors,
            Self::Manage("RepositoryModelLoad") => of_tensors.min(MOST_BYTES_TO_LOAD),
            Self::Manage(_) | Self::HealthCheck | Self::HealthWatch | Self::Reflection => {
                of_tensors.min(MOST_BYTES)
            }
        }
    }

    pub(crate) fn category(self) -> Category {
        match self {
            Self::Infer | Self::StreamInfer => Category::Inference,
            Self::Manage(name) => managed(name).unwrap_or(Category::Metadata),
            Self::HealthCheck | Self::HealthWatch => Category::Health,
            Self::Reflection => Category::Metadata,
        }
    }
}

/// What is asked beside inference is a verb.
fn managed(name: &str) -> Option<Category> {
    Some(match name {
        "ServerLive" | "ServerReady" | "ModelReady" => Category::Health,
        "ServerMetadata" | "ModelMetadata" => Category::Metadata,
        "ModelConfig" => Category::ModelConfig,
        "ModelStatistics" | "Metrics" => Category::Statistics,
        "RepositoryIndex" | "RepositoryModelLoad" | "RepositoryModelUnload" => Category::ModelRepository,
        "SystemSharedMemoryStatus"
        | "SystemSharedMemoryRegister"
        | "SystemSharedMemoryUnregister"
        | "CudaSharedMemoryStatus"
        | "CudaSharedMemoryRegister"
        | "CudaSharedMemoryUnregister" => Category::SharedMemory,
        "TraceSetting" => Category::Trace,
        "LogSettings" => Category::Logging,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_found_by_their_paths() {
        assert_eq!(find("/inference.GRPCInferenceService/ModelInfer"), Some(Method::Infer));
        assert_eq!(find("/inference.GRPCInferenceService/LogSettings"), Some(Method::Manage("LogSettings")));
        assert_eq!(find("/kushi.Management/Metrics"), Some(Method::Manage("Metrics")));
        assert_eq!(find("/grpc.health.v1.Health/Check"), Some(Method::HealthCheck));
        for path in [
            "",
            "/",
            "/inference.GRPCInferenceService",
            "/inference.GRPCInferenceService/Metrics",
            "/x/Check",
        ] {
            assert_eq!(find(path), None, "{path}");
        }
    }
}
