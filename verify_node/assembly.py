"""Builds a verify node from its settings: model, memory, policy, core, channel."""

import secrets

import torch
from msgspec.structs import replace

from goodspeed.command.events import EventLog
from goodspeed.command.reporter import QUIET, Reporter
from goodspeed.engine import checkpoints
from goodspeed.engine.checkpoints import Checkpoint
from goodspeed.engine.identity import public_name
from goodspeed.engine.runner import Runner
from goodspeed.fair.latency import Refined
from goodspeed.node import defaults
from goodspeed.wire.codec import max_message_bytes
from goodspeed.wire.messages import MAX_DRAFT, VERSION, Welcome
from goodspeed.wire.zmq.transport import VerifyChannel, bind_verify
from verify_node.config import VerifyConfig, create_policy
from verify_node.core.core import VerifyCore
from verify_node.costs import find_profile, make_cost, with_budget
from verify_node.daemon import VerifyDaemon
from verify_node.enrolment import Enrolment
from verify_node.preflight import Found
from verify_node.rounds import planner
from verify_node.rounds.planner import RoundLimits
from verify_node.rounds.scheduler import Scheduler
from verify_node.target.target import Target
from verify_node.watch.recorder import RoundRecorder


def assemble(config: VerifyConfig, events: EventLog, found: Found, reporter: Reporter = QUIET) -> VerifyDaemon:
    """Loads the model and binds the address; raises the named errors of whatever cannot be had.

    found: what `beforehand.check` gave.
    """
    torch.set_num_threads(config.threads or 1)
    checkpoint = checkpoints.load(
        config.model, device=config.device, dtype=config.dtype, generation_config=config.generation_config
    )
    runner = make_runner(config, checkpoint)
    profile = find_profile(config, runner, reporter)
    config = with_budget(config, profile, reporter)
    welcome = make_welcome(config, checkpoint)
    channel = bind_verify(
        config.bind,
        max_message_bytes=welcome.max_message_bytes,
        trusted_network=config.trusted_network,
        keys=found.keys,
    )
    try:
        daemon = build(config, runner, channel, welcome, events, make_cost(profile), found.enrolment)
    except BaseException:
        channel.close()
        raise
    daemon.reporter = reporter
    return daemon


def make_runner(config: VerifyConfig, checkpoint: Checkpoint) -> Runner:
    """The model with its key/value memory."""
    return Runner(checkpoint, num_pages=config.kv_pages, memory_fraction=config.memory_fraction)


def build(
    config: VerifyConfig,
    runner: Runner,
    channel: VerifyChannel,
    welcome: Welcome,
    events: EventLog,
    cost: Refined,
    enrolment: Enrolment | None = None,
) -> VerifyDaemon:
    """A verify node around a model and a channel that are already there; its budget is a number by now."""
    capacity = runner.pool.num_pages * runner.pool.page_size
    welcome = replace(welcome, context_len=min(welcome.context_len, capacity))
    steer = config.rounds == "continuous"
    policy = create_policy(config, cost if config.weighs_time else None)
    core = VerifyCore(
        welcome=welcome,
        limits=RoundLimits(config.num_drafted, config.round_tokens, config.linger_ms / 1000),
        planner=planner.create(config.rounds),
        scheduler=Scheduler(
            policy,
            config.num_drafted,
            eta=config.eta,
            beta=config.beta,
            steer=steer,
            weigh_evidence=config.weigh_evidence,
            weigh_time=config.weighs_time,
        ),
        pool=runner.pool,
        cost=cost,
        max_sessions=config.max_sessions,
        max_client_sessions=config.max_client_sessions,
    )
    target = Target(runner.checkpoint, runner, records=config.record)
    recorder = RoundRecorder(events) if config.record else None
    return VerifyDaemon(core, target, channel, events, recorder, enrolment)


def make_welcome(config: VerifyConfig, checkpoint: Checkpoint) -> Welcome:
    """What every draft node is told."""
    max_length = min(config.num_drafted, MAX_DRAFT)
    return Welcome(
        version=VERSION,
        boot_id=secrets.token_bytes(8),
        tokenizer=checkpoint.tokenizer_fingerprint,
        vocab_size=checkpoint.num_tokens,
        context_len=checkpoint.context_len,
        max_length=max_length,
        max_message_bytes=max_message_bytes(checkpoint.context_len, max_length, checkpoint.vocab_size),
        heartbeat_s=config.heartbeat_s,
        lease_s=config.lease_s,
        eos_ids=checkpoint.eos_ids,
        target=public_name(config.model),
        target_fingerprint=checkpoint.model_fingerprint,
        defaults=defaults.of_checkpoint(checkpoint.settings, chat=False),
        chat_defaults=defaults.of_checkpoint(checkpoint.settings, chat=True),
    )
