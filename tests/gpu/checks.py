"""All checks by name. Each takes a device, raises when something is wrong, and may say what it measured."""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import torch

from goodspeed.exact.proposals import KINDS
from tests.gpu import engine_checks as engine
from tests.gpu import quantised_checks as quantised
from tests.gpu import sampling_checks as sampling

Check: TypeAlias = Callable[[torch.device], str | None]

VOCABULARIES = (1000, sampling.WIDE)
SIXTEEN_BITS = {"bfloat16": torch.bfloat16, "float16": torch.float16}

CHECKS: dict[str, Check] = {
    **{
        f"float32 logits, {name}, schedule {seed}": partial(engine.float32_logits_equal_those_of_the_cpu, name, seed)
        for name in engine.CONFIGS
        for seed in (0, 1)
    },
    **{f"token trees, {name}": partial(engine.tree_logits_equal_those_of_their_paths, name) for name in engine.CONFIGS},
    **{
        f"{name} logits, {model}": partial(engine.sixteen_bit_logits_stay_within_bounds, model, dtype)
        for name, dtype in SIXTEEN_BITS.items()
        for model in engine.CONFIGS
    },
    "larger passes": engine.larger_passes_equal_those_of_the_cpu,
    "layers in 4 bits": quantised.int4_layers_multiply_like_dequantised_ones,
    "memory by fraction": engine.memory_is_a_part_of_what_is_free,
    **{
        f"{check.__name__.split('_')[0]}, vocabulary {vocab}": partial(check, vocab)
        for check in (
            sampling.probabilities_equal_those_of_the_cpu,
            sampling.draws_equal_those_of_the_cpu,
            sampling.choices_equal_those_of_the_cpu,
        )
        for vocab in VOCABULARIES
    },
    "uniform noise": sampling.uniform_noise_equals_that_of_the_cpu,
    "rules for logits": sampling.rules_change_what_they_change_on_the_cpu,
    "match rule": sampling.match_verdicts_equal_those_of_the_cpu,
    **{
        f"ratio rule, vocabulary {vocab}": partial(sampling.ratio_verdicts_equal_those_of_the_cpu, vocab)
        for vocab in VOCABULARIES
    },
    "zero probabilities": sampling.zero_is_never_drawn_from_wide_rows,
    **{f"proposals, {kind}": partial(sampling.proposals_arrive_as_they_were_sampled, kind) for kind in KINDS},
}

ON_CUDA_ONLY: dict[str, Check] = {
    "nothing waits for the device": sampling.nothing_waits_for_the_device,
    "attention kernel and without CUDA graphs": engine.every_pass_of_the_grid_has_a_graph,
}
