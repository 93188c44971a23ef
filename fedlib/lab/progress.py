"""How far some work is: a bar on a terminal, one line that is rewritten in a notebook, a line for every tenth of the
work where standard error is a file, and nothing where none was asked for.
"""

import sys
import time
from typing import Any

from tqdm import tqdm

TENTHS = 10


class Progress:
    """Progress of work of a known size, as a context manager; if it ends without an error it is at 100 %.

    label: what is being done; total: its size, in any unit; shown: whether to show anything.
    """

    def __init__(self, label: str, total: float, shown: bool = True):
        self.label, self.total, self.done = label, total, 0.0
        self._display: Any = _Nothing() if not shown else _Notebook() if _in_notebook() else _terminal_or_file()

    def __enter__(self) -> "Progress":
        self._display.start(self)
        return self

    def update(self, done: float, text: str = "") -> None:
        """Show that `done` of the total is done, and a `text` on what comes out. It never goes back or beyond the total."""
        self.done = max(self.done, min(done, self.total))
        self._display.show(self, text)

    def __exit__(self, error: type[BaseException] | None, *rest: object) -> None:
        if error is None:
            self.update(self.total)
        self._display.end()

    @property
    def part(self) -> float:
        return self.done / self.total if self.total else 1.0


class _Nothing:
    def start(self, progress: Progress) -> None:
        pass

    def show(self, progress: Progress, text: str) -> None:
        pass

    def end(self) -> None:
        pass


class _Terminal(_Nothing):
    def start(self, progress: Progress) -> None:
        layout = "{desc}{percentage:3.0f} %|{bar}| {elapsed}, {remaining} left{postfix}"
        self.bar = tqdm(total=progress.total, desc=progress.label, bar_format=layout, leave=False, dynamic_ncols=True)

    def show(self, progress: Progress, text: str) -> None:
        self.bar.set_description_str(f"{progress.label} ", refresh=False)
        if text:
            self.bar.set_postfix_str(text, refresh=False)
        self.bar.n = progress.done
        self.bar.refresh()

    def end(self) -> None:
        self.bar.close()


class _File(_Nothing):
    def start(self, progress: Progress) -> None:
        self.tenths = 0

    def show(self, progress: Progress, text: str) -> None:
        tenths = int(TENTHS * progress.part)
        if tenths > self.tenths:
            self.tenths = tenths
            print(
                f"{progress.label}: {100 * progress.part:.0f} %{', ' if text else ''}{text}",
                file=sys.stderr,
                flush=True,
            )


class _Notebook(_Nothing):
    """Plain text, rewritten in place; it begins and ends as an output without content, which a page does not show and
    `reproduce.without_progress` takes out of a file.
    """

    def start(self, progress: Progress) -> None:
        from IPython.display import display

        self.handle = display({}, raw=True, display_id=True)
        self.started = time.perf_counter()
        self.show(progress, "")

    def show(self, progress: Progress, text: str) -> None:
        part, seconds = progress.part, time.perf_counter() - self.started
        left = f", {seconds * (1 - part) / part:.0f} s left" if 0 < part < 1 else ""
        line = f"{progress.label} |{'█' * round(20 * part):<20}| {100 * part:.0f} %{left}{', ' if text else ''}{text}"
        self.handle.update({"text/plain": line}, raw=True)

    def end(self) -> None:
        self.handle.update({}, raw=True)


def _terminal_or_file() -> Any:
    return _Terminal() if sys.stderr is not None and sys.stderr.isatty() else _File()


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return getattr(shell, "kernel", None) is not None
