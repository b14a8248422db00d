//! The life of a model version, and which steps of it exist.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    New,
    Loading,
    Ready,
    /// Takes no new requests; those inside finish.
    Draining,
    Unloaded,
    Failed,
}

impl State {
    pub const ALL: [Self; 6] =
        [Self::New, Self::Loading, Self::Ready, Self::Draining, Self::Unloaded, Self::Failed];

    /// Whether a version may go from here to `next`.
    pub const fn allows(self, next: Self) -> bool {
        matches!(
            (self, next),
            (Self::New, Self::Loading)
                | (Self::Loading, Self::Ready)
                | (Self::Ready, Self::Draining)
                | (Self::Draining, Self::Unloaded)
                | (Self::New | Self::Loading | Self::Ready | Self::Draining, Self::Failed)
        )
    }

    /// The name that the repository index uses.
    pub const fn index_name(self) -> &'static str {
        match self {
            Self::New | Self::Loading => "LOADING",
            Self::Ready => "READY",
            Self::Draining => "UNLOADING",
            Self::Unloaded | Self::Failed => "UNAVAILABLE",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn life_goes_one_way_and_anything_alive_may_fail() {
        let way = [State::New, State::Loading, State::Ready, State::Draining, State::Unloaded];
        for from in State::ALL {
            for to in State::ALL {
                let step = way.windows(2).any(|pair| pair == [from, to]);
                let failure = to == State::Failed && !matches!(from, State::Unloaded | State::Failed);
                assert_eq!(from.allows(to), step || failure, "{from:?} -> {to:?}");
            }
        }
    }
}
