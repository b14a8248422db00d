//! Which rows run together: those of like length, begun with the one that has waited the longest. A pure function of
//! what waits.
//!
//! Requests of a few texts pass those of many, which would keep them waiting: but every so often a batch begins with a
//! row of these, however many of the others there are.

/// A row that waits, as the choice sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) tokens: usize,
    /// Of a request with many texts.
    pub(super) is_bulk: bool,
}

/// How many tokens a batch has at most, those that stand behind the ends of shorter texts among them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    pub(super) tokens: usize,
    pub(super) rows: usize,
}

/// A batch in this number begins with a row of the many, where there is one.
pub(super) const BULK_TURN: u64 = 4;
/// A row may be so many tokens shorter than the longest of its batch, or so much of it.
const SHORTER: usize = 4;
const SHORTER_PART: f64 = 0.15;

/// The places of the rows of the next batch, the longest last; of `waiting` in the order in which they came. `turn`: the
/// number of the batch.
pub(super) fn choose(waiting: &[Waiting], budget: Budget, turn: u64) -> Vec<usize> {
    let first = |bulk: bool| waiting.iter().position(|row| row.is_bulk == bulk);
    let bulk_first = turn.is_multiple_of(BULK_TURN);
    let Some(anchor) = first(bulk_first).or_else(|| first(!bulk_first)) else { return Vec::new() };
    let mut order: Vec<usize> = (0..waiting.len()).collect();
    order.sort_by_key(|&row| waiting[row].tokens);
    let at = order.iter().position(|&row| row == anchor).expect("it is one of them");
    // From the anchor to both sides, the nearer one first.
    let tokens = |place: usize| waiting[order[place]].tokens;
    let (mut begin, mut end) = (at, at + 1);
    loop {
        let rows = end - begin + 1;
        if rows > budget.rows {
            break;
        }
        let fits = |shortest: usize, longest: usize| {
            longest * rows <= budget.tokens
                && longest - shortest <= SHORTER.max((longest as f64 * SHORTER_PART) as usize)
        };
        let below =
            (begin > 0 && fits(tokens(begin - 1), tokens(end - 1))).then(|| tokens(at) - tokens(begin - 1));
        let above = (end < order.len() && fits(tokens(begin), tokens(end))).then(|| tokens(end) - tokens(at));
        match (below, above) {
            (Some(below), above) if above.is_none_or(|above| below <= above) => begin -= 1,
            (_, Some(_)) => end += 1,
            _ => break,
        }
    }
    order[begin..end].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Budget = Budget { tokens: 64, rows: 4 };

    fn rows(of: &[(usize, bool)]) -> Vec<Waiting> {
        of.iter().map(|&(tokens, is_bulk)| Waiting { tokens, is_bulk }).collect()
    }

    fn few(tokens: &[usize]) -> Vec<Waiting> {
        rows(&tokens.iter().map(|&tokens| (tokens, false)).collect::<Vec<_>>())
    }

    #[test]
    fn nothing_waits() {
        assert!(choose(&[], BUDGET, 1).is_empty());
    }

    #[test]
    fn the_oldest_runs_with_those_of_its_length() {
        assert_eq!(choose(&few(&[10, 60, 11, 9, 61]), BUDGET, 1), [3, 0, 2]);
    }

    #[test]
    fn a_batch_has_no_more_tokens_than_it_may() {
        assert_eq!(choose(&few(&[20, 20, 20, 20]), BUDGET, 1).len(), 3);
        // One that is longer by itself runs alone.
        assert_eq!(choose(&few(&[100, 100]), BUDGET, 1), [0]);
    }

    #[test]
    fn a_batch_has_no_more_rows_than_it_may() {
        assert_eq!(choose(&few(&[2; 10]), BUDGET, 1).len(), 4);
    }

    #[test]
    fn few_pass_many_and_many_have_their_turn() {
        let waiting = rows(&[(10, true), (50, false)]);
        assert_eq!(choose(&waiting, BUDGET, 1), [1]);
        assert_eq!(choose(&waiting, BUDGET, BULK_TURN), [0]);
    }

    #[test]
    fn rows_of_both_share_a_batch() {
        assert_eq!(choose(&rows(&[(10, true), (11, false)]), BUDGET, 1), [0, 1]);
    }
}
