"""Drafts of the embedded draft models that are made once and then only looked up.

Whoever plays a round again, with other code, at another pace, gets the same drafts; and a draft is the beginning of
every longer one on the same text.
"""

from dataclasses import dataclass, field
from functools import partial

from draft_node.core.generation import Generation
from experiments.benchmarks.nodes.played import Client
from experiments.simulation.texts.models import likeliest_path
from goodspeed.drafting.drafter import Drafter
from goodspeed.drafting.proposing import Propose
from goodspeed.embedded import prompts
from goodspeed.engine import checkpoints
from goodspeed.engine.runner import Runner
from goodspeed.wire.messages import Sampling

DRAFT_MODELS = ("tiny-draft-s", "tiny-draft-m")  # dealt out in turn
MARGIN = 4  # tokens drafted beyond what is asked for, so that a slightly other length finds them too


@dataclass
class Recording:
    """The draft models' proposals on each text, recorded at the first request for it."""

    drafters: list[Drafter]
    drafts: dict[tuple[Sampling, tuple[int, ...]], tuple[int, ...]] = field(default_factory=dict)
    num_made: int = 0

    @classmethod
    def empty(cls) -> "Recording":
        models = [checkpoints.load(name) for name in DRAFT_MODELS]
        return cls([Drafter(model, Runner(model, num_pages=1024)) for model in models])

    def tokens(self, number: int, propose: Propose) -> tuple[int, ...]:
        """Returns the first `length` tokens of client `number`'s draft on this text."""
        text = (*propose.tokens, *likeliest_path(propose))
        key = (propose.request.sampling, text)
        known = self.drafts.get(key, ())
        stopped = bool(known) and known[-1] in propose.request.stop_ids
        if len(known) < propose.length and not stopped:
            known = self.drafts[key] = self._make(number, propose, text)
        return known[: propose.length]

    def _make(self, number: int, propose: Propose, text: tuple[int, ...]) -> tuple[int, ...]:
        self.num_made += 1
        drafter = self.drafters[number % len(self.drafters)]
        longer = Propose(propose.request, propose.epoch, propose.round, text, propose.length + MARGIN)
        drafter.add(longer)
        while not (done := drafter.step()):
            pass
        return done[0].tokens


def clients(recording: Recording, sampling: Sampling, num_clients: int, max_tokens: int) -> list[Client]:
    """Creates a client for each domain's held-out prompt; texts end only at max_tokens."""
    checkpoint = recording.drafters[0].checkpoint
    lines = prompts.demo()
    made = []
    for number in range(num_clients):
        line = lines[number % len(lines)]
        seeded = Sampling(sampling.temperature, sampling.top_k, sampling.top_p, line.seed + number)
        request = Generation(
            session_id=number.to_bytes(16, "little"),
            prompt=tuple(checkpoint.tokenizer.encode(line.prompt)),
            sampling=seeded,
            max_tokens=max_tokens,
        )
        name, draft = f"{line.domain}-{number}", partial(recording.tokens, number)
        made.append(Client.of(name, number + 1, checkpoint.tokenizer_fingerprint, request, draft))
    return made
