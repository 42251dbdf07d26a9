"""The tensors of a checkpoint folder by name, each read on request."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from goodspeed.engine.model_files.checkpoint_folder import weight_files
from goodspeed.errors import CheckpointError


class StoredTensors:
    """Reads tensors from a folder's safetensors files, already checked by `refuse_weights`. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._files: dict[str, Any] = {}
        for path in weight_files(folder.name, folder):
            file: Any = safe_open(path, framework="pt")
            self._files |= dict.fromkeys(file.keys(), file)

    @property
    def names(self) -> list[str]:
        return sorted(self._files)

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns a tensor's shape without reading its data; CheckpointError if there is no such tensor."""
        if name not in self._files:
            raise CheckpointError(f"{name} is missing among the quantised weights; get the checkpoint again")
        return tuple(self._files[name].get_slice(name).get_shape())

    def read(self, name: str) -> Tensor:
        tensor: Tensor = self._files[name].get_tensor(name)
        return tensor


@dataclass(frozen=True)
class Deferred:
    """A tensor made only when transformers takes all of it, by indexing it like a safetensors slice."""

    make: Callable[[], Tensor]

    def __getitem__(self, index: object) -> Tensor:
        return self.make()
