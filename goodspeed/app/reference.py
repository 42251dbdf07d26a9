"""Generates with one model alone, using the verify node's engine and sampling: the reference for the system's texts.

Under the match rule a session's text is a function of target model, prompt and seed. This file is that function in its
simplest form.
"""

from collections.abc import Generator, Sequence

import torch
from torch import Tensor

from goodspeed.constraint.matcher import Matcher
from goodspeed.engine.base import Checkpoint, Engine
from goodspeed.engine.paged.chunks import Chunk
from goodspeed.errors import NOT_NUMBERS, CheckpointError, ConfigError, PromptError
from goodspeed.exact.logits.rules import TextRows, process
from goodspeed.exact.logits.token_counts import TextCounts
from goodspeed.exact.sampling import SamplingBatch, choose
from goodspeed.wire.messages import LogitRules, Sampling

PREFILL_CHUNK = 512
"""Prompt tokens per forward pass."""


def generate(
    checkpoint: Checkpoint,
    engine: Engine,
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
    Raises PromptError for a prompt that leaves no room, ConfigError if the rules leave no token to draw, and
    CheckpointError if logits are not numbers. Frees the session's KV pages when the iteration ends.
    """
    most, prompt = num_wanted(checkpoint, prompt_ids, max_tokens), tuple(prompt_ids)
    if min_tokens > max_tokens:
        raise ConfigError(f"min_tokens {min_tokens} is above max_tokens {max_tokens}; lower it")

    def tokens() -> Generator[int, None, None]:
        session, output = object(), list[int]()
        try:
            logits = _prefill(engine, session, prompt, prefill_chunk)
            while True:
                banned = [stop_ids] if len(output) < min_tokens else None
                allowed = None if matcher is None else matcher.allowed(output)
                counts = TextCounts.of(prompt, output) if rules is not None and rules.reads_text else None
                text = TextRows(((),), rules, sampling.temperature, banned, counts, allowed)
                token = _draw(checkpoint, logits, text, sampling, len(prompt) + len(output))
                if token in stop_ids:
                    return
                output.append(token)
                yield token
                if len(output) >= most:
                    return
                logits = engine.forward([Chunk(session, (token,), 1)])
        finally:
            engine.pool.free(session)

    return tokens()


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


def _prefill(engine: Engine, session: object, tokens: Sequence[int], chunk_len: int) -> Tensor:
    """Prefills the prompt; returns logits [1, vocab] after its final token."""
    for first in range(0, len(tokens), chunk_len):
        chunk = tokens[first : first + chunk_len]
        is_last = first + chunk_len >= len(tokens)
        logits = engine.forward([Chunk(session, chunk, int(is_last))])
    return logits


@torch.inference_mode()
def _draw(checkpoint: Checkpoint, logits: Tensor, text: TextRows, sampling: Sampling, position: int) -> int:
    """Samples the token at a position of the text under the match rule. logits: [1, vocab]."""
    if not logits[:, : checkpoint.num_tokens].amax().isfinite():
        what = f"{checkpoint.name}: {NOT_NUMBERS} at position {position}"
        raise CheckpointError(f"{what}; get the model again, or use another one or another --dtype")
    changed = process(logits, [text], num_tokens=checkpoint.num_tokens)
    if changed is not logits and not changed.amax().isfinite():
        raise ConfigError(f"the rules leave no token to draw at position {position}; loosen them")
    batch = SamplingBatch.of([sampling], device=logits.device)
    positions = torch.tensor([position]).to(logits.device)
    return int(choose(changed, batch, positions, num_tokens=checkpoint.num_tokens).item())
