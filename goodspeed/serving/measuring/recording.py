"""The format of recordings of runs: drafts, the target's agreement at each drafted position, and times.

`goodspeed-verify --json --record` prints these as `recorded` events. They contain no text and no token ids.
`docs/SIMULATION.md` explains how to make a recording; `msgspec.convert(event["line"], AnyLine)` reads a line.
"""

import importlib.metadata
import platform
from importlib.util import find_spec
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from goodspeed import __version__
from goodspeed.wire.fields import Verification

Count: TypeAlias = Annotated[int, Meta(ge=0)]
Agreed: TypeAlias = Annotated[str, Meta(pattern="^[01]*$")]


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind"):
    """Base of all lines."""


class Opened(Line, frozen=True, kw_only=True, tag="session"):
    """A session when it opened. number: from 0, in the order of opening."""

    number: Count
    client: str
    domain: str = ""
    draft_model: str
    seed: Count
    prompt_len: Count
    max_tokens: Count
    joined: Count  # rounds started before
    verification: Verification | None = None
    temperature: float | None = None
    top_k: Count | None = None
    top_p: float | None = None


class Drafted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A round's result for one session; a session without a draft gets one token."""

    session: Count
    base_len: Count  # position of the first drafted token
    agreed: Agreed = ""  # per drafted position: 1 if accepted provided that all before are
    ratios: tuple[float, ...] = ()  # min(1, p/q) per position, under the ratio rule
    num_accepted: Count = 0
    num_tokens: Count  # committed
    may_draft: Count = 0  # permission after this round, in tokens
    acceptance_rate: float = 0.0  # Eq. (3)'s estimate after this round
    goodput: float = 0.0  # Eq. (4)'s estimate, of its client
    num_bytes: Count = 0  # the draft's bytes on the wire
    answer_s: float = 0.0  # from the previous verdict to this draft's arrival; 0 if it arrived before
    finish_reason: str | None = None


class Round(Line, frozen=True, kw_only=True, tag="round"):
    """One round of the verify node."""

    number: Count
    started_s: float  # since the first session opened
    waited_s: float  # since the end of the previous round
    duration_s: float
    num_tokens: Count  # fed to the target
    num_sessions: Count  # with tokens in the batch
    context_tokens: Count  # cached before the round
    drafts: tuple[Drafted, ...]


AnyLine: TypeAlias = Opened | Round


def versions() -> dict[str, str]:
    """Returns the versions of this program and of the installed libraries that compute its results."""
    installed = filter(find_spec, ("openvino", "torch", "transformers"))
    libraries = {name: importlib.metadata.version(name) for name in installed}
    return {"goodspeed": __version__, "python": platform.python_version(), **libraries}
