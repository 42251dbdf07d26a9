"""Finds the folder of a checkpoint by embedded name, path or hub name, and refuses checkpoints that must not be loaded.

The hub is contacted only for files that are not on this machine, and never for pickles or code.
"""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from goodspeed.embedded import models
from goodspeed.errors import CheckpointError, UnsupportedModelError, reason

BESIDE = (".json", ".jinja", ".txt", ".model")
"""Endings of a checkpoint's files beside its weights."""

WANTED = [f"*{ending}" for ending in (".safetensors", *BESIDE)]
"""Files to download from the hub, the weights first: no pickles, no code."""

HUB_NAME = re.compile(r"(?!\.)[\w.-]+/[\w.-]+")
"""OWNER/NAME."""

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
"""Weights in one file, or the index of several files (shards)."""

TOKENIZER_FILES = ("tokenizer.json", "tekken.json", "*.model", "*.tiktoken", "vocab.*", "merges.txt")
"""Files with a vocabulary, one of which is needed; tokenizer_config.json has none."""

GGUF = ".gguf"
"""Ending of llama.cpp's format: weights, tokenizer and settings in one file."""

LFS_POINTER = b"version https://git-lfs"
"""The first bytes of a Git LFS pointer file."""


def find_folder(name: str, say: Callable[..., None] = lambda *_: None) -> Path:
    """Returns the folder of a checkpoint, with config.json and safetensors; downloads it if necessary.

    say: called with a %-format and its values when a download begins, which may take minutes.
    """
    if models.is_gguf(name):
        what = "it is a GGUF file, but this takes a checkpoint"
        raise UnsupportedModelError(f"{name}: {what}; use the original, with config.json and *.safetensors")
    try:
        if name in models.NAMES:
            folder = models.path(name)
        elif name and Path(name).is_dir():
            folder = Path(name)
        elif name and Path(name).exists():
            raise CheckpointError(
                f"{name}: this is a file; give the folder that holds config.json and the weights, or a *.gguf"
            )
        else:
            folder = _from_hub(name, say)
        _refuse_files(name, folder)
    except PermissionError as error:
        raise _unreadable(name, error) from error
    return folder


def _unreadable(name: str, error: PermissionError) -> CheckpointError:
    return CheckpointError(f"{name}: {reason(error)}; let this user read the folder and its files")


def find_tokenizer_folder(name: str, say: Callable[..., None] = lambda *_: None) -> Path | None:
    """Returns the folder with the tokenizer of a hub's model, downloaded without weights if necessary.

    None for a name of another form, or a path that exists.
    """
    is_hub_name = HUB_NAME.fullmatch(name) and not os.path.exists(name)  # noqa: PTH110 (pathlib's raises for long ones)
    return _from_hub(name, say, weights=False) if is_hub_name else None


def has_tokenizer(folder: Path) -> bool:
    return any(next(folder.glob(pattern), None) for pattern in TOKENIZER_FILES)


def snapshot_download(name: str, **options: Any) -> str:
    """Calls the hub's client, which takes half a second and 20 MB to import."""
    from huggingface_hub import snapshot_download as download

    return str(download(name, **options))


def _from_hub(name: str, say: Callable[..., None], *, weights: bool = True) -> Path:
    if not HUB_NAME.fullmatch(name):
        raise _unknown(name, "no such folder exists, and hub names have the form OWNER/NAME")
    try:
        folder = Path(snapshot_download(name, local_files_only=True))
        weights_known = not weights or (folder / SINGLE).exists() or (folder / INDEX).exists()
        is_readable = has_tokenizer(folder) and (not weights or (folder / "config.json").exists())
        if weights_known and is_readable and not (weights and _missing_shards(name, folder)):
            return folder  # else resume an interrupted download
    except Exception:  # not on this machine, for any reason: ask the hub
        pass
    say("downloading %s ...", name)
    try:
        return Path(snapshot_download(name, allow_patterns=WANTED[not weights :], etag_timeout=5))
    except Exception as error:
        if (why := _why_denied(error)) is not None:
            raise CheckpointError(f"model {name!r} {why} (docs/MODELS.md)") from error
        first_line = str(error).strip().split("\n")[0].removeprefix("Got: ")
        raise _unknown(name, f"no such folder exists, and the download from the hub failed: {first_line}") from error


def _why_denied(error: BaseException | None) -> str | None:
    """Returns why the hub denies access to a model, and what to do; None for any other error."""
    from huggingface_hub.errors import GatedRepoError

    while error is not None:
        if isinstance(error, GatedRepoError):
            return "is gated: accept its terms on its page at the hub, then set HF_TOKEN to a token of that account"
        if getattr(getattr(error, "response", None), "status_code", None) in (401, 403):
            return (
                "was refused by the hub: if it is private or gated, set HF_TOKEN to a token that may read it; "
                "if it is neither, check its name"
            )
        error = error.__cause__ or error.__context__
    return None


def public_name(name: str) -> str:
    """Returns a model's name for peers and users; of a folder or file the final part: the path is private."""
    shown = "".join(character for character in name if character.isprintable())[:256]
    return Path(name).resolve().name if os.path.exists(name) else shown  # noqa: PTH110 (pathlib's raises for long ones)


def _unknown(name: str, why: str) -> CheckpointError:
    return CheckpointError(
        f"model {name!r} was not found ({why}); {models.meant(name)}use an embedded model ({', '.join(models.NAMES)}), "
        f"{', '.join(models.GGUF_NAMES)}, a GGUF file, a checkpoint folder, or a hub name that this machine can "
        "download or already has"
    )


def read_config(name: str, folder: Path) -> dict[str, Any]:
    """Reads config.json; CheckpointError unless it is an object with a model_type."""
    config = _read_json(name, folder / "config.json")
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise CheckpointError(f"{name}: config.json has no model_type; use a Hugging Face checkpoint")
    return config


def _has_only_gguf(name: str, folder: Path) -> bool:
    """True if a checkpoint has its weights only as GGUF; the hub's are judged by name, since GGUF is not downloaded."""
    if any(folder.glob("*.safetensors")):
        return False
    return any(folder.glob(f"*{GGUF}")) or (not Path(name).is_dir() and GGUF[1:] in name.lower())


def _refuse_files(name: str, folder: Path) -> None:
    if _has_only_gguf(name, folder):
        raise UnsupportedModelError(
            f"{name}: its weights are GGUF files; download one (`hf download`) and name that file, or use the original "
            "checkpoint, with config.json and *.safetensors"
        )
    config = read_config(name, folder)
    if "auto_map" in config:
        raise UnsupportedModelError(
            f"{name}: auto_map in config.json asks to run the checkpoint's own code, which is refused; use another "
            "model, or remove auto_map if transformers has this model_type and its code computes the same"
        )
    if (folder / "adapter_config.json").exists():
        raise UnsupportedModelError(
            f"{name}: it is an adapter (adapter_config.json), which is not supported; merge it into the model first"
        )
    if missing := _missing_shards(name, folder):
        raise CheckpointError(
            f"{name}: {len(missing)} of the files that {INDEX} names are missing from {os.fspath(folder)}: "
            f"{', '.join(ascii(shard)[1:-1][:80] for shard in missing[:4])}; get the checkpoint again"
        )
    if not any(folder.glob("*.safetensors")):
        if any(folder.glob("openvino*")) or (not Path(name).is_dir() and name.lower().startswith("openvino/")):
            raise UnsupportedModelError(
                f"{name}: its weights are OpenVINO's; download all of it (`hf download`) and name that folder as a "
                "node's model, or use the original checkpoint, with *.safetensors"
            )
        others = [path.name for path in sorted(folder.glob("*.bin")) + sorted(folder.glob("*.pt"))]
        if others:
            raise UnsupportedModelError(
                f"{name}: weights in {others[0]} are pickles, which can run code; convert them to safetensors"
            )
        raise CheckpointError(
            f"{name}: the checkpoint has no weights (no *.safetensors in {os.fspath(folder)}); get it again with them"
        )


def refuse_weights(name: str, folder: Path) -> None:
    """Raises CheckpointError if weight files are missing, or if a header shows a damaged or incomplete file."""
    if not (folder / SINGLE).exists() and not (folder / INDEX).exists():
        raise CheckpointError(
            f"{name}: the weights are neither in {SINGLE} nor listed in {INDEX}; get the checkpoint again"
        )
    for file in weight_files(name, folder):
        _refuse_weights_in(name, file)  # of no other file, such as Mistral's consolidated.safetensors


def weight_files(name: str, folder: Path) -> list[Path]:
    return [folder / file for file in ([SINGLE] if (folder / SINGLE).exists() else _shards(name, folder))]


def _refuse_weights_in(name: str, file: Path) -> None:
    try:
        refuse_pointer(name, file)
        with safe_open(file, framework="numpy"):
            pass
    except PermissionError as error:
        raise _unreadable(name, error) from error
    except (SafetensorError, OSError) as error:
        what = f"{name}: {file.name} is damaged or incomplete ({error})"
        raise CheckpointError(f"{what}; get the checkpoint again") from error


def refuse_pointer(name: str, file: Path) -> None:
    """Raises CheckpointError if Git LFS has not fetched a file of weights."""
    with file.open("rb") as stream:
        if stream.read(len(LFS_POINTER)) == LFS_POINTER:
            what = f"{name}: {file.name} is a Git LFS pointer instead of the weights"
            raise CheckpointError(f"{what}; fetch them with `git lfs pull`")


def _missing_shards(name: str, folder: Path) -> list[str]:
    """Returns the files that the index names and the folder lacks; none for a single file, or without an index."""
    if (folder / SINGLE).exists() or not (folder / INDEX).exists():
        return []
    shards = _shards(name, folder)
    return [shard for shard in shards if not os.path.isfile(folder / shard)]  # noqa: PTH113 (as in `public_name`)


def _shards(name: str, folder: Path) -> list[str]:
    """Returns the files that the index names, in order."""
    index = _read_json(name, folder / INDEX)
    shards = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(shards, dict) or not all(isinstance(shard, str) for shard in shards.values()):
        raise CheckpointError(f"{name}: {INDEX} has no weight_map of file names; get the checkpoint again")
    return sorted(set(shards.values()))


def _read_json(name: str, path: Path) -> Any:
    if not path.exists():
        raise CheckpointError(
            f"{name}: this is not a checkpoint folder: it has no {path.name}; use one with config.json, tokenizer.json "
            f"and model.safetensors, or an embedded model ({', '.join(models.NAMES)})"
        )
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except PermissionError as error:
        raise _unreadable(name, error) from error
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{name}: {path.name} cannot be read as JSON: {error}; get the checkpoint again"
        ) from error
