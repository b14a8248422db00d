//! How requests for a model find one of its versions: by labels, and by shares of the requests that name none.
//!
//! A share is kept by counting, so that it holds over any stretch of requests. What is sticky is a pure function of
//! its key and the weights: all servers of one model agree, and other weights move no more keys than they have to
//! (weighted rendezvous hashing).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use kushi_core::{Parameter, Request, SequenceId};
use serde::Deserialize;

/// 2^64 divided by the golden ratio: its multiples fall evenly into any parts of the range.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// As the control plane hands it over, checked.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutesSpec {
    pub labels: BTreeMap<String, u64>,
    /// Positive; empty: requests that name no version go to the latest.
    pub weights: BTreeMap<u64, f64>,
    /// The parameter or header whose value says where a request goes.
    pub sticky: Option<String>,
}

/// What says where a request goes: equal keys go to one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteKey(u64);

impl RouteKey {
    /// FNV-1a: the same on every machine, in every version of this program.
    pub fn of(bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        }))
    }

    /// Of the parameter of this name, if it is among these.
    pub fn among(parameters: &[(String, Parameter)], name: &str) -> Option<Self> {
        parameters.iter().find(|(known, _)| known == name).map(|(_, value)| Self::of_parameter(value))
    }

    /// The same for a number as for its text, which is what a header has.
    fn of_parameter(value: &Parameter) -> Self {
        match value {
            Parameter::Bool(value) => Self::of(value.to_string().as_bytes()),
            Parameter::Int(value) => Self::of(value.to_string().as_bytes()),
            Parameter::Double(value) => Self::of(value.to_string().as_bytes()),
            Parameter::String(value) => Self::of(value.as_bytes()),
        }
    }
}

#[derive(Debug, Default)]
pub struct VersionRoutes {
    labels: BTreeMap<String, u64>,
    shares: Vec<Share>,
    sticky: Option<String>,
    /// How many requests were sent to a share without a key.
    drawn: AtomicU64,
}

#[derive(Debug)]
struct Share {
    version: u64,
    weight: f64,
    /// Of all weights, with those before it.
    until: f64,
}

impl From<RoutesSpec> for VersionRoutes {
    fn from(spec: RoutesSpec) -> Self {
        let all: f64 = spec.weights.values().sum();
        let mut until = 0.0;
        let share = |(version, weight): (u64, f64)| {
            until += weight / all;
            Share { version, weight, until }
        };
        let shares = spec.weights.into_iter().map(share).collect();
        Self { labels: spec.labels, shares, sticky: spec.sticky, drawn: AtomicU64::default() }
    }
}

impl VersionRoutes {
    pub(crate) fn label(&self, label: &str) -> Option<u64> {
        self.labels.get(label).copied()
    }

    pub(crate) fn has_labels(&self) -> bool {
        !self.labels.is_empty()
    }

    /// All of them, for people.
    pub(crate) fn labels(&self) -> String {
        self.labels.keys().map(|label| format!("'{label}'")).collect::<Vec<_>>().join(", ")
    }

    /// Whether requests that name no version are shared out.
    pub(crate) fn has_shares(&self) -> bool {
        !self.shares.is_empty()
    }

    pub fn sticky(&self) -> Option<&str> {
        self.sticky.as_deref()
    }

    /// What says where a request goes, if anything does: the requests of one sequence have one key.
    pub(crate) fn key(&self, request: &Request) -> Option<RouteKey> {
        let named = self.sticky.as_ref().and_then(|sticky| RouteKey::among(&request.parameters, sticky));
        named.or_else(|| match &request.sequence.as_ref()?.id {
            SequenceId::Number(0) => None,
            SequenceId::Number(id) => Some(RouteKey::of(id.to_string().as_bytes())),
            SequenceId::Text(id) => (!id.is_empty()).then(|| RouteKey::of(id.as_bytes())),
        })
    }

    /// The version of the next request. There are shares.
    pub(crate) fn choose(&self, key: Option<RouteKey>) -> Option<u64> {
        match key {
            Some(key) => self.of_key(key),
            None => self.next(),
        }
    }

    /// The one with the most requests.
    pub(crate) fn main(&self) -> Option<u64> {
        let main = self.shares.iter().max_by(|one, other| one.weight.total_cmp(&other.weight));
        main.map(|share| share.version)
    }

    fn next(&self) -> Option<u64> {
        let drawn = self.drawn.fetch_add(1, Ordering::Relaxed);
        let place = drawn.wrapping_mul(GOLDEN) as f64 / 2f64.powi(64);
        let share = self.shares.iter().find(|share| place < share.until);
        share.or(self.shares.last()).map(|share| share.version)
    }

    fn of_key(&self, RouteKey(key): RouteKey) -> Option<u64> {
        // The greatest is that of a version as often as its weight says.
        let score = |share: &Share| {
            let unit = ((mixed(key ^ mixed(share.version)) >> 11) as f64 + 0.5) / 2f64.powi(53);
            -share.weight / unit.ln()
        };
        let best = self.shares.iter().max_by(|one, other| score(one).total_cmp(&score(other)));
        best.map(|share| share.version)
    }
}

/// Each bit of the answer depends on all bits of the number (the finalizer of `SplitMix64`).
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(weights: &[(u64, f64)]) -> VersionRoutes {
        RoutesSpec { weights: weights.iter().copied().collect(), ..RoutesSpec::default() }.into()
    }

    fn of_key(routes: &VersionRoutes, key: &str) -> Option<u64> {
        routes.choose(Some(RouteKey::of(key.as_bytes())))
    }

    fn counts(chosen: impl Iterator<Item = Option<u64>>) -> BTreeMap<u64, usize> {
        let mut counts = BTreeMap::new();
        for version in chosen.flatten() {
            *counts.entry(version).or_default() += 1;
        }
        counts
    }

    #[test]
    fn shares_hold_over_any_stretch() {
        let routes = routes(&[(1, 90.0), (2, 7.0), (5, 3.0)]);
        for stretch in [10, 100, 1000, 100_000] {
            let counts = counts((0..stretch).map(|_| routes.choose(None)));
            for (version, share) in [(1, 0.9), (2, 0.07), (5, 0.03)] {
                let count = counts.get(&version).copied().unwrap_or_default() as f64;
                assert!((count - share * f64::from(stretch)).abs() < 3.0, "{stretch}: {counts:?}");
            }
        }
    }

    #[test]
    fn every_second_request_is_shared_out_as_well() {
        let routes = routes(&[(1, 1.0), (2, 1.0)]);
        let chosen: Vec<_> = (0..1000).map(|_| routes.choose(None)).collect();
        let counts = counts(chosen.into_iter().step_by(2));
        assert!(counts[&1].abs_diff(counts[&2]) < 10, "{counts:?}");
    }

    #[test]
    fn keys_are_shared_out_and_stay() {
        let (before, after) = (routes(&[(1, 90.0), (2, 10.0)]), routes(&[(1, 80.0), (2, 20.0)]));
        let keys: Vec<String> = (0..100_000).map(|number| format!("user{number}")).collect();
        let counts = counts(keys.iter().map(|key| of_key(&before, key)));
        assert!(counts[&2].abs_diff(10_000) < 300, "{counts:?}");
        for key in &keys {
            let version = of_key(&before, key);
            assert_eq!(of_key(&before, key), version);
            // Only the version that has grown takes keys.
            assert!(of_key(&after, key) == version || version == Some(1));
        }
    }

    #[test]
    fn a_key_goes_where_it_has_gone_in_every_version_of_this_program() {
        let routes = routes(&[(1, 1.0), (2, 1.0), (3, 1.0)]);
        let chosen: Vec<_> = ["a", "b", "c", "user 7", "é", ""].map(|key| of_key(&routes, key)).into();
        assert_eq!(chosen, [3, 2, 1, 1, 2, 2].map(Some));
    }
}
