"""Short real chats on one machine, with drafts and without: tokens per second as a benchmark of real nodes counts them.

Recorded chats (`texts/proposals.py`) begin together and end by themselves, group after group, with a pause between.
The verify node has a core, all draft nodes share another one. Nodes keep what they learn from group to group, as from
one minute to the next.
"""

import sys
from dataclasses import dataclass
from random import Random
from statistics import median

from experiments.simulation.arrivals import Arrival, Schedule
from experiments.simulation.settings import Core, Settings
from experiments.simulation.texts import proposals
from experiments.simulation.texts.recorded import RecordedText
from experiments.simulation.world import World
from goodspeed.fair.round_time import Linear
from goodspeed.serving.parser import CommandLine
from goodspeed.wire.fields import MAX_DRAFT

PAUSE_S = 30.0  # from the begin of a group to that of the next: the first is over then
LATENCY_S, PAGE_SIZE = 0.0002, 32
WARM = 32  # tokens of the chats of the first group, which is not counted

ROUND, CHANGE_ROWS = Linear(fixed_s=0.0099, token_s=0.0013), 5.7
CORE = Core(verdict_s=0.001, draft_s=0.0001, slowed=0.05)
STEPS = {"smollm2-draft": Linear(fixed_s=0.0025), "smollm2-q4_0": Linear(fixed_s=0.008, token_s=0.001)}
"""SmolLM2 with OpenVINO on a machine with two cores. The nodes without drafts write 80 tokens/s for one chat, and a
round of eight takes 20 ms, as measured; another row takes 1.3 ms and a change of size 7.5. The work of nodes with
messages is from their processor times, and what draft models cost rounds beside them is an estimate."""


@dataclass(frozen=True)
class Chats:
    """Describes how the same questions are asked again and again."""

    temperature: float
    num_at_once: int
    num_questions: int
    repetitions: int


def rates(recordings: str, drafter: str, chats: Chats, seed: int, *, drafts: bool) -> list[float]:
    """Tokens per second of each repetition. drafter: a recorded draft model, or `ngram`."""
    known = proposals.load(recordings)
    texts = [text for text in known.at(chats.temperature) if text.ended]  # others mostly repeat themselves
    Random(seed).shuffle(texts)
    model = drafter if drafter in STEPS else known.title.draft_models[0]
    asked, num = texts[: chats.num_questions], chats.num_at_once
    groups = [asked[first : first + num] for first in range(0, len(asked), num)]
    warm = [texts[-1]] * num
    plan = [warm] + groups * chats.repetitions
    schedules = tuple(
        tuple(
            Arrival(
                PAUSE_S * at,
                group[client].prompt_len,
                WARM if at == 0 else group[client].num_tokens,
                RecordedText([group[client]], model, known.off_path(model, chats.temperature)),
            )
            for at, group in enumerate(plan)
            if client < len(group)
        )
        for client in range(num)
    )
    longest = max(text.prompt_len + text.num_tokens for text in texts)
    world = World(seed, _settings(drafter, chats.temperature, schedules, longest, drafts=drafts))
    world.run(PAUSE_S * (len(plan) + 1))
    seconds, tokens = [0.0] * len(plan), [0] * len(plan)
    for done in (one for draft in world.drafts for one in draft.done):
        at = round(done.times.asked_at / PAUSE_S)
        seconds[at] = max(seconds[at], done.moved_at - PAUSE_S * at)
        tokens[at] += len(done.delivered)
    each = len(groups)
    return [
        sum(tokens[first : first + each]) / sum(seconds[first : first + each]) for first in range(1, len(plan), each)
    ]


def ratio(recordings: str, drafter: str, chats: Chats, seed: int) -> float:
    """Median tokens per second with drafts over that without."""
    drafted, plain = (median(rates(recordings, drafter, chats, seed, drafts=drafts)) for drafts in (True, False))
    return drafted / plain


def _settings(
    drafter: str, temperature: float, schedules: tuple[Schedule, ...], context_len: int, *, drafts: bool
) -> Settings:
    num = len(schedules)
    return Settings(
        num_clients=num,
        arrivals=schedules,
        temperature=temperature,
        stops=0.0,
        is_shared=True,
        replays_own=True,
        ngrams=("own",),
        has_model=(drafter in STEPS,),
        max_draft=MAX_DRAFT if drafts else 0,
        draft_cost=(STEPS.get(drafter, Linear()),),
        round_cost=ROUND,
        known_cost=True,
        change_rows=CHANGE_ROWS,
        draft_core=CORE,
        latency_s=(LATENCY_S,),
        context_len=context_len + 1,
        page_size=PAGE_SIZE,
        num_pages=num * (context_len // PAGE_SIZE + 2),
        max_sessions=num,
        tick_s=1.0,
    )


def main() -> int:
    parser = CommandLine(prog="python -m experiments.simulation.chats", description=__doc__)
    parser.add_argument("--drafters", nargs="+", choices=["ngram", *STEPS], default=["ngram", *STEPS])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    for drafter in options.drafters:
        for chats in [Chats(temperature, num, 8, options.repetitions) for temperature in (0.0, 1.0) for num in (1, 8)]:
            ratios = [ratio("", drafter, chats, seed) for seed in range(options.seeds)]
            cell = f"{drafter}, {chats.num_at_once} at once, T={chats.temperature:g}"
            print(f"{cell:<36} with drafts / without: {median(ratios):.3f} (lowest {min(ratios):.3f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
