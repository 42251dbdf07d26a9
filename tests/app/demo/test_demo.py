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
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import pytest

from goodspeed.app.generation import generate
from goodspeed.embedded import prompts
from goodspeed.engine import checkpoints
from goodspeed.engine.runner import Runner
from goodspeed.engine.tokenizing.text import decode, encode_prompt
from goodspeed.serving.measuring import recording
from goodspeed.wire.messages import Sampling

pytestmark = pytest.mark.nodes

ROOT = Path(__file__).parents[3]
FIELDS = ["policy", "rounds", "budget", "num_rounds", "tokens_per_s", "log_utility", "jain", "uplink_bytes_per_token"]
CLIENT_FIELDS = (
    "name domain draft_model prompt seed text token_ids num_tokens num_rounds num_drafted num_accepted "
    "draft_acceptance_rate goodput tokens_per_s"
).split()


@dataclass(frozen=True)
class Ended:
    """A demo that has ended."""

    status: int
    out: str
    err: str
    result: dict[str, Any]
    png: Path
    recording: Path


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "goodspeed", "demo", *words]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Runs the demo once with two clients, for all tests that look at a result."""
    folder = tmp_path_factory.mktemp("demo")
    png, file = folder / "demo.png", folder / "run.jsonl"
    words = ["--clients", "2", "--max-tokens", "24", "--temperature", "0.9", "--png", str(png)]
    words += ["--record", str(file)]
    own = {**os.environ, "XDG_CACHE_HOME": str(folder)}
    ended = subprocess.run(command(*words, "--json"), cwd=ROOT, capture_output=True, text=True, env=own)
    assert ended.returncode == 0, ended.stderr
    return Ended(ended.returncode, ended.stdout, ended.stderr, json.loads(ended.stdout.splitlines()[-1]), png, file)


def test_the_result_has_its_fields(demo: Ended) -> None:
    result = demo.result
    assert list(result)[:8] == FIELDS
    assert set(result["wall_s"]) == {"receive", "forward", "verify", "schedule", "send"}
    assert (result["policy"], result["rounds"], result["budget"]) == ("gradient", "continuous", 24)
    assert result["num_rounds"] > 0
    assert result["tokens_per_s"] > 0
    assert result["uplink_bytes_per_token"] > 0
    assert 0 < result["jain"] <= 1
    assert all(seconds > 0 for seconds in result["wall_s"].values())
    assert len(demo.out.splitlines()) == 1


def test_every_client_has_its_fields(demo: Ended) -> None:
    clients = demo.result["clients"]
    assert [client["name"] for client in clients] == ["client-1", "client-2"]
    for client, prompt in zip(clients, prompts.demo(), strict=False):
        assert list(client)[: len(CLIENT_FIELDS)] == CLIENT_FIELDS
        assert (client["prompt"], client["domain"]) == (prompt.prompt, prompt.domain)
        assert client["seed"] == 0  # what --seed is by default
        assert client["num_tokens"] == len(client["token_ids"]) <= 24
        assert client["num_accepted"] <= client["num_drafted"]
        assert sum(client["drafted_by"].values()) == client["num_drafted"]
        assert sum(client["accepted_by"].values()) == client["num_accepted"]
        assert 0 < client["goodput"] <= client["num_tokens"] / client["num_rounds"]
        assert 0 < client["num_rounds"] <= demo.result["num_rounds"]
    assert any(client["num_drafted"] for client in clients)


@pytest.mark.essential
def test_the_text_is_the_target_s_own(demo: Ended) -> None:
    target = checkpoints.load("tiny-target")
    runner = Runner(target, num_pages=64)
    for client in demo.result["clients"]:
        sampling = Sampling(temperature=0.9, seed=client["seed"])
        prompt_ids = encode_prompt(target.tokenizer, client["prompt"])
        alone = list(generate(target, runner, prompt_ids, sampling, 24, target.eos_ids))
        assert client["token_ids"] == alone
        assert client["text"] == decode(target.tokenizer, alone)


def test_the_target_alone_wrote_the_same(demo: Ended) -> None:
    assert demo.result["alone"]["num_different"] == 0
    assert demo.result["alone"]["speedup"] > 0
    assert "the target writes the same texts alone" in demo.err


def test_the_picture_is_there_and_progress_is_on_standard_error(demo: Ended) -> None:
    assert demo.result["png"] == str(demo.png)
    assert demo.png.read_bytes().startswith(b"\x89PNG")
    assert demo.err.startswith("padding tiny-target to 116M parameters, once")
    assert "starting one verify node and 2 draft nodes; with the embedded models" in demo.err
    for line in (
        "the verify node is loading tiny-target-116m",
        "1 of 2 draft nodes are ready",
        "2 of 2 draft nodes are ready",
    ):
        assert f"{line}\n" in demo.err
    assert "all nodes are ready" in demo.err
    assert "client-2 (docs): " in demo.err


def test_the_recording_tells_what_the_result_sums_up(demo: Ended) -> None:
    recorded = recording.load(demo.recording)
    header, clients = recorded.header, {client["name"]: client for client in demo.result["clients"]}
    assert (header.model, header.budget, header.temperature, header.clients) == ("tiny-target-116m", 24, 0.9, 2)
    assert [done.number for done in recorded.rounds] == list(range(1, demo.result["num_rounds"] + 1))
    assert all(done.duration_s > 0 and done.num_tokens > 0 for done in recorded.rounds)
    assert {opened.client for opened in recorded.sessions} == set(clients)
    for opened in recorded.sessions:
        client = clients[opened.client]
        assert (opened.domain, opened.draft_model) == (client["domain"], client["draft_model"])
        assert (opened.seed, opened.max_tokens) == (client["seed"], 24)
        drafts = [draft for done in recorded.rounds for draft in done.drafts if draft.session == opened.number]
        assert sum(draft.num_tokens for draft in drafts) == client["num_tokens"]
        assert sum(len(draft.agreed) for draft in drafts) <= client["num_drafted"]  # less where it is a tree
        assert sum(draft.num_accepted for draft in drafts) == client["num_accepted"]
        assert drafts[0].base_len == opened.prompt_len
        for before, draft in pairwise(drafts):
            assert draft.base_len == before.base_len + before.num_tokens
            assert (draft.agreed + "0").index("0") <= draft.num_accepted <= len(draft.agreed)
            assert not draft.num_bytes or draft.answer_s >= 0
        assert drafts[-1].finish_reason == client["finish_reason"]


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


def test_ctrl_c_leaves_no_process(mark: str, tmp_path: Path) -> None:
    """Interrupted while the verify node serves and the draft nodes are still importing."""
    words = command("--model", "tiny-target", "--clients", "2", "--png", str(tmp_path / "x.png"))
    with subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        while "starting 2 draft nodes" not in process.stderr.readline():
            assert process.poll() is None
        assert len(marked(mark)) >= 2
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert process.stdout.read() == ""
    assert marked(mark) == []


def test_a_node_that_cannot_start_is_named(mark: str, tmp_path: Path) -> None:
    words = command("--model", "no-such-model", "--png", str(tmp_path / "x.png"), "--json")
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stdout == ""
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("goodspeed: the verify node ended with status 1: goodspeed-verify: model 'no-such-model'")
    assert last.endswith("To see all that the nodes say, add --log-level info")
    assert marked(mark) == []


def test_with_http_both_faces_are_open_and_the_texts_are_the_same(demo: Ended, mark: str, tmp_path: Path) -> None:
    words = ["--clients", "2", "--max-tokens", "24", "--temperature", "0.9", "--http", "--json"]
    words += ["--model", "tiny-target"]  # its texts are those of the padded one
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command(*words, "--png", str(tmp_path / "x.png")), cwd=ROOT, **pipes) as process:
        assert process.stderr is not None
        said: list[str] = []
        while not said or "all texts are written" not in said[-1]:
            said.append(process.stderr.readline())
            assert said[-1], said
        urls = re.findall(r"(http://127\.0\.0\.1:\d+)(/v1)?$", "".join(said), re.MULTILINE)
        assert [path for _, path in urls] == ["", "/v1", "/v1"]
        for url, _ in urls:
            assert httpx2.get(f"{url}/ready", trust_env=False).status_code == 200
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    result = json.loads(out.splitlines()[-1])
    for client, known in zip(result["clients"], demo.result["clients"], strict=True):
        for name in ("name", "text", "num_tokens", "finish_reason"):
            assert client[name] == known[name]
        assert client["num_drafted"] >= client["num_accepted"]
        assert client["token_ids"] is None
    assert marked(mark) == []
