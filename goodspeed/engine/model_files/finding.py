"""Finds a model by its name, whatever computes it: a checkpoint, a GGUF file, or a folder of OpenVINO. Loads no torch.

torch computes checkpoints; OpenVINO computes the other two, on a CPU. What cannot work is refused before either is
loaded, which takes seconds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from goodspeed.embedded import models
from goodspeed.engine.gguf import shape, vocabulary
from goodspeed.engine.gguf.file import GgufFile, read
from goodspeed.engine.model_files.checkpoint_folder import (
    find_folder,
    find_tokenizer_folder,
    read_config,
    refuse_pointer,
)
from goodspeed.engine.tokenizing import tokenizer_folder
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import CheckpointError, ConfigError, need, reason

Kind: TypeAlias = Literal["checkpoint", "gguf", "openvino"]

GRAPH, WEIGHTS = "openvino_model.xml", "openvino_model.bin"
"""Files of OpenVINO's format, which `optimum-cli export openvino` writes."""

DTYPES = ("auto", "float32")
"""Precisions that OpenVINO is asked for: as the file has it, with int8 activations, or float32 throughout."""


ENGINES = ("auto", "torch", "openvino")
"""Engines of this package, for which a model is looked for before it is loaded."""


@dataclass(frozen=True)
class ModelFiles:
    """A model's place on this machine."""

    name: str
    kind: Kind
    path: Path  # the GGUF file, else the folder


def kind_of(name: str) -> Kind:
    """Returns what a name means, without a look at the hub. A folder that has safetensors, too, is a checkpoint."""
    if models.is_gguf(name):
        return "gguf"
    folder = Path(name)
    try:
        is_openvino = name not in models.NAMES and (folder / GRAPH).is_file() and not any(folder.glob("*.safetensors"))
    except OSError:  # no name that a folder can have, or one that may not be read: `find_folder` says so
        return "checkpoint"
    return "openvino" if is_openvino else "checkpoint"


def find_model(name: str, say: Callable[..., None] = lambda *_: None) -> ModelFiles:
    """Finds a model, and checks what can be checked quickly; downloads a checkpoint of the hub if necessary.

    say: called with a %-format and its values when a download begins, which may take minutes. Raises CheckpointError or
    UnsupportedModelError.
    """
    kind = kind_of(name)
    if kind == "gguf":
        path, file = _checked(name)
        shape.refuse(file)
        return ModelFiles(name, kind, path)
    return ModelFiles(name, kind, find_folder(name, say) if kind == "checkpoint" else _find_openvino(name))


def refuse_settings(name: str, device: str, dtype: str, num_ranks: int = 1, engine: str = "auto") -> None:
    """Raises ConfigError for settings with which the model cannot be computed, and NotInstalled without the package
    that computes it. An engine of another package checks its own when it loads the model."""
    kind = kind_of(name)
    if engine not in ENGINES:
        return
    if kind == "checkpoint":
        if engine == "openvino":
            what = "a checkpoint, which torch computes; leave it out, or give the model as a GGUF file"
            raise ConfigError(f"--engine openvino: {name} is {what}")
        need(f"--model {name}", "torch", "torch")
        return
    what = "a GGUF file" if kind == "gguf" else "a model of OpenVINO"
    if engine == "torch":
        raise ConfigError(f"--engine torch: {name} is {what}, which OpenVINO computes; leave it out")
    instead = "leave it out, or use a checkpoint in safetensors"
    if device != "cpu":
        raise ConfigError(f"--device {device}: {name} is {what}, which is computed on a CPU only; {instead}")
    if num_ranks > 1:
        raise ConfigError(f"--tp {num_ranks}: {name} is {what}, which cannot be split; {instead}")
    if dtype not in DTYPES:
        raise ConfigError(f"--dtype {dtype}: {name} is {what}, for which it is {' or '.join(DTYPES)}; {instead}")
    need(f"--model {name}", "torch,openvino", "torch", "openvino")


def find_tokenizer(name: str, say: Callable[..., None] = lambda *_: None) -> None:
    """Raises CheckpointError if `load_tokenizer` would find no tokenizer. name: of --tokenizer. say: as for
    `find_model`."""
    if models.is_gguf(name):
        _checked(name, f"--tokenizer {name}")
        return
    try:
        is_there = find_tokenizer_folder(name, say) is not None
    except CheckpointError as error:
        raise CheckpointError(f"--tokenizer {name}: {error}") from error
    if not is_there:
        tokenizer_folder.find(name)


def load_tokenizer(name: str) -> Vocabulary:
    """Loads a tokenizer without its model: of an embedded model, a folder with tokenizer.json, the hub, or a GGUF
    file."""
    if models.is_gguf(name):
        return vocabulary.load(read(models.gguf_file(name), name))
    if (folder := find_tokenizer_folder(name)) is not None:
        return tokenizer_folder.of_folder(name, folder, f"--tokenizer {name}")
    return tokenizer_folder.load(name)


def _checked(name: str, shown: str = "") -> tuple[Path, GgufFile]:
    """Returns a GGUF file whose tokenizer can be made. shown: in messages, instead of the name."""
    path = models.gguf_file(name)
    file = read(path, shown or name)
    vocabulary.check(file)
    return path, file


def _find_openvino(name: str) -> Path:
    try:
        folder = Path(name)
        read_config(name, folder)
        for file in (WEIGHTS, tokenizer_folder.FILE):
            if not (folder / file).is_file():
                raise CheckpointError(f"{name}: {GRAPH} is there, but no {file}; get the folder again, whole")
        refuse_pointer(name, folder / WEIGHTS)
    except OSError as error:
        raise CheckpointError(f"{name}: it cannot be read ({reason(error)}); let this user read it") from error
    return folder
