"""The four papers: what they print, what they claim, and what our runs say of it."""
