"""Memory and speed of weights in 4 bits beside the same numbers in float32 and bfloat16.

*stack* is linear layers alone, one after another; *model* is the engine's forward pass of a small random Llama, one
token for each of so many sessions of context 128, with its head in the wider precision. float32 is laid out for oneDNN
as the engine does it (`goodspeed/engine/linear.py`), int4 is `goodspeed/engine/quantized/int4_linear.py` with
bfloat16 activations. The ways take turns in every repetition, so that a busy machine slows all of them. With one thread
on a CPU the time is the process's own, without waiting for a core; otherwise it is the clock's. `difference` is the
largest difference from float32, relative to float32's largest number: rounding in bfloat16.

It takes about a minute and a half on two cores; about 15 s with --quick. With --device cuda it was not run yet.
"""

import copy
import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, LlamaConfig

from experiments.benchmarks.nodes.made import made_checkpoint, timed
from experiments.harness import benchmark
from goodspeed.engine.linear import prepack
from goodspeed.engine.quantized.int4_linear import Int4Linear
from goodspeed.engine.quantized.layers import Codes, LayerShape
from goodspeed.engine.runner import Chunk, Runner

WAYS = ("float32", "bfloat16", "int4")
ROWS = (1, 8, 33)
GROUP_SIZE, CONTEXT, VOCAB = 128, 128, 4096
Way = Callable[[], Tensor]


def made_codes(shape: LayerShape, seed: int) -> Codes:
    """Returns random numbers whose weight has about the spread of a trained layer's."""
    generator = torch.Generator().manual_seed(seed)
    size = (shape.num_groups, shape.num_outputs)
    numbers = torch.randint(16, (shape.num_inputs, shape.num_outputs), generator=generator, dtype=torch.uint8)
    scales = (torch.rand(size, generator=generator) + 0.5) * 0.005
    return Codes(numbers, torch.randint(6, 10, size, generator=generator, dtype=torch.uint8), scales.half())


def in_three_ways(model: nn.Module, device: str) -> dict[str, nn.Module]:
    """Returns a model with all linear layers but its head quantised: the same numbers stored in three ways."""
    place = torch.device(device)
    int4 = copy.deepcopy(model).to(torch.bfloat16).to(place)
    layers = [(name, layer) for name, layer in model.named_modules() if type(layer) is nn.Linear and name != "lm_head"]
    for seed, (name, layer) in enumerate(layers):
        shape = LayerShape(layer.out_features, layer.in_features, GROUP_SIZE)
        codes = made_codes(shape, seed)
        layer.weight.data = codes.dequantised()
        packed = Int4Linear(shape)
        packed.fill(codes, place)
        int4.set_submodule(name, packed)
    bfloat16 = copy.deepcopy(model).to(torch.bfloat16).to(place)
    float32 = model.to(place)
    return {"float32": float32, "bfloat16": bfloat16, "int4": int4}


def num_bytes(model: nn.Module) -> int:
    """Returns the size of the weights of the quantised layers, each as it is stored."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return sum(
        tensor.numel() * tensor.element_size()
        for name, tensor in tensors
        if "lm_head" not in name and "embed" not in name
    )


def stack(size: int, num_layers: int, device: str) -> tuple[dict[str, nn.Module], Callable[[str, int], Way]]:
    layers = nn.Sequential(*(nn.Linear(size, size, bias=False) for _ in range(num_layers)))
    models = in_three_ways(layers.eval().requires_grad_(False), device)
    rows = torch.randn(max(ROWS), size, generator=torch.Generator().manual_seed(0)).to(device)

    def way(name: str, num_rows: int) -> Way:
        given = rows[:num_rows].to(torch.float32 if name == "float32" else torch.bfloat16)
        model = models[name]
        return lambda: model(given)

    return models, way


def llama(size: int, num_layers: int, device: str) -> tuple[dict[str, nn.Module], Callable[[str, int], Way]]:
    config = LlamaConfig(
        hidden_size=size,
        num_hidden_layers=num_layers,
        num_attention_heads=size // 64,
        num_key_value_heads=size // 128,
        intermediate_size=size * 2,
        vocab_size=VOCAB,
        max_position_embeddings=1024,
    )
    torch.manual_seed(0)
    models = in_three_ways(AutoModelForCausalLM.from_config(config).eval().requires_grad_(False), device)
    runners = {name: make_runner(model, device) for name, model in models.items()}

    def way(name: str, num_rows: int) -> Way:
        runner, chunks = runners[name], [Chunk(i, [7 * i + 5], 1) for i in range(num_rows)]

        def call() -> Tensor:
            logits = runner.forward(chunks)
            for i in range(num_rows):
                runner.truncate(i, CONTEXT)
            return logits

        return call

    return models, way


def make_runner(model: Any, device: str) -> Runner:
    checkpoint = made_checkpoint(model, 1024)
    runner = Runner(checkpoint, num_pages=max(ROWS) * (CONTEXT // 16 + 1))
    for i in range(max(ROWS)):
        runner.forward([Chunk(i, [(i + 1) * j % VOCAB for j in range(CONTEXT)], 0)])
    return runner


@torch.inference_mode()
def measure(ways: dict[str, Way], repetitions: int, device: str) -> tuple[dict[str, float], dict[str, float]]:
    """Returns the seconds of a call of each way, and how far its results are from those of float32."""
    results = {name: way().float() for name, way in ways.items()}
    largest = float(results["float32"].abs().max())
    differences = {name: float((found - results["float32"]).abs().max()) / largest for name, found in results.items()}
    times = benchmark.in_turns({name: partial(timed, way, device) for name, way in ways.items()}, repetitions, 2)
    return {name: statistics.median(seconds) for name, seconds in times.items()}, differences


def main() -> int:
    parser = benchmark.parser("quantized", __doc__, "smaller layers and fewer repetitions")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="torch threads; a node has one (default 1)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    cases = {"stack": (stack, 256, 2), "model": (llama, 256, 2)}
    if not options.quick:
        cases = {"stack": (stack, 2048, 8), "model": (llama, 1024, 8)}
    results = []
    for case, (make, size, num_layers) in cases.items():
        models, way = make(size, num_layers, options.device)
        sizes = {name: num_bytes(model) for name, model in models.items()}
        prepack(models["float32"])
        for num_rows in ROWS:
            ways = {name: way(name, num_rows) for name in WAYS}
            times, differences = measure(ways, 3 if options.quick else 30, options.device)
            for name in WAYS:
                result = {"case": case, "size": size, "num_layers": num_layers, "rows": num_rows, "way": name}
                result |= {"weights_bytes": sizes[name], "call_s": times[name], "tokens_per_s": num_rows / times[name]}
                results.append(result | {"difference": differences[name]})
                benchmark.say(options, show(results[-1]))
    setting = {"benchmark": "quantized", "group_size": GROUP_SIZE, "threads": options.threads}
    benchmark.report(options, setting | {"cases": results})
    return 0


def show(result: dict[str, Any]) -> str:
    head = f"{result['case']:>6} {result['way']:>9} {result['rows']:>3} rows {result['weights_bytes'] / 1e6:>8.1f} MB"
    times = f"{result['call_s'] * 1e3:>9.2f} ms {result['tokens_per_s']:>9.1f} tokens/s"
    return f"{head} {times}  difference {result['difference']:.4f}"


if __name__ == "__main__":
    sys.exit(main())
