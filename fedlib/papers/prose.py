"""Sentences that a notebook shows as text which is broken between words, in place of printed lines."""

import re
from collections.abc import Iterable


class Sentences(list[str]):
    """Sentences: in a notebook a paragraph, or a list where there are several; as text, one a line."""

    def __init__(self, sentences: Iterable[str] = ()):
        super().__init__(sentence for sentence in sentences if sentence)

    def __repr__(self) -> str:
        return "\n".join(self)

    def _repr_markdown_(self) -> str:
        shown = [re.sub(r"([\\*_`<$#|\[\]])", r"\\\1", sentence) for sentence in self]
        return shown[0] if len(shown) == 1 else "\n".join(f"* {sentence}" for sentence in shown)


def say(*sentences: str) -> None:
    """Show sentences in a notebook; elsewhere they are printed."""
    from IPython import display

    if sentences:
        display.display(Sentences(sentences))
