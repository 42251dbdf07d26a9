"""The verify node is killed, and away beyond the limit: with `--fallback local` the draft model goes on, and says so.

(Without, texts end with an error: `test_together.py`.) The texts of the node on the console come as token ids in its
events, each marked, so that every part of a text can be compared with what the model that wrote it puts there after all
that came before.
"""

import json
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from httpx2 import Client

from goodspeed.app.generation import generate
from goodspeed.embedded import prompts
from goodspeed.engine import checkpoints
from goodspeed.engine.runner import Runner
from goodspeed.engine.tokenizing.text import encode_prompt
from goodspeed.wire.messages import Sampling
from tests.faults import texts
from tests.nodes import DraftNode, Process, VerifyNode

pytestmark = pytest.mark.alone

DRAFT, TARGET = "tiny-draft-s", "tiny-target"
LOCAL = ("--connect-timeout-s", "1", "--fallback", "local")
ENDLESS = 1500
"""Tokens: the verify node is back before the draft model has written them."""

PROMPTS = [(one.prompt, Sampling(temperature=0.8, seed=21 + n)) for n, one in enumerate(prompts.demo()[:4])]


@pytest.mark.slow_faults
def test_away_beyond_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": text, "seed": how.seed}) + "\n" for text, how in PROMPTS))
    own = ("--prompts", str(file), "--temperature", "0.8", "--max-tokens", str(ENDLESS))
    with VerifyNode() as verify, DraftNode(verify.endpoint, *LOCAL) as served:
        words = ("--model", DRAFT, "--verify", verify.endpoint, *LOCAL, *own)
        with Process("draft_node", *words, ports={}) as console:
            served.wait_until_ready()
            wait_for_tokens(console, 10, local=False)
            verify.kill()
            wait_for_tokens(console, 10, local=True)
            console.stop()  # it would be done before the verify node is back
            served.wait_for_line("the draft model writes alone", after=1)
            ask_without_verify_node(served.url)
            after = verify.num_events
            verify.restart()
            verify.wait_for("ready", after=after)
            console.go_on()
            console.wait_for_line("the target writes again")
            wait_for_tokens(console, 30, local=False, after=console.num_events)
            console.kill()
            served.wait_for_line("the target writes again")
            wanted = texts.mixed(20)[1]
            texts.check(wanted, texts.ask(served.url, wanted).finish())
    writers = [check(console, index) for index in range(len(PROMPTS))]
    assert [False, True, False] in writers
    assert all(own == [False, True, False][: len(own)] for own in writers)  # some may have come to their end before
    assert "another distribution" in console.log[1].text  # after that it is loading


def ask_without_verify_node(url: str) -> None:
    """Over HTTP: every answer says what it is, and what nobody can tell is refused."""
    wanted = {"prompt": "The river", "max_tokens": 8, "seed": 1, "ignore_eos": True}
    with Client(base_url=url, timeout=texts.DEADLINE_S) as client:
        assert client.get("/ready").raise_for_status().json()["status"].startswith("local")
        answer = client.post("/v1/completions", json=wanted).raise_for_status().json()
        assert answer["choices"][0]["goodspeed"] == {"local_tokens": 8}
        assert answer["usage"]["goodspeed"]["local"] == 8
        streamed = client.post("/v1/completions", json={**wanted, "stream": True}).raise_for_status().text
        *chunks, last = [json.loads(line[6:])["choices"][0] for line in streamed.split("\n\n")[:-2]]
        assert all(chunk["goodspeed"] == {"local": True} for chunk in chunks)
        assert "".join(chunk["text"] for chunk in chunks) == answer["choices"][0]["text"]
        assert last["goodspeed"] == {"local_tokens": 8}
        refused = client.post("/v1/completions", json={**wanted, "logprobs": 0})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "verify_away")


def told(node: Process, index: int) -> list[dict[str, Any]]:
    return [event for event in node.events if event["event"] == "tokens" and event["index"] == index]


def wait_for_tokens(node: Process, num_tokens: int, *, local: bool, after: int = 0) -> None:
    """Waits until this model has written so many more tokens of some text."""

    def found() -> bool:
        events = [event for event in node.events[after:] if event["event"] == "tokens" and event["local"] is local]
        counts = [sum(len(event["token_ids"]) for event in events if event["index"] == n) for n in range(len(PROMPTS))]
        return max(counts) >= num_tokens

    node.until(found, f"{num_tokens} tokens ({local=}) of a text")


def check(node: Process, index: int) -> list[bool]:
    """Part by part; gives for each part whether the draft model wrote it."""
    prompt, sampling = PROMPTS[index]
    text = tuple(encode_prompt(model(TARGET)[0].tokenizer, prompt))
    writers = []
    for is_local, events in groupby(told(node, index), key=lambda event: bool(event["local"])):
        part = tuple(token for event in events for token in event["token_ids"])
        check_part(DRAFT if is_local else TARGET, text, sampling, part)
        text += part
        writers.append(is_local)
    return writers


@cache
def model(name: str) -> tuple[checkpoints.Checkpoint, Runner]:
    loaded = checkpoints.load(name)
    return loaded, Runner(loaded, num_pages=256)


def check_part(name: str, before: tuple[int, ...], sampling: Sampling, part: Sequence[int]) -> None:
    """Checks that this model alone wrote it; of the target's near-ties (`texts.py`) either may have come."""
    for written, token in enumerate(part):
        context = (*before, *part[:written])
        if list(part[written:]) == list(generate(*model(name), context, sampling, len(part) - written)):
            return
        own = next(generate(*model(name), context, sampling, 1))
        is_near_tie = name == TARGET and texts._two_best(context, sampling) < (texts.NEAR_TIE, token)
        assert token == own or is_near_tie, f"token {written} of a part by {name} is {token} and not {own}"
