"""Agreement in real runs, text by text: made from recordings, read and written. `recorded/replay.py` replays it.

Under the match rule it does not depend on who drafted how much: whether the draft model agrees at a position, all
before being right, is a fact of the text; and what it drafts after its first disagreement depends on where that was
alone. So a text has one `path`, and a branch for each position at which it leaves it, and several runs of one text
(other budgets, the same seed) fill each other's gaps. `docs/SIMULATION.md` says how the shipped file was made:

    python -m experiments.simulation.recordings RECORDING... --output FILE
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from goodspeed.errors import ConfigError
from goodspeed.serving.measuring import recording
from goodspeed.serving.measuring.recording import Drafted, Header, Opened, Recording

SHIPPED = Path(__file__).parent / "recordings.jsonl"
"""All eight domains with both embedded draft models."""

VERSION = 1
UNKNOWN = "?"

OF_RUN = ("verification", "temperature", "top_k", "top_p")
OF_SESSION = ("draft_model", "domain", "seed", "prompt_digest", "prompt_len")
KEY = ("target", *OF_RUN, *OF_SESSION)
"""The fields that identify a text."""

Known: TypeAlias = Annotated[str, Meta(pattern="^[01]*$")]


class Title(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="agreements"):
    """The first line of a file."""

    version: int


class Agreement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="text"):
    """A draft model's agreement with the target on one text. Positions count from the prompt's end."""

    target: str
    draft_model: str
    verification: str
    temperature: float
    top_k: int
    top_p: float
    domain: str
    seed: int
    prompt_digest: str
    prompt_len: int
    path: Annotated[str, Meta(min_length=1, pattern="^[01?]*$")]  # of each position, all before being right
    branches: dict[Annotated[int, Meta(ge=0)], Known]  # a position that disagrees -> of those drafted after it
    probabilities: str = ""  # that the draft model claims on the path, as in `texts/proposals.py`; empty: not recorded

    @property
    def rate(self) -> float:
        """Share of the known positions on the path that agree."""
        return _share(self.path)

    @property
    def rate_off_path(self) -> float:
        """Share of the drafted tokens after a disagreement that agree again."""
        return _share("".join(self.branches.values()))


def _share(agreed: str) -> float:
    known = agreed.count("0") + agreed.count("1")
    return agreed.count("1") / known if known else 0.0


# -- from recordings of runs -------------------------------------------------------------------------------------------


def merge(recordings: Iterable[Recording]) -> list[Agreement]:
    """Agreement in all these runs together, a text each, in order of domain, draft model and seed.

    ConfigError where two runs say different things about one text, as they do under the ratio rule.
    """
    texts: _Texts = {}
    for run in recordings:
        _read(run, texts)
    made = [text.agreement() for text in texts.values()]
    return sorted(made, key=lambda one: (one.domain, one.draft_model, one.seed, one.prompt_digest))


def of_run(run: Recording, known: Iterable[Agreement] | None = None) -> list[Agreement]:
    """The texts of a run's sessions, in their order, by what agreed in the run itself, or by what is known of them.

    ConfigError where a text is not among the known.
    """
    if known is None:
        return [text.agreement() for text in _read(run, {})]
    found = {tuple(getattr(one, name) for name in KEY): one for one in known}
    wanted = [_of_text(run.header, opened) for opened in run.sessions]
    for text in wanted:
        if tuple(text.values()) not in found:
            raise ConfigError(
                f"the {text['domain']} text of {text['draft_model']} with seed {text['seed']} is not known"
            )
    return [found[tuple(text.values())] for text in wanted]


def _read(run: Recording, texts: "_Texts") -> "list[_Text]":
    """Adds a run to `texts`, and returns those of its sessions."""
    own: list[_Text] = []
    for opened in run.sessions:
        shared = _of_text(run.header, opened)
        own.append(texts.setdefault(tuple(shared.values()), _Text(shared)))
    for drafted in (drafted for done in run.rounds for drafted in done.drafts):
        own[drafted.session].add(drafted)
    return own


def _of_text(header: Header, opened: Opened) -> dict[str, object]:
    """All that a text and what is drafted for it depend on."""
    shared = {"target": header.model} | {name: getattr(header, name) for name in OF_RUN}
    return shared | {name: getattr(opened, name) for name in OF_SESSION}


class _Text:
    """An agreement in the making."""

    def __init__(self, shared: dict[str, object]) -> None:
        self._shared = shared
        self._prompt_len = int(str(shared["prompt_len"]))
        self._num_tokens = 0
        self._path: dict[int, str] = {}
        self._branches: dict[int, str] = {}

    def add(self, drafted: Drafted) -> None:
        """Adds a draft. The longer of two recorded branches is kept: they differ where rounding decided a near tie."""
        base = drafted.base_len - self._prompt_len
        right = drafted.agreed.find("0")
        num_on_path = right + 1 if right >= 0 else len(drafted.agreed)
        for position, agreed in enumerate(drafted.agreed[:num_on_path], base):
            if self._path.setdefault(position, agreed) != agreed:
                text = f"{self._shared['domain']} text with seed {self._shared['seed']}"
                raise ConfigError(
                    f"two recordings of the {text} do not agree at position {position}; leave one of them out"
                )
        if right >= 0:
            branch, known = drafted.agreed[num_on_path:], self._branches.get(base + right, "")
            self._branches[base + right] = max(known, branch, key=len)
        self._num_tokens = max(self._num_tokens, base + drafted.num_tokens)

    def agreement(self) -> Agreement:
        path = "".join(self._path.get(position, UNKNOWN) for position in range(max(1, self._num_tokens)))
        branches = {position: self._branches[position] for position in sorted(self._branches)}
        return msgspec.convert({"kind": "text", **self._shared, "path": path, "branches": branches}, Agreement)


_Texts: TypeAlias = dict[tuple[object, ...], _Text]


# -- as a file ---------------------------------------------------------------------------------------------------------


def save(agreements: Iterable[Agreement], path: str | Path) -> None:
    lines: list[msgspec.Struct] = [Title(VERSION), *agreements]
    Path(path).write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


def load(path: str | Path = SHIPPED, *, draft_model: str | None = None) -> list[Agreement]:
    """The texts in a file, or those of one draft model; ConfigError says what is wrong."""
    agreements: list[Agreement] = recording.read_lines(path, Title, Agreement, VERSION)[1:]
    chosen = [one for one in agreements if draft_model in (None, one.draft_model)]
    if not chosen:
        raise ConfigError(f"recording {path} holds no text{f' of {draft_model}' if draft_model else ''}")
    return chosen


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.simulation.recordings", description="Merge recordings of runs, text by text."
    )
    parser.add_argument("recordings", nargs="+", metavar="RECORDING")
    parser.add_argument("--output", default=SHIPPED, metavar="FILE")
    options = parser.parse_args(argv)
    agreements = merge(recording.load(path) for path in options.recordings)
    save(agreements, options.output)
    num_known = sum(len(one.path) - one.path.count(UNKNOWN) for one in agreements)
    num_positions = sum(len(one.path) for one in agreements)
    print(f"{len(agreements)} texts of {num_positions} tokens, {num_known / num_positions:.1%} known", file=sys.stderr)


if __name__ == "__main__":
    main()
