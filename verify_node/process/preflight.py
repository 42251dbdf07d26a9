"""Checks a verify node's settings before torch and the model are loaded. Imports no torch.

Loading takes seconds to minutes; a port in use or an unreadable key should fail sooner.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from goodspeed.errors import ConfigError
from goodspeed.fair import policies
from goodspeed.serving.events import QUIET, Reporter
from goodspeed.serving.running import bind_http, find_model, warn_trusted_network
from goodspeed.slo.objectives import parse_tiers
from goodspeed.wire.keys import read_verify_pair
from goodspeed.wire.zmq.authentication import ServerKeys, checked_pair
from goodspeed.wire.zmq.opening_channels import bind_verify
from verify_node.config import VerifyConfig
from verify_node.process.enrolment import Enrolment
from verify_node.process.fleet_member import Member, join

if TYPE_CHECKING:  # HTTP is imported only where it is served
    from goodspeed.serving.web.address import BoundAddress


@dataclass(frozen=True)
class Found:
    """Keys, the address of HTTP and the fleet's membership, for `assembly.py` and the command."""

    keys: ServerKeys | None  # this node's own, and the admitted ones; None: the wire has no keys
    enrolment: Enrolment | None
    http: "BoundAddress | None"  # None without --http
    member: Member | None = None  # None: not part of a fleet


def check(config: VerifyConfig, reporter: Reporter = QUIET) -> Found:
    """Checks all that is possible without torch; raises the named error of the first fault."""
    if config.trusted_network:
        warn_trusted_network(config.bind)
    policies.create(config.policy)  # raises
    keys, enrolment = read_keys(config)
    public_key = keys.pair.public_key if keys is not None else None
    member = join(config.peers, public_key, config.bind)
    if config.http is not None and config.http == config.bind.removeprefix("tcp://") and not config.http.endswith(":0"):
        raise ConfigError("--bind and --http have the same address; give each a port of its own")
    http = bind_http(config.http, config.api_key)
    try:
        bind_verify(config.bind, trusted_network=config.trusted_network, keys=keys).close()
        _check_models(config, reporter)
    except BaseException:
        if http is not None:
            http.listener.close()
        raise
    return Found(keys, enrolment, http, member)


def _check_models(config: VerifyConfig, reporter: Reporter) -> None:
    """Looks for the models, and downloads those of the hub; raises the named error of the first fault."""
    find_model(config.model, reporter, config.device, config.dtype, config.tp, config.engine)
    if config.draft_model is not None:
        find_model(config.draft_model, reporter, config.device, config.dtype)
    if config.tp > 1:
        from goodspeed.engine.torch.tensor_parallel.splitting import refuse_folder

        refuse_folder(config.model, config.tp)


def read_keys(config: VerifyConfig) -> tuple[ServerKeys, Enrolment] | tuple[None, None]:
    """Reads this node's key and the enrolled keys; None for both where the wire has no keys."""
    if config.key is None or config.enrolled is None:
        return None, None
    pair = checked_pair(read_verify_pair(config.key))
    enrolment = Enrolment(config.enrolled, parse_tiers(config.slo_tier))
    return ServerKeys(pair, enrolment.admits), enrolment
