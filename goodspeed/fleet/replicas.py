"""The replicas of a fleet as others know them: addresses, keys and loads, with size limits for files."""

from collections.abc import Iterable
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import replace

from goodspeed.fair.round_time import Linear
from goodspeed.wire.enrolled import Key
from goodspeed.wire.fields import MAX_REPLICAS as MAX_REPLICAS
from goodspeed.wire.fields import Label, Name, Seconds

MAX_OWED = 64
"""Most promised prompts in a load; beyond that, only the tightest."""

MAX_PACES = 256
"""Most TPOTs in a load; beyond that, the slowest are merged into one."""

Count: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 40)]
Endpoint: TypeAlias = Annotated[str, Meta(min_length=8, max_length=256, pattern=r"^tcp://[!-~]+:[0-9]{1,5}\Z")]


class Owed(Struct, frozen=True, forbid_unknown_fields=True):
    """A promised prompt that is not prefilled yet."""

    deadline_s: Annotated[float, Meta(ge=-1e6, le=1e6)]  # from `told_at` until its first token is due
    prompt_tokens: Count  # left to prefill
    tpot_s: Seconds | None = None  # promised after its first token
    pages: Count = 0  # reserved


class Pace(Struct, frozen=True, forbid_unknown_fields=True):
    """Promised sessions that decode with the same TPOT."""

    tpot_s: Annotated[float, Meta(gt=0, le=1e6)]
    num_sessions: Count


class Load(Struct, frozen=True, forbid_unknown_fields=True):
    """The work of a replica, as reported most recently."""

    told_at: float  # by the table keeper's clock, seconds since 1970
    boot_id: Annotated[str, Meta(max_length=32, pattern="^[0-9a-f]*$")] = ""  # hexadecimal
    target_fingerprint: Label = ""
    is_draining: bool = False  # it takes no further sessions
    num_sessions: Count = 0  # open and not finished
    max_sessions: Count = 1
    num_pages: Count = 0  # of its KV cache
    free_pages: Count = 0  # of these, neither owned by nor promised to a session
    promisable_pages: Count = 0  # for more promises: neither best effort's floor nor reserved pages
    context_tokens: Count = 0  # of all open sessions' texts
    round_s: Seconds = 0.0  # smoothed duration of a round; 0: none yet
    max_round_tokens: Count = 512
    fixed_s: Seconds = 0.0  # of any round, by its model
    token_s: Seconds = 0.0  # ... plus, for each token
    session_s: Seconds = 0.0  # ... plus, for each session in the round
    context_s: Seconds = 0.0  # ... plus, for each cached token of these sessions
    usual_error: Annotated[float, Meta(ge=0, le=1e3)] = 0.0  # of this model, relative
    promises: bool = False  # True if it promises service levels
    paces: Annotated[tuple[Pace, ...], Meta(max_length=MAX_PACES)] = ()
    owed: Annotated[tuple[Owed, ...], Meta(max_length=MAX_OWED)] = ()

    @property
    def round_model(self) -> Linear:
        return Linear(self.fixed_s, self.token_s, self.session_s, self.context_s)


class Replica(Struct, frozen=True, forbid_unknown_fields=True):
    """One verify node of a fleet."""

    name: Name
    endpoint: Endpoint
    public_key: Key | None = None  # None where the wire has no keys
    load: Load | None = None  # None: not reported


def by_clock(replicas: Iterable[Replica], later_s: float) -> tuple[Replica, ...]:
    """Returns the replicas, with their loads' times shifted by later_s to another clock."""
    return tuple(
        replace(one, load=one.load and replace(one.load, told_at=one.load.told_at + later_s)) for one in replicas
    )
