"""Texts that are asked for over HTTP while things go wrong, and what the target alone writes for each.

    stream = ask(draft.url, WANTED[0])
    stream.wait_for(20)  # tokens
    check(WANTED[0], stream.finish())

Tokens are compared one by one, by their text (`logprobs` of the API tells it). Where the target's two best choices,
with the noise of the draw added, are nearer than 1e-4, either may come: batches of different shape round differently.
Such near-ties are counted, and the rest is compared with what the target alone writes after the token that came.
"""

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal

import openai
import torch

from draft_node.http.answer.logprobs import name
from draft_node.service.token_text import Token, TokenTexts
from goodspeed.app.reference import generate
from goodspeed.embedded import prompts
from goodspeed.engine import engines
from goodspeed.engine.paged.chunks import Chunk
from goodspeed.engine.tokenizing.text import encode_prompt
from goodspeed.exact.noise import match_noise
from goodspeed.exact.sampling import SamplingBatch, to_probs
from goodspeed.wire.messages import Sampling

NEAR_TIE = 1e-4
GREEDY = Sampling(temperature=0.0)
SAMPLINGS = (
    GREEDY,
    Sampling(temperature=1.0, seed=11),
    Sampling(temperature=0.7, top_p=0.9, seed=12),
    Sampling(temperature=0.9, top_k=20, seed=13),
)
DEADLINE_S = 600.0  # of a wait in vain
POLL_S = 0.01
MAX_WRITING = 80  # texts that the target alone keeps in its memory, to write on


@dataclass(frozen=True)
class Wanted:
    """One text. It goes on to max_tokens, whatever the target thinks of ending it."""

    prompt: str
    max_tokens: int = 200
    sampling: Sampling = GREEDY
    model: str = "tiny-target"  # of the verify node


def mixed(max_tokens: int) -> list[Wanted]:
    """Eight texts of eight domains, greedy and sampled in several ways, each sampled one with a seed of its own."""
    return [Wanted(one.prompt, max_tokens, SAMPLINGS[n % len(SAMPLINGS)]) for n, one in enumerate(prompts.demo())]


# -- asking ------------------------------------------------------------------------------------------------------------


class Stream:
    """A text on its way, read by a thread."""

    def __init__(self, url: str, wanted: Wanted) -> None:
        self.wanted = wanted
        self.tokens: list[str] = []
        self.times: list[float] = []  # of `time.monotonic`, when each token came
        self.finish_reason: str | None = None
        self.error: openai.OpenAIError | None = None
        self._url = url
        self._is_left = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def wait_for(self, num_tokens: int) -> None:
        """Waits until so many tokens are there; AssertionError when the stream ends before."""
        deadline = time.monotonic() + DEADLINE_S
        while len(self.tokens) < num_tokens:
            assert not self.is_over, f"{self} ended before token {num_tokens}"
            assert time.monotonic() < deadline, f"{self} did not come to token {num_tokens}"
            time.sleep(POLL_S)

    def finish(self) -> list[str]:
        """Its tokens, when it has come to a clean end."""
        self._join()
        assert self.error is None, f"{self} broke"
        assert self.finish_reason == "length", f"{self} came to no end"
        return self.tokens

    def breaks(self) -> openai.OpenAIError:
        """The error that it ends with; AssertionError for a clean end."""
        self._join()
        assert self.finish_reason is None, f"{self} finished"
        assert self.error is not None, f"{self} ended as if it were complete"
        return self.error

    def leave(self) -> None:
        """Hangs up at the next token."""
        self._is_left = True

    def __str__(self) -> str:
        return f"a text of {len(self.tokens)} tokens ({self.finish_reason}, {self.error!r}; {self.wanted.sampling})"

    def _join(self) -> None:
        self._thread.join(DEADLINE_S)
        assert self.is_over, f"{self} does not end"

    def _read(self) -> None:
        wanted, sampling = self.wanted, self.wanted.sampling
        asked: Any = {"temperature": sampling.temperature, "top_p": sampling.top_p, "seed": sampling.seed}
        asked |= {"logprobs": 0, "extra_body": {"ignore_eos": True, "top_k": sampling.top_k}}
        asked |= {"model": "goodspeed", "prompt": wanted.prompt, "max_tokens": wanted.max_tokens}
        try:
            with openai.OpenAI(base_url=f"{self._url}/v1", api_key="none", max_retries=0) as client:
                for chunk in client.completions.create(**asked, stream=True):
                    self._take(chunk)
                    if self._is_left:
                        return
        except openai.OpenAIError as error:
            self.error = error
        except Exception as error:  # what the HTTP library below raises in mid-stream
            self.error = openai.OpenAIError(f"{type(error).__name__}: {error}")

    def _take(self, chunk: openai.types.Completion) -> None:
        for choice in chunk.choices:
            new = (choice.logprobs.tokens or []) if choice.logprobs else []
            self.times += [time.monotonic()] * len(new)
            self.tokens += new
            self.finish_reason = choice.finish_reason or self.finish_reason


def ask(url: str, wanted: Wanted) -> Stream:
    """url: of a draft node (`DraftNode.url`)."""
    return Stream(url, wanted)


def begin(url: str, wanted: Sequence[Wanted], num_tokens: int = 5) -> list[Stream]:
    """Texts that are asked for at once, when each of them has so many tokens."""
    streams = [ask(url, each) for each in wanted]
    for stream in streams:
        stream.wait_for(num_tokens)
    return streams


# -- comparing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """The outcome of a text; `near_tie` is exact but for `num_near_ties` positions."""

    verdict: Literal["exact", "near_tie", "wrong"]
    num_near_ties: int = 0
    what: str = ""


def expected(wanted: Wanted) -> list[str]:
    """The tokens' texts that the target alone writes."""
    target = alone(wanted.model)
    return target.names(target.ids(wanted.prompt), wanted.sampling, wanted.max_tokens)


def compare(wanted: Wanted, got: Sequence[str], *, is_complete: bool = True) -> Comparison:
    """is_complete: else a beginning of the text is as good."""
    if is_complete and len(got) != wanted.max_tokens:
        return Comparison("wrong", what=f"{len(got)} tokens instead of {wanted.max_tokens}")
    target = alone(wanted.model)
    context, start, num_near_ties = target.ids(wanted.prompt), 0, 0
    while True:
        own = target.names(context, wanted.sampling, len(got) - start)
        same = next((n for n, pair in enumerate(zip(own, got[start:], strict=True)) if pair[0] != pair[1]), None)
        if same is None:
            return Comparison("near_tie" if num_near_ties else "exact", num_near_ties)
        base = (*context, *target.written(context, wanted.sampling, same))
        gap, second = target.two_best(base, wanted.sampling)
        if gap >= NEAR_TIE or got[start + same] != target.name(second):
            what = f"token {start + same} is {got[start + same]!r} and not {own[same]!r} ({gap:.2g} ahead of the next)"
            return Comparison("wrong", num_near_ties, what)
        context, start, num_near_ties = (*base, second), start + same + 1, num_near_ties + 1


def check(wanted: Wanted, got: Sequence[str], *, is_complete: bool = True) -> int:
    """AssertionError unless the text is the target's own; gives the near-ties in it."""
    comparison = compare(wanted, got, is_complete=is_complete)
    assert comparison.verdict != "wrong", f"{comparison.what} in {wanted}"
    return comparison.num_near_ties


def check_all(streams: Iterable[Stream]) -> None:
    """Checks that each text comes to its end, and is the target's own."""
    num_near_ties = sum(check(stream.wanted, stream.finish()) for stream in streams)
    print(f"near-ties: {num_near_ties}")


class Alone:
    """A target that writes by itself, and keeps what it wrote last."""

    def __init__(self, model: str) -> None:
        self._target = engines.load(model)
        self._engine = engines.start(self._target, num_pages=4096)
        self._texts = TokenTexts(self._target.tokenizer)
        self._writing = lru_cache(MAX_WRITING)(self._begin)

    def ids(self, prompt: str) -> tuple[int, ...]:
        return tuple(encode_prompt(self._target.tokenizer, prompt))

    def written(self, context: tuple[int, ...], sampling: Sampling, num_tokens: int) -> list[int]:
        """Returns the first tokens after a context."""
        tokens, more = self._writing(context, sampling)
        while len(tokens) < num_tokens:
            tokens.append(next(more))
        return tokens[:num_tokens]

    def names(self, context: tuple[int, ...], sampling: Sampling, num_tokens: int) -> list[str]:
        return [self.name(token) for token in self.written(context, sampling, num_tokens)]

    def name(self, token: int) -> str:
        return name(Token(token, *self._texts[token]))

    def two_best(self, context: tuple[int, ...], sampling: Sampling) -> tuple[float, int]:
        """Returns how far the choice after a context is ahead of the second best, and that token."""
        key = object()
        try:
            logits = self._engine.forward([Chunk(key, context, 1)]).double()[:, : self._target.num_tokens]
        finally:
            self._engine.pool.free(key)
        return two_best(logits, sampling, len(context))

    def _begin(self, context: tuple[int, ...], sampling: Sampling) -> tuple[list[int], Iterator[int]]:
        """A text so far, and the writer of its rest: a longer text begins with the shorter one."""
        room = self._target.context_len - len(context)
        return [], generate(self._target, self._engine, context, sampling, room)


def two_best(logits: torch.Tensor, sampling: Sampling, position: int) -> tuple[float, int]:
    """Returns how far the choice at a position is ahead of the second best, and that token; logits: [1, vocab]."""
    scores = logits
    if sampling.temperature:
        probs = to_probs(logits, SamplingBatch.of([sampling]))
        noise = match_noise(torch.tensor([sampling.seed]), torch.tensor([position]), probs.shape[-1])
        scores = probs.log() - noise.double().log()
    best = scores[0].topk(2)
    return float(best.values[0] - best.values[1]), int(best.indices[1])


@cache
def alone(model: str) -> Alone:
    return Alone(model)
