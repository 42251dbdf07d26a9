"""`generate` of transformers: plain, assisted, and with `prompt_lookup_num_tokens`.

The last two take no batches, so texts at once are texts in turn.
"""

from typing import Any

from experiments.benchmarks.rivals.worker import Request, Settings

LOOKUP_TOKENS = 10  # what the documentation of transformers shows


class HuggingFace:
    def __init__(self, settings: Settings) -> None:
        import torch
        import transformers

        torch.set_num_threads(settings.num_threads)
        transformers.logging.set_verbosity_error()  # it warns about its own defaults
        self.version = transformers.__version__
        self._torch = torch
        self._model = self._load(settings.model)
        self._how: dict[str, Any] = {}
        if settings.drafts == "model":
            self._how = {"assistant_model": self._load(settings.draft_model)}
        elif settings.drafts == "ngram":
            self._how = {"prompt_lookup_num_tokens": LOOKUP_TOKENS}

    def write(self, request: Request) -> list[list[int]]:
        groups = [slice(n, n + 1) for n in range(len(request.prompts))] if self._how else [slice(None)]
        return [text for group in groups for text in self._generate(request, group)]

    def _load(self, folder: str | None) -> Any:
        import transformers

        return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()

    def _generate(self, request: Request, group: slice) -> list[list[int]]:
        prompts = request.prompts[group]
        longest = max(map(len, prompts))
        pad = request.end_ids[0]
        ids = self._torch.tensor([[pad] * (longest - len(prompt)) + prompt for prompt in prompts])
        mask = self._torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        sampling = {"do_sample": True, "temperature": request.temperature, "top_k": 0, "top_p": 1.0}
        self._torch.manual_seed(request.seeds[group][0])
        with self._torch.inference_mode():
            rows = self._model.generate(
                ids,
                attention_mask=mask,
                max_new_tokens=request.max_tokens,
                eos_token_id=request.end_ids,
                pad_token_id=pad,
                **(sampling if request.temperature else {"do_sample": False}),
                **self._how,
            )
        texts: list[list[int]] = rows[:, longest:].tolist()
        return texts


load = HuggingFace
