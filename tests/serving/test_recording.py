"""Recordings of runs: loaded, and refused by name where they are damaged."""

import json

import msgspec
import pytest
from msgspec.structs import replace

from goodspeed.errors import ConfigError
from goodspeed.serving.measuring import recording
from goodspeed.serving.measuring.recording import Drafted, Header, Opened, Recording, Round

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


def lines_of(run):
    """Returns a run without events around it."""
    return [msgspec.json.encode(line).decode() for line in (run.header, *run.sessions, *run.rounds)]


def test_lines_without_events_are_a_recording(tmp_path):
    path, run = tmp_path / "run.jsonl", run_of((0, "", 1), (1, "110", 3))
    path.write_text("\n".join(lines_of(run)))
    assert recording.load(path) == run


def events_of(run, **of_header):
    """Returns what a verify node prints of a run."""
    header = {name: getattr(run.header, name) for name in ("model", "policy", "rounds", "budget")} | of_header
    own = [{"event": "recorded", "line": msgspec.to_builtins(line)} for line in (*run.sessions, *run.rounds)]
    return [{"event": "ready", **header}, *own, {"event": "round", "number": 1}, {"event": "stopped"}]


def written(path, events):
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


def test_what_a_verify_node_prints_is_a_recording(tmp_path):
    own = {"verification": "ratio", "temperature": 0.5, "top_k": 0, "top_p": 1.0}
    run = run_of((0, "", 1), (1, "110", 3), **own)
    loaded = recording.load(written(tmp_path / "run.jsonl", events_of(run, versions={"torch": "2"})))
    shared = own | {"max_tokens": 30, "clients": 1, "versions": {"torch": "2"}}
    assert loaded == Recording(replace(HEADER, **shared), run.sessions, run.rounds)


def test_settings_in_which_sessions_differ_are_not_the_runs(tmp_path):
    run = run_of(temperature=0.5)
    run = Recording(run.header, (*run.sessions, replace(OPENED, number=1, client="b", temperature=1.0)), ())
    loaded = recording.load(written(tmp_path / "run.jsonl", events_of(run)))
    assert (loaded.header.temperature, loaded.header.max_tokens, loaded.header.clients) == (None, 30, 2)
    assert [session.temperature for session in loaded.sessions] == [0.5, 1.0]


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
        recording.load(written(tmp_path / "run.jsonl", spoil(events_of(run_of((0, "", 1))))))


def test_a_check_leaves_nothing_behind(tmp_path):
    link, there, loop = tmp_path / "link", tmp_path / "there.jsonl", tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(ConfigError, match="loop"):
        recording.check(str(loop))
    loop.unlink()
    link.symlink_to(tmp_path / "nowhere")
    there.write_text("kept")
    for path in (link, there, tmp_path / "new.jsonl"):
        recording.check(str(path))
    assert sorted(tmp_path.iterdir()) == [link, there]
    assert (link.is_symlink(), there.read_text()) == (True, "kept")


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
    path.write_text("\n".join(spoil(lines_of(run_of((0, "", 1), (1, "110", 3))))))
    with pytest.raises(ConfigError, match=f"run.jsonl .*{named}"):
        recording.load(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        recording.load(tmp_path / "nowhere")
