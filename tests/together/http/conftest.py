"""Nodes with an HTTP face, as processes of their own, for all tests here; some have a target that writes at random."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import openai
import pytest
import torch
from pydantic import BaseModel, ConfigDict, Field
from transformers import AutoModelForCausalLM, LlamaConfig

from tests import chats
from tests.engine.conftest import SMALL
from tests.nodes import DraftNode, VerifyNode

NUM_ROWS = 320  # more than the tokenizer has ids
ASKED = "What is the capital of France?"
MAX_TOKENS = 24
EXTRA: dict[str, Any] = {"seed": 7}


class City(BaseModel):
    """A form that a nonsense model can keep; it is short, so that it is complete in time.

    Without `forbid` a framework that asks for no strict schema would let it add properties until it is cut.
    """

    model_config = ConfigDict(extra="forbid")

    name: Literal["Rome", "Oslo"]
    number: int = Field(ge=0, le=9)


def official(url: str, key: str = "none") -> openai.OpenAI:
    """The official client, which asks once."""
    return openai.OpenAI(base_url=url, api_key=key, max_retries=0)


@contextmanager
def draft_node(endpoint: str, *options: str, module: str = "draft_node") -> Iterator[tuple[DraftNode, str]]:
    """Yields a draft node with the base URL of its OpenAI API."""
    with DraftNode(endpoint, *options, module=(module,)) as node:
        node.wait_for("connected")
        yield node, f"{node.url}/v1"


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    """Yields the address of a verify node that has drafts made however fast this machine is."""
    with VerifyNode() as node:
        yield node.endpoint


@pytest.fixture(scope="session")
def url(endpoint: str) -> Iterator[str]:
    with draft_node(endpoint) as (_, url):
        yield url


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with official(url) as client:
        yield client


@pytest.fixture(scope="session")
def expected(url: str) -> str:
    """The text of a plain request for what is asked, with seed 7."""
    with official(url) as client:
        asked: Any = [{"role": "user", "content": ASKED}]
        answer = client.chat.completions.create(model="goodspeed", messages=asked, max_tokens=MAX_TOKENS, seed=7)
    assert answer.choices[0].message.content
    return answer.choices[0].message.content


@pytest.fixture(scope="session")
def tools_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of nodes whose target writes at random; its chat template knows tools and thinking."""
    folder = tmp_path_factory.mktemp("checkpoint")
    (end,) = chats.ids_of("<|im_end|>")
    own = {"vocab_size": NUM_ROWS, "max_position_embeddings": 4096, "eos_token_id": end, "initializer_range": 0.02}
    config = LlamaConfig(**SMALL | own)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    chats.save(folder)
    words = ("--model", "none", "--tokenizer", str(folder))
    with VerifyNode("--model", str(folder)) as verify, draft_node(verify.endpoint, *words) as (_, url):
        yield url
