"""Generates with one model alone, using the verify node's engine and sampling: the reference for the system's texts.

Under the match rule a session's text is a function of target model, prompt and seed. This file is that function in its
simplest form.
"""

from collections.abc import Generator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from goodspeed.constraint.matcher import Matcher
from goodspeed.engine.checkpoints import Checkpoint
from goodspeed.engine.runner import Chunk, Runner
from goodspeed.errors import ConfigError, PromptError
from goodspeed.exact.counts import TextCounts
from goodspeed.exact.logit_rules import TextRows, process
from goodspeed.exact.sampling import SamplingBatch, choose
from goodspeed.wire.fields import FinishReason
from goodspeed.wire.messages import LogitRules, Sampling

PREFILL_CHUNK = 512
"""Prompt tokens per forward pass."""


def generate(
    checkpoint: Checkpoint,
    runner: Runner,
    prompt_ids: Sequence[int],
    sampling: Sampling,
    max_tokens: int,
    stop_ids: Sequence[int] = (),
    *,
    min_tokens: int = 0,
    rules: LogitRules | None = None,
    matcher: Matcher | None = None,
    prefill_chunk: int = PREFILL_CHUNK,
) -> Generator[int, None, None]:
    """Yields token ids until one of stop_ids (not yielded), max_tokens, or the end of the context.

    min_tokens: stop_ids are masked until so many tokens are output. matcher: enforces the output's constraint.
    Raises PromptError for a prompt that leaves no room, and ConfigError if the rules leave no token to draw. Frees the
    session's KV pages when the iteration ends.
    """
    limit = len(prompt_ids) + num_wanted(checkpoint, prompt_ids, max_tokens)
    if min_tokens > max_tokens:
        raise ConfigError(f"min_tokens {min_tokens} is above max_tokens {max_tokens}; lower it")
    asked = _Asked(tuple(prompt_ids), sampling, limit, tuple(stop_ids), len(prompt_ids) + min_tokens, rules, matcher)
    return _generate(checkpoint, runner, asked, prefill_chunk)


def num_wanted(checkpoint: Checkpoint, prompt_ids: Sequence[int], max_tokens: int) -> int:
    """Returns the most output tokens: max_tokens, or the remaining context if that is shorter."""
    if max_tokens < 1:
        raise ConfigError(f"max_tokens {max_tokens} is too small; it must be at least 1")
    if not prompt_ids:
        raise PromptError("the prompt is empty; give at least one token")
    if len(prompt_ids) >= checkpoint.context_len:
        raise PromptError(
            f"the prompt's {len(prompt_ids)} tokens leave no room in this model's context of "
            f"{checkpoint.context_len}; shorten the prompt"
        )
    return min(max_tokens, checkpoint.context_len - len(prompt_ids))


def finish_reason(num_tokens: int, wanted: int) -> FinishReason:
    """Returns why a generation ended. num_tokens: tokens yielded. wanted: of `num_wanted`."""
    return "length" if num_tokens >= wanted else "stop"


class _Asked(NamedTuple):
    """A text to generate, with its end conditions."""

    prompt: tuple[int, ...]
    sampling: Sampling
    limit: int  # tokens of prompt and output
    stop_ids: tuple[int, ...]
    may_stop_at: int  # position from which stop_ids may be drawn
    rules: LogitRules | None
    matcher: Matcher | None  # of the output's constraint


def _generate(checkpoint: Checkpoint, runner: Runner, asked: _Asked, prefill_chunk: int) -> Generator[int, None, None]:
    session = object()
    output: list[int] = []
    counts = TextCounts(len(asked.prompt))
    try:
        logits = _prefill(runner, session, asked.prompt, prefill_chunk)
        while True:
            token = _draw(checkpoint, logits, asked, output, counts)
            if token in asked.stop_ids:
                return
            output.append(token)
            yield token
            if len(asked.prompt) + len(output) >= asked.limit:
                return
            logits = runner.forward([Chunk(session, (token,), 1)])
    finally:
        runner.free(session)


def _prefill(runner: Runner, session: object, tokens: Sequence[int], chunk_len: int) -> Tensor:
    """Prefills the prompt; returns logits [1, vocab] after its final token."""
    for first in range(0, len(tokens), chunk_len):
        chunk = tokens[first : first + chunk_len]
        is_last = first + chunk_len >= len(tokens)
        logits = runner.forward([Chunk(session, chunk, int(is_last))])
    return logits


@torch.inference_mode()
def _draw(checkpoint: Checkpoint, logits: Tensor, asked: _Asked, output: Sequence[int], counts: TextCounts) -> int:
    """Samples the next token under the match rule. logits: [1, vocab]. counts: of the text so far, updated here."""
    position = len(asked.prompt) + len(output)
    if asked.rules is not None and asked.rules.reads_text:
        counts.go_to((*asked.prompt, *output))
    rows = TextRows(
        rules=asked.rules,
        temperature=asked.sampling.temperature,
        banned=[asked.stop_ids] if position < asked.may_stop_at else None,
        counts=counts,
        allowed=None if asked.matcher is None else asked.matcher.allowed(output),
    )
    changed = process(logits, [rows], num_tokens=checkpoint.num_tokens)
    if changed is not logits and not changed.amax().isfinite() and logits.amax().isfinite():
        raise ConfigError(f"the rules leave no token to draw at position {position}; loosen them")
    batch = SamplingBatch.of([asked.sampling], device=logits.device)
    positions = torch.tensor([position]).to(logits.device)
    return int(choose(changed, batch, positions, num_tokens=checkpoint.num_tokens).item())
