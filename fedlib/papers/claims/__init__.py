"""What the four papers claim in prose, as objects: each claim names how the paper's printed tables recompute it and how runs are
held against it. One module per paper.
"""

from .claim import AGREEMENTS, AGREES, DISAGREES, LAST_DIGIT, NO_TABLE, Claim
from .ledger import CLAIMS, grids_of, ledger, tally

__all__ = [
    "AGREEMENTS",
    "AGREES",
    "CLAIMS",
    "DISAGREES",
    "LAST_DIGIT",
    "NO_TABLE",
    "Claim",
    "grids_of",
    "ledger",
    "tally",
]
