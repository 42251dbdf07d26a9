"""Builds a draft node from its settings: model, memory, channel, daemon."""

import secrets
import time

import torch

from draft_node.config import DraftConfig
from draft_node.core.core import DraftCore
from draft_node.core.link import VerifyLink
from draft_node.daemon import DraftDaemon
from draft_node.model.drafter import Drafter
from draft_node.preflight import read_keys
from goodspeed.engine import checkpoints
from goodspeed.engine.checkpoints import Checkpoint
from goodspeed.engine.identity import public_name
from goodspeed.engine.runner import Runner
from goodspeed.wire.messages import VERSION, Hello
from goodspeed.wire.zmq.transport import ClientKeys, DraftChannel, connect_draft


def assemble(config: DraftConfig, keys: ClientKeys | None = None) -> tuple[DraftDaemon, Checkpoint]:
    """Connects and loads the model; raises the named errors of a model, key or address that cannot be had.

    keys: as `preflight.read_keys` returns them; by default they are read here.
    """
    torch.set_num_threads(config.threads or 1)
    boot_id = secrets.token_bytes(8)
    channel = connect_draft(config.verify, trusted_network=config.trusted_network, keys=keys or read_keys(config))
    try:
        # How texts are sampled is for the target to say; the draft model's own word counts where it may write alone.
        generation_config = "auto" if config.fallback == "local" else "none"
        checkpoint = checkpoints.load(
            config.model, device=config.device, dtype=config.dtype, generation_config=generation_config
        )
        return build(config, checkpoint, channel, boot_id), checkpoint
    except BaseException:
        channel.close()
        raise


def build(config: DraftConfig, checkpoint: Checkpoint, channel: DraftChannel, boot_id: bytes) -> DraftDaemon:
    """Builds a draft node around a model and a channel that exist."""
    runner = Runner(checkpoint, num_pages=config.kv_pages, memory_fraction=config.memory_fraction)
    hello = Hello(
        VERSION,
        config.name,
        boot_id,
        checkpoint.tokenizer_fingerprint,
        public_name(config.model),
        checkpoint.model_fingerprint,
    )
    drafter = Drafter(checkpoint, runner, kind=config.proposal, k=config.lattice_k, min_odds=config.min_odds)
    link = VerifyLink.begin(hello, config.verify_timeout_s, time.monotonic())
    core = DraftCore(
        link,
        drafter.context_len,
        config.connect_timeout_s,
        config.draft_ahead,
        falls_back=config.fallback == "local",
    )
    return DraftDaemon(drafter, channel, core, config.max_sessions)
