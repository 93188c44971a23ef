"""What every test shares, for pytest to find."""

from fixtures import *  # noqa: F403
