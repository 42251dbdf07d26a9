"""npm's clients, on real nodes: openai and the AI SDK, which `make clients` installs where there is npm."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.together.http.conftest import ASKED, MAX_TOKENS

pytestmark = [pytest.mark.nodes, pytest.mark.clients]

DEADLINE_S = 120
INSTALLED = Path(sys.prefix) / "node_modules"


@pytest.fixture(scope="module")
def told(url: str, tools_url: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Returns what the script beside this file prints; it is copied to the packages, where Node.js looks for them."""
    node = shutil.which("node")
    if node is None or not INSTALLED.is_dir():
        pytest.skip("the clients of npm are not installed (`make clients` does it where there are node and npm)")
    folder = tmp_path_factory.mktemp("npm")
    (folder / "node_modules").symlink_to(INSTALLED)
    script = shutil.copy(Path(__file__).parent / "clients.mjs", folder)
    words = [node, script, url, tools_url, ASKED, str(MAX_TOKENS)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return json.loads(ended.stdout)


@pytest.mark.parametrize("name", ["openai", "openaiStream", "openaiHelper", "ai", "aiStream"])
def test_a_text_is_that_of_a_plain_request(told: Any, expected: str, name: str) -> None:
    assert told[name] == expected


def test_a_stream_ends_with_its_usage(told: Any) -> None:
    assert 0 < told["openaiUsage"] == told["aiUsage"] <= MAX_TOKENS


def test_an_answer_has_its_form(told: Any) -> None:
    assert told["object"] == told["objectStream"]
    assert told["object"]["name"] in ("Rome", "Oslo")
    assert told["object"]["number"] in range(10)


def test_forced_calls_are_there_whole_and_streamed(told: Any) -> None:
    assert len({call["id"] for call in told["calls"]}) == 4
    for call in told["calls"]:
        assert call["why"] == "tool-calls"
        assert call["result"] == f"{call['input']['number']} degrees in {call['input']['name']}"
