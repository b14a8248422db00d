"""SOURCE of kushi export: the path of a file, or MODULE:CALLABLE, whose code is run here"""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import InvalidInput

__all__ = ["existing", "is_code", "source_of"]


def source_of(text: str) -> Any:  # noqa: ANN401 - a path, or a module of a framework that need not be there
    """What it names"""
    if not is_code(text):
        return existing(text)
    module, _, attribute = text.partition(":")
    # a command has the directory of its script there instead
    sys.path.insert(0, str(Path.cwd()))
    try:
        return _made(text, module, attribute)
    except InvalidInput:
        raise
    except (Exception, SystemExit) as error:
        # whatever the code of others raises
        raise InvalidInput(f"'{text}': {type(error).__name__}: {error}") from error


def is_code(text: str) -> bool:
    """Whether it is no file, but MODULE:CALLABLE"""
    return ":" in text and not Path(text).exists()


def existing(text: str) -> Path:
    """The file"""
    path = Path(text)
    if not path.exists():
        raise InvalidInput(f"'{text}': there is no such file")
    return path


def _made(text: str, module: str, attribute: str) -> Any:  # noqa: ANN401 - as above
    made: Any = import_module(module)
    for name in attribute.split("."):
        if not hasattr(made, name):
            raise InvalidInput(f"'{text}': '{module}' has no '{attribute}'")
        made = getattr(made, name)
    # a module can be called too, with its inputs
    if (callable(made) and not hasattr(made, "forward")) or isinstance(made, type):
        made = made()
    if not hasattr(made, "forward"):
        raise InvalidInput(f"'{text}' makes {type(made).__name__}, expected a torch.nn.Module")
    return made
