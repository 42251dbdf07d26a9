"""Loads a tokenizer without its model and without torch: for nodes that encode, decode and draft without weights."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from goodspeed.embedded import models
from goodspeed.engine.tokenizing.chat_template import SPECIAL
from goodspeed.engine.tokenizing.generation_settings import read_eos_ids
from goodspeed.engine.tokenizing.text import fingerprint, num_tokens
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import CheckpointError, GoodSpeedError, first_line

FILE = "tokenizer.json"

SIBLINGS = (
    f"an embedded model's name ({', '.join((*models.NAMES, *models.GGUF_NAMES))}), a GGUF file, a folder with {FILE}, "
    "or a hub name"
)


def find(name: str) -> Path:
    """Returns the folder of an embedded model, or the named folder; CheckpointError if it has no tokenizer.json."""
    folder = models.path(name) if name in models.NAMES else Path(name)
    if not os.path.isfile(folder / FILE):  # noqa: PTH113 (pathlib's raises for a name that no file can have)
        raise CheckpointError(f"--tokenizer {name}: there is no {FILE}; {models.meant(name)}give {SIBLINGS}")
    return folder


def load(name: str, option: str = "--tokenizer") -> Vocabulary:
    """Loads the tokenizer of an embedded model or a folder; CheckpointError if it is missing or damaged.

    option: that names it, in messages.
    """
    return of_folder(name, find(name), f"{option} {name}")


def of_folder(name: str, folder: Path, shown: str) -> Vocabulary:
    """Loads a folder's tokenizer; CheckpointError if it is damaged. shown: in messages, instead of the name."""
    try:
        tokenizer = from_folder(folder)
        known = num_tokens(tokenizer)
        return Vocabulary(
            name=name,
            tokenizer=tokenizer,
            tokenizer_fingerprint=fingerprint(tokenizer),
            eos_ids=read_eos_ids(shown, folder, tokenizer, known),
            num_tokens=known,
        )
    except GoodSpeedError:
        raise
    except Exception as error:  # whatever the libraries raise for malformed files
        what = f"{shown}: the tokenizer cannot be loaded ({first_line(error)})"
        raise CheckpointError(f"{what}; get the tokenizer's files again") from error


def from_folder(folder: Path) -> Any:
    """Loads a folder's tokenizer with transformers, as tokenizer.json has it if that file is there.

    A `tokenizer_class` such as GPT2Tokenizer or Qwen2Tokenizer takes vocabulary and merges from tokenizer.json, and has
    a normalizer, a pre-tokenizer, a decoder and tokens of its own, which can be others than the file's: then texts get
    wrong ids. Of such a class only the names of special tokens are used.
    """
    with torch_out_of_sight():
        from transformers import AutoTokenizer, PreTrainedTokenizerFast

        found = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        is_rebuilt = isinstance(found, PreTrainedTokenizerFast) and type(found) is not PreTrainedTokenizerFast
        if is_rebuilt and (folder / FILE).is_file():
            whole = PreTrainedTokenizerFast.from_pretrained(folder)
            vocab = whole.get_vocab()
            for name in SPECIAL:
                if getattr(whole, name) is None and getattr(found, name) in vocab:
                    setattr(whole, name, getattr(found, name))
            found = whole
        return found


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
