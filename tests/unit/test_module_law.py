from tests.module_law import CORE, CRATES, circles, graph, upward, used, violations


def test_the_modules_of_every_crate_obey_the_law() -> None:
    assert list(violations()) == []


def test_all_rooms_of_the_core_have_a_floor() -> None:
    assert set(graph(CRATES / "core")) == set(CORE)


def test_what_is_used_is_found_however_it_is_written() -> None:
    code = """
use crate::{A, b::{C, d::E}, f::G};
use crate::h::{I, J};
// crate::k
fn f() -> crate::L { crate::m::n() }
"""
    assert set(used(code)) == {"A", "b", "f", "h", "L", "m"}


def test_a_circle_is_found_through_others() -> None:
    modules = {
        name: frozenset(uses.split()) for name, uses in {"a": "b", "b": "c", "c": "a", "d": "a e", "e": ""}.items()
    }
    assert circles(modules) == {frozenset("abc")}


def test_a_room_uses_none_above_it() -> None:
    modules = {"ground": frozenset({"roof"}), "roof": frozenset({"ground"})}
    assert list(upward(modules, ["ground", "roof"])) == ["'ground' uses 'roof', which stands above it"]
