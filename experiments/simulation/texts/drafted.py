"""What draft models and n-gram indexes propose along a target's texts, and what of it the target would accept.

A draft that begins at any position of a text is made of the draft model's own tokens after the target's, up to its
first wrong one. So one pass over a text finds all of them, and a few more passes find what follows wrong tokens. Only
this module and `target_texts.py` load torch.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from draft_node.core.drafts.draft_stream import NGRAM_LENGTH
from experiments.simulation.texts.proposals import MOST, ModelPath, Proposal, written
from experiments.simulation.texts.target_texts import TargetText, start
from goodspeed.engine.base import Checkpoint, Engine
from goodspeed.engine.paged.chunks import Chunk
from goodspeed.exact.sampling import SamplingBatch, choose, choose_scored, runners_up, to_probs
from goodspeed.ngram.drafting import draft
from goodspeed.ngram.index import GrowingText, NgramIndex
from goodspeed.wire import probabilities
from goodspeed.wire.messages import Sampling
from goodspeed.wire.probabilities import FLOOR

OFF_PATH_EVERY = 8
"""After every eighth wrong token of a text, the first one included, it is found what is drafted behind it."""

AT_ONCE = 16
"""Texts of a batch, whose wrong tokens are followed together."""


@dataclass(frozen=True)
class Drafted:
    """A draft model's own token at each written position of a text, all before it being the target's."""

    tokens: Tensor  # [positions]
    ranks: str
    confidence: str
    q: str

    @property
    def wrong(self) -> list[tuple[int, int]]:
        """Position and token of those whose continuation is looked at."""
        places = [place for place, rank in enumerate(self.ranks) if rank != "1"]
        return [(place, int(self.tokens[place])) for place in places[::OFF_PATH_EVERY]]


@torch.inference_mode()
def model_paths(
    target: Checkpoint, drafts: Mapping[str, Checkpoint], texts: Sequence[TargetText]
) -> Iterator[list[dict[str, ModelPath]]]:
    """Yields what each draft model proposes along each text of a batch. A text has one written token at least."""
    verifier = start(target, AT_ONCE, texts, MOST)
    drafters = {name: start(checkpoint, AT_ONCE, texts, MOST) for name, checkpoint in drafts.items()}
    for first in range(0, len(texts), AT_ONCE):
        some = texts[first : first + AT_ONCE]
        drafted = {name: [_drafted(one, key, text) for key, text in enumerate(some)] for name, one in drafters.items()}
        p = [
            _probabilities_of(verifier, key, text, {name: own[key] for name, own in drafted.items()})
            for key, text in enumerate(some)
        ]
        behind = _behind_wrong(verifier, drafters, some, drafted)
        yield [
            {
                name: ModelPath(own[key].ranks, own[key].confidence, p[key][name], own[key].q, behind[key][name])
                for name, own in drafted.items()
            }
            for key in range(len(some))
        ]
        for engine in (verifier, *drafters.values()):
            for key in range(len(some)):
                engine.pool.free(key)


def _drafted(engine: Engine, key: int, text: TargetText) -> Drafted:
    logits = _feed(engine, key, text)
    batch, positions = _rows(engine, text)
    probs = logits.softmax(-1)
    tokens, scores = choose_scored(logits, probs, batch, positions)
    choices = torch.cat([tokens.unsqueeze(1), runners_up(logits, tokens, scores, MOST - 1)], 1)
    right = choices == batch.tensor(text.written, torch.int64).unsqueeze(1)
    ranks = (right.int().argmax(1) + 1) * right.any(1)
    return Drafted(tokens, "".join(map(str, ranks.tolist())), _of(probs, tokens), _of(to_probs(logits, batch), tokens))


def _probabilities_of(verifier: Engine, key: int, text: TargetText, drafted: Mapping[str, Drafted]) -> dict[str, str]:
    """Returns the target's probabilities of each draft model's tokens, as codes."""
    probs = to_probs(_feed(verifier, key, text), _rows(verifier, text)[0])
    return {name: _of(probs, own.tokens.to(probs.device)) for name, own in drafted.items()}


def _feed(engine: Engine, key: int, text: TargetText) -> Tensor:
    """Returns the logits before each written token [positions, tokens]; the session then has all but the last one."""
    tokens = (text.prompt + text.written)[:-1]
    return engine.forward([Chunk(key, tokens, len(text.written))])[:, : engine.checkpoint.num_tokens]


def _rows(engine: Engine, text: TargetText) -> tuple[SamplingBatch, Tensor]:
    batch = SamplingBatch.of([text.sampling] * len(text.written), device=engine.checkpoint.device)
    first = len(text.prompt)
    return batch, batch.tensor(range(first, first + len(text.written)), torch.int64)


def _of(probs: Tensor, tokens: Tensor) -> str:
    """Returns the probabilities of tokens, one of each row, as codes."""
    # a model with fewer rows than another gives the other's tokens beyond them no probability
    known = tokens < probs.shape[1]
    found = probs.gather(1, (tokens * known).unsqueeze(1)).squeeze(1) * known
    return written(probabilities.encode(found.tolist()))


def _behind_wrong(
    verifier: Engine, drafters: Mapping[str, Engine], texts: Sequence[TargetText], drafted: Mapping[str, list[Drafted]]
) -> list[dict[str, str]]:
    """Returns for each text and draft model which of the seven tokens after each of its `wrong` ones agree, as codes.

    From each text's end on, so that the caches still have what is before.
    """
    bits: list[dict[str, list[int]]] = [{name: [] for name in drafters} for _ in texts]
    wrong = [
        sorted((place, name, token) for name, own in drafted.items() for place, token in own[key].wrong)
        for key in range(len(texts))
    ]
    while any(wrong):
        chains = [
            Chain(key, texts[key].sampling, name, len(texts[key].prompt) + place, [token])
            for key, own in enumerate(wrong)
            if own
            for place, name, token in [own.pop()]
        ]
        for name, drafter in drafters.items():
            _extend(drafter, [chain for chain in chains if chain.drafter == name])
        for chain in chains:
            verifier.pool.truncate(chain.key, chain.position)
        right = _draw(verifier, chains, MOST - 1)
        for chain, drawn in zip(chains, right, strict=True):
            agreed = "".join(str(int(one == other)) for one, other in zip(chain.tokens[1:], drawn, strict=True))
            bits[chain.key][chain.drafter].insert(0, int(agreed, 2))
    return [{name: written(found) for name, found in own.items()} for own in bits]


class Chain(NamedTuple):
    """A draft from its first wrong token on."""

    key: int
    sampling: Sampling
    drafter: str
    position: int  # of the first token
    tokens: list[int]


def _extend(drafter: Engine, chains: Sequence[Chain]) -> None:
    for chain in chains:
        drafter.pool.truncate(chain.key, chain.position)
    for depth in range(MOST - 1 if chains else 0):
        for chain, (token,) in zip(chains, _draw(drafter, chains, 1, depth), strict=True):
            chain.tokens.append(token)


def _draw(engine: Engine, chains: Sequence[Chain], number: int, first: int = 0) -> list[list[int]]:
    """Feeds so many tokens of each chain, from its token `first` on; returns what the model draws after each."""
    fed = [Chunk(chain.key, chain.tokens[first : first + number], number) for chain in chains]
    batch = SamplingBatch.of([chain.sampling for chain in chains], [number] * len(chains), engine.checkpoint.device)
    after = [chain.position + first + 1 + place for chain in chains for place in range(number)]
    positions = batch.tensor(after, torch.int64)
    drawn = choose(engine.forward(fed), batch, positions, num_tokens=engine.checkpoint.num_tokens)
    rows: list[list[int]] = drawn.reshape(len(chains), number).tolist()
    return rows


def index_proposals(text: TargetText, histories: Sequence[NgramIndex]) -> Iterator[Proposal]:
    """Yields what an index says at each position of a text, of which nothing beyond that position is known to it."""
    tokens, growing = text.prompt + text.written, GrowingText()
    for at in range(len(text.prompt), len(tokens)):
        growing.follow(tokens[:at])
        length = min(NGRAM_LENGTH, len(tokens) - at)
        proposed = draft(growing, histories, length, sampling=text.sampling, least_probability=FLOOR)
        equal = [token == right for token, right in zip(proposed.tokens, tokens[at:], strict=False)]
        num_right = equal.index(False) if False in equal else len(equal)
        yield Proposal(probabilities.encode(proposed.probabilities), num_right)
