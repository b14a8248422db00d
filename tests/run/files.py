"""
How the files of tests are shared out among processes, also after one of them has died.

pytest-xdist gives everything that the dead one had ever been given to the others again: files of which nothing is left,
for which the others then wait for ever, and the test at which it died, which ends the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

__all__ = ["Files"]


class Files(LoadFileScheduling):
    def remove_node(self, node: WorkerController) -> str | None:
        """Answers the test at which a process has died, which is not run again"""
        given = self.assigned_work.pop(node)
        if self.collection is None:
            # nothing has been shared out
            return None
        at: str | None = None
        for file, tests in given.items():
            left = [test for test, has_run in tests.items() if not has_run]
            if left and at is None:
                # it runs them in this order
                at = left.pop(0)
            if left:
                self.workqueue[file] = dict.fromkeys(left, False)
        for other in self.assigned_work:
            self._reschedule(other)
        return at

    def _reschedule(self, node: WorkerController) -> None:
        if node not in self.registered_collections:
            # it still looks for its tests, and gets its share when it has found them
            return
        super()._reschedule(node)
        # one test by itself is not run before another one or the end is known
        while self.workqueue and not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            self._assign_work_unit(node)
        if not self.workqueue and not node.shutting_down:
            node.shutdown()
