"""`generate` of transformers: plain, assisted, and with `prompt_lookup_num_tokens`.

The last two take no batches, so texts at once are texts in turn.
"""

from dataclasses import replace
from typing import Any

from experiments.benchmarks.rivals.worker import Request, Settings

LOOKUP_TOKENS = 10  # what the documentation of transformers shows


class HuggingFace:
    def __init__(self, settings: Settings) -> None:
        import torch
        import transformers

        def load(folder: str | None) -> Any:
            return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()

        torch.set_num_threads(settings.num_threads)
        transformers.logging.set_verbosity_error()  # it warns about its own defaults
        self.version, self._torch, self._model = transformers.__version__, torch, load(settings.model)
        self._how: dict[str, Any] = {}
        if settings.drafts == "model":
            self._how = {"assistant_model": load(settings.draft_model)}
        elif settings.drafts == "ngram":
            self._how = {"prompt_lookup_num_tokens": LOOKUP_TOKENS}

    def write(self, request: Request) -> list[list[int]]:
        groups = replace(request, at_once=1).groups() if self._how else [request]
        return [text for group in groups for text in self._generate(group)]

    def _generate(self, request: Request) -> list[list[int]]:
        prompts, pad = request.prompts, request.end_ids[0]
        longest = max(map(len, prompts))
        ids = self._torch.tensor([[pad] * (longest - len(prompt)) + prompt for prompt in prompts])
        mask = self._torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        how: dict[str, Any] = {"do_sample": False}
        if request.temperature:
            how = {"do_sample": True, "temperature": request.temperature, "top_k": 0, "top_p": 1.0}
        how |= {"max_new_tokens": request.max_tokens, "eos_token_id": request.end_ids, "pad_token_id": pad, **self._how}
        self._torch.manual_seed(request.seeds[0])
        with self._torch.inference_mode():
            texts: list[list[int]] = self._model.generate(ids, attention_mask=mask, **how)[:, longest:].tolist()
        return texts


load = HuggingFace
