"""Builds a draft node from its settings: model or tokenizer, memory, channel, daemon. Loads torch only for a model."""

import asyncio
import secrets
import time

from draft_node.config import DraftConfig
from draft_node.core.core import DraftCore
from draft_node.core.drafts.ngrams import Ngrams
from draft_node.core.link import VerifyLink
from draft_node.core.verify_nodes import Address
from draft_node.model.drafting import Drafting
from draft_node.process.connections import ConnectTo
from draft_node.process.daemon import DraftDaemon
from goodspeed.drafting.custom_source import SourceDrafter, create
from goodspeed.engine.model_files.checkpoint_folder import public_name
from goodspeed.engine.model_files.finding import load_tokenizer
from goodspeed.engine.model_files.names import SOURCE
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import ConfigError
from goodspeed.ngram.history import History
from goodspeed.wire.channels import DraftChannel
from goodspeed.wire.endpoints import parse_endpoint
from goodspeed.wire.handshake import VERSION, Hello
from goodspeed.wire.zmq.authentication import ClientKeys
from goodspeed.wire.zmq.opening_channels import connect_draft

VERIFY_TIMEOUT_S = 3.0
"""Silence after which the verify node counts as away; at least three of its heartbeat intervals."""


def assemble(config: DraftConfig, keys: ClientKeys | None) -> tuple[DraftDaemon, Vocabulary]:
    """Connects, and loads the model (or only the tokenizer).

    Raises named errors if model, tokenizer or address is not usable. keys: as from `preflight.read_keys`.
    """
    boot_id = secrets.token_bytes(8)
    channel = connect_draft(config.verify[0], trusted_network=config.trusted_network, keys=keys)
    try:
        vocabulary = load(config)
        return build(config, vocabulary, channel, boot_id, keys), vocabulary
    except BaseException:
        channel.close()
        raise


def load(config: DraftConfig) -> Vocabulary:
    """Returns the model's checkpoint, or only the tokenizer for a node that loads no weights itself."""
    if not config.has_weights:
        return load_tokenizer(config.tokenizer or "")
    from draft_node.model import loading  # torch

    return loading.load(config)


def connect_to(config: DraftConfig, keys: ClientKeys | None) -> ConnectTo:
    """Returns a function that creates a channel to another verify node, which must prove its known key."""

    async def connect(address: Address) -> DraftChannel:
        if keys is not None and address.server_key is None and address.endpoint not in config.verify:
            raise ConfigError(f"{address.endpoint}: no key is known for it, and this node connects only to known keys")
        theirs = None if keys is None else keys._replace(verify_key=address.server_key or keys.verify_key)
        trusted = config.trusted_network or keys is not None
        # A DNS lookup may take seconds, and would block the event loop.
        found = await asyncio.to_thread(parse_endpoint, address.endpoint, trusted, "connecting")
        return connect_draft(address.endpoint, trusted_network=config.trusted_network, keys=theirs, address=found)

    return connect


def _model_name(config: DraftConfig) -> str:
    """Returns the draft model's name for the verify node; the address of a server and a path are private."""
    if config.is_url:
        return "llama-server"
    if config.is_source:
        return config.model.rpartition(":")[2]
    return public_name(config.model) if config.has_model else ""


def _make_drafting(config: DraftConfig, vocabulary: Vocabulary) -> Drafting | None:
    """Sets up drafting with the model; None without one."""
    if config.is_url:
        from draft_node.model.llamacpp import connecting

        return connecting.make_drafting(config, vocabulary)
    if config.is_source:
        return Drafting(SourceDrafter(create(config.model.removeprefix(SOURCE))))
    if config.has_model:
        from draft_node.model import loading  # torch

        return loading.make_drafting(config, vocabulary)
    return None


def build(
    config: DraftConfig,
    vocabulary: Vocabulary,
    channel: DraftChannel,
    boot_id: bytes,
    keys: ClientKeys | None = None,
) -> DraftDaemon:
    """Builds a draft node from an open channel and a loaded vocabulary.

    vocabulary: a checkpoint, or a tokenizer with --model none. channel: to the first of --verify. keys: as from
    `preflight.read_keys`.
    """
    hello = Hello(
        VERSION,
        config.name,
        boot_id,
        vocabulary.tokenizer_fingerprint,
        _model_name(config),
        vocabulary.model_fingerprint,
    )
    drafting = _make_drafting(config, vocabulary)
    history = History(config.history_tokens, per_user=config.whose_history == "user")
    link = VerifyLink.begin(hello, VERIFY_TIMEOUT_S, time.monotonic())
    core = DraftCore(
        link,
        config.connect_timeout_s,
        addresses=[Address(endpoint, keys.verify_key if keys else None) for endpoint in dict.fromkeys(config.verify)],
        stays=config.http is not None,  # users of HTTP get errors while the verify node is away; the node goes on
        ngrams=Ngrams(history, keeps=config.whose_history != "off"),
        num_parallel=None if drafting is None else drafting.drafter.num_parallel,
        max_sessions=config.max_sessions,
    )
    return DraftDaemon(drafting, channel, core, connect_to(config, keys))
