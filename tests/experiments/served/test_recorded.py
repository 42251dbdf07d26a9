"""What is recorded of live runs, and the figures of it, by hand."""

import msgspec
import pytest

from experiments.served.recorded import Gap, Trial, collect, survival
from goodspeed.serving.measuring.recording import Drafted, Opened, Round

ROUND_S, PAUSE_S = 0.05, 0.01


def drafted(session=0, num_tokens=1, **told):
    return Drafted(session=session, base_len=10, num_tokens=num_tokens, **told)


def round_of(number, *drafts, round_s=ROUND_S, pause_s=PAUSE_S):
    times = {"started_s": number * round_s, "waited_s": pause_s, "duration_s": round_s - pause_s}
    sizes = {"num_tokens": 8, "num_sessions": len(drafts), "context_tokens": 0}
    return Round(number=number, drafts=drafts, **times, **sizes)


def opened(number, client):
    return Opened(number=number, client=client, draft_model="m", seed=1, prompt_len=9, max_tokens=99, joined=0)


def events_of(*lines):
    """As the verify node prints them: of each round its totals come before what is recorded of it."""
    for line in lines:
        if isinstance(line, Round):
            yield {"event": "round", "wall_s": {"receive": 0.5 * line.number, "forward": 2.0 * line.number}}
        yield {"event": "recorded", "line": msgspec.to_builtins(line)}


LINES = (
    opened(0, "chat"),
    round_of(1, drafted(0, 1, goodput=1.0, acceptance_rate=0.5, may_draft=1)),
    opened(1, "sql"),
    round_of(2, drafted(0, 2, goodput=1.5, acceptance_rate=0.5, may_draft=2), drafted(1, goodput=1.0)),
    round_of(3, drafted(0, 3, goodput=2.0, finish_reason="stop"), drafted(1, 1, goodput=1.0)),
    opened(2, "chat"),
    round_of(4, drafted(1, 3, goodput=1.2, acceptance_rate=0.25, may_draft=1)),
    round_of(5, drafted(2, 1, goodput=1.7, acceptance_rate=0.5), drafted(1, 2, goodput=1.3)),
)


@pytest.fixture
def run():
    return collect(events_of(*LINES), ["chat", "sql"], 3)


def test_rounds_count_from_the_one_after_everybody_had_a_token(run):
    assert [done.number for done in run.before] == [1, 2]
    assert [done.number for done in run.rounds] == [3, 4, 5]
    assert run.tokens.tolist() == [[3, 1], [0, 3], [1, 2]]
    assert run.presence.tolist() == [2 / 3, 1.0]


def test_the_estimate_of_a_round_has_not_seen_it(run):
    assert run.estimates.tolist() == [[1.5, 1.0], [2.0, 1.0], [2.0, 1.2]]


def test_dropped_events_and_an_early_end_are_gaps():
    with pytest.raises(Gap, match="too slowly"):
        collect([{"event": "dropped"}], ["chat"], 1)
    with pytest.raises(Gap, match="3 of 4 rounds"):
        collect(events_of(*LINES), ["chat", "sql"], 4)


def test_a_trial_is_what_the_verdict_before_permitted():
    lines = (
        opened(0, "a"),
        round_of(1, drafted(may_draft=2)),
        round_of(2, drafted(agreed="1", may_draft=0)),
        round_of(3, drafted(agreed="", may_draft=1, finish_reason="length")),
        opened(1, "a"),
        round_of(4, drafted(1, may_draft=3)),
        round_of(5, drafted(1, agreed="")),
    )
    run = collect(events_of(*lines), ["a"], 4)
    assert [(one.permitted, one.draft.agreed) for one in run.trials(0)] == [(2, "1"), (3, "")]


def trial(agreed, num_accepted):
    return Trial(len(agreed), drafted(agreed=agreed, num_accepted=num_accepted))


def test_survival_by_hand():
    """Of ten first tokens six agree; of these six, five have a second one, and three of them agree."""
    trials = [
        *[trial("11", 2)] * 3,
        *[trial("10", 1)] * 2,
        trial("1", 1),
        *[trial("01", 0)] * 4,  # what agrees after a wrong token says nothing
    ]
    assert survival(trials, 2) == pytest.approx([0.6, 0.6 * 3 / 5])
