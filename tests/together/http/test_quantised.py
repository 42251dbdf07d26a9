"""Both nodes serve folders of quantised weights: the text is that of a plain target of the same numbers."""

import shutil
from pathlib import Path

import pytest

from goodspeed.app.generate import GenerateConfig, generate
from goodspeed.embedded.models import path
from goodspeed.engine.torch import checkpoints
from tests.engine.torch.quantized.making import awq_pair
from tests.nodes import DraftNode, VerifyNode
from tests.together.http.conftest import official

pytestmark = pytest.mark.nodes

PROMPT = "def read_lines(path):"


@pytest.fixture
def target(tmp_path: Path) -> tuple[Path, Path]:
    """The target in 4 bits, and a plain one of the same numbers."""
    return awq_pair(Path(shutil.copytree(path("tiny-target"), tmp_path / "target")), 128)


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    return awq_pair(Path(shutil.copytree(path("tiny-draft-s"), tmp_path / "draft")), 64)[0]


def test_the_text_of_quantised_nodes(target: tuple[Path, Path], draft: Path) -> None:
    config = GenerateConfig(model=str(target[1]), prompt=PROMPT, max_tokens=32, temperature=0.8, seed=5)
    expected = generate(config, checkpoints.load(config.model))["text"]
    words = ("--model", str(draft), "--dtype", "bfloat16")
    with VerifyNode("--model", str(target[0])) as verify, DraftNode(verify.endpoint, *words) as node:
        node.wait_until_ready()
        client = official(f"{node.url}/v1")
        num_accepted = 0.0
        for _ in range(10):  # a busy machine may be late with the first drafts
            answer = client.completions.create(model="goodspeed", prompt=PROMPT, max_tokens=32, temperature=0.8, seed=5)
            assert answer.choices[0].text == expected
            num_accepted = num_accepted or verify.metrics()["spec_decode_num_accepted_tokens_total"]
        assert num_accepted > 0
