"""Names and folders of the embedded models."""

from pathlib import Path

from goodspeed.errors import CheckpointError

ROLES = {
    "tiny-target": "target: writes the text, at the verify node",
    "tiny-draft-s": "draft: the small one, quick and often wrong",
    "tiny-draft-m": "draft: the middle one, slower and more often right",
    "tiny-draft-p": "draft: as large as the middle one, drafts eight tokens in one pass",
}
NAMES = tuple(ROLES)
WEIGHTS = Path(__file__).parent / "weights"


def path(name: str) -> Path:
    """Returns the checkpoint folder of an embedded model; CheckpointError for any other name."""
    if name not in NAMES:
        raise CheckpointError(f"no embedded model is named {name!r}; choose one of: {', '.join(NAMES)}")
    return WEIGHTS / name
