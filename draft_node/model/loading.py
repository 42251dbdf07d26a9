"""Loads the draft model, and sets up drafting with it."""

from dataclasses import replace

import torch

from draft_node.config import DraftConfig
from draft_node.model.drafting import Drafting
from draft_node.model.llamacpp.server import PROBE
from goodspeed.constraint.compiling import Constraints
from goodspeed.constraint.trial import Trial
from goodspeed.drafting.drafter import Drafter
from goodspeed.engine import engines
from goodspeed.engine.base import Checkpoint
from goodspeed.engine.model_files.checkpoint_folder import find_folder
from goodspeed.engine.model_files.finding import load_tokenizer
from goodspeed.engine.tokenizing.text import encode_part, num_shared
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.engine.torch.prepacked_linear import has_bfloat16
from goodspeed.errors import CheckpointError

LARGE_BYTES = 8 << 20
"""Size of the stored weights in bytes above which bfloat16 is faster than float32 on a CPU with bfloat16 instructions.
Measured per token: with 2M parameters 1.2 ms in float32 and 1.7 in bfloat16; with 4M the same; with 10M 5.1 and 4.0."""


def load(config: DraftConfig) -> Checkpoint:
    """Loads the model, with the tokenizer of --tokenizer if there is one.

    Raises named errors if model, device or precision is not available, or if the token ids of the two are others.
    """
    engine = engines.engine_of(config.model) if config.engine == "auto" else config.engine
    is_open = engine == "torch" and config.dtype == "auto"
    dtype = quickest_dtype(config.model, config.device) if is_open else config.dtype
    checkpoint = engines.load_draft(
        config.model, engine=engine, device=config.device, dtype=dtype, num_threads=config.threads or 1
    )
    if config.tokenizer is None:
        return checkpoint
    return _with_tokenizer(checkpoint, load_tokenizer(config.tokenizer))


def _with_tokenizer(checkpoint: Checkpoint, other: Vocabulary) -> Checkpoint:
    """Returns the model of a GGUF file with the target's tokenizer, whose fingerprint can be another: such a file
    describes its tokenizer in other words than tokenizer.json."""
    num_known = num_shared(other.tokenizer, checkpoint.vocab_size)
    if num_known is None or encode_part(checkpoint.tokenizer, PROBE) != encode_part(other.tokenizer, PROBE):
        what = f"--model {checkpoint.name} has another tokenizer than --tokenizer {other.name}"
        raise CheckpointError(f"{what}; give a GGUF file of the target's family, and the target's tokenizer")
    return replace(
        checkpoint,
        tokenizer=other.tokenizer,
        tokenizer_fingerprint=other.tokenizer_fingerprint,
        eos_ids=other.eos_ids,
        num_tokens=num_known,
    )


def quickest_dtype(name: str, device: str) -> str:
    """Returns the draft model's precision with the fastest forward pass.

    Beside speed, the precision changes only the acceptance rate, not the distribution of the answers.
    """
    if device != "cpu":  # half precision on GPUs older than Ampere, which only emulate bfloat16
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float16"
    num_bytes = sum(file.stat().st_size for file in find_folder(name).glob("*.safetensors"))
    return "bfloat16" if num_bytes >= LARGE_BYTES and has_bfloat16() else "float32"


def make_drafting(config: DraftConfig, checkpoint: Vocabulary) -> Drafting:
    """Allocates the model's memory and thread; TypeError for a vocabulary without a model."""
    if not isinstance(checkpoint, Checkpoint):
        raise TypeError(f"{checkpoint.name} was loaded without its model, which cannot draft")
    engine = engines.start(checkpoint, memory_fraction=config.memory_fraction, prefix_cache=True)
    constraints = Constraints(checkpoint, Trial(checkpoint))
    drafter = Drafter(checkpoint, engine, kind=config.proposal, constraints=constraints)
    return Drafting(drafter)
