"""Recordings of runs: loaded, and refused by name where they are damaged."""

import json

import msgspec
import pytest
from msgspec.structs import replace

from experiments.simulation import recordings
from experiments.simulation.recordings import Recording
from goodspeed.errors import ConfigError
from goodspeed.serving.measuring.recording import Drafted, Opened, Round

NODE = ("big", "fixed", "barrier", 8)
OPENED = Opened(
    number=0,
    client="a",
    domain="math",
    draft_model="small",
    seed=1,
    prompt_len=10,
    max_tokens=30,
    joined=0,
)


def run_of(*drafts, **changes):
    """A run of one session from drafts: (position after the prompt, what agreed, tokens delivered)."""
    rounds = tuple(round_of(number, *draft) for number, draft in enumerate(drafts, 1))
    return Recording(*NODE, (replace(OPENED, **changes),), rounds)


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


def events_of(run):
    """Returns what a verify node prints of a run."""
    ready = {"model": run.model, "policy": run.policy, "rounds": run.rounds_kind, "budget": run.budget}
    own = [{"event": "recorded", "line": msgspec.to_builtins(line)} for line in (*run.sessions, *run.rounds)]
    return [{"event": "ready", **ready}, *own, {"event": "round", "number": 1}, {"event": "stopped"}]


def written(path, events):
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


def test_what_a_verify_node_prints_is_a_recording(tmp_path):
    run = run_of((0, "", 1), (1, "110", 3), verification="ratio", temperature=0.5)
    assert recordings.load(written(tmp_path / "run.jsonl", events_of(run))) == run


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda events: [*events, {"event": "dropped", "num_lines": 3}], "has a gap in line 6"),
        (lambda events: events + events, "has a second run from line 6 on"),
        (lambda events: [events[0], events[-1]], "has no run with `recorded` events"),
        (lambda events: events[1:], "has no run"),
        (lambda events: [events[0], {"event": "recorded", "line": {"kind": "round"}}], "damaged in line 2"),
    ],
    ids=["dropped", "twice", "not recorded", "no beginning", "a bad line"],
)
def test_bad_events_are_refused_by_name(tmp_path, spoil, named):
    with pytest.raises(ConfigError, match=f"run.jsonl .*{named}"):
        recordings.load(written(tmp_path / "run.jsonl", spoil(events_of(run_of((0, "", 1))))))


def test_a_check_leaves_nothing_behind(tmp_path):
    link, there, loop = tmp_path / "link", tmp_path / "there.jsonl", tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(ConfigError, match="loop"):
        recordings.check(str(loop))
    loop.unlink()
    link.symlink_to(tmp_path / "nowhere")
    there.write_text("kept")
    for path in (link, there, tmp_path / "new.jsonl"):
        recordings.check(str(path))
    assert sorted(tmp_path.iterdir()) == [link, there]
    assert (link.is_symlink(), there.read_text()) == (True, "kept")
