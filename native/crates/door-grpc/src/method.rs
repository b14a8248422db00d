//! Which method a call is for.

use kushi_oip::Category;
use kushi_verbs::MOST_BYTES;

/// The one that may bring more than names and a few settings.
pub(crate) const LOAD: &str = "RepositoryModelLoad";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Infer,
    StreamInfer,
    /// A verb of the data plane.
    Manage(&'static str),
    HealthCheck,
    HealthWatch,
    Reflection,
}

/// `None`: there is no such method.
pub(crate) fn find(path: &str) -> Option<Method> {
    match path.strip_prefix('/')?.split_once('/')? {
        ("inference.GRPCInferenceService", "ModelInfer") => Some(Method::Infer),
        ("inference.GRPCInferenceService", "ModelStreamInfer") => Some(Method::StreamInfer),
        ("kushi.Management", "Metrics") => Some(Method::Manage("Metrics")),
        ("inference.GRPCInferenceService", name) if name != "Metrics" => {
            managed(name).map(|(name, _)| Method::Manage(name))
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

impl Method {
    pub(crate) fn is_inference(self) -> bool {
        matches!(self, Self::Infer | Self::StreamInfer)
    }

    /// Of a message of the client, where tensors may take `of_tensors`.
    pub(crate) fn most_bytes(self, of_tensors: usize) -> usize {
        match self {
            Self::Infer | Self::StreamInfer | Self::Manage(LOAD) => of_tensors,
            Self::Manage(_) | Self::HealthCheck | Self::HealthWatch | Self::Reflection => {
                of_tensors.min(MOST_BYTES)
            }
        }
    }

    pub(crate) fn category(self) -> Category {
        match self {
            Self::Infer | Self::StreamInfer => Category::Inference,
            Self::Manage(name) => managed(name).map_or(Category::Metadata, |(_, category)| category),
            Self::HealthCheck | Self::HealthWatch => Category::Health,
            Self::Reflection => Category::Metadata,
        }
    }
}

/// What is asked beside inference is a verb.
const MANAGED: [(&str, Category); 19] = [
    ("ServerLive", Category::Health),
    ("ServerReady", Category::Health),
    ("ModelReady", Category::Health),
    ("ServerMetadata", Category::Metadata),
    ("ModelMetadata", Category::Metadata),
    ("ModelConfig", Category::ModelConfig),
    ("ModelStatistics", Category::Statistics),
    ("Metrics", Category::Statistics),
    ("RepositoryIndex", Category::ModelRepository),
    ("RepositoryModelLoad", Category::ModelRepository),
    ("RepositoryModelUnload", Category::ModelRepository),
    ("SystemSharedMemoryStatus", Category::SharedMemory),
    ("SystemSharedMemoryRegister", Category::SharedMemory),
    ("SystemSharedMemoryUnregister", Category::SharedMemory),
    ("CudaSharedMemoryStatus", Category::SharedMemory),
    ("CudaSharedMemoryRegister", Category::SharedMemory),
    ("CudaSharedMemoryUnregister", Category::SharedMemory),
    ("TraceSetting", Category::Trace),
    ("LogSettings", Category::Logging),
];

fn managed(name: &str) -> Option<(&'static str, Category)> {
    MANAGED.iter().find(|(managed, _)| *managed == name).copied()
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
