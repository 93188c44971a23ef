"""How far some work is, by tqdm: a bar on a terminal, one line that is rewritten in a notebook, a line for every tenth of
the work where standard error is a file, and nothing where none was asked for.
"""

import io
import sys
from contextlib import suppress
from typing import Any

from tqdm import tqdm

LAYOUT = "{desc} {percentage:3.0f} %|{bar:20}| {elapsed}, {remaining} left{postfix}"
TENTHS = 10
NOTICE = {"fedlib": "notice"}  # metadata of an output of `notice`


class Progress:
    """Progress of work of a known size, as a context manager; if it ends without an error it is at 100 %.

    label: what is being done; total: its size, in any unit; shown: whether to show anything.
    """

    def __init__(self, label: str, total: float, shown: bool = True):
        self.label, self.total, self.done = label, total, 0.0
        terminal = sys.stderr is not None and sys.stderr.isatty()
        kind: Any = _Notebook if in_notebook() else tqdm if terminal else _Lines
        file = sys.stderr if kind is tqdm else io.StringIO()
        how = {"bar_format": LAYOUT, "leave": False, "dynamic_ncols": True, "ascii": None if kind is tqdm else False}
        self._bar = kind(total=total, desc=label, disable=not shown, file=file, **how)

    def __enter__(self) -> "Progress":
        return self

    def update(self, done: float, text: str = "") -> None:
        """Show that `done` of the total is done, and a `text` on what comes out. It never goes back or beyond the total."""
        self._bar.n = self.done = max(self.done, min(done, self.total))
        self._bar.set_description_str(self.label, refresh=False)
        if text:
            self._bar.set_postfix_str(text, refresh=False)
        with suppress(OSError), self._bar.get_lock():  # the terminal has gone: the work goes on
            self._bar.refresh(nolock=True)  # its own lock would stay locked where writing fails, and stop other threads

    def __exit__(self, error: type[BaseException] | None, *rest: object) -> None:
        if error is None:
            self.update(self.total)
        with suppress(OSError):
            self._bar.close()


class _Lines(tqdm):
    """A line on standard error for every tenth."""

    tenths = 0

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        tenths = int(TENTHS * self.n / self.total) if self.total else TENTHS
        if tenths > self.tenths:
            self.tenths = tenths
            text = f", {self.postfix}" if self.postfix else ""
            print(f"{self.desc}: {100 * self.n / (self.total or 1):.0f} %{text}", file=sys.stderr, flush=True)


class _Notebook(tqdm):
    """Plain text, rewritten in place; it begins and ends as an output without content, which a page does not show and
    which is taken out of a committed notebook. tqdm's own widget leaves its last state in the file, and needs ipywidgets.
    """

    handle: Any = None

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        if self.handle is None:
            from IPython.display import display

            self.handle = display({}, raw=True, display_id=True)
        self.handle.update({"text/plain": str(self)} if msg is None else {}, raw=True)  # msg: "" at its end


def notice(text: str) -> None:
    """An ordinary line beside the work: on standard error, and in a notebook, which paints that red, as an output that a committed
    notebook leaves out.
    """
    if in_notebook():
        from IPython.display import display

        display({"text/plain": text}, raw=True, metadata=NOTICE)
    else:
        tqdm.write(text, file=sys.stderr)  # beside a bar, if there is one


def in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return getattr(shell, "kernel", None) is not None
