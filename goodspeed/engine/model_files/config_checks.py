"""Refuses models that the engine would compute wrongly, by their configuration; `torch/trial.py` finds the rest.

Every error names the model, the setting, the reason and a remedy.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from goodspeed.errors import CheckpointError, UnsupportedModelError

STATIC_ROPE = frozenset({"default", "linear", "llama3", "yarn", "proportional"})
"""RoPE types with frequencies that depend only on a token's own position."""

MAX_FACTOR = 1024.0
"""Largest factor by which positions are believed to be stretched."""

LAYER_TYPES = frozenset({"full_attention", "sliding_attention"})


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Prefixes the message of an UnsupportedModelError or CheckpointError with the model's name."""
    try:
        yield
    except (UnsupportedModelError, CheckpointError) as error:
        raise type(error)(f"{name}: {error}") from error


def refuse_config(config: Any) -> None:
    """Raises UnsupportedModelError for a configuration that would give wrong results. Costs nothing; call it first."""
    text = config.get_text_config(decoder=True)
    if config.is_encoder_decoder:
        raise UnsupportedModelError("encoder-decoder: cross-attention is not supported; use a decoder-only model")
    refuse_attention(text, "attn_logit_softcapping", "attention_chunk_size")
    refuse_rope(rope_types(text))
    unknown = set(getattr(text, "layer_types", None) or ()) - LAYER_TYPES
    if unknown:
        raise UnsupportedModelError(
            f"layer types {sorted(unknown)}: only full and sliding attention can be rolled back; use a model "
            "without others"
        )


def refuse_attention(config: Any, *names: str) -> None:
    """Raises UnsupportedModelError for a configuration with one of these settings of attention."""
    for name in names:
        if getattr(config, name, None):
            what = f"{name}: soft-capped or chunked attention is not supported"
            raise UnsupportedModelError(f"{what}; use a model without it")


def refuse_rope(kinds: Iterable[str]) -> None:
    """Raises UnsupportedModelError unless each RoPE type's angles are known to depend on a token's position alone."""
    for kind in kinds:
        if kind not in STATIC_ROPE:
            raise UnsupportedModelError(
                f"RoPE type {kind!r}: its angles depend on the longest sequence in the batch (or are unknown), so one "
                f"session would change another's text; use a model with one of {', '.join(sorted(STATIC_ROPE))}"
            )


def rope_types(config: Any) -> Iterator[str]:
    """Yields every RoPE type of a configuration, including those of single layer types."""
    return (_rope_type(entry) for entry in _ropes(config))


def stretched_len(config: Any, length: int) -> int:
    """Returns the longest text with RoPE of the type yarn, in tokens, where that is longer than a length.

    Qwen's configurations, for one, leave the length that was trained in `max_position_embeddings`.
    """
    for entry in _ropes(config):
        trained, factor = entry.get("original_max_position_embeddings"), entry.get("factor")
        if _rope_type(entry) == "yarn" and isinstance(trained, int) and isinstance(factor, (int, float)):
            length = max(length, int(trained * factor) if 1.0 <= factor <= MAX_FACTOR else 0)
    return length


def _ropes(config: Any) -> list[dict[str, Any]]:
    parameters = getattr(config, "rope_parameters", None) or {}
    nested = [value for value in parameters.values() if isinstance(value, dict)]
    return [entry for entry in nested or [parameters] if entry]


def _rope_type(entry: dict[str, Any]) -> str:
    return str(entry.get("rope_type") or entry.get("type") or "default")


def expected_windows(config: Any) -> list[int | None]:
    """Returns each layer's sliding window from the configuration; None: the layer has full attention."""
    window = getattr(config, "sliding_window", None)
    layers = getattr(config, "layer_types", None)
    if layers:
        return [window if kind == "sliding_attention" else None for kind in layers]
    if getattr(config, "use_sliding_window", True) is False:
        window = None
    return [window] * config.num_hidden_layers
