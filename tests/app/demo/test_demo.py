"""The demo with real nodes: its result, that the text is the target's own, and that it ends in good order."""

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytestmark = pytest.mark.nodes

ROOT = Path(__file__).parents[3]
TINY = ("--model", "tiny-target", "--draft-models", "tiny-draft-s,none", "--max-tokens", "24")
DOMAINS = ["chat", "coding", "translation"]


@dataclass(frozen=True)
class Ended:
    out: str
    err: str
    result: dict[str, Any]


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "goodspeed", "demo", *words]


@pytest.fixture(scope="module")
def demo() -> Ended:
    """Runs the demo once with three clients, for all tests that look at a result."""
    words = [*TINY, "--clients", "3", "--temperature", "0.9", "--seed", "5"]
    ended = subprocess.run(command(*words, "--json"), cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return Ended(ended.stdout, ended.stderr, json.loads(ended.stdout.splitlines()[-1]))


def test_the_result_has_its_fields(demo: Ended) -> None:
    result, alone = demo.result, demo.result["alone"]
    assert (result["policy"], result["model"], result["temperature"]) == ("gradient", "tiny-target", 0.9)
    assert min(result["tokens_per_s"], alone["tokens_per_s"], alone["speedup"]) > 0
    assert 0 < result["jain"] <= 1
    assert result["drafted_by"].keys() >= {"model", "ngram"}  # on a busy machine a model may be late for all rounds
    for source, number in result["drafted_by"].items():
        assert number == sum(client["drafted_by"].get(source, 0) for client in result["clients"])
    assert len(demo.out.splitlines()) == 1


def test_every_client_has_its_fields(demo: Ended) -> None:
    clients = demo.result["clients"]
    assert [client["domain"] for client in clients] == DOMAINS
    assert [client["draft_node"] for client in clients] == ["draft-1", "draft-2", "draft-1"]
    assert [client["draft_model"] for client in clients] == ["tiny-draft-s", "none", "tiny-draft-s"]
    for client in clients:
        assert 0 < client["num_tokens"] == len(client["token_ids"]) <= 24
        assert client["num_accepted"] <= client["num_drafted"]
        assert sum(client["drafted_by"].values()) == client["num_drafted"]
        assert 0 < client["goodput"] <= 24  # a round that draws the token of the end brings the text none
        assert min(client["tokens_per_s"], client["alone_tokens_per_s"]) > 0


@pytest.mark.essential
def test_the_text_is_the_target_s_own(demo: Ended) -> None:
    assert demo.result["alone"]["num_different"] == 0
    client = demo.result["clients"][0]
    words = ["generate", "--model", "tiny-target", "--chat", "--prompt", client["prompt"], "--max-tokens", "24"]
    words += ["--temperature", "0.9", "--seed", "5"]
    ended = subprocess.run([sys.executable, "-m", "goodspeed", *words], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert client["text"] in ended.stdout


def test_progress_is_on_standard_error(demo: Ended) -> None:
    said = demo.err.splitlines()
    assert said[0] == "starting the verify node with tiny-target"
    assert said[1] == "starting 2 draft nodes with tiny-draft-s, n-grams"
    for line in ("run 1 of 4, with drafts: ", "run 2 of 4, the target alone: ", "run 4 of 4, with drafts: "):
        assert any(one.startswith(line) for one in said)
    for domain in DOMAINS:
        assert f" {domain}, " in demo.err


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


def test_ctrl_c_leaves_no_process(mark: str) -> None:
    """Interrupted while the verify node serves and the draft nodes are still importing."""
    with subprocess.Popen(
        command(*TINY), cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        while "starting 2 draft nodes" not in process.stderr.readline():
            assert process.poll() is None
        assert len(marked(mark)) >= 2
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert process.stdout.read() == ""
    assert marked(mark) == []


def test_with_http_both_faces_stay_open_after_the_result(mark: str) -> None:
    words = [*TINY, "--clients", "1", "--http"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    own = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    with subprocess.Popen(command(*words), cwd=ROOT, env=own, **pipes) as process:
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
