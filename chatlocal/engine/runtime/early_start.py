"""Something that is begun by itself after a while, unless what it waits for was done sooner."""

from __future__ import annotations

from collections.abc import Callable
from threading import Timer

from chatlocal.engine.errors import ChatLocalError


class EarlyStart:
    """Calls `start` in another thread after so many seconds."""

    def __init__(self, start: Callable[[], None], seconds: float) -> None:
        self._start = start
        self._begun = False
        self._timer = Timer(seconds, self._run)
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> bool:
        """No start any more; says whether there was one that went well."""
        self._timer.cancel()
        self._timer.join()
        return self._begun

    def _run(self) -> None:
        try:
            self._start()
        except ChatLocalError:  # it is refused again when it is called for good
            return
        self._begun = True
