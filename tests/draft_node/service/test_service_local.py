"""Texts that go on without the verify node (`--fallback local`), with real models, joined by the memory network."""

import asyncio
import logging
from contextlib import aclosing
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from draft_node.service.request import Begun, Ended, Wanted
from draft_node.service.service import Service
from draft_node.service.tokens import Token
from goodspeed.app.generation import generate
from goodspeed.engine.runner import Runner
from goodspeed.errors import VerifyAway
from goodspeed.wire.messages import Sampling
from tests.draft_node.service.test_service import GREEDY, Edge, edge, run, wanted, write
from tests.together.cluster.cluster import load, prompt_ids
from tests.waiting import until

pytestmark = pytest.mark.nodes

DRAFT, TARGET = "tiny-draft-s", "tiny-target"
SEEDED = Sampling(temperature=0.9, top_k=50, seed=6)
SHORT: dict[str, Any] = {"connect_timeout_s": 0.3}
LOCAL: dict[str, Any] = {"fallback": "local", **SHORT}
ENDLESS = 1500
"""Tokens: more than anybody reads, so that the verify node is back before a tiny draft model has written them."""


@pytest.fixture(autouse=True)
def _back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verify node is found again at once."""
    monkeypatch.setattr("draft_node.core.link.HELLO_S", 0.05)
    monkeypatch.setattr("draft_node.core.link.MAX_BACKOFF_S", 0.05)


@cache
def alone(name: str, prompt: tuple[int, ...], sampling: Sampling, max_tokens: int) -> tuple[int, ...]:
    """Returns what this model writes by itself with that seed."""
    model = load(name)
    return tuple(generate(model, Runner(model, num_pages=128), list(prompt), sampling, max_tokens))


def cut(here: Edge) -> None:
    here.network.fate = lambda packet: ()


def heal(here: Edge) -> None:
    here.network.fate = lambda packet: (packet,)


class Reader:
    """A text that is read while things happen."""

    def __init__(self, service: Service, what: Wanted) -> None:
        self.tokens: list[Token] = []
        self.text, self.local_text = "", ""
        self.reading = asyncio.create_task(self._read(service, what))

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(token.id for token in self.tokens)

    @property
    def num_local(self) -> int:
        return sum(token.local for token in self.tokens)

    async def until(self, num_tokens: int = 0, num_local: int = 0) -> None:
        while len(self.tokens) < num_tokens or self.num_local < num_local:
            assert not self.reading.done(), self.reading.exception()
            await asyncio.sleep(0.001)

    async def leave(self) -> None:
        self.reading.cancel()
        await asyncio.gather(self.reading, return_exceptions=True)

    async def _read(self, service: Service, what: Wanted) -> None:
        async with aclosing(service.write(what)) as items:
            async for item in items:
                if isinstance(item, Ended):
                    return
                if isinstance(item, Begun):
                    continue
                self.tokens += item.tokens
                self.text += item.text
                self.local_text += "".join(span.text for span in item.spans if span.local)


async def away_and_back(here: Edge, reader: Reader, num_local: int) -> None:
    """The text goes on without the verify node for so many tokens, and then with it for some more."""
    cut(here)
    await reader.until(num_local=reader.num_local + num_local)
    assert here.service.is_local
    heal(here)
    await here.daemon.connected.wait()
    assert not here.service.is_local
    await reader.until(len(reader.tokens) + 30)


def parts(reader: Reader) -> list[tuple[int, int, bool]]:
    """The text's parts: where each begins and ends, and whether the draft model wrote it."""
    local = [token.local for token in reader.tokens]
    borders = [0, *(n for n in range(1, len(local)) if local[n] != local[n - 1]), len(local)]
    return [(first, last, local[first]) for first, last in pairwise(borders)]


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED])
def test_the_draft_model_goes_on_and_the_target_after_it(sampling: Sampling, caplog: pytest.LogCaptureFixture) -> None:
    """Twice; the verify node still has the session as it was, with tokens of its own that never came."""
    caplog.set_level(logging.INFO, "goodspeed.draft")
    what = wanted(2, ENDLESS, sampling, ignore_eos=True)

    async def work() -> Reader:
        async with edge(**LOCAL) as here:
            reader = Reader(here.service, what)
            for num_tokens in (20, 50):
                await reader.until(num_tokens)
                await away_and_back(here, reader, 20)
            await reader.leave()
            await here.until_free()
            assert here.daemon.statistics.num_local == reader.num_local
            return reader

    reader = run(work())
    assert [local for _, _, local in parts(reader)] == [False, True, False, True, False]
    for first, last, local in parts(reader):
        before = (*what.prompt, *reader.ids[:first])
        assert reader.ids[first:last] == alone(DRAFT if local else TARGET, before, sampling, last - first)
    assert 0 < len(reader.local_text) < len(reader.text)
    switches = [record.message.partition(" writes ")[0] for record in caplog.records if " writes " in record.message]
    assert switches == ["the draft model now", "the verify node is back: the target"] * 2


def test_a_text_that_begins_without_the_verify_node() -> None:
    """It has never been there; several at once, which share the draft model; log-probabilities nobody can tell."""

    async def work() -> None:
        async with edge(connected=False, **LOCAL) as here:
            assert not here.service.is_ready
            with pytest.raises(VerifyAway):
                await write(here.service, wanted())
            await here.daemon.ready.wait()
            assert here.service.is_ready
            assert here.service.context_len == load(DRAFT).context_len
            some = [wanted(n, sampling=SEEDED, ignore_eos=True) for n in range(4)]
            texts = await asyncio.gather(*(write(here.service, what) for what in some))
            for what, written in zip(some, texts, strict=True):
                assert written.ids == alone(DRAFT, what.prompt, SEEDED, 24)
                assert written.ended.num_local == len(written.tokens) == sum(token.local for token in written.tokens)
            with pytest.raises(VerifyAway, match="log-probabilities"):
                await write(here.service, wanted(num_logprobs=0))
            assert here.service.texts.failed == {"verify_away": 2}

    run(work())


def test_log_probabilities_end_a_text_that_runs() -> None:
    async def work() -> None:
        async with edge(**LOCAL) as here:
            reader = Reader(here.service, wanted(max_tokens=ENDLESS, ignore_eos=True, num_logprobs=0))
            await reader.until(10)
            cut(here)
            with pytest.raises(VerifyAway, match=r"has been away for \d+ s; .*only the target has the requested log"):
                await reader.reading
            assert not reader.num_local

    run(work())


def test_without_fallback_a_text_ends_with_an_error_and_no_token_of_the_draft_model() -> None:
    async def work() -> None:
        async with edge(**SHORT) as here:
            reader = Reader(here.service, wanted(max_tokens=ENDLESS, ignore_eos=True))
            await reader.until(10)
            cut(here)
            with pytest.raises(VerifyAway, match=r"has been away for \d+ s; ask again later"):
                await reader.reading
            assert not reader.num_local
            assert not here.service.is_ready
            assert not here.daemon.ready.is_set()

    run(work())


def test_a_stop_string_ends_a_local_text() -> None:
    own = alone(DRAFT, prompt_ids(2), SEEDED, 40)
    whole = load(DRAFT).tokenizer.decode(own)
    stop = whole[20:24]

    async def work() -> None:
        async with edge(connected=False, **LOCAL) as here:
            await here.daemon.ready.wait()
            written = await write(here.service, wanted(2, 400, SEEDED, stop=(stop,), ignore_eos=True))
            assert written.text == whole[: whole.index(stop)]
            assert written.ended.stop == stop
            assert written.ended.num_local == written.ended.num_tokens
            await here.until_free()

    run(work())


def test_a_text_beyond_the_target_s_context_is_complete_when_that_is_seen() -> None:
    what = wanted(max_tokens=ENDLESS, ignore_eos=True)

    async def work() -> None:
        async with edge(connected=False, **LOCAL) as here:
            register = here.verify.core.register
            register.welcome = replace(register.welcome, context_len=len(what.prompt) + 20)
            await here.daemon.ready.wait()
            writing = asyncio.create_task(write(here.service, what))
            await until(lambda: here.daemon.statistics.num_local > 20)
            serving = asyncio.create_task(here.verify.serve())
            written = await writing
            assert (written.ended.reason, written.ended.num_local) == ("length", len(written.tokens))
            assert 20 < len(written.tokens) < ENDLESS
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    run(work())


def test_a_ratio_text_goes_on_too() -> None:
    """Text that the draft model writes alone is repeatable; drafts under the ratio rule are not."""
    what = wanted(1, ENDLESS, SEEDED, ignore_eos=True, verification="ratio")

    async def work() -> Reader:
        async with edge(**LOCAL) as here:
            reader = Reader(here.service, what)
            await reader.until(10)
            await away_and_back(here, reader, 20)
            await reader.leave()
            return reader

    reader = run(work())
    (_, first, _), (_, last, is_local), _ = parts(reader)
    assert is_local
    assert reader.ids[first:last] == alone(DRAFT, (*what.prompt, *reader.ids[:first]), SEEDED, last - first)


def test_a_draft_model_that_fails_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draft_node.model.circuit_breaker.OPEN_S", 0.05)
    what = wanted(ignore_eos=True)

    async def work() -> None:
        async with edge(connected=False, **LOCAL) as here:
            await here.daemon.ready.wait()
            step, num_steps = here.daemon.drafter.step, 0

            def fail_now_and_then() -> list[object]:
                nonlocal num_steps
                num_steps += 1
                if num_steps in (1, 5):
                    raise RuntimeError("out of memory")
                return step()  # type: ignore[return-value]

            here.daemon.drafter.step = fail_now_and_then  # type: ignore[method-assign]
            assert (await write(here.service, what)).ids == alone(DRAFT, what.prompt, GREEDY, 24)
            assert num_steps > 24

    run(work())
