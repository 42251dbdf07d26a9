"""What `--model` may name beside a target model: no model, a running server of llama.cpp, a draft source."""

from goodspeed.embedded.models import is_gguf

NO_MODEL = "none"
"""Value of `--model` for a draft node without a model."""

SOURCE = "source:"
"""Prefix of a `--model` that is a draft source of another package, or of the user's own."""


def is_url(model: str) -> bool:
    """Returns whether a running server of llama.cpp computes this draft model."""
    return model.startswith(("http://", "https://"))


def draft_words(model: str, target: str) -> list[str]:
    """Returns `goodspeed-draft`'s options for a draft model, with the target's tokenizer if the model needs it."""
    needs = model == NO_MODEL or is_url(model) or is_gguf(model) or model.startswith(SOURCE)
    return [f"--model={model}", *([f"--tokenizer={target}"] if needs else [])]
