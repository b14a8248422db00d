"""Whether the files of a model are others than those that it was loaded from, and stand still"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..repository.contents import Contents, is_being_written, look

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Watched"]


class Watched:
    """
    The files of one model. A change counts when it is the same from one look to the next and nobody has a file open
    any more to write to it, so that what is half written is not read.
    """

    def __init__(self, place: Path, *, suffix: str = "", is_loaded: bool = True) -> None:
        """suffix: of the files that count. is_loaded: as they are now; else they are a change themselves"""
        self.place = place
        self._seen = look(place, suffix=suffix)
        self._loaded = self._seen if is_loaded else Contents(place, suffix)
        self.is_moving = not is_loaded
        """Whether it has changed, and is not to be loaded yet"""
        self.open_file = ""
        """What somebody writes to, where that is known"""

    @property
    def has_more(self) -> bool:
        """Whether there are more files than are looked at"""
        return self._seen.has_more

    @property
    def contents(self) -> Contents:
        """What was loaded"""
        return self._loaded

    def changes(self) -> list[str]:
        """The files that have changed, once they stand still; they count as loaded then"""
        before, self._seen = self._seen, self._seen.again()
        self.is_moving, self.open_file = False, ""
        if self._seen is self._loaded:
            return []
        different = self._seen.differences(self._loaded)
        if not different:
            # other files with the same bytes
            self._loaded = self._seen
            return []
        self.is_moving = self._seen is not before or self.is_written()
        if self.is_moving:
            return []
        self.is_loaded()
        return different

    def is_written(self) -> bool:
        """Whether somebody writes to a file that was not loaded as it is"""
        changed = self._seen.changed_since(self._loaded)
        self.open_file = next((path for path in changed if is_being_written(path)), "")
        return self.open_file != ""

    def is_loaded(self) -> None:
        """What was seen last is what is loaded"""
        self._loaded = self._seen
        self.is_moving = False

    def loads_again(self) -> None:
        """What was seen is not what was loaded, after all"""
        self._loaded = Contents(self.place, self._seen.suffix)
