"""The demo with real nodes: its result, that the text is the target's own, and that it ends in good order."""

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytestmark = pytest.mark.nodes

ROOT = Path(__file__).parents[3]
TINY = ("--model", "tiny-target", "--draft-models", "tiny-draft-s,none", "--max-tokens", "24")
DOMAINS = ["chat", "coding", "translation"]


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "goodspeed", "demo", *words]


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    """Runs the demo once with three clients."""
    words = [*TINY, "--clients", "3", "--temperature", "0.9", "--seed", "5"]
    ended = subprocess.run(command(*words, "--json"), cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return dict(json.loads(ended.stdout))


def test_the_result_is_of_all_clients(result: dict[str, Any]) -> None:
    clients = result["clients"]
    assert (result["policy"], result["model"], result["temperature"]) == ("gradient", "tiny-target", 0.9)
    assert result["alone"]["speedup"] > 0
    assert result["drafted_by"].keys() >= {"model", "ngram"}  # on a busy machine a model may be late for all rounds
    assert [client["domain"] for client in clients] == DOMAINS
    assert [client["draft_model"] for client in clients] == ["tiny-draft-s", "none", "tiny-draft-s"]
    for client in clients:
        assert 0 < client["num_tokens"] == len(client["token_ids"]) <= 24
        assert client["num_accepted"] <= sum(client["drafted_by"].values()) == client["num_drafted"]
        assert 0 < client["goodput"] <= 24  # a round that draws the token of the end brings the text none


@pytest.mark.essential
def test_the_text_is_the_target_s_own(result: dict[str, Any]) -> None:
    assert result["alone"]["num_different"] == 0
    client = result["clients"][0]
    words = ["generate", "--model", "tiny-target", "--chat", "--prompt", client["prompt"], "--max-tokens", "24"]
    words += ["--temperature", "0.9", "--seed", "5"]
    ended = subprocess.run([sys.executable, "-m", "goodspeed", *words], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert client["text"] in ended.stdout


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A variable in the environment of everything that a test starts."""
    mark = f"GOODSPEED_TEST_MARK={uuid.uuid4().hex}"
    monkeypatch.setenv(*mark.split("="))
    yield mark
    for pid in marked(mark):
        os.kill(pid, signal.SIGKILL)


def marked(mark: str) -> list[int]:
    """Processes, other than this one, that have the mark."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                environment = (folder / "environ").read_bytes()
            except OSError:  # gone meanwhile, or another user's
                continue
            if mark.encode() in environment.split(b"\0"):
                found.append(int(folder.name))
    return found


def test_with_http_both_faces_stay_open_after_the_result(mark: str) -> None:
    words = [*TINY, "--clients", "1", "--http"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command(*words), cwd=ROOT, **pipes) as process:
        assert process.stderr is not None
        said: list[str] = []
        while not said or "until Ctrl-C" not in said[-1]:
            said.append(process.stderr.readline())
            assert said[-1], said
        page, *chats = re.findall(r"http://127\.0\.0\.1:\d+", said[-2])
        assert len(chats) == 2
        for url in (page, *chats):
            assert httpx2.get(f"{url}/ready", trust_env=False).status_code == 200
        for url in (page, chats[0]):
            told = httpx2.get(url, headers={"accept": "text/html"}, trust_env=False)
            assert told.headers["content-type"].startswith("text/html")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out.splitlines()[-1].startswith("With drafts ")
    assert marked(mark) == []
