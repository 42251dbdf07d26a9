"""Checks which models can be split over several ranks (each with some heads of every layer), and on which devices.

transformers provides the plans for splitting, and loads each rank's part (`checkpoints.py`). A model that cannot be
split is refused here, by name, before anything is loaded.
"""

from collections.abc import Mapping
from typing import Any

from goodspeed.engine.model_files.checkpoint_folder import find_folder, read_config
from goodspeed.errors import ConfigError, need

HEADS = ("num_attention_heads", "num_key_value_heads")


def refuse_heads(name: str, config: Mapping[str, Any], num_ranks: int) -> None:
    """Raises ConfigError if a configuration's heads cannot be divided evenly among the ranks; checks nothing else."""
    inner = config.get("text_config")
    text = inner if isinstance(inner, Mapping) else config
    known = {key: text[key] for key in HEADS if isinstance(text.get(key), int)}
    for key, heads in known.items():
        if heads % num_ranks:
            most = max(number for number in range(1, num_ranks) if not any(each % number for each in known.values()))
            what = f"{name} has {heads} {key.removeprefix('num_').replace('_', ' ')}"
            raise ConfigError(f"--tp {num_ranks}: {what}, which cannot be split evenly; use at most --tp {most}")


def refuse_folder(name: str, num_ranks: int) -> None:
    """Raises ConfigError for causes in config.json, and NotInstalled without accelerate. Loads no torch."""
    config = read_config(name, find_folder(name))
    refuse_heads(name, config, num_ranks)
    if config.get("quantization_config") is not None:
        raise ConfigError(
            f"--tp {num_ranks}: {name} has quantised weights (quantization_config in config.json), which cannot "
            "be split; omit --tp, or use the plain checkpoint"
        )
    need(f"--tp {num_ranks}", "tp", "accelerate")


def refuse_split(name: str, num_ranks: int, device: str) -> None:
    """Raises ConfigError for a model without a plan for splitting, and for a device without enough GPUs."""
    import torch
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(find_folder(name), trust_remote_code=False).get_text_config(decoder=True)
    refuse_heads(name, {key: getattr(config, key, None) for key in HEADS}, num_ranks)
    if not getattr(config, "base_model_tp_plan", None):
        raise ConfigError(
            f"--tp {num_ranks}: transformers has no plan to split {name} ({config.model_type}); omit --tp, or use "
            "another model"
        )
    num_gpus = torch.cuda.device_count()
    if device == "cuda" and num_ranks > num_gpus:
        raise ConfigError(
            f"--tp {num_ranks}: this machine has {num_gpus} GPUs, and each rank needs one; use fewer ranks"
        )
    if device == "cpu" and num_gpus:  # transformers splits over GPUs if there are any
        raise ConfigError(
            f"--tp {num_ranks} --device cpu: this machine has GPUs, and transformers would split the model over them; "
            "use --device cuda, or hide the GPUs (CUDA_VISIBLE_DEVICES=)"
        )
