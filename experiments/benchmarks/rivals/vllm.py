"""vLLM on a CPU, in bfloat16, with and without its n-gram speculation."""

import os
from typing import Any

from experiments.benchmarks.rivals.worker import Request, Settings

CACHE_GB = 2
NGRAMS = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}


class Vllm:
    def __init__(self, settings: Settings) -> None:
        os.environ |= {
            "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, settings.cores)),
            "VLLM_CPU_KVCACHE_SPACE": str(CACHE_GB),
            "VLLM_LOGGING_LEVEL": "ERROR",
            "VLLM_NO_USAGE_STATS": "1",
        }
        import vllm

        self.version = vllm.__version__
        self._vllm = vllm
        how: dict[str, Any] = {"speculative_config": NGRAMS} if settings.drafts == "ngram" else {}
        self._model = vllm.LLM(
            settings.model,
            dtype="bfloat16",
            max_model_len=settings.context,
            max_num_seqs=settings.num_at_once,
            enable_prefix_caching=False,  # every repetition has the same prompts
            disable_log_stats=True,
            **how,
        )

    def write(self, request: Request) -> list[list[int]]:
        same: dict[str, Any] = {"temperature": request.temperature, "max_tokens": request.max_tokens}
        same |= {"stop_token_ids": request.end_ids, "detokenize": False}
        seeds = request.seeds if request.temperature else [None] * len(request.seeds)
        sampling = [self._vllm.SamplingParams(seed=seed, **same) for seed in seeds]
        prompts = [{"prompt_token_ids": prompt} for prompt in request.prompts]
        written = self._model.generate(prompts, sampling, use_tqdm=False)
        return [list(one.outputs[0].token_ids) for one in written]


load = Vllm
