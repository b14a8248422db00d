//! Every route that there is, written out: for whoever has to try or to show them all.

use crate::path::resource;

/// Paths as a reader would write them; a name in braces stands for any.
const PATHS: [&str; 52] = [
    "/v2",
    "/v2/health/live",
    "/v2/health/ready",
    "/v1/models",
    "/v1/models/{model}",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/embed",
    "/rerank",
    "/v1/rerank",
    "/v2/rerank",
    "/classify",
    "/predict",
    "/tokenize",
    "/v2/models/stats",
    "/metrics",
    "/v2/models/{model}",
    "/v2/models/{model}/ready",
    "/v2/models/{model}/config",
    "/v2/models/{model}/stats",
    "/v2/models/{model}/infer",
    "/v2/models/{model}/generate",
    "/v2/models/{model}/generate_stream",
    "/v2/models/{model}/versions/{version}",
    "/v2/models/{model}/versions/{version}/ready",
    "/v2/models/{model}/versions/{version}/config",
    "/v2/models/{model}/versions/{version}/stats",
    "/v2/models/{model}/versions/{version}/infer",
    "/v2/models/{model}/versions/{version}/generate",
    "/v2/models/{model}/versions/{version}/generate_stream",
    "/v2/repository/index",
    "/v2/repository/models/{model}/load",
    "/v2/repository/models/{model}/unload",
    "/v2/repository/{repository}/index",
    "/v2/repository/{repository}/models/{model}/load",
    "/v2/repository/{repository}/models/{model}/unload",
    "/v2/logging",
    "/v2/trace/setting",
    "/v2/models/{model}/trace/setting",
    "/v2/systemsharedmemory/status",
    "/v2/systemsharedmemory/register",
    "/v2/systemsharedmemory/unregister",
    "/v2/systemsharedmemory/region/{region}/status",
    "/v2/systemsharedmemory/region/{region}/register",
    "/v2/systemsharedmemory/region/{region}/unregister",
    "/v2/cudasharedmemory/status",
    "/v2/cudasharedmemory/register",
    "/v2/cudasharedmemory/unregister",
    "/v2/cudasharedmemory/region/{region}/status",
    "/v2/cudasharedmemory/region/{region}/register",
    "/v2/cudasharedmemory/region/{region}/unregister",
];

/// Every route: a method of it, its path, and the category that a token can be asked for.
pub fn routes() -> Vec<(&'static str, &'static str, &'static str)> {
    let mut rows = Vec::new();
    for path in PATHS {
        if let Some(route) = resource(&some(path)) {
            rows.extend(route.methods().split(", ").map(|method| (method, path, route.category().name())));
        }
    }
    rows
}

/// A path that the server may be asked for.
fn some(path: &str) -> String {
    path.replace("{version}", "1")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::route::{
        About, Control, InferenceRoute, Management, RegionAction, Route, Settings, TextRoute,
    };
    use kushi_dataplane::Memory;

    /// A route without an arm here does not compile, and an arm without a path fails.
    macro_rules! kinds {
        ($($pattern:pat,)+) => {
            const KINDS: &[&str] = &[$(stringify!($pattern)),+];

            fn kind(route: &Route<'_>) -> &'static str {
                match route {
                    $($pattern => stringify!($pattern),)+
                }
            }
        };
    }

    kinds! {
        Route::Management(Management::Server),
        Route::Management(Management::Live),
        Route::Management(Management::Ready),
        Route::Management(Management::AllStatistics),
        Route::Management(Management::Metrics),
        Route::Management(Management::Model { about: About::Metadata, version: "", .. }),
        Route::Management(Management::Model { about: About::Ready, version: "", .. }),
        Route::Management(Management::Model { about: About::Config, version: "", .. }),
        Route::Management(Management::Model { about: About::Statistics, version: "", .. }),
        Route::Inference { kind: InferenceRoute::Infer, version: "", .. },
        Route::Inference { kind: InferenceRoute::Generate, version: "", .. },
        Route::Inference { kind: InferenceRoute::GenerateStream, version: "", .. },
        Route::Management(Management::Model { about: About::Metadata, version: _, .. }),
        Route::Management(Management::Model { about: About::Ready, version: _, .. }),
        Route::Management(Management::Model { about: About::Config, version: _, .. }),
        Route::Management(Management::Model { about: About::Statistics, version: _, .. }),
        Route::Inference { kind: InferenceRoute::Infer, version: _, .. },
        Route::Inference { kind: InferenceRoute::Generate, version: _, .. },
        Route::Inference { kind: InferenceRoute::GenerateStream, version: _, .. },
        Route::Listing(None),
        Route::Listing(Some(_)),
        Route::Texts(TextRoute::ChatCompletions),
        Route::Texts(TextRoute::Completions),
        Route::Texts(TextRoute::Embeddings),
        Route::Texts(TextRoute::Embed),
        Route::Texts(TextRoute::Rerank),
        Route::Texts(TextRoute::Classify),
        Route::Texts(TextRoute::Tokenize),
        Route::Management(Management::Index { repository: false }),
        Route::Management(Management::Index { repository: true }),
        Route::Management(Management::Control { repository: false, action: Control::Load, .. }),
        Route::Management(Management::Control { repository: false, action: Control::Unload, .. }),
        Route::Management(Management::Control { repository: true, action: Control::Load, .. }),
        Route::Management(Management::Control { repository: true, action: Control::Unload, .. }),
        Route::Management(Management::Settings { of: Settings::Log, .. }),
        Route::Management(Management::Settings { of: Settings::Trace(_), .. }),
        Route::Management(Management::Regions { memory: Memory::System, action: RegionAction::Status, .. }),
        Route::Management(Management::Regions { memory: Memory::System, action: RegionAction::Register, .. }),
        Route::Management(Management::Regions { memory: Memory::System, action: RegionAction::Unregister, .. }),
        Route::Management(Management::Regions { memory: Memory::Cuda, action: RegionAction::Status, .. }),
        Route::Management(Management::Regions { memory: Memory::Cuda, action: RegionAction::Register, .. }),
        Route::Management(Management::Regions { memory: Memory::Cuda, action: RegionAction::Unregister, .. }),
    }

    #[test]
    fn the_list_has_every_route_and_every_path_leads_to_one() {
        let found: BTreeSet<&str> = routes().into_iter().map(|(_, path, _)| path).collect();
        assert_eq!(found, PATHS.into());
        let paths: Vec<String> = PATHS.iter().map(|path| some(path)).collect();
        let listed: BTreeSet<&str> =
            paths.iter().filter_map(|path| resource(path)).map(|route| kind(&route)).collect();
        assert_eq!(listed, KINDS.iter().copied().collect());
    }
}
