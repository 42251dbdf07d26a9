"""Eight clients of a padded target in one process, with drafts of the embedded draft model on the CPU, and without.

Drafts are made between the rounds, so their whole time counts. Live draft nodes draft while the target verifies.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

import torch

from experiments.benchmarks.gpu_rounds import Sampling
from goodspeed.embedded import prompts
from goodspeed.engine.runner import Chunk, Runner
from verify_node.model.match_sampling import MatchDecision, Verified, decide_match

NUM_DRAFTED, NUM_TOKENS = 4, 48
NUM_PAGES = 400  # for all texts


class Speed(NamedTuple):
    tokens_per_s: float  # of all clients
    tokens_per_round: float  # of a client


@torch.inference_mode()
def speed(target: Runner, drafter: Runner, num_drafted: int) -> Speed:
    """Goes on with the embedded prompts, one for each domain, under the match rule; the prompts are read before.

    Drafts are made by one thread, as in a draft node.
    """
    torch.set_num_threads(1)
    tokenizer = drafter.checkpoint.tokenizer
    texts: list[list[int]] = [tokenizer.encode(one.prompt) for one in prompts.demo()]
    nothing: list[list[int]] = [[] for _ in texts]
    for runner in (target, drafter):
        decide(runner, texts, nothing)
    num_rounds, num_before, started = 0, sum(map(len, texts)), time.perf_counter()
    while sum(map(len, texts)) < num_before + NUM_TOKENS * len(texts):
        drafted: list[list[int]] = [[] for _ in texts]
        for _ in range(num_drafted):
            longer = [text + draft for text, draft in zip(texts, drafted, strict=True)]
            for draft, decision in zip(drafted, decide(drafter, longer, nothing), strict=True):
                draft += decision.target_tokens
        for text, decision in zip(texts, decide(target, texts, drafted), strict=True):
            text += decision.target_tokens[: decision.num_accepted + 1]
        num_rounds += 1
    num_tokens, seconds = sum(map(len, texts)) - num_before, time.perf_counter() - started
    for runner in (target, drafter):
        for client in range(len(texts)):
            runner.free(client)
    return Speed(num_tokens / seconds, num_tokens / num_rounds / len(texts))


def decide(runner: Runner, texts: Sequence[list[int]], drafted: Sequence[list[int]]) -> list[MatchDecision]:
    """Runs one pass, and draws after each text and each drafted token; a text's wrong drafts are dropped before."""
    chunks, entries, row = list[Chunk](), list[Verified](), 0
    for client, (text, draft) in enumerate(zip(texts, drafted, strict=True)):
        known = min(runner.pool.length(client), len(text) - 1)
        if known:
            runner.truncate(client, known)
        chunks.append(Chunk(client, [*text[known:], *draft], len(draft) + 1))
        entries.append(Verified(first_row=row, base_len=len(text), drafted=draft, sampling=Sampling(seed=client)))
        row += len(draft) + 1
    return decide_match(entries, runner.forward(chunks), runner.checkpoint.num_tokens)
