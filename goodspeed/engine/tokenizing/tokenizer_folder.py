"""Loads a tokenizer without its model and without torch: for nodes that encode, decode and draft without weights."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from goodspeed.embedded import models
from goodspeed.engine.tokenizing.text import fingerprint, num_tokens
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import CheckpointError, first_line

FILE = "tokenizer.json"
EOS_FILES = ("generation_config.json", "config.json")
"""Files that may have end-of-sequence ids; the first one that has them counts."""

SIBLINGS = f"an embedded model's name ({', '.join(models.NAMES)}) or a folder with {FILE}"


def find(name: str) -> Path:
    """Returns the folder of an embedded model, or the named folder; CheckpointError if it has no tokenizer.json."""
    folder = models.path(name) if name in models.NAMES else Path(name)
    try:
        is_there = (folder / FILE).is_file()
    except OSError:  # no name that a file can have
        is_there = False
    if not is_there:
        raise CheckpointError(f"--tokenizer {name}: there is no {FILE}; give {SIBLINGS}")
    return folder


def load(name: str) -> Vocabulary:
    """Loads the tokenizer of an embedded model or a folder; CheckpointError if it is missing or damaged."""
    folder = find(name)
    try:
        tokenizer = _load_tokenizer(folder)
        known = num_tokens(tokenizer)
        return Vocabulary(
            name=name,
            tokenizer=tokenizer,
            tokenizer_fingerprint=fingerprint(tokenizer),
            eos_ids=tuple(each for each in _eos_ids(folder, tokenizer) if each < known),
            num_tokens=known,
        )
    except Exception as error:  # whatever the libraries raise for malformed files
        what = f"--tokenizer {name}: the tokenizer cannot be loaded ({first_line(error)})"
        raise CheckpointError(f"{what}; get the tokenizer's files again") from error


def _load_tokenizer(folder: Path) -> Any:
    with _torch_out_of_sight():
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


@contextmanager
def _torch_out_of_sight() -> Iterator[None]:
    """Hides torch from transformers: importing torch takes seconds and 300 MB, and a tokenizer does not need it."""
    if "torch" in sys.modules:
        yield
        return
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # transformers would warn that torch is missing
    sys.modules["torch"] = None  # type: ignore[assignment]  # makes imports of torch fail
    try:
        yield
    finally:
        del sys.modules["torch"]


def _eos_ids(folder: Path, tokenizer: Any) -> tuple[int, ...]:
    """Returns the end-of-sequence ids: the generation config's, else the model's, else the tokenizer's."""
    for path in (folder / name for name in EOS_FILES):
        content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        found = content.get("eos_token_id") if isinstance(content, dict) else None
        if found is not None:
            return tuple(map(int, found)) if isinstance(found, list) else (int(found),)
    own = getattr(tokenizer, "eos_token_id", None)
    return () if own is None else (int(own),)
