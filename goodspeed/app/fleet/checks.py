"""What is checked before Ray and any node is started: starting takes many seconds, and a wrong word should not."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from goodspeed.app.fleet.cluster import head
from goodspeed.app.fleet.keeping.plan import ROOT, Plan, environment, verify_command
from goodspeed.app.fleet.options import UpConfig
from goodspeed.command.reporter import Reporter
from goodspeed.errors import ConfigError, NotInstalled
from goodspeed.node.preflight import find_model
from goodspeed.wire.endpoints import check_free, parse_endpoint
from goodspeed.wire.keys import read_verify_pair

CHECK_S = 60.0
CLUSTER_S = 20.0
"""How long a Ray may take to say that it is well; one on this machine took 2 s."""


def require_ray() -> None:
    """Raises NotInstalled where Ray is not installed."""
    if find_spec("ray") is None:
        raise NotInstalled("`goodspeed-fleet`", "ray", "ray")


def check_cluster(address: str) -> None:
    """Raises ConfigError where no Ray is at HOST:PORT; Ray's own client would go on trying for many minutes."""
    if not head.answers(address):
        raise ConfigError(
            f"--address {address}: nobody listens there. Is Ray running? `ray start --head` tells its address; without "
            "--address a Ray of the fleet's own is started on this machine"
        )
    if ":" not in address:  # auto: Ray looks for itself, and says at once if it finds nothing
        return
    asked = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        is_well = subprocess.run(asked, capture_output=True, timeout=CLUSTER_S).returncode == 0
    except subprocess.TimeoutExpired:
        is_well = False
    if not is_well:
        raise ConfigError(
            f"--address {address}: what listens there does not answer as a Ray that this user may use; give the "
            "address that `ray start --head` told, and the same RAY_AUTH_MODE and token as there"
        )


def make_plan(config: UpConfig, further: tuple[str, ...]) -> Plan:
    """Returns what the options ask for; raises the named error of a wrong one.

    further: options of goodspeed-verify.
    """
    plan = Plan(
        name=config.name,
        model=config.model,
        replicas=config.replicas,
        max_replicas=config.max_replicas or config.replicas,
        full_round_s=config.full_round_ms / 1000 if config.full_round_ms is not None else None,
        host=config.host,
        port=config.port,
        key=config.key,
        public_key=read_verify_pair(config.key).public_key if config.key is not None else None,
        enrolled=config.enrolled,
        trusted_network=config.trusted_network,
        tp=config.tp,
        gpus=config.gpus if config.gpus is not None else config.tp if config.tp > 1 else 0,
        cpus=config.cpus,
        further=further,
        folder=str(Path.cwd()),
    )
    plan.limits  # noqa: B018 (raises)
    parse_endpoint(plan.bind(plan.port), plan.trusted_network or plan.key is not None, "binding")
    _check_further(plan)
    return plan


def check_machine(plan: Plan, held: set[int], reporter: Reporter) -> None:
    """Checks what this machine must have when the replicas run on it; `held` are ports of replicas that run already."""
    for port in range(plan.port, plan.port + plan.replicas) if plan.port else ():
        if port not in held:
            check_free(parse_endpoint(plan.bind(port), True, "binding"))
    find_model(plan.model, reporter)


def _check_further(plan: Plan) -> None:
    """Has goodspeed-verify itself read all options; with --version it does no more."""
    command = verify_command([*plan.words(plan.bind(plan.port)), "--version"])
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=CHECK_S, check=False
    )
    if done.returncode:
        raise ConfigError(f"what follows -- must be options of goodspeed-verify: {done.stderr.strip()}")
