"""Nodes whose target writes at random, with a chat template that knows tools and thinking."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformers import AutoModelForCausalLM, LlamaConfig

from tests import chats
from tests.nodes import VerifyNode
from tests.together.http.conftest import draft_node

NUM_ROWS = 320
"""More than the tokenizer has ids."""


@contextmanager
def talking(folder: Path) -> Iterator[str]:
    """Yields the base URL of the API; the checkpoint lies in the folder."""
    (end,) = chats.ids_of("<|im_end|>")
    config = LlamaConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        vocab_size=NUM_ROWS,
        max_position_embeddings=4096,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=None,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    chats.save(folder)
    with (
        VerifyNode("--model", str(folder)) as verify,
        draft_node(verify.endpoint, "--model", "none", "--tokenizer", str(folder)) as (_, url),
    ):
        yield url
