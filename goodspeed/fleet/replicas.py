"""The replicas of a fleet, as others know them: their addresses, keys and loads, with bounds for files."""

from collections.abc import Iterable
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import replace

from goodspeed.fair.round_time import Linear
from goodspeed.wire.enrolled import Key
from goodspeed.wire.fields import MAX_REPLICAS as MAX_REPLICAS
from goodspeed.wire.fields import Label, Name

MAX_OWED = 64
"""Most promised prompts in a load; of more it has the tightest."""

MAX_PACES = 256
"""Most TPOTs in a load; of more the slowest count as one of them."""

Count: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 40)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=1e6)]
Endpoint: TypeAlias = Annotated[str, Meta(min_length=8, max_length=256, pattern=r"^tcp://[!-~]*\Z")]


class Owed(Struct, frozen=True, forbid_unknown_fields=True):
    """A promised prompt that is not prefilled yet."""

    deadline_s: Annotated[float, Meta(ge=-1e6, le=1e6)]  # from `told_at` until its first token is due
    prompt_tokens: Count  # left to prefill
    tpot_s: Seconds | None = None  # promised after its first token
    pages: Count = 0  # reserved


class Pace(Struct, frozen=True, forbid_unknown_fields=True):
    """Promised sessions that decode, of one TPOT."""

    tpot_s: Annotated[float, Meta(gt=0, le=1e6)]
    num_sessions: Count


class Load(Struct, frozen=True, forbid_unknown_fields=True):
    """The work of a replica, as it said last."""

    told_at: float  # by the clock of whoever keeps the table, seconds since 1970
    boot_id: Annotated[str, Meta(max_length=32, pattern="^[0-9a-f]*$")] = ""  # hexadecimal
    target_fingerprint: Label = ""
    is_draining: bool = False  # it takes no session any more
    num_sessions: Count = 0  # that are open and not finished
    max_sessions: Count = 1
    num_pages: Count = 0  # of its KV cache
    free_pages: Count = 0  # of these, that no session owns or is promised
    promisable_pages: Count = 0  # that more promises may reserve: neither the floor of best effort nor reserved
    context_tokens: Count = 0  # of the open sessions' texts, all together
    round_s: Seconds = 0.0  # smoothed duration of a round; 0: it has made none
    max_round_tokens: Count = 512
    fixed_s: Seconds = 0.0  # of a round, by its model: of any
    token_s: Seconds = 0.0  # ... and for each token
    session_s: Seconds = 0.0  # ... and each session in it
    context_s: Seconds = 0.0  # ... and each cached token of those
    usual_error: Annotated[float, Meta(ge=0, le=1e3)] = 0.0  # of that model, relative
    promises: bool = False  # service levels
    paces: Annotated[tuple[Pace, ...], Meta(max_length=MAX_PACES)] = ()
    owed: Annotated[tuple[Owed, ...], Meta(max_length=MAX_OWED)] = ()

    @property
    def round_model(self) -> Linear:
        """The seconds that its rounds take."""
        return Linear(self.fixed_s, self.token_s, self.session_s, self.context_s)


class Replica(Struct, frozen=True, forbid_unknown_fields=True):
    """One verify node of a fleet."""

    name: Name
    endpoint: Endpoint
    public_key: Key | None = None  # None where the wire has no keys
    load: Load | None = None  # None: nobody has told


def by_clock(replicas: Iterable[Replica], later_s: float) -> tuple[Replica, ...]:
    """Returns the replicas with their loads' times moved by later_s, to another clock."""
    return tuple(
        replace(one, load=one.load and replace(one.load, told_at=one.load.told_at + later_s)) for one in replicas
    )
