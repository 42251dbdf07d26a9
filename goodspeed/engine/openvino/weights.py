"""Weights of a GGUF file as constants that OpenVINO keeps in 4 or 8 bits, and multiplies with 8-bit activations.

The storage types Q4_0, Q4_1 and Q8_0 keep their bits. A block of Q4_1 holds scale * q + minimum. OpenVINO multiplies in
integers only if minimum / scale is a whole number, and rounding it costs 0.4 nats a token (SmolLM2-135M). So the
minima are a second, small product: with the mean of each block's inputs. Other types become 8 bits with a scale for 32
weights, or float32 if that is asked for.
"""

import mmap
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import opset13 as ops

from goodspeed.engine.gguf.file import StoredTensor, dequantised
from goodspeed.errors import UnsupportedModelError

GROUP = 32
"""Weights of a row that share a scale."""

ROWS_AT_ONCE = 1024
"""Rows of a matrix that are converted at once, since that takes 12 to 15 bytes a weight for a moment."""

SEGMENT_BYTES, ALIGNMENT = 64 << 20, 64
"""Constants share mappings of the file of this size, each at such a boundary: a mapping takes a descriptor of the
process, and a model has hundreds of constants."""

Node = Any  # openvino's nodes have no types of their own


class Constants:
    """Large constants, in a temporary file if there is room for it.

    OpenVINO's CPU plugin copies the weights of products into a layout of its own at the first pass, and reads the
    constants no more. What lies in a file need not stay in memory then; it is read again if it is needed after all.
    """

    def __init__(self) -> None:
        """Begins a file, which has no name, and lives as long as this object."""
        self._file: IO[bytes] | None = None
        with suppress(OSError):
            self._file = tempfile.TemporaryFile(prefix="goodspeed-weights-")  # noqa: SIM115 (closed by __exit__)
        self._segments = list[mmap.mmap]()
        self._start, self._used = 0, 0  # of the last segment: its place in the file, and bytes with constants
        self._in_memory = list[NDArray[Any]]()  # OpenVINO does not own them

    def __enter__(self) -> "Constants":
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the writing."""
        self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # of a full disk: the array that does not fit stays in memory
                file.close()

    def matrix(self, *stored: StoredTensor, in_float32: bool = False) -> "Matrix":
        """Joins matrices with the same inputs row by row. UnsupportedModelError for a storage type that cannot be
        read."""
        if {one.kind for one in stored} <= {"Q4_0", "Q4_1"}:
            numbers, scales, minima = _in_4_bits(stored)
            packed = (numbers[..., 0::2] | numbers[..., 1::2] << 4).view(np.int8)  # the first of two in the low half
            tensor = ov.Tensor(self._put(packed.reshape(-1)), ov.Shape(numbers.shape), ov.Type.i4)
            weight = self._scaled(ops.constant(tensor, shared_memory=True), scales)
            return Matrix(weight, minima if minima is None else self._constant(minima))
        parts = [part for one in stored for part in one.parts(ROWS_AT_ONCE)]
        if in_float32 and any(one.kind != "Q8_0" for one in stored):
            return Matrix(self._constant(np.concatenate([dequantised(one) for one in parts])))
        numbers, scales = map(np.concatenate, zip(*map(_rounded, parts), strict=True))
        return Matrix(self._scaled(self._constant(numbers), scales))

    def _scaled(self, numbers: Node, scales: NDArray[np.float16]) -> Node:
        weight = ops.multiply(ops.convert(numbers, "f32"), self._constant(scales.astype(np.float32)))
        outputs, groups = scales.shape[:2]
        return ops.reshape(weight, constant(np.array([outputs, groups * GROUP])), False)

    def _constant(self, array: NDArray[Any]) -> Node:
        return ops.constant(self._put(array), shared_memory=True)

    def _put(self, array: NDArray[Any]) -> NDArray[Any]:
        """Moves an array into the file, or keeps it in memory; returns it, valid as long as this object."""
        array = np.ascontiguousarray(array)
        if self._file is not None:
            try:
                return self._mapped(self._file, array)
            except OSError:  # the disk is full: all further ones stay in memory
                self._close()
        self._in_memory.append(array)
        return array

    def _mapped(self, file: IO[bytes], array: NDArray[Any]) -> NDArray[Any]:
        """Returns the array as it lies in the file."""
        if not self._segments or array.nbytes > len(self._segments[-1]) - self._used:
            self._start, self._used = -(-file.seek(0, 2) // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY, 0
            size = max(SEGMENT_BYTES, array.nbytes)
            file.truncate(self._start + size)  # takes no room on the disk; what is written does
            self._segments.append(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY, offset=self._start))
        file.seek(self._start + self._used)
        file.write(array.reshape(-1).view(np.uint8).data)
        file.flush()  # raises OSError if the disk is full; `tofile` may not
        found = np.frombuffer(self._segments[-1], array.dtype, array.size, self._used).reshape(array.shape)
        self._used += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        return found

    def leave_memory(self) -> None:
        """Drops the file's pages from this process's memory."""
        for segment in self._segments:
            segment.madvise(mmap.MADV_DONTNEED)


class Matrix:
    """A matrix [outputs, inputs] in a graph."""

    def __init__(self, weight: Node, minima: Node | None = None) -> None:
        """weight: constant with its scales. minima: GROUP times those of each block [outputs, inputs / GROUP]; None:
        zero."""
        self.weight = weight if weight.get_element_type() == ov.Type.f32 else ops.convert(weight, "f32")
        self._minima = minima

    def times(self, rows: Node, plus: Node | None = None) -> Node:
        """Returns rows [num_rows, 1, inputs] times the transposed matrix, plus another node."""
        if self._minima is not None:
            added = ops.matmul(_means_of(rows), self._minima, False, True)
            plus = added if plus is None else ops.add(added, plus)
        found = ops.matmul(rows, self.weight, False, True)
        return found if plus is None else ops.add(plus, found)

    def rows(self, ids: Node) -> Node:
        """Returns the rows of the matrix with these numbers [num_rows]: [num_rows, 1, inputs]."""
        inputs = self.weight.get_output_shape(0)[1]
        found = ops.gather(self.weight, ids, constant(np.int64(0)))
        if self._minima is not None:
            least = ops.gather(self._minima, ids, constant(np.int64(0)))
            least = ops.multiply(least, constant(np.float32(1 / GROUP)))
            blocks = ops.reshape(found, constant(np.array([0, -1, GROUP])), True)
            found = ops.add(blocks, ops.unsqueeze(least, constant(np.int64(2))))
        return ops.reshape(found, constant(np.array([-1, 1, inputs])), False)


def _means_of(rows: Node) -> Node:
    """Returns the mean input of each block: rows [num_rows, 1, inputs] -> [num_rows, 1, inputs / GROUP].

    As one pooling: a sum over a reshaped tensor takes a tenth of a pass of one row, nearly all of it for the shapes.
    """
    return ops.avg_pool(rows, [GROUP], [0], [0], [GROUP], False, "floor", "valid")


def _in_4_bits(
    stored: Sequence[StoredTensor],
) -> tuple[NDArray[np.uint8], NDArray[np.float16], NDArray[np.float32] | None]:
    """Returns signed weights q - 8 [outputs, inputs / GROUP, GROUP] in the low halves of bytes, their scales [outputs,
    inputs / GROUP, 1], and GROUP * (minimum + 8 * scale) [outputs, inputs / GROUP]; None: all zero."""
    signed, scales, minima = [], [], []
    for one in stored:
        head = 4 if one.kind == "Q4_1" else 2
        blocks = one.data.reshape(len(one.data), -1, head + GROUP // 2)
        scale = blocks[..., :2].copy().view(np.float16)
        half = blocks[..., head:]
        signed.append(np.concatenate((half & 15, half >> 4), axis=-1) ^ 8)  # as two's complement of 4 bits
        scales.append(scale)
        least = blocks[..., 2:4].copy().view(np.float16) if one.kind == "Q4_1" else -8 * scale
        minima.append((least.astype(np.float32) + 8 * scale.astype(np.float32))[..., 0])
    joined = GROUP * np.concatenate(minima)
    return np.concatenate(signed), np.concatenate(scales), joined if joined.any() else None


def _rounded(stored: StoredTensor) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """Returns numbers [outputs, inputs / GROUP, GROUP] with their scales [outputs, inputs / GROUP, 1]."""
    if stored.kind == "Q8_0":
        blocks = stored.data.reshape(len(stored.data), -1, 2 + GROUP)
        return blocks[..., 2:].view(np.int8), blocks[..., :2].copy().view(np.float16)
    weights = dequantised(stored)
    if weights.shape[-1] % GROUP:
        what = f"rows of {weights.shape[-1]} weights are no whole blocks of {GROUP}"
        raise UnsupportedModelError(f"{what}; use --dtype float32")
    grouped = weights.reshape(len(weights), -1, GROUP)
    scale = (np.abs(grouped).max(axis=-1, keepdims=True) / 127).astype(np.float16)
    divisor = np.where(scale == 0, 1, scale).astype(np.float32)
    return np.rint(grouped / divisor).clip(-127, 127).astype(np.int8), scale


def constant(array: Any) -> Node:
    return ops.constant(np.ascontiguousarray(array) if np.ndim(array) else array)
