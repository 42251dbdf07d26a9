"""Forward passes' times of the paper's models on the paper's GPUs are **computed from datasheets, not measured**.

A pass launches its kernels, reads every weight once (or computes, if that takes longer), and reads the keys and values
of its sessions, which no computing hides, since attention is a kernel of its own:

    seconds = launches + max(weight bytes / bandwidth, 2 x weights x tokens / compute) + context x KV bytes / bandwidth

The engine took 1.26 to 1.57 times as long on an H200 (experiments/LOG.md, "A GPU"): 12.0 ms for 36 rows, 28.2 for
320 and 66.9 for 1,000, where this says 8.9, 17.9 and 53.0.

What is left out: the attention's own arithmetic (small while texts are short), activations, sampling and verifying.
What was measured is taken instead with `Settings(round_cost=Profile.read(path).roofline)` (`experiments/capacity.py`),
where `path` is a file of `goodspeed profile --json > PATH`; `draft_cost` likewise.
"""

from dataclasses import dataclass

from experiments.simulation.network import TOKEN_BYTES
from goodspeed.exact.proposal_bytes import HEADER, LAYOUTS
from goodspeed.fair.round_time import Linear, Roofline

BANDWIDTH_SHARE = 0.8
"""The share of the datasheet's bandwidth that large copies and matrix-vector products reach. An assumption."""

COMPUTE_SHARE = 0.6
"""The share of the datasheet's dense 16-bit throughput that large matrix products reach. An assumption."""

LAUNCHES_PER_LAYER = 12
"""Two norms, four projections (q, k, v in one), rotation, writing keys and values, attention, activation, two sums."""

LAUNCH_S = 2e-6
"""The time from the end of one small kernel to the beginning of the next inside a CUDA graph. An assumption: launched
one by one from Python it is about ten times more (8.2 ms for 40 layers were measured on a CPU, without any GPU)."""

PASS_S = 5e-4
"""Once a pass: to assemble it, start the graph, and bring its tokens back. An assumption."""

PARALLEL_DECAY = 0.97
"""The share of a parallel draft's acceptance that is left from one depth to the next. An assumption: PARD (arXiv
2504.18583) publishes no acceptance by depth that we know of, but 3.67 times plain decoding's speed for Llama-3.1-8B.
With acceptance 0.85, this decay and eight drafted tokens a round brings 4.4; if drafting takes a fifth of the target's
time, that makes 3.66."""

DENSE = {"dense-fp32": 1, "dense-fp16": 2}


@dataclass(frozen=True)
class Device:
    """A device by its datasheet."""

    bytes_per_s: float
    flops: float  # 16-bit, dense; datasheets print twice that, "with sparsity"


@dataclass(frozen=True)
class Model:
    """A model's shape by its published config.json."""

    num_layers: int
    hidden: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate: int
    vocab_size: int
    tied: bool  # the embedding table is the last layer's matrix, too
    layer_bits: float = 16.0  # of a weight inside the layers; the last matrix has 16

    @property
    def layer_weights(self) -> int:
        """Matrices only: q and o, k and v, and three of the gated unit."""
        attention = 2 * self.hidden * self.head_dim * (self.num_heads + self.num_kv_heads)
        return self.num_layers * (attention + 3 * self.hidden * self.intermediate)

    @property
    def table_weights(self) -> int:
        return self.vocab_size * self.hidden

    @property
    def bytes_read(self) -> float:
        """The bytes of weights that one pass reads; of an embedding table that is not tied it reads only some rows."""
        return self.layer_weights * self.layer_bits / 8 + 2 * self.table_weights

    @property
    def bytes_held(self) -> float:
        """The bytes of the weights in the GPU's memory."""
        return self.layer_weights * self.layer_bits / 8 + 2 * self.table_weights * (1 if self.tied else 2)

    @property
    def flops_per_token(self) -> float:
        """Multiply and add, with logits for every token, as verification wants them."""
        return 2.0 * (self.layer_weights + self.table_weights)

    @property
    def kv_bytes(self) -> int:
        """The bytes of one cached token, in 16 bits."""
        return 2 * 2 * self.num_layers * self.num_kv_heads * self.head_dim


H100 = Device(bytes_per_s=3.35e12, flops=989e12)  # SXM
L4 = Device(bytes_per_s=300e9, flops=121e12)

# fmt: off
QWEN3_14B   = Model(40, 5120, 40, 8, 128, 17408, 151_936, tied=False)  # 14.8e9 weights, 160 KiB a cached token
QWEN3_1_7B  = Model(28, 2048, 16, 8, 128,  6144, 151_936, tied=True)   #  1.7e9,         112 KiB
QWEN3_0_6B  = Model(28, 1024, 16, 8, 128,  3072, 151_936, tied=True)   #  0.6e9,         112 KiB
LLAMA_70B_INT4 = Model(80, 8192, 64, 8, 128, 28672, 128_256, tied=False, layer_bits=4 + (16 + 4) / 128)
# 70.6e9 weights, 320 KiB; AWQ: 4 bits, and for every 128 of them one scale of 16 bits and one zero point of 4
LLAMA_3B    = Model(28, 3072, 24, 8, 128,  8192, 128_256, tied=True)   #  3.2e9,         112 KiB
LLAMA_1B    = Model(16, 2048, 32, 8,  64,  8192, 128_256, tied=True)   #  1.2e9,          32 KiB
LLAMA_7B    = Model(32, 4096, 32, 32, 128, 11008, 32_000, tied=False)  # the first LLaMA's shape, and Vicuna's
LLAMA_68M   = Model(2, 768, 12, 12, 64, 3072, 32_000, tied=False)
# fmt: on


def roofline(model: Model, device: Device) -> Roofline:
    """The module's formula as a latency model."""
    bandwidth, flops = BANDWIDTH_SHARE * device.bytes_per_s, COMPUTE_SHARE * device.flops
    launches_s = PASS_S + model.num_layers * LAUNCHES_PER_LAYER * LAUNCH_S
    context_s = model.kv_bytes / bandwidth
    reading = Linear(fixed_s=launches_s + model.bytes_read / bandwidth, context_s=context_s)
    computing = Linear(fixed_s=launches_s, token_s=model.flops_per_token / flops, context_s=context_s)
    return Roofline((reading, computing))


def charged(model: Model, device: Device) -> Linear:
    """AdaSpec's Eq. (2) with the same figures: a pass reads the weights *and then* computes, so every token costs time.

    AdaServe's authors measured 30, 55, 85 and 125 ms for 1, 128, 256 and 512 tokens of Llama-70B on four A100. This
    says 31, 54, 78 and 125 ms, and `roofline` 30, 30, 50 and 97 ms.
    """
    reading, computing = roofline(model, device).terms
    return Linear(fixed_s=reading.fixed_s, token_s=computing.token_s, context_s=reading.context_s)


@dataclass(frozen=True)
class Family:
    """A target on an H100, and draft models on L4s that share its vocabulary; smaller ones first."""

    target: Model
    drafts: tuple[Model, ...]

    @property
    def round_cost(self) -> Roofline:
        return roofline(self.target, H100)

    @property
    def draft_costs(self) -> tuple[Roofline, ...]:
        return tuple(roofline(model, L4) for model in self.drafts)

    def drafted_bytes(self, kind: str) -> float:
        """The bytes of a drafted token on the wire: its id, and its distribution unless `kind` is "match"."""
        if kind == "match":
            return TOKEN_BYTES
        return TOKEN_BYTES + HEADER.size + LAYOUTS[DENSE[kind]].entry_bytes * self.target.vocab_size


FAMILIES = {
    "Qwen3": Family(QWEN3_14B, (QWEN3_0_6B, QWEN3_1_7B)),
    "Llama 3": Family(LLAMA_70B_INT4, (LLAMA_1B, LLAMA_3B)),
}


def slower(cost: Roofline, times: float) -> Roofline:
    """The same models on a device that takes so many times as long for everything."""
    return Roofline(tuple(Linear(*(times * value for value in term.coefficients)) for term in cost.terms))
