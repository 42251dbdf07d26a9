"""The options that both nodes have, and those that `goodspeed demo`, which starts nodes, has from them."""

from typing import Any, Literal, TypeAlias, get_args

from goodspeed.errors import ConfigError
from goodspeed.fair import policies
from goodspeed.serving.config import option
from goodspeed.wire.fields import Drafter, Verification

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
        help="who may draft how much: gradient (GoodSpeed, Eq. 5), throughput (most in all), fixed, random, or a class "
        "of your own (docs/POLICY.md)",
        metavar="|".join((*policies.names(), "MODULE:CLASS")),
    )


def preset() -> Any:
    return option(
        None,
        choices=("paper",),
        shown="none",
        group=_ROUNDS_GROUP,
        help="paper: GoodSpeed's rounds as published: each waits for drafts of exactly Eq. (5)'s lengths, and verifies "
        "them whole, by the ratio rule; give it to both nodes",
    )


def slo_tier(what: str) -> Any:
    return option((), shown="none", group="service levels", help=what, metavar="NAME:ttft=500ms,tpot=50ms")


def verification() -> Any:
    return option("match", choices=get_args(Verification), group=_DRAFTING_GROUP, help="how drafts are verified")


def proposal() -> Any:
    kinds = ("lattice", "dense-fp16", "dense-fp32")
    return option("lattice", choices=kinds, group=_DRAFTING_GROUP, help="ratio: what is sent of the distributions")


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
