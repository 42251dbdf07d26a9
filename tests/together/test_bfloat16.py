"""A target in bfloat16 on a CPU writes the same text, bit for bit, whatever is drafted: chains and trees."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from msgspec.structs import replace
from transformers import LlamaConfig

from goodspeed.app.generation import generate
from goodspeed.engine import checkpoints
from goodspeed.engine.runner import Runner
from goodspeed.exact import trees
from goodspeed.fair.refined import Refined
from goodspeed.serving.events import EventLog
from goodspeed.wire import probabilities
from goodspeed.wire.messages import Sampling, TokenLogprobs, Verdict
from tests.engine.conftest import SMALL, make_model, make_tokenizer
from tests.fakes import Desk, make_hello
from verify_node import assembly
from verify_node.config import VerifyConfig

PROMPT = tuple(range(40, 80))
CONFIG = LlamaConfig(
    **(SMALL | {"hidden_size": 768, "num_attention_heads": 6, "intermediate_size": 1024, "initializer_range": 0.05}),
    num_key_value_heads=2,
)  # heads of 128: with such, the bits of a tree's path are not those of a chain
SAMPLING = Sampling(temperature=1.0, seed=3)
NUM_TOKENS = 200
PARENTS = (-1, 0, 0, 2, 2, 4, 4)


def drafted(text: Sequence[int]) -> tuple[int, ...]:
    """A tree of PARENTS whose path of alternatives goes on with the text; its first choices do so for one token."""
    right = [*text, *range(4)][:4]
    first, second, third, fourth = right
    return (first, (second + 1) % 256, second, (third + 1) % 256, third, (fourth + 1) % 256, fourth)


class Node:
    """A verify node with its target in bfloat16, without sockets."""

    def __init__(self, folder: Path) -> None:
        config = VerifyConfig(model=str(folder), dtype="bfloat16", kv_pages=64)
        self.target = checkpoints.load(config.model, dtype=config.dtype)
        no_channel: Any = Mock()
        runner, welcome = assembly.make_runner(config, self.target), assembly.make_welcome(config, self.target)
        daemon = assembly.build(config, runner, no_channel, welcome, EventLog(enabled=False), Refined())
        self.desk = Desk(daemon.core)
        self.desk.target.run = lambda planned: daemon.target.run(planned).outcomes  # type: ignore[method-assign]
        self.tokenizer = self.target.tokenizer_fingerprint

    def write(self, text: Sequence[int] = ()) -> tuple[list[int], list[TokenLogprobs]]:
        """Writes the text, which is known here if trees are to be drafted on it."""
        desk, tokens, logprobs = self.desk, list[int](), list[TokenLogprobs]()
        desk.up("a", make_hello(tokenizer=self.tokenizer))
        desk.open(prompt=PROMPT, sampling=SAMPLING, max_tokens=NUM_TOKENS, num_logprobs=0)
        while len(tokens) < NUM_TOKENS:
            for told in desk.round():
                if isinstance(told, Verdict):
                    tokens += told.tokens
                    logprobs += told.logprobs or ()
            desk.acknowledge()
            if text and tokens and len(tokens) < NUM_TOKENS:
                tree, claimed = drafted(text[len(tokens) :]), probabilities.encode((0.5,) * len(PARENTS))
                draft = desk.honest_draft(tokens=tree)
                desk.up("a", replace(draft, probabilities=claimed, parents=trees.pack(PARENTS), source="model"))
        return tokens, logprobs


@pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="this CPU does not multiply in bfloat16")
def test_drafted_trees_change_no_bit(tmp_path: Path) -> None:
    make_model(CONFIG).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    plain, node = Node(tmp_path), Node(tmp_path)
    runner = Runner(plain.target, num_pages=64, is_target=True)
    alone = list(generate(plain.target, runner, PROMPT, SAMPLING, NUM_TOKENS))
    text, logprobs = plain.write()
    assert text == alone
    assert node.write(alone) == (text, logprobs)
    counts = node.desk.core.counts
    assert counts.num_accepted > 10
    assert counts.num_alternatives == 0
