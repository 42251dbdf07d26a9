"""The verify node is away beyond the limit: without `--fallback local` an error, with it the draft model's own tokens.

The texts of the second node come as token ids in its events, each marked, so that every part of a text can be compared
with what the model that wrote it puts there after all that came before.
"""

import json
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from goodspeed.engine import checkpoints
from goodspeed.engine.runner import Runner
from goodspeed.engine.text import encode_prompt
from goodspeed.generation import generate
from goodspeed.messages import Sampling
from goodspeed.tiny import prompts
from tests.faults import texts
from tests.faults.nodes import DraftNode, Process, VerifyNode
from tests.faults.texts import Wanted, ask

DRAFT, TARGET = "tiny-draft-s", "tiny-target"
LIMIT = ("--connect-timeout-s", "1")
ENDLESS = 1500
"""Tokens: the verify node is back before the draft model has written them."""

PROMPTS = [(one.prompt, Sampling(temperature=0.8, top_k=40, seed=21 + n)) for n, one in enumerate(prompts.demo()[:4])]


def test_away_beyond_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": text, "seed": how.seed}) + "\n" for text, how in PROMPTS))
    own = ("--prompts", str(file), "--temperature", "0.8", "--top-k", "40", "--max-tokens", str(ENDLESS))
    with VerifyNode() as verify, DraftNode(verify.endpoint, *LIMIT) as strict:
        local = ("--model", DRAFT, "--verify", verify.endpoint, *LIMIT, *own, "--fallback", "local")
        with Process("draft_node", *local, ports={}) as lenient:
            strict.wait_until_ready()
            stream = ask(strict.url, Wanted(PROMPTS[0][0], ENDLESS))
            stream.wait_for(10)
            wait_for_tokens(lenient, 10, local=False)
            verify.kill()
            assert "has been away for 1 s" in str(stream.breaks())
            texts.check(stream.wanted, stream.tokens, is_complete=False)
            strict.wait_until_ready(is_ready=False)
            wait_for_tokens(lenient, 10, local=True)
            lenient.stop()  # it would be done before the verify node is back
            after = verify.num_events
            verify.restart()
            verify.wait_for("ready", after=after)
            lenient.go_on()
            lenient.wait_for_line("the verify node is back")
            wait_for_tokens(lenient, 30, local=False, after=lenient.num_events)
            lenient.kill()
            strict.wait_until_ready()
    writers = [check(lenient, index) for index in range(len(PROMPTS))]
    assert [False, True, False] in writers
    assert all(own == [False, True, False][: len(own)] for own in writers)  # some may have come to their end before
    assert any("another distribution" in line for _, line in lenient.log)


def told(node: Process, index: int) -> list[dict[str, Any]]:
    return [event for event in node.events if event["event"] == "tokens" and event["index"] == index]


def wait_for_tokens(node: Process, num_tokens: int, *, local: bool, after: int = 0) -> None:
    """Of some text so many more, written by this model."""

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
    """It is what this model alone writes; of the target's near-ties (`texts.py`) either may have come."""
    for written, token in enumerate(part):
        context = (*before, *part[:written])
        if list(part[written:]) == list(generate(*model(name), context, sampling, len(part) - written)):
            return
        own = next(generate(*model(name), context, sampling, 1))
        is_near_tie = name == TARGET and texts._two_best(context, sampling) < (texts.NEAR_TIE, token)
        assert token == own or is_near_tie, f"token {written} of a part by {name} is {token} and not {own}"
