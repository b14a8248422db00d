"""The files of a model as they are looked at again and again, once they stand still"""

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

    def __init__(self, place: Path, seen: Contents | None = None, *, suffix: str = "", is_settled: bool = True) -> None:
        """
        seen: what lies there now; a look says it where it is not stated. suffix: of the files that count. is_settled:
        that needs no second look
        """
        self.place = place
        self._seen = seen or look(place, suffix=suffix)
        self.settled = self._seen if is_settled else Contents(place, suffix)
        """What stood still last"""
        self.is_moving = not is_settled
        self.open_file = ""
        """What somebody writes to, where that is known"""

    def settle(self) -> None:
        """What was seen needs no second look"""
        self.settled, self.is_moving = self._seen, False

    def look(self) -> bool:
        """Whether what lies there now stands still"""
        before, self._seen = self._seen, self._seen.again()
        self.is_moving, self.open_file = False, ""
        if self._seen is not self.settled:
            if self._seen is not before or self.is_written():
                self.is_moving = True
            else:
                self.settle()
        return not self.is_moving

    def is_written(self) -> bool:
        """Whether somebody writes to a file that is another one than what stood still last"""
        changed = self._seen.changed_since(self.settled)
        self.open_file = next((path for path in map(self._seen.path, changed) if is_being_written(path)), "")
        return self.open_file != ""

    def changes(self) -> list[str]:
        """The files that have changed since they stood still last"""
        before = self.settled
        if not self.look() or self.settled is before:
            return []
        return [self.settled.path(path) for path in self.settled.differences(before)]

    def forget(self) -> None:
        """All files count as changed, once they are looked at again"""
        self.settled = Contents(self.place, self._seen.suffix)
