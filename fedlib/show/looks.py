"""Colours and markers per method: a method's own by its name, and some from a spare palette for whatever has none."""

from collections.abc import Iterable

from ..look import Look

# For cases of ablations and audits and for a reader's methods without a look: dark colours that no built-in method has.
SPARE = (
    Look("#332288", "s"),
    Look("#999933", "^", "--"),
    Look("#882255", "D", ":"),
    Look("#44aa99", "v", "-."),
    Look("#661100", "P", "--"),
    Look("#555555", "X", ":"),
)


def looks(names: Iterable[str]) -> dict[str, Look]:
    """The look of each of `names`, all in one figure: a registered method's own, or the next spare one in order of appearance.

    Names beyond the spare palette share its colours again, with other markers.
    """
    from ..algorithms import ALGORITHMS  # when something is drawn: importing the plots loads no torch

    known = list(dict.fromkeys(names))
    own = {name: vars(ALGORITHMS[name]).get("look") for name in known if name in ALGORITHMS}  # not that of a base class
    spare = {name: _spare(place) for place, name in enumerate(name for name in known if not own.get(name))}
    return {name: own.get(name) or spare[name] for name in known}


def _spare(place: int) -> Look:
    turn, number = divmod(place, len(SPARE))
    colour, other = SPARE[number], SPARE[(number + turn) % len(SPARE)]
    return Look(colour.colour, other.marker, other.dash)
