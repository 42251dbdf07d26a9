"""Recordings of runs: read, refused by name, merged text by text, and replayed exactly."""

import dataclasses
import json
import random

import pytest
from msgspec.structs import replace

from experiments.simulation import recordings
from experiments.simulation.nodes.surroundings import Finished
from experiments.simulation.recorded.replay import Replay, Replayed, survival
from experiments.simulation.recordings import Agreement, merge
from experiments.simulation.settings import PAPER, Settings
from experiments.simulation.world import World
from goodspeed.errors import ConfigError
from goodspeed.serving.measuring import recording
from goodspeed.serving.measuring.recording import Drafted, Header, Opened, Recording, Round
from training import domains

HEADER = Header(
    version=recording.VERSION,
    model="big",
    policy="fixed",
    rounds="barrier",
    verification="match",
    budget=8,
    max_tokens=30,
    temperature=1.0,
    top_k=0,
    top_p=1.0,
    clients=1,
    versions={},
)
OPENED = Opened(
    number=0,
    client="a",
    domain="math",
    draft_model="small",
    seed=1,
    prompt_len=10,
    prompt_digest="00",
    max_tokens=30,
    joined=0,
)


def run_of(*drafts, **changes):
    """A run of one session from drafts: (position after the prompt, what agreed, tokens delivered)."""
    rounds = tuple(round_of(number, *draft) for number, draft in enumerate(drafts, 1))
    return Recording(HEADER, (replace(OPENED, **changes),), rounds)


def round_of(number, base, agreed, num_tokens):
    num_accepted = (agreed + "0").index("0")
    drafted = Drafted(session=0, base_len=10 + base, agreed=agreed, num_accepted=num_accepted, num_tokens=num_tokens)
    return Round(
        number=number,
        started_s=0.0,
        waited_s=0.0,
        duration_s=0.1,
        num_tokens=1,
        num_sessions=1,
        context_tokens=0,
        drafts=(drafted,),
    )


def test_two_runs_of_one_text_fill_each_others_gaps():
    (one,) = merge([run_of((0, "", 1), (1, "110", 3), (4, "1", 2)), run_of((0, "", 1), (2, "1011", 2), (4, "11", 3))])
    assert one.path == "?110" + "11" + "?"  # the bonus token's position 5 is in the second run, 6 in neither
    assert one.branches == {3: "11"}
    assert (one.rate, one.rate_off_path) == (0.8, 1.0)
    (near_tie,) = merge([run_of((1, "0011", 1)), run_of((1, "011", 1))])
    assert near_tie.branches == {1: "011"}  # the longer one
    assert len(merge([run_of((1, "1", 2)), run_of((1, "0", 1), seed=2)])) == 2
    with pytest.raises(ConfigError, match="math text with seed 1 do not agree at position 1"):
        merge([run_of((1, "1", 2)), run_of((1, "0", 1))])


class Facts:
    """A made-up text: what a draft from any base says, at random but always the same."""

    def __init__(self, seed, length):
        rng = random.Random(seed)
        self.path = [rng.random() < 0.7 for _ in range(length)]
        self.branches = [[rng.random() < 0.4 for _ in range(length)] for _ in range(length)]

    def draft(self, base, length):
        agreed = ""
        for position in range(base, base + length):
            left = agreed.find("0")
            right = self.path[position] if left < 0 else self.branches[base + left][position]
            agreed += "01"[right]
        return agreed

    def run(self, length):
        drafts, base = [(0, "", 1)], 1
        while base + length < len(self.path):
            agreed = self.draft(base, length)
            num_tokens = (agreed + "0").index("0") + 1
            drafts.append((base, agreed, num_tokens))
            base += num_tokens
        return run_of(*drafts)


def says(process, base, length):
    """Returns what a draft from there would agree with, as the simulated draft model asks."""
    agreed = ""
    for offset in range(length):
        agreed += f"{process.rate(10 + base + offset, offset, '0' not in agreed):g}"
    return agreed


@pytest.mark.parametrize("seed", range(5))
def test_whatever_was_drafted_is_replayed_exactly_off_the_path_too(seed):
    facts = Facts(seed, 200)
    runs = [facts.run(12), facts.run(7)]
    process = Replayed(merge(runs)[0])
    drafts = [drafted for run in runs for done in run.rounds for drafted in done.drafts]
    for drafted in drafts:
        assert says(process, drafted.base_len - 10, len(drafted.agreed)) == drafted.agreed
    assert process.counts.num_asked > 500
    assert process.counts.num_unrecorded == 0
    for base in range(1, 150):  # no run began a draft at most of these
        assert says(process, base, 3) == facts.draft(base, 3)


def test_what_was_not_recorded_goes_by_the_texts_own_rates_and_is_counted():
    process = Replayed(merge([run_of((0, "", 1), (1, "1101", 3), (4, "1", 1))])[0])
    assert process.agreement.path == "?1101"
    assert process.rate(10, 0, True) == 0.75
    assert process.rate(13, 2, False) == 1.0  # the draft began at 11; it cannot be wrong before 13 by what is known
    assert process.rate(14, 3, False) == 1.0
    assert process.counts.share_unrecorded == pytest.approx(2 / 3)
    assert [process.rate(10 + 5 + position, 0, True) for position in range(1, 5)] == [1, 1, 0, 1]  # from the beginning


def test_a_survival_curve_by_hand():
    (one,) = merge([run_of((0, "", 1), (1, "110", 3), (4, "0", 1), (5, "1", 1))])
    assert one.path == "?11001"
    # of drafts from 1, 2, 3, 4, 5 the first token agrees in three; two of those go on as far as is known, one agrees
    assert survival([one], 3) == pytest.approx((3 / 5, 3 / 5 * 1 / 2, 0.0))


def test_a_world_replays_its_texts():
    agreement = Agreement(
        target="big",
        draft_model="small",
        verification="match",
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        domain="math",
        seed=1,
        prompt_digest="00",
        prompt_len=5,
        path="?" + "110" * 20,
        branches=dict.fromkeys(range(3, 61, 3), "1" * 20),
    )
    replay = Replay([agreement])
    settings = Settings(num_clients=2, num_sessions=2, stops=0.0, policy="fixed", budget=12, **PAPER)
    settings = dataclasses.replace(settings, acceptance=replay, sizes=replay.sizes, page_size=16)
    rounds: list[Finished] = []
    world = World(3, settings, rounds.append)
    world.run(100.0)
    whole = [verdict for done in rounds for verdict in done.verdicts if verdict.num_verified >= 3]
    assert len(whole) > 50
    assert {verdict.num_accepted for verdict in whole} == {2}
    assert replay.counts.num_unrecorded == 0
    assert all(len(one.delivered) == 61 for draft in world.drafts for one in draft.done)
    with pytest.raises(ConfigError, match="nothing of the domain 'sql' was recorded"):
        Replay([agreement], ["sql"])


def test_the_shipped_texts_are_of_all_domains_and_nearly_all_known():
    for draft_model in ("tiny-draft-s", "tiny-draft-m"):
        agreements = recordings.load(draft_model=draft_model)
        assert {one.domain for one in agreements} == set(domains.NAMES)
        assert {(one.target, one.verification, one.temperature) for one in agreements} == {
            ("tiny-target", "match", 1.0)
        }
        num_positions = sum(len(one.path) for one in agreements)
        assert sum(one.path.count("?") for one in agreements) < 0.05 * num_positions
        curves = {domain: survival([a for a in agreements if a.domain == domain], 8) for domain in domains.NAMES}
        assert curves["chat"][3] > curves["docs"][3]
    assert recordings.SHIPPED.stat().st_size < 400_000
    with pytest.raises(ConfigError, match="holds no text of nobody"):
        recordings.load(draft_model="nobody")


def test_a_recording_survives_its_file(tmp_path):
    path = tmp_path / "run.jsonl"
    recording.save(run_of((0, "", 1), (1, "110", 3)), str(path))
    assert recording.load(path) == run_of((0, "", 1), (1, "110", 3))
    merged = tmp_path / "texts.jsonl"
    recordings.main([str(path), "--output", str(merged)])
    assert recordings.load(merged) == merge([recording.load(path)])
    with pytest.raises(ConfigError, match=r"cannot be written to .*/no/such"):
        recording.save(run_of(), str(tmp_path / "no" / "such"))


def spoilt(lines, number, **changes):
    """The lines with line `number` changed, or taken away."""
    if not changes:
        return lines[: number - 1] + lines[number:]
    changed = json.dumps(json.loads(lines[number - 1]) | changes)
    return [*lines[: number - 1], changed, *lines[number:]]


BAD = {
    "empty": (lambda lines: [], "damaged in line 1"),
    "no JSON": (lambda lines: ["hello"], "damaged in line 1"),
    "another version": (lambda lines: spoilt(lines, 1, version=99), "has version 99, but this program reads 2"),
    "an unknown field": (lambda lines: spoilt(lines, 2, mood="good"), "damaged in line 2.*mood"),
    "no session": (lambda lines: spoilt(lines, 2), "nothing opens session 0"),
    "a wrong count": (lambda lines: spoilt(lines, 3, num_tokens=-1), "damaged in line 3"),
    "cut off": (lambda lines: [*lines[:-1], lines[-1][:30]], "damaged in line 4"),
    "not 0 or 1": (
        lambda lines: spoilt(lines, 4, drafts=[{"session": 0, "base_len": 1, "agreed": "102", "num_tokens": 1}]),
        "damaged in line 4.*agreed",
    ),
    "too much accepted": (
        lambda lines: spoilt(lines, 4, drafts=[{"session": 0, "base_len": 1, "num_accepted": 1, "num_tokens": 1}]),
        "a draft of session 0 does not add up",
    ),
}


@pytest.mark.parametrize(("spoil", "named"), BAD.values(), ids=BAD)
def test_a_bad_file_is_refused_by_name(tmp_path, spoil, named):
    path = tmp_path / "run.jsonl"
    recording.save(run_of((0, "", 1), (1, "110", 3)), str(path))
    path.write_text("\n".join(spoil(path.read_text().splitlines())))
    with pytest.raises(ConfigError, match=f"run.jsonl .*{named}"):
        recording.load(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        recording.load(tmp_path / "nowhere")
