"""The options that both nodes have, and those that `goodspeed demo`, which starts nodes, has from them.

Knows nothing about how they are obeyed.
"""

from typing import Any, Literal, TypeAlias, get_args

from goodspeed.command.config import option
from goodspeed.errors import ConfigError
from goodspeed.fair import policies
from goodspeed.wire.fields import Drafter, Verification

ROUNDS = ("barrier", "continuous")
"""The verify node's planners."""

NO_MODEL = "none"
"""The `--model` of a draft node without a model."""

History: TypeAlias = Literal["off", "user", "node"]
"""Whose finished texts draft for a user: nobody's, the user's own, or all that the draft node has finished."""

_ROUNDS_GROUP = "rounds and budget"
_DRAFTING_GROUP = "drafting"


def policy(default: str) -> Any:
    return option(
        default,
        group=_ROUNDS_GROUP,
        help="who may draft how much: gradient (GoodSpeed, Eq. 5), slo (gradient, but what texts with a service level "
        "are owed comes first), throughput (most in all), fixed, random, or a class of your own (docs/POLICY.md)",
        metavar="|".join((*policies.names(), "MODULE:CLASS")),
    )


def rounds(default: str) -> Any:
    return option(
        default,
        choices=ROUNDS,
        group=_ROUNDS_GROUP,
        help="barrier: a round waits for every draft; continuous: it takes those that are ready",
    )


def linger_ms(default: float) -> Any:
    what = "continuous rounds: longest wait for a draft that is on its way"
    return option(default, minimum=0.0, group=_ROUNDS_GROUP, help=what)


def slo_tier(what: str) -> Any:
    return option((), shown="none", group="service levels", help=what, metavar="NAME:ttft=500ms,tpot=50ms")


def verification() -> Any:
    return option("match", choices=get_args(Verification), group=_DRAFTING_GROUP, help="how drafts are verified")


def proposal() -> Any:
    kinds = ("lattice", "dense-fp16", "dense-fp32")
    return option("lattice", choices=kinds, group=_DRAFTING_GROUP, help="ratio: what is sent of the distributions")


def draft_ahead() -> Any:
    what = "draft on while a draft is in flight, as if all of it were accepted"
    return option(True, group=_DRAFTING_GROUP, help=what)


def min_odds() -> Any:
    return option(
        None,
        shown="the bound that the verify node tells, else 0.3",
        minimum=0.0,
        maximum=1.0,
        group=_DRAFTING_GROUP,
        help="match: end a draft when the draft model's own probability that all of it is accepted falls below P; "
        "0 ends none early",
        metavar="P",
    )


def drafter() -> Any:
    return option(
        "auto",
        choices=get_args(Drafter),
        group=_DRAFTING_GROUP,
        help="drafter of requests that name none: auto takes what pays, ngram looks tokens up in earlier texts, "
        "none leaves all to the target",
    )


def history() -> Any:
    return option(
        None,
        shown="user with --api-key, else node",
        choices=get_args(History),
        group=_DRAFTING_GROUP,
        help="finished texts that n-gram drafts come from: none, the user's own, or all of this node's",
    )


def trusted_network() -> Any:
    what = "allow an address beyond loopback, without keys or encryption"
    return option(False, group="connection", help=what)


def check_keys(key: str | None, other: str | None, name_of_other: str, *, trusted_network: bool) -> None:
    """Raises ConfigError unless both keys are given, or neither; with keys the network need not be trusted.

    other: what has the keys of the other side, for messages `name_of_other`, such as "--enrolled FOLDER".
    """
    if (key is None) != (other is None):
        raise ConfigError(f"--key FILE and {name_of_other} belong together: give both, or neither")
    if key is not None and trusted_network:
        raise ConfigError("--trusted-network is for a wire without keys, and --key is given; drop one of them")
