"""A target that babbles: random logits as a function of the text, which tend to close what is open, more and more.

Its rounds run through the real `Target.verify`, with drafts and without.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from goodspeed.constraint.compiling import Constraints
from goodspeed.engine.tokenizing import tokenizer_folder
from goodspeed.exact import trees
from goodspeed.wire.fields import Verification
from goodspeed.wire.generation import Constraint
from goodspeed.wire.messages import Sampling
from tests.fakes import make_entry, session_id
from verify_node.model.target import Target
from verify_node.scheduler.round import Outcome, Round

VOCABULARY = tokenizer_folder.load("tiny-target")
CONSTRAINTS = Constraints(VOCABULARY)
NUM_TOKENS = VOCABULARY.num_tokens
(END,) = VOCABULARY.eos_ids
PROMPT = (9,)
SESSION = session_id(1)

PULL = 0.4  # amount that each of 20 tokens from the 15th on adds to the logits of tokens that close something


class Draft(NamedTuple):
    tokens: Sequence[int] = ()
    parents: Sequence[int] | None = None


NOTHING = Draft()


def encode(text: str) -> list[int]:
    return list(VOCABULARY.tokenizer(text, add_special_tokens=False)["input_ids"])


def decode(tokens: Sequence[int]) -> str:
    return str(VOCABULARY.tokenizer.decode(list(tokens)))


def _closes(token: int) -> float:
    """Returns how much it is wanted at the end of a text; patterns may need any single character."""
    text = decode([token]).strip()
    if text == '"':
        return 1.4
    if token == END or (text and set(text) <= set('"}]')):
        return 1.0
    return 0.7 if text in ("n", "nu", "null") or len(text) == 1 else 0.0


class Babbler:
    """Writes texts by one seed."""

    def __init__(self, seed: int, constraint: Constraint | None, temperature: float = 1.0, **more: Any) -> None:
        self.constraint = constraint
        self.sampling = Sampling(temperature=temperature, seed=seed)
        self.more = more  # of its entries
        self.forced: tuple[int, ...] = ()  # what must follow, by the last round
        self.num_rounds = 0
        engine: Any = SimpleNamespace(
            keep=lambda paths: None, clear=lambda keys: None, pool={SESSION}, has_finite_keys=False, computed=None
        )
        checkpoint: Any = SimpleNamespace(num_tokens=NUM_TOKENS)
        self.target = Target(checkpoint, engine, constraints=CONSTRAINTS)

    def logits(self, output: Sequence[int]) -> Any:
        """Returns a row [num_tokens]."""
        row = _noise(self.sampling.seed, len(output), output[-1] if output else 0)
        return row + PULL * min(20, max(0, len(output) - 15)) * CLOSERS

    def round(self, output: Sequence[int], draft: Draft = NOTHING, verification: Verification = "match") -> Outcome:
        """One round after this output."""
        if self.constraint is not None and not CONSTRAINTS.holds(SESSION, self.constraint):
            CONSTRAINTS.hold(SESSION, CONSTRAINTS.get(self.constraint))
        text = (*PROMPT, *output)
        asked: dict[str, Any] = {"sampling": self.sampling, "constraint": self.constraint, "stop_ids": (END,)}
        asked |= {"verification": verification, "parents": draft.parents, "prompt": PROMPT, "text": text, **self.more}
        entry = make_entry(1, len(text) - 1, (text[-1], *draft.tokens), len(draft.tokens), **asked)
        paths = [(), *trees.paths(draft.tokens, draft.parents)]
        rows: Tensor = torch.from_numpy(np.stack([self.logits([*output, *path]) for path in paths]))
        [outcome] = self.target.verify(Round(1, (entry,)), rows)
        self.num_rounds += 1
        self.forced = outcome.forced
        return outcome

    def write(self, draft: Callable[[list[int]], Draft] = lambda output: NOTHING, most: int = 2000) -> list[int]:
        """Returns a text up to its end, without that; draft: what is drafted after an output."""
        output: list[int] = []
        while len(output) < most:
            outcome = self.round(output, draft(output))
            if outcome.failed:
                raise AssertionError(outcome.failed)
            for token in outcome.tokens:
                if token == END:
                    return output
                output.append(token)
        return output[:most]


@lru_cache(2048)
def _noise(seed: int, length: int, last: int) -> Any:
    return np.random.default_rng((seed, length, last)).standard_normal(NUM_TOKENS, np.float32)


CLOSERS = np.array([_closes(token) for token in range(NUM_TOKENS)], np.float32)
