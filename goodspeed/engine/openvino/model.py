"""A compiled model with the KV caches that its passes read and write.

Every row of a pass is a sequence of its own: one token, with the pages of the text before it. OpenVINO attends to a
sequence of several tokens with another kernel, whose sums differ in their last bits, and 8-bit activations magnify
that. As sequences of one token, rows have the same bits alone, beside others, and in a prompt cut in any way. With
several threads a lone row is the exception, so a pass has at least as many rows as threads; with AVX2 alone it is one
with one thread, too (`Compiled.pair_rows`). It may have more: `Size`.
"""

import math
import mmap
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from goodspeed.engine.openvino.graph import WANTED
from goodspeed.engine.openvino.sizes import Size
from goodspeed.engine.openvino.weights import Constants
from goodspeed.errors import ConfigError

PAGE_SIZE = 32
"""Rows of a page; OpenVINO's CPU plugin has no other."""

MAX_ROWS = 64
"""Most rows that OpenVINO computes at once. It keeps all layers' results, 0.6 MB a row for SmolLM2-135M; 512 rows of it
take 0.52 s in parts of 64, 0.50 in parts of 128, and 0.55 in one."""

FEW, MORE, TRIALS = 2, 6, 3
"""Rows of the passes that `Compiled` times, and how often."""

CONTEXT_PAGES = 4
"""Pages that these rows attend to: rows of a text take longer than first tokens do."""

MOST_S = 1.0
"""Seconds after which it times each kind of pass no second time."""

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    tokens: Ints  # [num_rows]
    positions: Ints  # [num_rows] in their texts
    pages: Ints  # pages up to each row's own position, row after row
    num_pages: Ints  # [num_rows]
    wanted: Ints  # [num_wanted] rows whose logits are wanted

    def parts(self) -> Iterator["Rows"]:
        """Divides the rows into parts of at most MAX_ROWS, in order: no row is attended to before it is computed."""
        if len(self.tokens) <= MAX_ROWS:
            yield self
            return
        ends = np.concatenate(([0], self.num_pages.cumsum()))
        for first in range(0, len(self.tokens), MAX_ROWS):
            last = min(first + MAX_ROWS, len(self.tokens))
            wanted = self.wanted[(self.wanted >= first) & (self.wanted < last)] - first
            pages = self.pages[ends[first] : ends[last]]
            yield Rows(self.tokens[first:last], self.positions[first:last], pages, self.num_pages[first:last], wanted)

    def padded(self, num_rows: int, spare: int) -> "Rows":
        """Returns at least num_rows rows; those added are first tokens of texts in the page `spare`."""
        more = num_rows - len(self.tokens)
        if more <= 0:
            return self
        zeros = np.zeros(more, np.int64)
        return Rows(
            np.concatenate((self.tokens, zeros)),
            np.concatenate((self.positions, zeros)),
            np.concatenate((self.pages, zeros + spare)),
            np.concatenate((self.num_pages, zeros + 1)),
            self.wanted,
        )


class Compiled:
    """A model for this machine's CPU, without caches."""

    def __init__(
        self,
        model: ov.Model,
        constants: Constants | None = None,
        *,
        in_float32: bool,
        num_threads: int,
        exact: bool = True,
    ) -> None:
        """constants: of the model, if they are not its own. in_float32: all arithmetic; else activations become 8 bits,
        and the caches 8 bits for each token and head. exact: a row has the same bits in any pass."""
        self.settings = {
            "INFERENCE_PRECISION_HINT": "f32",
            "KV_CACHE_PRECISION": "f32" if in_float32 else "u8",
            "KEY_CACHE_QUANT_MODE": "BY_TOKEN",  # by channel, a page's scales would depend on later tokens
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0" if in_float32 else "32",
            "INFERENCE_NUM_THREADS": num_threads,
            "NUM_STREAMS": "1",
            "ENABLE_CPU_PINNING": False,  # else every process pins its threads to the same first cores
        }
        self._constants = constants  # keeps the memory that the compiled model reads
        self._model = ov.Core().compile_model(model, "CPU", self.settings)
        self.num_threads = int(self._model.get_property("INFERENCE_NUM_THREADS"))  # no more than there are cores
        self.vocab_size = int(self._model.output(0).partial_shape[-1].get_length())
        self.caches = {port.get_any_name(): port for port in self._model.inputs if "_cache." in port.get_any_name()}
        self.selects = any(WANTED in port.get_names() for port in self._model.inputs)
        self.change_rows = 0.0  # until `measure_changes`
        self.least_rows = self.num_threads if exact else 1  # of a pass, see `Engine`
        self.least_wanted = 1  # rows whose logits a pass computes

    def pair_rows(self) -> None:
        """Makes passes compute at least two rows, and the logits of two: with AVX2 alone, oneDNN multiplies a lone row
        by another kernel, whose sums differ in their last bits."""
        self.least_rows, self.least_wanted = max(2, self.num_threads), 2

    @property
    def page_bytes(self) -> int:
        """Bytes of a page in all caches."""
        return sum(int(np.prod(self._shape(port, 1))) * port.get_element_type().size for port in self.caches.values())

    def with_caches(self, num_pages: int) -> "Passes":
        """Allocates caches of so many pages, and a spare one."""
        request = self._model.create_infer_request()
        caches = list[NDArray[Any]]()
        for name, port in self.caches.items():
            kind = port.get_element_type()
            shape = self._shape(port, num_pages + 1)
            try:
                cache = _untouched(math.prod(shape) * kind.size).view(kind.to_dtype()).reshape(shape)
            except OSError as error:
                what = f"{math.prod(shape) * kind.size} bytes of KV cache cannot be allocated"
                raise ConfigError(f"{what}; use less memory") from error
            request.set_tensor(name, ov.Tensor(cache, shared_memory=True))
            caches.append(cache)
        return Passes(self, request, caches, num_pages)

    def measure_changes(self) -> None:
        """Sets `Engine.change_rows`, by passes after one of the same size and after one of another."""
        few, more = max(FEW, self.least_rows), max(FEW, self.least_rows) + MORE - FEW
        if more > MAX_ROWS:
            return  # with so many threads all passes have spare rows
        pages, last = np.arange(CONTEXT_PAGES), 0
        passes, times = self.with_caches(CONTEXT_PAGES), dict[tuple[int, int], float]()
        began = time.perf_counter()
        for number, size in enumerate([few, more, more, few, few] * TRIALS):
            if number > 5 and time.perf_counter() - began > MOST_S:
                break
            numbers = np.arange(size)
            positions = len(pages) * PAGE_SIZE - 1 - numbers[::-1]
            rows = Rows(numbers, positions, np.tile(pages, size), np.full(size, len(pages)), numbers)
            started = time.perf_counter()
            passes.run(rows)
            took = time.perf_counter() - started
            times[last, size] = min(took, times.get((last, size), took))  # other processes can only slow it down
            last = size
        changed = (times[few, more] - times[more, more] + times[more, few] - times[few, few]) / 2
        row = (times[more, more] - times[few, few]) / (more - few)
        self.change_rows = min(float(MAX_ROWS), max(0.0, changed) / max(row, 1e-9))

    def _shape(self, port: Any, num_pages: int) -> list[int]:
        return [num_pages if size.is_dynamic else size.get_length() for size in port.get_partial_shape()]


def _untouched(num_bytes: int) -> NDArray[np.uint8]:
    """Returns zeros that take memory only where they are written, in the smallest pages: of each cache, sessions use a
    small part, which huge pages would round up. OSError if there are not so many."""
    memory = mmap.mmap(-1, num_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, np.uint8)


class Passes:
    """Runs passes over its caches."""

    def __init__(self, compiled: Compiled, request: Any, caches: list[NDArray[Any]], spare: int) -> None:
        self._compiled, self._request, self._caches, self._spare = compiled, request, caches, spare
        self._sizes, self._last = Size(compiled.change_rows), 0
        self._inputs: dict[str, NDArray[Any]] = {}  # memory of the request's input tensors
        self.computed = 0.0  # see `Engine`

    def run(self, rows: Rows) -> NDArray[np.float32]:
        """Returns the logits [num_wanted, vocab_size] of wanted rows, which ascend; the next pass does not overwrite
        them."""
        self.computed = 0.0
        found = [self._run(part) for part in rows.parts()]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _run(self, rows: Rows) -> NDArray[np.float32]:
        compiled, wanted = self._compiled, rows.wanted
        rows = rows.padded(self._sizes.of(max(len(rows.tokens), compiled.least_rows)), self._spare)
        size = len(rows.tokens)
        self.computed += size + (compiled.change_rows if size != self._last else 0.0)
        self._last = size
        inputs: dict[str, NDArray[Any]] = {
            "input_ids": rows.tokens,
            "position_ids": rows.positions,
            "past_lens": rows.positions.astype(np.int32),
            "subsequence_begins": np.arange(len(rows.tokens) + 1, dtype=np.int32),
            "block_indices": rows.pages.astype(np.int32),
            "block_indices_begins": np.concatenate(([0], rows.num_pages.cumsum())).astype(np.int32),
            "max_context_len": np.array(rows.positions.max() + 1, np.int32),
        }
        if compiled.selects:
            spare = max(0, compiled.least_wanted - len(wanted))  # no graph computes nothing
            inputs[WANTED] = np.concatenate((wanted, np.zeros(spare, np.int64))) if spare else wanted
        for name, value in inputs.items():
            self._set(name, value)
        self._request.infer(share_outputs=True)  # else it copies them
        logits = self._request.get_output_tensor(0).data.reshape(-1, compiled.vocab_size)
        if not len(logits):
            raise RuntimeError("a pass returns no logits")  # OpenVINO 2026.4 without AVX2
        found: NDArray[np.float32] = logits[: len(wanted)].copy() if compiled.selects else logits[wanted]
        return found

    def _set(self, name: str, value: NDArray[Any]) -> None:
        """Sets an input. A tensor is replaced only if its shape changes: that takes ten times as long."""
        known = self._inputs.get(name)
        if known is not None and known.shape == value.shape:
            known[...] = value
            return
        self._inputs[name] = own = value.copy()
        self._request.set_tensor(name, ov.Tensor(own, shared_memory=True))

    def clear(self, pages: Ints) -> None:
        """Overwrites pages with zeros."""
        for cache in self._caches:
            cache[pages] = 0
