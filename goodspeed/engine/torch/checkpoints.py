"""Loads a Hugging Face checkpoint and its tokenizer by embedded name, local folder or hub name.

Safetensors only, no code from checkpoints, nothing unpickled, no weight left at random values.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging as hf_logging

from goodspeed.engine.base import Checkpoint
from goodspeed.engine.model_files.checkpoint_folder import find_folder, has_tokenizer, read_config, refuse_weights
from goodspeed.engine.model_files.config_checks import naming, refuse_config, stretched_len
from goodspeed.engine.paged.chunks import MAX_PARALLEL
from goodspeed.engine.tokenizing import generation_settings, tokenizer_folder
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.engine.torch.fingerprint import fingerprint
from goodspeed.engine.torch.quantized import loading as quantized
from goodspeed.engine.torch.quantized.config import read_group_size
from goodspeed.errors import CheckpointError, ConfigError, GoodSpeedError, first_line

logger = logging.getLogger("goodspeed.engine")

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

NUM_PARALLEL = 8
"""Tokens drafted in one pass by a PARD checkpoint without this number in its config. Published checkpoints are trained
for 8 to 16."""


@dataclass(frozen=True)
class Split:
    """The part of a model that this process loads; torch.distributed has joined the ranks already."""

    num_ranks: int
    meet: Callable[[], None]  # waits until every rank has loaded its part


def load(
    name: str,
    *,
    device: str = "cpu",
    dtype: str = "float32",
    generation_config: str = "auto",
    split: Split | None = None,
) -> Checkpoint:
    """Loads a model by embedded name, local folder or hub name.

    dtype: `auto` is float32 on a CPU, on a GPU the stored precision (`_dtype`). generation_config: `auto` reads the
    checkpoint's sampling defaults (`generation_settings.py`), `none` does not; end-of-sequence ids are read either way.
    split: loads one rank's part of a model that passed `tensor_parallel/splitting.py`; None: loads the whole. Raises
    CheckpointError (no such model, damaged), UnsupportedModelError (would be computed wrongly) or ConfigError (device
    or dtype).
    """
    torch_device = _device(device)
    folder = find_folder(name)
    raw = read_config(name, folder)
    with naming(name):
        group_size = read_group_size(raw)
    settings = generation_settings.choose(name, folder, generation_config)
    config = _model_config(name, folder)
    torch_dtype = _dtype(dtype, torch_device, config, is_quantised=group_size is not None)
    vocabulary = load_vocabulary(name, folder)
    refuse_weights(name, folder)
    model = _load_model(name, folder, config, group_size, torch_device, torch_dtype, split)
    mask_id, num_parallel = parallel(name, config)
    return Checkpoint.of(
        vocabulary,
        num_rows=int(model.get_output_embeddings().weight.shape[0]),
        model=model,
        context_len=_context_len(name, config),
        device=torch_device,
        dtype=torch_dtype,
        model_fingerprint=fingerprint(model, folder, torch_dtype),
        settings=settings,
        num_ranks=1 if split is None else split.num_ranks,
        mask_id=mask_id,
        num_parallel=num_parallel,
    )


def load_vocabulary(name: str, folder: Path | None = None) -> Vocabulary:
    """Loads a checkpoint's tokenizer without its weights. folder: of the checkpoint, if it is known."""
    folder = find_folder(name) if folder is None else folder
    if not has_tokenizer(folder):
        what = f"{name}: the checkpoint has no tokenizer (no tokenizer.json in {folder})"
        raise CheckpointError(f"{what}; get the checkpoint again with its tokenizer's files")
    return tokenizer_folder.of_folder(name, folder, name)


def _model_config(name: str, folder: Path) -> Any:
    """Reads the model's configuration; refuses what would be computed wrongly."""
    with _loading(name):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        config._attn_implementation, config.return_dict = None, True  # the engine's own attention; named outputs
        refuse_config(config)
    return config


def _load_model(
    name: str,
    folder: Path,
    config: Any,
    group_size: int | None,
    device: torch.device,
    dtype: torch.dtype,
    split: Split | None,
) -> Any:
    """Loads all weights onto the device; CheckpointError if some are missing or do not fit.

    group_size: of AWQ's weights in 4 bits; None: the weights are plain.
    """
    with _loading(name):
        if hasattr(config, "quantization_config"):  # also an empty one; transformers' quantisers need other packages
            del config.quantization_config
        if group_size is None:
            model, report = AutoModelForCausalLM.from_pretrained(
                folder,
                config=config,
                dtype=dtype,
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
                **_split_options(split),
            )
        else:
            model, report = quantized.load_model(folder, config, group_size, device, dtype)
    _check_report(name, report, is_plain=group_size is None)
    model = model.eval().requires_grad_(False).to(device)
    if split is not None:
        split.meet()
    return model


def _check_report(name: str, report: dict[str, Any], *, is_plain: bool) -> None:
    """Raises CheckpointError if weights would be random; warns about weights without a place in a plain model."""
    for problem in ("missing_keys", "mismatched_keys", "error_msgs"):
        if report.get(problem):
            some = ", ".join(str(key) for key in sorted(report[problem], key=str)[:4])
            what = f"{name}: {problem.replace('_', ' ')} among the weights ({some}), which would be random"
            raise CheckpointError(f"{what}; get the checkpoint again")
    if is_plain and (unplaced := sorted(map(str, report.get("unexpected_keys", ())))):
        told = "%s: %d weights have no place in the model of config.json (%s); texts are wrong if it needs them"
        logger.warning(told, name, len(unplaced), ", ".join(unplaced[:4]))


def _split_options(split: Split | None) -> dict[str, Any]:
    """Returns arguments of `from_pretrained` that load one rank's part; none for a model that is not split."""
    if split is None:
        return {}
    from transformers.distributed import DistributedConfig  # of the release that the extra `tp` asks for

    return {"distributed_config": DistributedConfig(tp_size=split.num_ranks)}


def parallel(name: str, config: Any) -> tuple[int | None, int]:
    """Returns the mask's id and the number of tokens drafted in one pass, of a PARD checkpoint; else None and 1.

    `pard_token` is the key of the published checkpoints (arXiv 2504.18583). Only our checkpoints give the
    number of tokens per pass, as `pard_num_tokens`.
    """
    mask_id = getattr(config, "pard_token", None)
    if mask_id is None:
        return None, 1
    num_parallel = getattr(config, "pard_num_tokens", NUM_PARALLEL)
    vocab_size = config.get_text_config(decoder=True).vocab_size
    for key, value, least, most in (
        ("pard_token", mask_id, 0, vocab_size - 1),
        ("pard_num_tokens", num_parallel, 1, MAX_PARALLEL),
    ):
        if type(value) is not int or not least <= value <= most:
            what = f"{name}: {key} in config.json is {ascii(value)[:80]}, but must be {least} to {most}"
            raise CheckpointError(f"{what}; correct config.json")
    return mask_id, num_parallel


def _context_len(name: str, config: Any) -> int:
    text = config.get_text_config(decoder=True)
    length = getattr(text, "max_position_embeddings", None)
    if not length:
        raise CheckpointError(f"{name}: config.json has no max_position_embeddings, so its context is unknown; add it")
    if length < 1:
        what = f"{name}: max_position_embeddings in config.json is {length}, but must be at least 1"
        raise CheckpointError(f"{what}; correct config.json")
    return stretched_len(text, int(length))


def _device(device: str) -> torch.device:
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise ConfigError(f"device {device!r} is unknown; use cpu, cuda or cuda:N") from error
    if found.type not in ("cpu", "cuda"):
        raise ConfigError(f"device {device!r} is not supported; use cpu, cuda or cuda:N")
    if found.type == "cuda" and not (torch.cuda.is_available() and (found.index or 0) < torch.cuda.device_count()):
        raise ConfigError(f"device {device!r}: this machine has no such GPU (or torch is a CPU build); use cpu")
    return found


def _dtype(dtype: str, device: torch.device, config: Any, *, is_quantised: bool = False) -> torch.dtype:
    """Returns the precision to load a model in. On a GPU `auto` is the stored one, or bfloat16 for quantised layers,
    which stay in 4 bits only there."""
    if dtype == "auto" and device.type != "cuda":
        return torch.float32
    if dtype == "auto" and is_quantised:
        return torch.bfloat16
    if dtype == "auto":
        stored = getattr(config.get_text_config(decoder=True), "dtype", None) or config.dtype
        return stored if stored in DTYPES.values() else torch.float32
    if dtype not in DTYPES:
        raise ConfigError(f"dtype {dtype!r} is unknown; use auto, {', '.join(DTYPES)}")
    return DTYPES[dtype]


@contextmanager
def _loading(name: str) -> Iterator[None]:
    """Turns any exception of transformers about a damaged or foreign checkpoint into a CheckpointError with its name.

    Turns off progress bars and transformers' warnings, such as its table of missing weights: we raise errors.
    """
    shown, verbosity = hf_logging.is_progress_bar_enabled(), hf_logging.get_verbosity()
    hf_logging.disable_progress_bar()
    hf_logging.set_verbosity_error()
    try:
        with naming(name):
            yield
    except (GoodSpeedError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        what = f"{name}: the model cannot be loaded ({first_line(error)})"
        raise CheckpointError(f"{what}; get the checkpoint again, or use another model") from error
    finally:
        hf_logging.set_verbosity(verbosity)
        if shown:
            hf_logging.enable_progress_bar()
