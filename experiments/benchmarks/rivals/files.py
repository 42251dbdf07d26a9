"""The forms in which the rivals read one model: the GGUF file as it is, one in Q8_0, and a plain checkpoint."""

from dataclasses import dataclass
from pathlib import Path

from experiments.harness.benchmark import note
from goodspeed.embedded import models

SMOLLM2 = "smollm2"


@dataclass(frozen=True)
class Files:
    """Paths by form; None: there is no such form of the model."""

    checkpoint: str | None = None  # in safetensors; in bfloat16 if it was made from a GGUF file
    gguf: str | None = None
    q8_0: str | None = None


def gguf_of(model: str) -> Path | None:
    """Returns the GGUF file that a model is, if it is one."""
    if not models.is_gguf(model):
        return None
    return models.packaged_file(model) if model in models.PACKAGED else Path(model)


def plain(model: str, folder: Path) -> str:
    """Returns a model's folder in safetensors, which is made in `folder` from a GGUF file."""
    gguf = gguf_of(model)
    if gguf is None:
        return str(models.path(model) if model in models.NAMES else model)
    note(f"{gguf.name} as a plain checkpoint")
    _dequantise(gguf, folder)
    return str(folder)


def prepare(target: str, gguf: str | None, folder: Path) -> Files:
    """Makes what is missing of a target's forms in `folder`. gguf: a file of the same model; None: the target's own,
    which is made in f16 if the target is no GGUF file."""
    from goodspeed.engine.exporting.checkpoint import export

    checkpoint = plain(target, folder / "checkpoint")
    as_it_is = Path(gguf) if gguf is not None else gguf_of(target)
    if as_it_is is None:
        as_it_is = folder / "model-f16.gguf"
        export(checkpoint, as_it_is, "f16")
    q8_0 = folder / "model-q8_0.gguf"
    export(checkpoint, q8_0, "q8_0")
    return Files(checkpoint, str(as_it_is.resolve()), str(q8_0))


def prepare_draft(draft: str | None, folder: Path) -> Files:
    """Makes the forms of a draft model. Without a GGUF file the rivals that read those have none to draft with."""
    if draft is None:
        return Files()
    gguf = gguf_of(draft)
    return Files(plain(draft, folder / "draft"), None if gguf is None else str(gguf.resolve()))


def _dequantise(gguf: Path, folder: Path) -> None:
    """Writes a GGUF file as a checkpoint that any library reads."""
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    transformers.logging.disable_progress_bar()
    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    config = model.config
    del config.quantization_config  # with it transformers would not write the weights
    plain_model = type(model)(config).to(torch.bfloat16)
    plain_model.load_state_dict(model.state_dict())
    plain_model.generation_config = model.generation_config
    plain_model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**where).save_pretrained(folder)
