"""Whose upload has the right form and yet spoils what the server makes of the round, such as a sum that overflows."""

from typing import Any

from fedlib import border, simulation, training
from fedlib.algorithms import Algorithm, ServerState
from fedlib.errors import told
from fedlib.federation import Message, ServerContext
from fedlib.simulation import Answers


def sorted_out(
    algorithm: Algorithm, server: ServerState, answers: Answers, context: ServerContext
) -> tuple[Answers, dict[str, Any], str]:
    """Update the server's state without answers that spoil it; those that are left, the server's diagnostics, and what was
    wrong with all of them, if anything.

    Those whose uploads spoil the state alone are left out and, until the rest does not, the one with the largest number. A
    round that is spoilt with any of its clients, and has two or more, is what it would be in one process.
    """
    before = border.copied(server, "the server's state")

    def made(of: Answers) -> dict[str, Any]:
        return simulation.aggregated(algorithm, server, of, context)[1]

    def tried(of: Answers, afresh: bool = True) -> tuple[str, dict[str, Any]]:
        """What is wrong with the server's state after these answers, if anything, and its diagnostics."""
        if afresh:
            _become(server, before)
        try:
            returned = made(of)
        except Exception as error:  # whatever a method raises of what it did not expect
            return told(error), {}
        finite = training.all_finite(server, context.device)
        return "" if finite else "it leaves numbers that are not finite", returned

    reason, returned = tried(answers, afresh=False)
    if not reason:
        return answers, returned, ""
    left = [answer for answer in answers if not tried([answer])[0]] or answers
    while left and tried(left)[0]:
        largest = max(left, key=lambda answer: _largest(answer[1].upload))
        left = [answer for answer in left if answer is not largest]
    if not left and len(answers) > 1:
        left = answers
    _become(server, before)
    return left, made(left) if left else {}, reason


def _become(server: ServerState, state: ServerState) -> None:
    server.clear()
    server.update(border.copied(state, "the server's state"))


def _largest(upload: Message) -> float:
    return max((float(tensor.abs().max()) for tensor in upload.tensors.values() if tensor.numel()), default=0.0)
