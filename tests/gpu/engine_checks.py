"""The engine on a device beside the unmodified model on the CPU: any schedule of joins, leaves and rollbacks."""

import copy
import random
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, PreTrainedConfig, Qwen3Config

from goodspeed.engine.base import Checkpoint
from goodspeed.engine.paged.chunks import Chunk, TreePath
from goodspeed.engine.torch.attention import cuda_graphs
from goodspeed.engine.torch.engine import TorchEngine
from goodspeed.engine.torch.kv_cache import bytes_per_page
from goodspeed.engine.torch.loading import start, try_model

VOCAB, CONTEXT = 1000, 2048
SIZES: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 512,
    "vocab_size": VOCAB,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.1,  # logits up to about 8, so that a wrong attention shows
}
CONFIGS: dict[str, PreTrainedConfig] = {
    "llama": LlamaConfig(**SIZES),
    "qwen3": Qwen3Config(**SIZES, head_dim=32),
    "mistral": MistralConfig(**SIZES, sliding_window=40),
}
LARGER = {(200, 90): 384, (250, 256, 90): 608, (257,): 0}
"""Tokens of the prompts in a larger pass, and the rows that its attention has by the kernel; 0: it has none."""

FLOAT32_BOUND = 1e-3
"""Largest difference of a logit; on a CPU it is 1.3e-5, and one key too many or too few makes it more than 0.1."""

BOUNDS = {torch.bfloat16: (0.04, 0.1), torch.float16: (0.006, 0.02)}
"""Largest difference of a logit, in the mean over rows and in the worst row, as parts of the largest logit there is.

On a CPU bfloat16 has 0.016 and 0.036, float16 0.002 and 0.005; one token too few in the cache has 0.17 and 1.06.
"""


class Differences(NamedTuple):
    """Logits on the device less those of the reference."""

    rows: Tensor  # [num_rows] largest of each row
    largest: float  # of the reference's logits
    num_flips: int  # rows whose most likely token is another


def make_checkpoint(config: PreTrainedConfig, dtype: torch.dtype, device: torch.device) -> Checkpoint:
    """Random weights, the same for every device and, rounded, for every dtype."""
    torch.manual_seed(0)
    config = copy.deepcopy(config)  # a model keeps its configuration, and its choice of attention, in this object
    model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval().requires_grad_(False)
    return Checkpoint(
        name="made",
        model=model.to(dtype).to(device),
        tokenizer=None,
        tokenizer_fingerprint="",
        eos_ids=(),
        vocab_size=VOCAB,
        num_tokens=VOCAB,
        context_len=CONTEXT,
        device=device,
        dtype=dtype,
    )


def run_schedule(config: PreTrainedConfig, dtype: torch.dtype, device: torch.device, seed: int = 0) -> Differences:
    """Rounds of random chunks after random rollbacks; the reference is made of the same weights, in float32."""
    reference = make_checkpoint(config, dtype, torch.device("cpu")).model.float()
    engine = start(make_checkpoint(config, dtype, device), num_pages=1000)
    rng, cached = random.Random(seed), {key: list[int]() for key in range(12)}
    rows, expected = [], []
    for _ in range(8):
        for key, tokens in cached.items():
            del tokens[len(tokens) - rng.randint(0, min(9, len(tokens))) :]
            engine.pool.truncate(key, len(tokens))
        chunks = [make_chunk(rng, key) for key in cached if rng.random() < 0.7]
        rows.append(engine.forward(chunks).cpu())
        for chunk in chunks:
            cached[int(str(chunk.key))] += chunk.tokens
        texts = [cached[int(str(chunk.key))] for chunk in chunks]
        expected += own_logits(reference, texts, [len(chunk.tokens) for chunk in chunks])
    return compare(torch.cat(rows), torch.cat(expected))


def make_chunk(rng: random.Random, key: Hashable) -> Chunk:
    tokens = [rng.randrange(VOCAB) for _ in range(rng.choice([1, 2, 5, 8, 90]))]
    return Chunk(key, tokens, len(tokens))


def run_trees(config: PreTrainedConfig, device: torch.device, seed: int = 0) -> Differences:
    """Rounds of random trees behind chunks of several texts; of each tree some path is kept, and the text goes on.

    In every second round a part of the nodes follows in a second pass, as drafts behind alternatives do.
    """
    reference = make_checkpoint(config, torch.float32, torch.device("cpu")).model.float()
    engine = start(make_checkpoint(config, torch.float32, device), num_pages=1000)
    rng, texts = random.Random(seed), {key: list[int]() for key in range(6)}
    rows, expected = [], []
    for number in range(4):
        chunks = [make_tree(rng, key) for key in texts]
        rows.append(in_two_passes(engine, chunks, rng) if number % 2 else engine.forward(chunks).cpu())
        kept: list[TreePath] = []
        for chunk in chunks:
            text, parents = texts[int(str(chunk.key))], list(chunk.parents or ())
            first = len(chunk.tokens) - len(parents)
            text += chunk.tokens[:first]
            paths = [path_to(node, parents) for node in range(-1, len(parents))]
            tokens = [[chunk.tokens[first + node] for node in path] for path in paths]
            expected += own_logits(reference, [[*text, *one] for one in tokens], [1] * len(tokens))
            chosen = rng.randrange(len(paths))
            kept.append(TreePath(chunk.key, len(text), tuple(paths[chosen])))
            text += tokens[chosen]
        engine.keep(kept)
    return compare(torch.cat(rows), torch.cat(expected))


def run_larger(config: PreTrainedConfig, counts: Sequence[int], device: torch.device) -> Differences:
    """One pass of whole prompts of so many tokens."""
    reference = make_checkpoint(config, torch.float32, torch.device("cpu")).model.float()
    engine = start(make_checkpoint(config, torch.float32, device), num_pages=100)
    texts = [[(7919 * number + 13 * at) % VOCAB for at in range(count)] for number, count in enumerate(counts)]
    rows = engine.forward([Chunk(key, text, 2) for key, text in enumerate(texts)]).cpu()
    return compare(rows, torch.cat(own_logits(reference, texts, [2] * len(texts))))


def in_two_passes(engine: TorchEngine, chunks: Sequence[Chunk], rng: random.Random) -> Tensor:
    """Logits of these chunks; the last nodes of each tree are fed in a pass of their own."""
    later = [rng.randint(0, len(one.parents or ())) for one in chunks]
    firsts, rests = [], []
    for chunk, number in zip(chunks, later, strict=True):
        cut, parents = len(chunk.tokens) - number, chunk.parents or ()
        firsts.append(Chunk(chunk.key, chunk.tokens[:cut], chunk.num_logits - number, parents[: len(parents) - number]))
        rests += [Chunk(chunk.key, chunk.tokens[cut:], number, parents)] if number else []
    found = [list(engine.forward(firsts).cpu().split([one.num_logits for one in firsts]))]
    found.append(list(engine.forward(rests).cpu().split(list(filter(None, later)))) if rests else [])
    return torch.cat([part for number in later for part in (found[0].pop(0), *([found[1].pop(0)] if number else []))])


def make_tree(rng: random.Random, key: Hashable) -> Chunk:
    """Some tokens of a text, and up to nine nodes behind them."""
    parents = [rng.randint(-1, node - 1) for node in range(rng.randint(0, 9))]
    tokens = [rng.randrange(VOCAB) for _ in range(rng.choice([1, 5, 60]) + len(parents))]
    return Chunk(key, tokens, len(parents) + 1, parents)


def path_to(node: int, parents: list[int]) -> list[int]:
    """The nodes from the base down to this one; none for the base, -1."""
    return [] if node == -1 else [*path_to(parents[node], parents), node]


@torch.inference_mode()
def own_logits(model: Any, texts: list[list[int]], counts: list[int]) -> list[Tensor]:
    """The last rows of what the model itself computes for each text [counts[i], vocab]; what pads a text follows it."""
    length = max(map(len, texts))
    padded = torch.tensor([[*text, *[0] * (length - len(text))] for text in texts])
    logits: Tensor = model(padded, use_cache=False).logits
    return [rows[len(text) - num : len(text)] for rows, text, num in zip(logits, texts, counts, strict=True)]


def compare(found: Tensor, expected: Tensor) -> Differences:
    flips = int((found.argmax(1) != expected.argmax(1)).sum())
    return Differences((found - expected).abs().amax(1), float(expected.abs().max()), flips)


def float32_logits_equal_those_of_the_cpu(name: str, seed: int, device: torch.device) -> str:
    differences = run_schedule(CONFIGS[name], torch.float32, device, seed)
    largest = float(differences.rows.max())
    assert largest <= FLOAT32_BOUND, f"a logit differs by {largest:.3g}, more than {FLOAT32_BOUND}"
    return f"largest difference {largest:.2g}, {differences.num_flips} of {len(differences.rows)} argmax flips"


def tree_logits_equal_those_of_their_paths(name: str, device: torch.device) -> str:
    differences = run_trees(CONFIGS[name], device)
    largest = float(differences.rows.max())
    assert largest <= FLOAT32_BOUND, f"a logit differs by {largest:.3g}, more than {FLOAT32_BOUND}"
    return f"largest difference {largest:.2g} of {len(differences.rows)} rows"


def larger_passes_equal_those_of_the_cpu(device: torch.device) -> str:
    """With a graph, with the kernel only, and without it."""
    found = [run_larger(CONFIGS["qwen3"], counts, device) for counts in LARGER]
    largest = max(float(differences.rows.max()) for differences in found)
    assert largest <= FLOAT32_BOUND, f"a logit differs by {largest:.3g}, more than {FLOAT32_BOUND}"
    return f"largest difference {largest:.2g}"


def sixteen_bit_logits_stay_within_bounds(name: str, dtype: torch.dtype, device: torch.device) -> str:
    differences = run_schedule(CONFIGS[name], dtype, device)
    parts = differences.rows / differences.largest
    mean, worst, bounds = float(parts.mean()), float(parts.max()), BOUNDS[dtype]
    assert mean <= bounds[0], f"the mean row differs by {mean:.3g} of the largest logit, more than {bounds[0]}"
    assert worst <= bounds[1], f"the worst row differs by {worst:.3g} of the largest logit, more than {bounds[1]}"
    flips = differences.num_flips / len(differences.rows)
    return f"mean {mean:.2g} and worst {worst:.2g} of the largest logit, {flips:.1%} argmax flips"


def every_pass_of_the_grid_has_a_graph(device: torch.device) -> str:
    """Otherwise the engine says why, and goes on without: the other checks would pass."""
    num_sizes = len(cuda_graphs.SIZES)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        found = start(make_checkpoint(CONFIGS["qwen3"], dtype, device), num_pages=100).num_graphs
        assert found == num_sizes, f"{found} graphs instead of {num_sizes} in {dtype}; the log says why"
    return f"{num_sizes} graphs"


def memory_is_a_part_of_what_is_free(device: torch.device) -> str:
    """The default of a node's `--memory-fraction`, at a small fraction, once the weights are there."""
    checkpoint = make_checkpoint(CONFIGS["llama"], torch.float32, device)
    engine = start(checkpoint, memory_fraction=0.01)
    _, shape, num_layers, _ = try_model(checkpoint, is_split=False)
    num_bytes = engine.pool.num_pages * bytes_per_page(shape, num_layers, engine.pool.page_size, torch.float32)
    assert 0 < num_bytes < 10 << 30, f"{num_bytes} bytes are no hundredth of a device's free memory"
    return f"{num_bytes / 1e6:.0f} MB"
