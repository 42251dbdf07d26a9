"""A model's identity: a fingerprint of its weights, precision and revision.

Two nodes that load the same checkpoint in the same precision get the same fingerprint on every device. Another
checkpoint, another precision or a fine-tuned copy gets another one. Computing the fingerprint takes milliseconds,
because it samples the weights. It detects accidental mix-ups, and proves nothing against somebody who crafts weights to
deceive it.
"""

import json
from hashlib import blake2b
from pathlib import Path

import torch
from torch import Tensor, nn

NUM_SAMPLES = 64
"""Elements sampled from each weight tensor. Training changes nearly all elements, so far fewer would suffice."""

VOLATILE = ("_name_or_path", "transformers_version", "torch_dtype", "dtype")
"""Keys of config.json that do not change the model's results; the precision in use is hashed separately."""


def fingerprint(model: nn.Module, folder: Path, dtype: torch.dtype) -> str:
    """Returns 32 hexadecimal digits for a loaded model; `folder` holds its config.json.

    Call it before the weights are rearranged for serving. For a split model the fingerprint is that of the whole model,
    and all ranks have to call this at the same time.
    """
    digest = blake2b(digest_size=16)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    kept = {key: value for key, value in config.items() if key not in VOLATILE}
    parts = [kept, str(dtype), revision(folder)]
    digest.update(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def revision(folder: Path) -> str:
    """Returns the commit of a hub snapshot; empty for any other folder."""
    return folder.name if folder.parent.name == "snapshots" else ""


def sampled(tensor: Tensor) -> Tensor:
    """Returns at most NUM_SAMPLES evenly spaced elements, including the first and the final one."""
    flat = tensor.detach().reshape(-1)
    num_samples = min(NUM_SAMPLES, flat.numel())
    positions = torch.arange(num_samples) * (flat.numel() - 1) // max(num_samples - 1, 1)
    return flat[positions.to(flat.device)]


def _bytes(tensor: Tensor) -> bytes:
    if hasattr(tensor, "full_tensor"):  # a rank's part of a weight: gathers the whole
        tensor = tensor.full_tensor()
    return sampled(tensor).cpu().contiguous().view(torch.uint8).numpy().tobytes()
