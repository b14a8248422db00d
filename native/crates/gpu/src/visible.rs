//! Which GPUs CUDA shows to this process: what `CUDA_VISIBLE_DEVICES` says.

/// The positions of those GPUs, in order. A list ends where it names what is not there, as in CUDA. `uuids` has the GPUs
/// by their indexes, `None` for one that cannot be asked; `whole` finds the GPU of a part, a MIG device.
pub(crate) fn visible(
    list: Option<&str>,
    uuids: &[Option<String>],
    whole: impl Fn(&str) -> Option<String>,
) -> Vec<usize> {
    let Some(list) = list else { return (0..uuids.len()).collect() };
    let position = |word: &str| {
        if word.starts_with("MIG-") {
            let uuid = whole(word)?;
            return uuids.iter().position(|one| one.as_ref() == Some(&uuid));
        }
        if word.starts_with("GPU-") {
            return only_one_with(word, uuids);
        }
        word.parse().ok().filter(|&index: &usize| index < uuids.len())
    };
    let mut found: Vec<usize> = list.split(',').map_while(|word| position(word.trim())).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// The one GPU whose UUID begins so.
fn only_one_with(start: &str, uuids: &[Option<String>]) -> Option<usize> {
    let begins = |uuid: &Option<String>| uuid.as_ref().is_some_and(|uuid| uuid.starts_with(start));
    let mut found = uuids.iter().enumerate().filter(|(_, uuid)| begins(uuid)).map(|(index, _)| index);
    found.next().filter(|_| found.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(list: &str) -> Vec<usize> {
        let uuids = ["GPU-aa11", "GPU-aa22", "GPU-bb33"].map(|uuid| Some(uuid.to_owned()));
        visible(Some(list), &uuids, |part| (part == "MIG-7").then(|| "GPU-bb33".into()))
    }

    #[test]
    fn without_a_list_all_are_visible() {
        assert_eq!(visible(None, &[None, Some("GPU-a".into())], |_| None), [0, 1]);
    }

    #[test]
    fn an_empty_list_shows_none() {
        assert_eq!(seen(""), []);
        assert_eq!(seen("NoDevFiles"), []);
        assert_eq!(seen("-1"), []);
    }

    #[test]
    fn gpus_are_named_by_index() {
        assert_eq!(seen("1"), [1]);
        assert_eq!(seen(" 2 , 0"), [0, 2]);
    }

    #[test]
    fn gpus_are_named_by_uuid_or_its_beginning() {
        assert_eq!(seen("GPU-aa22"), [1]);
        assert_eq!(seen("GPU-b,0"), [0, 2]);
    }

    #[test]
    fn a_beginning_of_two_names_none() {
        assert_eq!(seen("GPU-aa"), []);
    }

    #[test]
    fn a_list_ends_at_what_is_not_there() {
        assert_eq!(seen("2,3,1"), [2]);
        assert_eq!(seen("1,-1,0"), [1]);
        assert_eq!(seen("GPU-aa11,GPU-cc,2"), [0]);
    }

    #[test]
    fn a_gpu_named_twice_is_one() {
        assert_eq!(seen("1,1,GPU-aa22"), [1]);
    }

    #[test]
    fn a_part_stands_for_its_gpu() {
        assert_eq!(seen("MIG-7"), [2]);
        assert_eq!(seen("MIG-8"), []);
    }
}
