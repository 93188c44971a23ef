"""What a notebook says: text that wraps between words."""

from fedlib.papers.prose import Sentences, say


def test_one_sentence_is_a_paragraph_and_several_are_a_list():
    assert Sentences(["A lead of 2 points."])._repr_markdown_() == "A lead of 2 points."
    assert Sentences(["One.", "", "Two."])._repr_markdown_() == "* One.\n* Two."


def test_signs_of_markdown_are_shown_as_they_are():
    shown = Sentences(["mu_0 * 2 < 3 [a](b) costs $1"])
    assert shown._repr_markdown_() == r"mu\_0 \* 2 \< 3 \[a\](b) costs \$1"
    assert repr(shown) == "mu_0 * 2 < 3 [a](b) costs $1"


def test_outside_a_notebook_they_are_printed_one_a_line(capsys):
    say("One.", "Two.")
    say()
    assert capsys.readouterr().out == "One.\nTwo.\n"
