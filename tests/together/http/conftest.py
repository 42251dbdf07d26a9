"""A verify node and a draft node with an HTTP face, as processes of their own, for all tests here."""

from collections.abc import Iterator
from contextlib import contextmanager

import openai
import pytest

from tests.nodes import DraftNode, VerifyNode


@contextmanager
def draft_node(endpoint: str, *options: str) -> Iterator[tuple[DraftNode, str]]:
    """Yields a draft node with the base URL of its OpenAI API."""
    with DraftNode(endpoint, *options) as node:
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
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client
