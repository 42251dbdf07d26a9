"""Builds the graph of a GGUF model, with OpenVINO's paged attention in each layer.

Llama, Qwen2 and Qwen3 share one architecture. OpenVINO recognises the shapes of operations that its own converters
make, and fuses them (RMSNorm, rotation); this file makes the same shapes. Rows are tokens: [num_rows, 1, features].
"""

from dataclasses import replace

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import op
from openvino import opset13 as ops

from goodspeed.engine.gguf.file import GgufFile, StoredTensor, dequantised, shown
from goodspeed.engine.gguf.pruned_vocabulary import KeptTokens
from goodspeed.engine.gguf.shape import Shape
from goodspeed.engine.model_files.config_checks import naming
from goodspeed.engine.openvino.weights import Constants, Matrix, Node, constant
from goodspeed.errors import CheckpointError, UnsupportedModelError

BIASED, NORMED = ("qwen2",), ("qwen3",)
"""Families whose queries, keys and values have biases, and those whose queries and keys are normalised."""

WANTED = "wanted_rows"
"""Input of the graph: rows whose logits are computed."""

LAST = np.iinfo(np.int64).max

HIDDEN = 2
"""Dimension of the features, and of the heads once features are split into [num_rows, 1, heads, head]."""


def build(file: GgufFile, *, in_float32: bool = False) -> tuple[ov.Model, Constants]:
    """Builds the graph: rows of tokens in, logits [num_wanted, 1, vocab_size] of the wanted rows out.

    Its constants must live as long as what is made of it.
    """
    with Constants() as constants:
        return Builder(file, constants, in_float32=in_float32).build(), constants


class Builder:
    """The graph while it grows."""

    def __init__(self, file: GgufFile, constants: Constants, *, in_float32: bool) -> None:
        self.file, self.shape, self.in_float32 = file, Shape.of(file), in_float32
        self.constants = constants
        self.kept = KeptTokens.of(file)
        self._used: set[str] = {"rope_freqs.weight"}
        rows, scalar = ov.PartialShape([-1]), ov.PartialShape([])
        self.ids = _parameter("input_ids", rows, ov.Type.i64)
        self.positions = _parameter("position_ids", rows, ov.Type.i64)
        self.wanted = _parameter(WANTED, rows, ov.Type.i64)
        names = ("past_lens", "subsequence_begins", "block_indices", "block_indices_begins")
        self.places = [_parameter(name, rows, ov.Type.i32) for name in names]
        self.longest = _parameter("max_context_len", scalar, ov.Type.i32)
        self.caches: list[Node] = []

    def build(self) -> ov.Model:
        embedding = self._matrix("token_embd.weight")
        # of each token, the row of the embedding
        ids = self.ids if self.kept is None else ops.gather(constant(self.kept.nearest), self.ids, _integer(0))
        rows = embedding.rows(ids)
        cos, sin = self._angles()
        for number in range(self.shape.layers):
            rows = self._attention(number, rows, cos, sin)
            rows = self._mlp(number, rows)
        rows = self._norm("output_norm.weight", ops.gather(rows, self.wanted, _integer(0)))
        head = self._matrix("output.weight") if "output.weight" in self.file.tensors else embedding
        result = ops.result(self._spread(head.times(rows)))
        self._refuse_unused()
        inputs = [self.ids, self.positions, self.wanted, *self.places, self.longest, *self.caches]
        return ov.Model([result], inputs, "goodspeed")

    def _spread(self, logits: Node) -> Node:
        """Returns logits [num_wanted, 1, vocab_size]; -inf for tokens that are not kept."""
        if self.kept is None:
            return logits
        never = constant(np.float32(-np.inf))
        padded = ops.pad(logits, _integers(0, 0, 0), _integers(0, 0, 1), "constant", never)
        return ops.gather(padded, constant(self.kept.columns), _integer(HIDDEN))

    def _attention(self, number: int, rows: Node, cos: Node, sin: Node) -> Node:
        shape, prefix = self.shape, f"blk.{number}."
        normed = self._norm(f"{prefix}attn_norm.weight", rows)
        joined = self._linear([f"{prefix}attn_{which}" for which in "qkv"], normed)
        counts = shape.heads, shape.key_heads, shape.key_heads
        heads = ops.reshape(joined, _integers(0, 0, sum(counts), shape.head), True)
        if self.file.architecture in NORMED:
            query, key, value = ops.variadic_split(heads, _integer(HIDDEN), _integers(*counts)).outputs()
            query, key = (self._norm(f"{prefix}attn_{of}_norm.weight", one) for of, one in (("q", query), ("k", key)))
            heads = ops.concat([query, key, value], HIDDEN)
        sizes = _integers(*(count * shape.head for count in counts))
        query, key, value = ops.variadic_split(self._rotated(heads, cos, sin), _integer(1), sizes).outputs()
        seen = self._attend(number, query, key, value)
        seen = ops.reshape(seen, _integers(-1, 1, shape.heads * shape.head), False)
        return self._linear([f"{prefix}attn_output"], seen, plus=rows)

    def _mlp(self, number: int, rows: Node) -> Node:
        prefix = f"blk.{number}.ffn_"
        normed = self._norm(f"{prefix}norm.weight", rows)
        joined = self._linear([f"{prefix}gate", f"{prefix}up"], normed)
        width = joined.get_output_partial_shape(0)[HIDDEN].get_length() // 2
        gate, up = ops.variadic_split(joined, _integer(HIDDEN), _integers(width, width)).outputs()
        return self._linear([f"{prefix}down"], ops.multiply(ops.swish(gate), up), plus=rows)

    def _linear(self, names: list[str], rows: Node, plus: Node | None = None) -> Node:
        """Joins linear layers with the same input, with their biases; plus: is added to their results."""
        if plus is None and "attn_q" in names[0] and self.file.architecture in BIASED:
            plus = constant(np.concatenate([self._vector(f"{name}.bias") for name in names]).reshape(1, 1, -1))
        weights = [f"{name}.weight" for name in names]
        if len({self._stored(name).kind in ("Q4_0", "Q4_1") for name in weights}) == 1:
            return self._matrix(*weights).times(rows, plus)
        found = ops.concat([self._matrix(name).times(rows) for name in weights], HIDDEN)  # of different kinds
        return found if plus is None else ops.add(plus, found)

    def _attend(self, number: int, query: Node, key: Node, value: Node) -> Node:
        """Writes keys and values to the cache, and attends: [num_rows, heads * head]."""
        whole = ov.PartialShape([-1, -1, -1, -1])
        caches = [_parameter(f"{which}_cache.{number}", whole, ov.Type.dynamic) for which in ("key", "value")]
        self.caches += caches
        none, no_floats = constant(np.zeros(0, np.int32)), constant(np.zeros(0, np.float32))
        zero = constant(np.int32(0))
        scale = constant(np.float32(self.shape.head**-0.5))
        inputs = [query, key, value, *caches, *self.places, scale, zero, no_floats, self.longest]
        # Features that these models lack, in the order of the operation's inputs: scores, rotated blocks, xattention,
        # sinks, adaptive rotation, token types, and so on.
        inputs += [none, none, none, no_floats, no_floats, zero, zero, constant(np.zeros((0, 0, 0, 0), np.float32))]
        inputs += [zero, none, none, none, none, constant(np.zeros(0, np.uint8)), none]
        attention = op._PagedAttentionExtension([_output(one) for one in inputs])
        for name, number_of in (("num_k_heads", self.shape.key_heads), ("num_v_heads", self.shape.key_heads)):
            attention.get_rt_info()[name] = number_of
        for name in ("k_head_size", "v_head_size"):
            attention.get_rt_info()[name] = self.shape.head
        return attention.output(0)

    def _rotated(self, heads: Node, cos: Node, sin: Node) -> Node:
        """Rotates [num_rows, 1, heads, head], by the angles of each head: [num_rows, heads * head]."""
        half = self.shape.head // 2
        split = ops.transpose(heads, _integers(0, 2, 1, 3))  # [num_rows, heads, 1, head]
        second = ops.slice(split, _integers(half), _integers(LAST), _integers(1), _integers(3))
        first = ops.slice(split, _integers(0), _integers(half), _integers(1), _integers(3))
        turned = ops.concat([ops.multiply(second, constant(np.full((1, 1, 1, 1), -1.0, np.float32))), first], -1)
        rotated = ops.add(ops.multiply(split, cos), ops.multiply(turned, sin))
        return ops.reshape(ops.transpose(rotated, _integers(0, 2, 1, 3)), _integers(0, -1), True)

    def _angles(self) -> tuple[Node, Node]:
        """Returns the cosine and sine of each row's angles [num_rows, heads, 1, head], for queries, keys and values.

        Values turn by an angle of zero, which leaves them as they are. So one rotation serves all three, and a layer
        has fewer operations. Each takes time, above all in a pass of another size than the one before.
        """
        shape = self.shape
        is_turned = np.arange(shape.heads + 2 * shape.key_heads) < shape.heads + shape.key_heads
        turned, still = (constant(which.astype(np.float32).reshape(1, -1, 1, 1)) for which in (is_turned, ~is_turned))
        positions = ops.reshape(ops.convert(self.positions, "f32"), _integers(-1, 1, 1, 1), False)
        angles = ops.multiply(positions, constant(shape.frequencies.reshape(1, 1, 1, -1)))
        both = ops.concat([angles, angles], -1)
        return ops.add(ops.multiply(ops.cos(both), turned), still), ops.multiply(ops.sin(both), turned)

    def _norm(self, name: str, rows: Node) -> Node:
        ones = [1] * len(_output(rows).get_partial_shape())
        square = ops.power(rows, constant(np.full(ones, 2.0, np.float32)))
        mean = ops.reduce_mean(square, _integers(-1), True)
        root = ops.sqrt(ops.add(mean, constant(np.full(ones, self.shape.epsilon, np.float32))))
        normed = ops.multiply(ops.divide(constant(np.ones(ones, np.float32)), root), rows)
        return ops.multiply(normed, constant(self._vector(name).reshape(*ones[:-1], -1)))

    def _matrix(self, *names: str) -> Matrix:
        stored = [self._stored(name) for name in names]
        with naming(f"{self.file.name}: {', '.join(names)}"):
            return self.constants.matrix(*stored, in_float32=self.in_float32)

    def _vector(self, name: str) -> NDArray[np.float32]:
        return dequantised(self._stored(name))

    def _stored(self, name: str) -> StoredTensor:
        if name not in self.file.tensors:
            raise CheckpointError(f"{self.file.name}: the weight {name} is missing; get the file again")
        self._used.add(name)
        stored, which = self.file.tensors[name], name.rpartition("attn_")[2]
        if stored.shape != (shape := self.shape.of_weight(name)):
            what = f"the weight {name} has the shape {list(stored.shape)} instead of {list(shape)}"
            raise CheckpointError(f"{self.file.name}: {what}; get the file again")
        heads = {"q.weight": self.shape.heads, "k.weight": self.shape.key_heads}.get(which)
        return stored if heads is None or self.file.architecture != "llama" else _unpaired(stored, heads)

    def _refuse_unused(self) -> None:
        if unused := sorted(set(self.file.tensors) - self._used):
            listed = ", ".join(map(shown, unused[:4]))
            what = f"{len(unused)} weights have no place in the model ({listed})"
            raise UnsupportedModelError(f"{self.file.name}: {what}; use another file")


def _unpaired(stored: StoredTensor, heads: int) -> StoredTensor:
    """Returns the rows of Llama's heads in the checkpoint's order: llama.cpp stores those rotated together in pairs."""
    rows = stored.data.reshape(heads, -1, 2, stored.data.shape[-1]).swapaxes(1, 2)
    return replace(stored, data=rows.reshape(stored.data.shape))


def _parameter(name: str, shape: ov.PartialShape, kind: ov.Type) -> Node:
    found = ops.parameter(shape, kind)
    found.set_friendly_name(name)
    found.output(0).get_tensor().set_names({name})
    return found


def _output(node: Node) -> ov.Output:
    return node if isinstance(node, ov.Output) else node.output(0)


def _integers(*numbers: int) -> Node:
    return ops.constant(np.array(numbers, np.int64))


def _integer(number: int) -> Node:
    return ops.constant(np.int64(number))
