"""What `--model` may name."""

import pytest

from goodspeed.engine.model_files.names import draft_words


@pytest.mark.parametrize("model", ["none", "http://127.0.0.1:8080", "small.gguf", "source:mine"])
def test_a_draft_model_without_a_tokenizer_gets_the_targets(model: str) -> None:
    assert draft_words(model, "target") == [f"--model={model}", "--tokenizer=target"]
    assert draft_words("someone/small", "target") == ["--model=someone/small"]
