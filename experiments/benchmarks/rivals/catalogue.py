"""The rivals: what each one reads, in which environment it runs, and why one cannot run here."""

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from experiments.benchmarks.rivals.files import Files

ROOT = Path(__file__).parents[3]
ENVIRONMENTS = ROOT / ".peers"
"""`make peers` makes a virtual environment for each rival there that is not in PACKAGES."""

PACKAGES = {"hugging_face": "transformers", "llama": "xllamacpp", "own_engine": "torch"}
"""Packages that this Python must have for rivals that run with it, by module."""


@dataclass(frozen=True)
class Rival:
    """One way of writing texts."""

    way: str
    module: str  # of this folder; also the name of its environment
    reads: Literal["name", "checkpoint", "gguf"]
    drafts: Literal["ngram", "model"] | None = None

    @property
    def python(self) -> Path:
        return Path(sys.executable) if self.module in PACKAGES else ENVIRONMENTS / self.module / "bin/python"

    def missing(self, draft: Files) -> str | None:
        """Returns why it cannot run here; None if it can."""
        if self.module not in PACKAGES and not (ENVIRONMENTS / self.module / ".ready").exists():
            is_begun = (ENVIRONMENTS / self.module).exists()
            what = "was not completed; `make peers` says why" if is_begun else "is not there; `make peers` makes it"
            return f"the environment {ENVIRONMENTS.name}/{self.module} {what}"
        if self.module in PACKAGES and importlib.util.find_spec(PACKAGES[self.module]) is None:
            return f"this Python has no {PACKAGES[self.module]}"
        if self.drafts == "model" and self.model(draft) is None:
            return draft.missing or "it needs a draft model as a GGUF file: --draft FILE.gguf"
        return None

    def model(self, files: Files) -> str | None:
        form: str | None = getattr(files, self.reads)
        return form


OWN_ENGINE = Rival("engine", "own_engine", "name")
"""Our engine alone; it reads the target as the verify node does."""

RIVALS = (
    Rival("transformers", "hugging_face", "checkpoint"),
    Rival("transformers_assisted", "hugging_face", "checkpoint", "model"),
    Rival("transformers_prompt_lookup", "hugging_face", "checkpoint", "ngram"),
    Rival("genai", "genai", "gguf"),
    Rival("genai_prompt_lookup", "genai", "gguf", "ngram"),
    Rival("genai_draft", "genai", "gguf", "model"),
    Rival("llama", "llama", "gguf"),
    Rival("llama_draft", "llama", "gguf", "model"),
    Rival("vllm", "vllm", "checkpoint"),
    Rival("vllm_ngram", "vllm", "checkpoint", "ngram"),
    OWN_ENGINE,
)
