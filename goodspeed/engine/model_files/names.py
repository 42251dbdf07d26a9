"""Reads values of `--model` that name no model file: no model, a running server of llama.cpp, a draft source."""

NO_MODEL = "none"
"""Value of `--model` for a draft node without a model."""

SOURCE = "source:"
"""Prefix of a `--model` that is a draft source of another package, or of the user's own."""


def is_url(model: str) -> bool:
    """Returns whether a running server of llama.cpp computes this draft model."""
    return model.startswith(("http://", "https://"))
