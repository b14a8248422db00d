import pytest

from runners.nearest import hint

KNOWN = ("session.disable_prepacking", "session.intra_op.allow_spinning", "ep.context_enable", "execution_mode")


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("execution_mod", "did you mean 'execution_mode'?"),
        ("session.disable_prepackin", "did you mean 'session.disable_prepacking'?"),
        ("sesion.disable_prepacking", "did you mean 'session.disable_prepacking'?"),
        ("session.intra_op.alow_spinning", "did you mean 'session.intra_op.allow_spinning'?"),
        ("session.nope", "expected one of session.disable_prepacking, session.intra_op.allow_spinning"),
        ("ep.nope", "expected one of ep.context_enable"),
        ("nope", f"expected one of {', '.join(KNOWN)}"),
        ("other.nope", f"expected one of {', '.join(KNOWN)}"),
    ],
)
def test_what_was_meant_is_named_or_else_what_there_is(word: str, expected: str) -> None:
    assert hint(word, KNOWN) == expected
