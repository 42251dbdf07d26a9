"""A verify node that keeps a book, in virtual time: requests come, rounds take what the model says, texts end."""

import random
from dataclasses import dataclass, field

from goodspeed.fair.latency import CostModel
from verify_node.admission import Book, Request, Tier, allot, decide


@dataclass
class Text:
    """One request, and how many tokens it wants."""

    request: Request
    prompt_left: int
    tokens_left: int
    tier: Tier = "best_effort"
    num_tokens: int = 0
    first_at: float = 0.0
    last_at: float = 0.0


@dataclass
class Serving:
    """Plays rounds one after the other."""

    model: CostModel
    policy: str = "dp"
    pool_pages: int | None = None
    now: float = 0.0
    book: Book = field(default_factory=Book)
    texts: dict[bytes, Text] = field(default_factory=dict)
    done: list[Text] = field(default_factory=list)
    late: list[tuple[bytes, float]] = field(default_factory=list)  # promised tokens, and by how much

    def tokens_in(self, seconds: float) -> int:
        return self.model.tokens_in(seconds, len(self.texts), 0)

    def ask(self, texts: list[Text]) -> None:
        """Decides about new requests, before the next round."""
        for text in texts:
            self.texts[text.request.session_id] = text
        requests = [text.request for text in texts]
        tiers = decide(
            self.book, requests, self.now, tokens_in=self.tokens_in, pool_pages=self.pool_pages, policy=self.policy
        )
        for text, tier in zip(texts, tiers, strict=True):
            text.tier = tier
            if tier == "promised":
                self.book.promise(text.request)
        assert self.pool_pages is None or self.book.pages <= self.pool_pages

    def round(self) -> None:
        """One round: promises first, best effort with what is left; then everybody's tokens are noted."""
        allotment = allot(self.book, self.now, tokens_in=self.tokens_in)
        others = [key for key in self.texts if key not in self.book]
        room = 2_000 if allotment.round_tokens is None else allotment.round_tokens
        assert sum(allotment.prefill.values()) <= room
        taken: dict[bytes, int] = {}
        for key in (*allotment.rank, *others):
            text = self.texts[key]
            wanted = allotment.prefill.get(key, text.prompt_left or 1)
            if number := min(wanted, room):
                taken[key], room = number, room - number
        if taken:
            self.now += self.model.round_s(sum(taken.values()), len(self.texts), 0)
        for key, number in taken.items():
            self.note(self.texts[key], number)

    def note(self, text: Text, number: int) -> None:
        key = text.request.session_id
        if text.prompt_left:
            text.prompt_left -= number
            self.book.read(key, number)
            if text.prompt_left:
                return
            text.first_at = self.now
        if key in self.book and self.now > self.book[key].due + 1e-9:
            self.late.append((key, self.now - self.book[key].due))
        self.book.delivered(key, 1, self.now)
        text.num_tokens, text.tokens_left, text.last_at = text.num_tokens + 1, text.tokens_left - 1, self.now
        if not text.tokens_left:
            self.book.forget(key)
            self.done.append(self.texts.pop(key))


def arrivals(rng: random.Random, per_s: float, until: float, tiers: tuple[float, ...]) -> list[tuple[float, Text]]:
    """Requests of random prompts, lengths and service levels, at random moments."""
    at = 0.0
    found: list[tuple[float, Text]] = []
    while (at := at + rng.expovariate(per_s)) < until:
        prompt, tpot_s = rng.randint(20, 1_500), rng.choice(tiers)
        deadline = at + rng.choice([0.5, 1.0, 2.0])
        request = Request(len(found).to_bytes(4, "big"), deadline, prompt, tpot_s, rng.randint(5, 20))
        found.append((at, Text(request, prompt, rng.randint(1, 120))))
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
