"""Bytes of a draft of five tokens on the uplink, and the share accepted, for every kind of draft.

The embedded models, one prompt of each of the eight domains. The base of every draft is the beginning of a text that
the target wrote by itself (drawn with the match rule's noise), five tokens on from draft to draft: all kinds are
measured on the same bases, and what is rejected leads nobody astray. Drafts come from the real drafter, bytes are those
of the whole encoded `Draft` message, and the real target verifies each draft.

`acceptance` is Eq. (3)'s: over all verified positions, the share that the target drew too (match), or the mean of
min(1, p/q) (ratio). `accepted` is how many of five tokens were taken on average, up to the first rejection.

The bytes at a vocabulary of 151,936 are those of made distributions, p(rank r) proportional to 1/r (Zipf) at T=1, with
ranks dealt to random ids: real models are steeper, and dense proposals do not care.

It takes about a minute on two cores; about 10 s with --quick.
"""

import statistics
import sys
from dataclasses import dataclass
from typing import Any

import torch

from draft_node.core.generation import Generation
from experiments.harness import benchmark
from goodspeed.app import generation
from goodspeed.drafting.drafter import Drafter
from goodspeed.drafting.proposing import Propose, Proposed
from goodspeed.embedded import prompts
from goodspeed.engine import checkpoints
from goodspeed.engine.engine import Checkpoint
from goodspeed.engine.runner import Runner
from goodspeed.exact import proposals
from goodspeed.exact.sampling import Role, SamplingBatch, choose, to_probs, uniform
from goodspeed.wire.codec import MAX_MESSAGE_BYTES, encode
from goodspeed.wire.fields import Verification
from goodspeed.wire.messages import Draft, Sampling
from verify_node.model.target import Target
from verify_node.scheduler.round import Entry, Outcome, Round

LENGTH = 5
WIDE = 151_936
MATCH_BYTES, LATTICE_BYTES = 40, 2048  # wanted: a token under match, a message of lattice-64
DRAFT_MODELS = ("tiny-draft-s", "tiny-draft-m")  # dealt out in turn
SETTINGS = {"T=0.7 top-k 20": Sampling(temperature=0.7, top_k=20), "T=1": Sampling()}


@dataclass(frozen=True)
class Kind:
    """A kind of proposal that is sent with the tokens."""

    name: str
    proposal: str = "lattice"
    k: int = 64
    verification: Verification = "ratio"


KINDS = [
    Kind("match", verification="match"),
    *(Kind(f"lattice-{k}", k=k) for k in (20, 64, 256)),
    *(Kind(name, name) for name in ("dense-fp16", "dense-fp32")),
]


@dataclass(frozen=True)
class Text:
    """A prompt and the target's continuation."""

    request: Generation
    tokens: tuple[int, ...]

    def bases(self) -> range:
        return range(len(self.request.prompt), len(self.tokens), LENGTH)


class Bench:
    """The target, and a fresh drafter of each draft model for each kind."""

    def __init__(self) -> None:
        self.checkpoint = checkpoints.load("tiny-target")
        self.runner = Runner(self.checkpoint, num_pages=512)
        self.target = Target(self.checkpoint, self.runner)
        self.draft_checkpoints = [checkpoints.load(name) for name in DRAFT_MODELS]

    def text(self, number: int, line: prompts.Prompt, sampling: Sampling, num_tokens: int) -> Text:
        prompt = tuple(self.checkpoint.tokenizer.encode(line.prompt))
        seeded = Sampling(sampling.temperature, sampling.top_k, sampling.top_p, line.seed)
        written = generation.generate(self.checkpoint, self.runner, prompt, seeded, num_tokens)
        request = Generation(number.to_bytes(16, "little"), prompt, seeded, num_tokens)
        return Text(request, (*prompt, *written))

    def measure(self, kind: Kind, texts: list[Text]) -> dict[str, float]:
        """Drafts at every base of every text; returns their bytes and acceptance."""
        drafters = [
            Drafter(model, make_runner(model), kind=kind.proposal, k=kind.k) for model in self.draft_checkpoints
        ]
        sizes: list[int] = []
        outcomes: list[Outcome] = []
        for number, bases in enumerate(zip(*(text.bases() for text in texts), strict=True)):
            entries = []
            for i, (text, base) in enumerate(zip(texts, bases, strict=True)):
                proposed = propose(drafters[i % len(drafters)], kind, text, base, number)
                draft = make_draft(base, proposed.tokens, proposed.proposal)
                sizes.append(len(encode(draft, MAX_MESSAGE_BYTES)))
                entries.append(make_entry(text, base, draft, kind, self.runner.pool.length(text.request.session_id)))
            outcomes += self.target.run(Round(number, tuple(entries))).outcomes
            for text, base in zip(texts, bases, strict=True):
                self.runner.truncate(text.request.session_id, base)
        for text in texts:
            self.runner.free(text.request.session_id)
        if invalid := [outcome.invalid for outcome in outcomes if outcome.invalid]:
            raise RuntimeError(f"the target refused a proposal: {invalid[0]}")
        return {
            "bytes_per_token": statistics.mean(sizes) / LENGTH,
            "message_bytes": statistics.mean(sizes),
            "acceptance": statistics.mean(outcome.agreement for outcome in outcomes) / LENGTH,
            "accepted": statistics.mean(outcome.num_accepted for outcome in outcomes),
            "num_drafts": len(outcomes),
        }


def make_runner(checkpoint: Checkpoint) -> Runner:
    return Runner(checkpoint, num_pages=512)


def propose(drafter: Drafter, kind: Kind, text: Text, base: int, number: int) -> Proposed:
    request = Generation(
        text.request.session_id, text.request.prompt, text.request.sampling, 1024, verification=kind.verification
    )
    drafter.add(Propose(request, 1, number, text.tokens[:base], LENGTH))
    while not (done := drafter.step()):
        pass
    return done[0]


def make_draft(base_len: int, tokens: tuple[int, ...], proposal: bytes | None) -> Draft:
    """Makes a draft as a session does; its id stands for 128 random bits, which do not compress."""
    return Draft(b"\xff" * 16, 1, base_len, tokens, complete=True, proposal=proposal)


def make_entry(text: Text, base: int, draft: Draft, kind: Kind, num_cached: int) -> Entry:
    return Entry(
        session_id=text.request.session_id,
        start=num_cached,
        tokens=(*text.tokens[num_cached:base], *draft.tokens),
        num_drafted=len(draft.tokens),
        samples=True,
        sampling=text.request.sampling,
        verification=kind.verification,
        epoch=1,
        proposal=draft.proposal,
    )


def wide_bytes(kind: Kind, sampling: Sampling) -> int:
    """Returns the bytes of one message at a vocabulary of WIDE, from made distributions."""
    ranks = torch.arange(1, WIDE + 1, dtype=torch.float32).log()
    shuffled = torch.stack([-ranks[torch.randperm(WIDE, generator=torch.manual_seed(i))] for i in range(LENGTH)])
    batch = SamplingBatch.of([sampling], [LENGTH])
    positions = torch.arange(LENGTH)
    if kind.verification == "match":
        tokens, proposal = choose(shuffled, batch, positions), None
    else:
        made = proposals.make(to_probs(shuffled, batch), kind.proposal, k=kind.k)
        tokens, proposal = made.sample(uniform(batch.seeds, Role.DRAFT, 1, 1, positions)), proposals.encode(made.pack())
    return len(encode(make_draft(1000, tuple(tokens.tolist()), proposal), MAX_MESSAGE_BYTES))


HEADER = (
    f"{'':>14} {'kind':>10} {'B/token':>9} {'message B':>10} {'acceptance':>11} {'accepted':>9} {'B at 151,936':>13}"
)


def show(row: dict[str, Any]) -> str:
    return (
        "{sampling:>14} {kind:>10} {bytes_per_token:>9,.1f} {message_bytes:>10,.0f} {acceptance:>11.3f} "
        "{accepted:>9.2f} {wide_message_bytes:>13,}".format(**row)
    )


def main() -> int:
    options = benchmark.parser("wire", __doc__, "fewer and shorter texts").parse_args()
    torch.set_num_threads(1)
    num_tokens, num_texts = (10, 3) if options.quick else (100, 8)
    benchmark.say(options, HEADER)
    bench = Bench()
    rows = []
    for name, sampling in SETTINGS.items():
        texts = [
            bench.text(number, line, sampling, num_tokens) for number, line in enumerate(prompts.demo()[:num_texts])
        ]
        for kind in KINDS:
            wide = wide_bytes(kind, sampling)
            row: dict[str, object] = {"sampling": name, "kind": kind.name, **bench.measure(kind, texts)}
            row |= {"wide_message_bytes": wide, "wide_bytes_per_token": wide / LENGTH}
            rows.append(row)
            benchmark.say(options, show(row))
    wanted = {"match_bytes_per_token": MATCH_BYTES, "lattice_64_message_bytes": LATTICE_BYTES}
    benchmark.report(options, {"benchmark": "wire", "length": LENGTH, "wanted": wanted, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
