"""Names and folders of the embedded models. Knows nothing about torch: asking where a model is costs nothing."""

from pathlib import Path

NAMES = ("tiny-target", "tiny-draft-s", "tiny-draft-m")
WEIGHTS = Path(__file__).parent / "weights"


def path(name: str) -> Path:
    """The checkpoint folder of an embedded model; KeyError for any other name."""
    if name not in NAMES:
        raise KeyError(f"no embedded model is called {name!r}; there are {', '.join(NAMES)}")
    return WEIGHTS / name
