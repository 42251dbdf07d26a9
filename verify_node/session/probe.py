"""What a session's last draft was, as far as probes go. Knows nothing about when one is due (`rounds/probes.py`)."""

from enum import Enum


class Probe(Enum):
    """A draft that is asked for to learn, where the policy would have none."""

    NONE = "none"
    ASKED = "asked"
    ACCEPTED = "accepted"  # so well that one more is asked for at once
