"""Both engines do what every engine must (`any_engine.py`)."""

import pytest

from goodspeed.engine import engines
from goodspeed.engine.base import Checkpoint
from tests.engine import gguf_models
from tests.engine.any_engine import AnyEngine
from tests.engine.conftest import Save
from tests.engine.openvino import making


class TestTorch(AnyEngine):
    @pytest.fixture(scope="class")
    @classmethod
    def checkpoint(cls, save_checkpoint: Save) -> Checkpoint:
        return engines.load(str(save_checkpoint()), engine="torch")


class TestOpenVino(AnyEngine):
    """With 8-bit activations, in every storage type."""

    exact = True

    @pytest.fixture(scope="class", params=[*gguf_models.TYPES, "Q4_1, two threads", "folder"])
    @classmethod
    def checkpoint(cls, request: pytest.FixtureRequest, save_checkpoint: Save) -> Checkpoint:
        if request.param == "folder":
            return engines.load(str(making.folder(save_checkpoint, making.stateful())))
        stored, _, threads = request.param.partition(", ")
        return engines.load(str(gguf_models.made(stored)), num_threads=2 if threads else 1)
