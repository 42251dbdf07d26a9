"""The forms in which the rivals read one model: the GGUF file as it is, and a plain checkpoint."""

from dataclasses import dataclass
from pathlib import Path

from experiments.harness.benchmark import note
from goodspeed.embedded import models
from goodspeed.engine.model_files.finding import find_model
from goodspeed.errors import GoodSpeedError


@dataclass(frozen=True)
class Files:
    """Paths by form; None: there is no such form of the model."""

    name: str | None = None  # as our nodes take it
    checkpoint: str | None = None  # in safetensors; in bfloat16 if it was made from a GGUF file
    gguf: str | None = None
    missing: str | None = None  # why there is no form for rivals


def prepare(target: str, given: str | None, folder: Path) -> Files:
    """Makes what is missing of a target's forms in `folder`. given: a GGUF file of the same model; None: the target's
    own, which is made in f16 if the target is no GGUF file."""
    from training.exporting import export

    checkpoint, gguf = _forms(target, folder / "checkpoint")
    gguf = str(Path(given).resolve()) if given is not None else gguf
    if gguf is None:
        gguf = str(folder / "model-f16.gguf")
        export(checkpoint, Path(gguf), "f16")
    return Files(target, checkpoint, gguf)


def prepare_draft(draft: str | None, folder: Path) -> Files:
    """Makes the forms of a draft model. Without a GGUF file the rivals that read those have none to draft with."""
    if draft is None:
        return Files(missing="it needs a draft model: --draft MODEL")
    try:
        if draft in models.SHIPPED:
            return Files(draft, missing=f"{draft} has rows for some tokens only, which no other engine reads")
        return Files(draft, *_forms(draft, folder / "draft"))
    except GoodSpeedError as error:
        return Files(missing=f"it has no draft model: {error}")


def _forms(model: str, folder: Path) -> tuple[str, str | None]:
    """Returns a model's folder in safetensors, made in `folder` from a GGUF file, and this file if it is one."""
    source = find_model(model)
    if source.kind != "gguf":
        return str(source.path), None
    note(f"{source.path.name} as a plain checkpoint")
    _dequantise(source.path, folder)
    return str(folder), str(source.path.resolve())


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
