"""A verify node that keeps promises, in virtual time: requests come, rounds take what the model says, texts end."""

import random
from dataclasses import dataclass, field
from typing import Any

from goodspeed.fair.round_time import CostModel
from tests.verify_node.slo.deadlines import NO_BOUND, HandRounds, deadline, decided
from verify_node.slo.allotting import allot
from verify_node.slo.deadline import Deadline


@dataclass
class Text:
    """One request, and how many tokens it wants."""

    deadline: Deadline
    due_first: float
    prompt_left: int
    tokens_left: int
    is_promised: bool = False
    num_tokens: int = 0
    first_at: float = 0.0
    last_at: float = 0.0


@dataclass
class Serving:
    """Plays rounds one after the other."""

    model: CostModel
    policy: str = "dp"
    pages: int = NO_BOUND
    now: float = 0.0
    promised: dict[bytes, Deadline] = field(default_factory=dict)
    texts: dict[bytes, Text] = field(default_factory=dict)
    done: list[Text] = field(default_factory=list)
    drafts: random.Random = field(default_factory=lambda: random.Random(0))
    late: list[tuple[bytes, float]] = field(default_factory=list)  # promised tokens, and by how much

    def tokens_in(self, seconds: float) -> int:
        return self.model.tokens_in(seconds, len(self.texts), 0)

    def ask(self, texts: list[Text]) -> None:
        """Decides about new requests, before the next round."""
        self.texts |= {text.deadline.session_id: text for text in texts}
        asked = [text.deadline for text in texts]
        kept = decided(self.promised, asked, self.tokens_in, self.now, pages=self.pages, policy=self.policy)
        for text, is_kept in zip(texts, kept, strict=True):
            text.is_promised = is_kept
            if is_kept:
                self.promised[text.deadline.session_id] = text.deadline
        assert sum(one.pages for one in self.promised.values()) <= self.pages

    def round(self) -> None:
        """One round: promises first, best effort with what is left; then everybody's tokens are noted."""
        rounds: Any = HandRounds(self.tokens_in)
        allotment = allot(self.promised, self.now, rounds)
        others = [key for key in self.texts if key not in self.promised]
        room = 2_000 if allotment.round_tokens is None else allotment.round_tokens
        assert sum(allotment.prefill.values()) <= room
        taken: dict[bytes, int] = {}
        for key in (*allotment.rank, *others):
            wanted = allotment.prefill.get(key, self.texts[key].prompt_left or 1)
            if number := min(wanted, room):
                taken[key], room = number, room - number
        if taken:
            self.now += self.model.round_s(sum(taken.values()), len(self.texts), 0)
        for key, number in taken.items():
            self.note(key, self.texts[key], number)

    def note(self, key: bytes, text: Text, number: int) -> None:
        if text.prompt_left:
            text.prompt_left -= number
            text.deadline.set_prompt(text.prompt_left)
            if text.prompt_left:
                return
            text.first_at = self.now
        if key in self.promised and self.now > text.deadline.due + 1e-9:
            self.late.append((key, self.now - text.deadline.due))
        number = min(text.tokens_left, 1 if text.num_tokens == 0 else self.drafts.choice((1, 1, 2, 6)))
        text.deadline.delivered(number, self.now)
        text.num_tokens, text.tokens_left, text.last_at = text.num_tokens + number, text.tokens_left - number, self.now
        if not text.tokens_left:
            self.promised.pop(key, None)
            self.done.append(self.texts.pop(key))


def arrivals(
    rng: random.Random, per_s: float, until: float, tiers: tuple[float | None, ...]
) -> list[tuple[float, Text]]:
    """Requests of random prompts, lengths and service levels, at random moments."""
    at = 0.0
    found: list[tuple[float, Text]] = []
    while (at := at + rng.expovariate(per_s)) < until:
        prompt, tpot_s = rng.randint(20, 1_500), rng.choice(tiers)
        due = at + rng.choice([0.5, 1.0, 2.0])
        one = deadline(len(found).to_bytes(4, "big"), due, prompt, tpot_s, rng.randint(5, 20))
        found.append((at, Text(one, due, prompt, rng.randint(1, 120))))
    return found


def serve(serving: Serving, coming: list[tuple[float, Text]], until: float) -> Serving:
    """Requests are decided about between rounds, and each round begins when the last one ended."""
    waiting = coming[::-1]
    while serving.now < until:
        new = []
        while waiting and waiting[-1][0] <= serving.now:
            new.append(waiting.pop()[1])
        serving.ask(new)
        if not serving.texts:
            if not waiting:
                break
            serving.now = waiting[-1][0]
            continue
        before = serving.now
        serving.round()
        assert serving.now > before, "a round serves somebody"
    return serving
