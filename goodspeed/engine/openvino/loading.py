"""Loads a GGUF file or a folder of OpenVINO for this machine's CPU, and tests it: rows must not depend on their pass.

This module is the engine `openvino` (`engines.EngineKind`).
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import openvino as ov
import torch
from numpy.typing import NDArray

from goodspeed.engine.base import Checkpoint, Engine
from goodspeed.engine.gguf import vocabulary
from goodspeed.engine.gguf.file import KEPT, NEAREST, GgufFile
from goodspeed.engine.gguf.file import read as read_gguf
from goodspeed.engine.gguf.pruned_vocabulary import KeptTokens
from goodspeed.engine.model_files.finding import GRAPH, WEIGHTS, ModelFiles, find_model, refuse_settings
from goodspeed.engine.openvino import folder as openvino_folder
from goodspeed.engine.openvino import graph
from goodspeed.engine.openvino.engine import OpenVinoEngine
from goodspeed.engine.openvino.model import PAGE_SIZE, Compiled
from goodspeed.engine.openvino.weights import Constants
from goodspeed.engine.paged.chunks import Chunk
from goodspeed.engine.tokenizing import generation_settings, tokenizer_folder
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import CheckpointError, UnsupportedModelError

NUM_SAMPLES = 64
"""Bytes sampled of each weight for the fingerprint."""

PIECES = (7, 33, 1, 9)
"""How the trial cuts its text, which is longer than a page."""

NUM_ALONE = 8
"""Final tokens of this text that the trial also computes one by one: a lone row is where threads may split its keys."""


def load(
    name: str,
    *,
    device: str = "cpu",
    dtype: str = "auto",
    generation_config: str = "auto",
    num_threads: int = 1,
    exact: bool = True,
) -> Checkpoint:
    """Loads a model. dtype: `auto` computes with 8-bit activations where the CPU can, `float32` without.

    exact: with `auto`, rows have the same bits in any pass, which draft models do not need.

    Raises CheckpointError, UnsupportedModelError, ConfigError or NotInstalled.
    """
    refuse_settings(name, device, dtype, engine="openvino")
    found, in_float32 = find_model(name), dtype == "float32"
    read = _read(name, found, in_float32=in_float32, generation_config=generation_config)
    is_exact = exact and not in_float32
    with _naming(name):
        compiled = Compiled(read.model, read.constants, in_float32=in_float32, num_threads=num_threads, exact=is_exact)
    checkpoint = Checkpoint.of(
        read.vocabulary,
        num_rows=compiled.vocab_size,
        model=compiled,
        context_len=read.context_len,
        device=torch.device("cpu"),
        dtype=torch.float32,
        settings=read.settings,
        engine="openvino",
        activations="int8" if not in_float32 and has_int8() else "",
        mask_id=read.mask_id,
        num_parallel=read.num_parallel,
    )
    columns = np.arange(compiled.vocab_size) if read.kept is None else read.kept.tokens
    columns = columns[(columns < checkpoint.num_tokens) & (columns != read.mask_id)]
    with _naming(name):
        bits = check_bits(checkpoint, columns, exact=is_exact)
    checkpoint = replace(checkpoint, model_fingerprint=_fingerprint(read.identity, compiled, bits))
    compiled.measure_changes()  # from now on passes have spare rows; the trial's had none
    if read.constants is not None:
        read.constants.leave_memory()  # OpenVINO has packed them in its first pass
    return checkpoint


class _Read(NamedTuple):
    """A model as it was read from a file or a folder."""

    model: ov.Model
    constants: Constants | None  # None: they are the model's own
    identity: bytes  # for the fingerprint
    vocabulary: Vocabulary
    context_len: int
    settings: generation_settings.GenerationSettings
    kept: KeptTokens | None = None
    mask_id: int | None = None
    num_parallel: int = 1


def _read(name: str, found: ModelFiles, *, in_float32: bool, generation_config: str) -> _Read:
    if found.kind == "gguf":
        file = read_gguf(found.path, name)
        settings = generation_settings.choose(name, file.fields, generation_config)
        known, kept = vocabulary.load(file), KeptTokens.of(file)
        model, constants = graph.build(file, in_float32=in_float32)
        return _Read(model, constants, _sampled(file), known, file.context_len, settings, kept, *file.parallel)
    settings = generation_settings.choose(name, found.path, generation_config)
    known = tokenizer_folder.load(name, "--model")
    model = openvino_folder.read(name, found.path / GRAPH)
    context_len = openvino_folder.context_len(name, found.path, model)
    return _Read(model, None, _sampled_folder(found.path), known, context_len, settings)


def has_int8() -> bool:
    """False if this CPU is known to have no products of 8-bit numbers (VNNI, AMX): activations stay float32 then."""
    try:
        known = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return True
    return "flags" not in known or "vnni" in known or "amx_int8" in known


def start(checkpoint: Checkpoint, **size: Any) -> Engine:
    return OpenVinoEngine(checkpoint, **size)


def token_bytes(checkpoint: Checkpoint) -> int:
    compiled: Compiled = checkpoint.model
    return compiled.page_bytes // PAGE_SIZE


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Raises UnsupportedModelError for what OpenVINO cannot compute."""
    try:
        yield
    except RuntimeError as error:
        what = f"OpenVINO {ov.get_version()} cannot compute it on this CPU ({openvino_folder.last_line(error)})"
        instead = "use another model, or a checkpoint's folder, which torch computes"
        raise UnsupportedModelError(f"{name}: {what}; {instead}") from error


def check_bits(checkpoint: Checkpoint, columns: NDArray[np.int64], *, exact: bool) -> bytes:
    """Returns the bits of a text's last logits, which tell CPUs with other results apart; empty unless `exact`.

    Raises CheckpointError if logits are no numbers; UnsupportedModelError unless rows have the same bits alone,
    together, in pieces, and beside others, if need be with a spare row. columns: of the logits that are numbers.
    exact: False: bits may differ.
    """
    tokens = ((np.arange(sum(PIECES)) * 7919 + 1) % checkpoint.num_tokens).tolist()
    engine = OpenVinoEngine(replace(checkpoint, context_len=len(tokens)), num_pages=8)
    compiled: Compiled = checkpoint.model
    whole = engine.forward([Chunk("whole", tokens, len(tokens))])
    if not whole[:, columns].isfinite().all():
        raise CheckpointError(f"{checkpoint.name}: its logits are no numbers; get the model again, or use another one")
    if not exact:
        return b""
    if not _has_bits(engine, tokens, whole):
        compiled.pair_rows()
        if not _has_bits(engine, tokens, whole):
            on = f"with OpenVINO {ov.get_version()} and --threads {compiled.num_threads}"
            what = f"{on}, its logits depend on what else is computed with them"
            instead = "--threads 1, " if compiled.num_threads > 1 else ""
            raise UnsupportedModelError(
                f"{checkpoint.name}: {what}, so drafts would change texts; use {instead}--dtype float32, or a release "
                "in docs/DEPENDENCIES.md"
            )
    return whole[-1].numpy().tobytes()


def _has_bits(engine: OpenVinoEngine, tokens: Sequence[int], whole: torch.Tensor) -> bool:
    """True if the text `whole` has these logits: its last tokens one by one, and all in pieces beside another text."""
    first_alone = len(tokens) - NUM_ALONE
    engine.pool.truncate("whole", first_alone)
    for token, logits in zip(tokens[first_alone:], whole[first_alone:], strict=True):
        if not torch.equal(engine.forward([Chunk("whole", [token], 1)])[0], logits):
            return False
    pieces, first = list[torch.Tensor](), 0
    for number in PIECES:
        beside = Chunk("beside", tokens[5 : 5 + number], 0)
        piece = Chunk("pieces", tokens[first : first + number], number)
        pieces.append(engine.forward([beside, piece] if number != 1 else [piece]))
        first += number
    engine.pool.free("pieces")
    engine.pool.free("beside")
    return torch.equal(whole, torch.cat(pieces))


def _sampled_folder(folder: Path) -> bytes:
    size = (folder / WEIGHTS).stat().st_size
    digest = blake2b((folder / GRAPH).read_bytes() + str(size).encode(), digest_size=32)
    weights = np.memmap(folder / WEIGHTS, np.uint8, "r")
    digest.update(weights[np.linspace(0, size - 1, 1 << 14).astype(np.int64)].tobytes())
    return digest.digest()


def _fingerprint(identity: bytes, compiled: Compiled, bits: bytes) -> str:
    """Returns 32 hexadecimal digits of the weights, the release and what decides the results. bits: `check_bits`."""
    kept = {key: value for key, value in compiled.settings.items() if key != "INFERENCE_NUM_THREADS"}
    digest = blake2b(identity, digest_size=16)
    digest.update(json.dumps([ov.get_version(), kept], sort_keys=True).encode() + bits)
    return digest.hexdigest()


def _sampled(file: GgufFile) -> bytes:
    digest = blake2b(digest_size=32)
    prefixes = f"{file.architecture}.", KEPT, NEAREST
    sizes = {key: value for key, value in file.fields.items() if key.startswith(prefixes)}
    digest.update(json.dumps([file.architecture, sizes], sort_keys=True).encode())
    if (mask_id := file.parallel[0]) is not None:
        digest.update(f"mask {mask_id}".encode())  # it is never drawn
    for name, stored in sorted(file.tensors.items()):
        flat = stored.data.reshape(-1)
        digest.update(f"{name}{stored.kind}{stored.shape}".encode())
        digest.update(flat[np.linspace(0, flat.size - 1, NUM_SAMPLES).astype(np.int64)].tobytes())
    return digest.digest()
