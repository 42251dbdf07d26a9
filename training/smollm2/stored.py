"""Answers on disk: prompts, what the target wrote, and its likeliest tokens at every position.

A file has the arrays of many answers one after the other, and never pickled objects.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUM_LIKELY = 16
"""Tokens of a position whose probabilities are stored: nearly always 0.95 of all probability."""


@dataclass(frozen=True)
class Answer:
    """The target's text after a prompt, with its likeliest tokens."""

    domain: str
    id: str  # of the prompt
    temperature: float
    prompt: NDArray[np.int64]
    tokens: NDArray[np.int64]
    likely: NDArray[np.uint16]  # [num_tokens, NUM_LIKELY] the likeliest tokens at each token's place, best first
    log_probs: NDArray[np.float16]  # [num_tokens, NUM_LIKELY] theirs, at temperature 1


def save(file: Path, answers: Sequence[Answer]) -> None:
    """Writes a file; a reader sees all of it or nothing."""
    joined: dict[str, NDArray[Any]] = {
        name: np.concatenate([getattr(answer, name) for answer in answers]) for name in ("likely", "log_probs")
    }
    for name in ("prompt", "tokens"):
        parts = [getattr(answer, name) for answer in answers]
        joined[name], joined[f"len_{name}"] = np.concatenate(parts).astype(np.int32), np.array([*map(len, parts)])
    for name in ("domain", "id", "temperature"):
        joined[name] = np.array([getattr(answer, name) for answer in answers])
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    with partial.open("wb") as opened:
        np.savez(opened, allow_pickle=False, **joined)
    partial.replace(file)


def load(folder: Path, *, held_out: bool) -> list[Answer]:
    """Returns the answers of all files: those to train on, or those to measure with."""
    files = sorted(folder.glob(f"{prefix(held_out=held_out)}*.npz"))
    return [answer for file in files for answer in _read(file)]


def prefix(*, held_out: bool) -> str:
    """Returns how the files' names begin."""
    return "held-out-" if held_out else "train-"


def _read(file: Path) -> Iterator[Answer]:
    with np.load(file, allow_pickle=False) as stored:
        arrays = dict(stored.items())
    ends = {name: arrays[f"len_{name}"].cumsum()[:-1] for name in ("prompt", "tokens")}
    prompts = np.split(arrays["prompt"].astype(np.int64), ends["prompt"])
    rest = [np.split(arrays[name], ends["tokens"]) for name in ("tokens", "likely", "log_probs")]
    about = zip(arrays["domain"].tolist(), arrays["id"].tolist(), arrays["temperature"].tolist(), strict=True)
    for (domain, name, temperature), prompt, tokens, likely, log_probs in zip(about, prompts, *rest, strict=True):
        yield Answer(domain, name, temperature, prompt, tokens.astype(np.int64), likely, log_probs)
