"""`goodspeed-draft` ends with its events and its exit status."""

import json
import signal
from pathlib import Path

import pytest

from experiments.harness.forks import Fork
from tests.nodes import VerifyNode

pytestmark = pytest.mark.nodes


def start(endpoint: str, *words: str) -> Fork:
    return Fork("draft_node", "--model", "tiny-draft-s", "--verify", endpoint, "--json", "--max-tokens", *words)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": text, "seed": 1}) + "\n" for text in ("one", "two", "three")))
    return file


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_before_the_end(number: signal.Signals, prompts: Path, verify: VerifyNode) -> None:
    with start(verify.endpoint, "2000", "--prompts", str(prompts), "--max-sessions", "1") as process:
        assert process.stdout is not None
        while json.loads(process.stdout.readline())["event"] != "tokens":
            pass
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    loading, *_, connected, last = err.splitlines()  # between them it may say that it waits
    assert loading == "goodspeed-draft: loading tiny-draft-s ..."
    assert connected == f"goodspeed-draft: connected to {verify.endpoint}"
    assert last == "goodspeed-draft: interrupted; unfinished prompts: 3"
    result = json.loads(out.splitlines()[-1])
    assert [row["error"]["code"] for row in result["prompts"]] == ["interrupted"] * 3
    assert [row["prompt"] for row in result["prompts"]] == ["one", "two", "three"]
