"""Builds a verify node from its settings: model, memory, policy, core, channel."""

import logging
import secrets
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace as replace_fields

from goodspeed.constraint.compiling import Constraints
from goodspeed.constraint.trial import Trial
from goodspeed.engine import engines
from goodspeed.engine.base import Checkpoint, Engine
from goodspeed.engine.model_files.checkpoint_folder import public_name
from goodspeed.errors import ConfigError, ConstraintError
from goodspeed.fair.refined import Refined
from goodspeed.serving import sampling_defaults
from goodspeed.serving.events import QUIET, EventLog, Reporter
from goodspeed.wire.channels import VerifyChannel
from goodspeed.wire.codec import max_message_bytes
from goodspeed.wire.fields import MAX_DRAFT
from goodspeed.wire.handshake import Welcome
from goodspeed.wire.zmq.opening_channels import bind_verify
from verify_node.config import VerifyConfig
from verify_node.core.core import VerifyCore
from verify_node.model.own_drafter import OwnDrafter
from verify_node.model.target import Target
from verify_node.process import costs
from verify_node.process.daemon import VerifyDaemon
from verify_node.process.enrolment import Enrolment
from verify_node.process.preflight import Found
from verify_node.watch.recorder import RoundRecorder

if TYPE_CHECKING:
    from goodspeed.engine.torch.tensor_parallel.ranks import Ranks

logger = logging.getLogger("goodspeed.verify")


def assemble(config: VerifyConfig, events: EventLog, found: Found, reporter: Reporter = QUIET) -> VerifyDaemon:
    """Loads the model and binds the address; raises the named error of a missing resource.

    found: result of `preflight.check`.
    """
    with ExitStack() as undone:
        ranks = None
        if config.tp > 1:
            ranks = _start_ranks(config)
            undone.callback(ranks.close)
        engine, draft_model = load_engines(config, ranks)
        profile = costs.measure(config, engine, reporter)
        config = costs.with_budget(config, profile, reporter)
        roofline = profile.roofline if profile is not None else None
        cost = Refined(
            roofline,
            reads_per_row=engine.reads_per_row,
            change_rows=engine.change_rows,
            least_rows=engine.least_rows,
        )
        welcome = make_welcome(config, engine.checkpoint)
        channel = bind_verify(
            config.bind,
            max_message_bytes=welcome.max_message_bytes,
            trusted_network=config.trusted_network,
            keys=found.keys,
        )
        undone.callback(channel.close)
        daemon = build(config, engine, channel, welcome, events, cost, found.enrolment, draft_model)
        daemon.reporter, daemon.ranks, daemon.member = reporter, ranks, found.member
        undone.pop_all()  # nothing failed
    return daemon


def _start_ranks(config: VerifyConfig) -> "Ranks":
    """Starts the processes of a split model; a named error if it cannot be split so."""
    from goodspeed.engine.torch.tensor_parallel.joining import RankSettings  # these import transformers' models
    from goodspeed.engine.torch.tensor_parallel.ranks import Ranks
    from goodspeed.engine.torch.tensor_parallel.splitting import refuse_split

    refuse_split(config.model, config.tp, config.device)
    part = RankSettings(model=config.model, device=config.device, dtype=config.dtype, threads=config.threads or 1)
    return Ranks.start(part, config.tp)


def load_engines(config: VerifyConfig, ranks: "Ranks | None") -> tuple[Engine, OwnDrafter | None]:
    """Loads the model, or rank 0's part of it, with its KV cache, and the verify node's own draft model, if any."""
    split: dict[str, Any] = {} if ranks is None else {"split": ranks.split}
    with nullcontext() if ranks is None else ranks.together():
        checkpoint = engines.load(config.model, **config.computed_by, **split)
        draft = load_draft_model(config, checkpoint) if config.draft_model is not None else None
        engines.set_threads(config.threads or 1, *(one.engine for one in (checkpoint, draft) if one is not None))
        engine = make_engine(config, checkpoint, ranks, draft)
        return engine, None if draft is None else OwnDrafter(draft, make_draft_engine(draft, engine))


def load_draft_model(config: VerifyConfig, target: Checkpoint) -> Checkpoint:
    """Loads --draft-model, without ids that the target lacks; ConfigError if its tokenizer is not the target's."""
    name = config.draft_model or ""
    draft = engines.load_draft(name, **config.computed_by | {"engine": "auto"})
    if draft.tokenizer_fingerprint != target.tokenizer_fingerprint:
        what = f"--draft-model {name} has another tokenizer than the target {config.model}"
        raise ConfigError(f"{what}; choose a draft model of the target's family")
    return replace(draft, num_tokens=min(draft.num_tokens, target.num_tokens))


def make_engine(
    config: VerifyConfig, checkpoint: Checkpoint, ranks: "Ranks | None" = None, draft: Checkpoint | None = None
) -> Engine:
    """Wraps the target with its KV cache. draft: the node's own draft model, for whose cache memory is left."""
    return engines.start(
        checkpoint,
        num_pages=config.kv_pages,
        memory_fraction=config.memory_fraction,
        prefix_cache=True,
        beside_bytes=0 if draft is None else engines.token_bytes(draft),
        **({} if ranks is None else {"others": ranks}),
    )


def make_draft_engine(draft: Checkpoint, target: Engine) -> Engine:
    """Wraps the node's own draft model; its KV cache has, and retains unused, as many tokens as the target's."""
    pool = target.pool
    engine = engines.start(
        draft, num_pages=pool.num_pages, page_size=pool.page_size, prefix_cache=pool.has_prefix_cache
    )
    engine.pool.max_unused = pool.max_unused * pool.page_size // engine.pool.page_size
    return engine


def build(
    config: VerifyConfig,
    engine: Engine,
    channel: VerifyChannel,
    welcome: Welcome,
    events: EventLog,
    cost: Refined,
    enrolment: Enrolment | None = None,
    draft_model: OwnDrafter | None = None,
) -> VerifyDaemon:
    """Builds a verify node around an existing model and channel; `config.budget` must be a number."""
    constraints = read_constraints(engine.checkpoint)
    welcome = replace_fields(welcome, trees=engine.has_trees)
    core = VerifyCore(config.core, welcome, engine.pool, cost=cost, constraints=constraints)
    target = Target(engine.checkpoint, engine, records=config.record, constraints=constraints, draft_model=draft_model)
    recorder = RoundRecorder(events) if config.record else None
    return VerifyDaemon(core, target, channel, events, recorder, enrolment)


def read_constraints(checkpoint: Checkpoint) -> Constraints | None:
    """Returns the compiler of constraints; None, with a warning, for a tokenizer that llguidance cannot read."""
    constraints = Constraints(checkpoint, Trial(checkpoint))
    constraints.prepare()
    try:
        logger.debug("structured output is served", extra={"num_words": constraints.table.num_words})
    except ConstraintError as error:
        logger.warning("structured output is not served", extra={"why": str(error)})
        return None
    return constraints


def make_welcome(config: VerifyConfig, checkpoint: Checkpoint) -> Welcome:
    """Returns the Welcome for all draft nodes."""
    longest = min(config.num_drafted, MAX_DRAFT)
    return config.core.welcome(
        boot_id=secrets.token_bytes(8),
        tokenizer=checkpoint.tokenizer_fingerprint,
        vocab_size=checkpoint.num_tokens,
        context_len=checkpoint.context_len,
        max_message_bytes=max_message_bytes(checkpoint.context_len, longest, checkpoint.vocab_size),
        target_fingerprint=checkpoint.model_fingerprint,
        eos_ids=checkpoint.eos_ids,
        target=public_name(config.model),
        defaults=sampling_defaults.of_checkpoint(checkpoint.settings, chat=False),
        chat_defaults=sampling_defaults.of_checkpoint(checkpoint.settings, chat=True),
    )
