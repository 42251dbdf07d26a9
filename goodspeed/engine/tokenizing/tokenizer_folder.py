"""Loads a tokenizer without its model and without torch: for nodes that encode, decode and draft without weights."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from goodspeed.embedded import models
from goodspeed.engine.tokenizing.chat_template import with_template
from goodspeed.engine.tokenizing.generation_settings import read_eos_ids
from goodspeed.engine.tokenizing.mended import mended
from goodspeed.engine.tokenizing.text import fingerprint, num_tokens
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import CheckpointError, GoodSpeedError, first_line

FILE = "tokenizer.json"

SIBLINGS = (
    f"an embedded model's name ({', '.join((*models.NAMES, *models.PACKAGED))}), a GGUF file or a folder with {FILE}"
)


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
        folder = mended(folder)
        tokenizer = _load_tokenizer(folder)
        known = num_tokens(tokenizer)
        return Vocabulary(
            name=name,
            tokenizer=tokenizer,
            tokenizer_fingerprint=fingerprint(tokenizer),
            eos_ids=read_eos_ids(f"--tokenizer {name}", folder, tokenizer, known),
            num_tokens=known,
        )
    except GoodSpeedError:
        raise
    except Exception as error:  # whatever the libraries raise for malformed files
        what = f"--tokenizer {name}: the tokenizer cannot be loaded ({first_line(error)})"
        raise CheckpointError(f"{what}; get the tokenizer's files again") from error


def _load_tokenizer(folder: Path) -> Any:
    with torch_out_of_sight():
        from transformers import AutoTokenizer

        return with_template(AutoTokenizer.from_pretrained(folder, trust_remote_code=False), folder)


@contextmanager
def torch_out_of_sight() -> Iterator[None]:
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
