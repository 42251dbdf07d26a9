"""OpenVINO GenAI: its pipeline with continuous batching, from a GGUF file as it is."""

import tempfile
from pathlib import Path
from typing import Any

from experiments.benchmarks.rivals.worker import Request, Settings

NUM_ASSISTANT_TOKENS = 5  # with prompt lookup and draft models, as in its own samples
MAX_NGRAM = 3
CACHE_GB = 1


class GenAI:
    def __init__(self, settings: Settings) -> None:
        import openvino
        import openvino_genai as genai

        self.version = genai.__version__
        self._genai, self._tensor = genai, openvino.Tensor
        self._drafts = settings.drafts
        scheduler = genai.SchedulerConfig()
        scheduler.cache_size = CACHE_GB
        scheduler.max_num_seqs = settings.num_at_once
        scheduler.enable_prefix_caching = False  # every repetition has the same prompts
        properties: dict[str, Any] = {"INFERENCE_NUM_THREADS": settings.num_threads}
        if settings.drafts == "ngram":
            properties["prompt_lookup"] = True
        elif settings.drafts == "model":
            folder = self._converted(Path(str(settings.draft_model)))
            properties["draft_model"] = genai.draft_model(folder, "CPU", INFERENCE_NUM_THREADS=settings.num_threads)
        self._pipeline = genai.ContinuousBatchingPipeline(settings.model, scheduler, "CPU", properties)

    def write(self, request: Request) -> list[list[int]]:
        import numpy as np

        prompts = [self._tensor(np.array([prompt], dtype=np.int64)) for prompt in request.prompts]
        written = self._pipeline.generate(prompts, [self._config(request, seed) for seed in request.seeds])
        return [list(one.m_generation_ids[0]) for one in written]

    def _converted(self, gguf: Path) -> str:
        """Returns a folder in OpenVINO's format: draft models cannot be read from GGUF files."""
        self._folder = tempfile.TemporaryDirectory()  # as long as this
        link = Path(self._folder.name) / gguf.name
        link.symlink_to(gguf)
        self._genai.LLMPipeline(link, "CPU", enable_save_ov_model=True)
        return self._folder.name

    def _config(self, request: Request, seed: int) -> Any:
        config = self._genai.GenerationConfig()
        config.max_new_tokens = request.max_tokens
        config.stop_token_ids, config.ignore_eos = set(request.end_ids), not request.end_ids
        config.do_sample = request.temperature > 0
        if config.do_sample:
            config.temperature, config.rng_seed = request.temperature, seed
        if self._drafts is not None:
            config.num_assistant_tokens = NUM_ASSISTANT_TOKENS
        if self._drafts == "ngram":
            config.max_ngram_size = MAX_NGRAM
        return config


load = GenAI
