"""The real model of the tests with the mark `real`: `smollm2`, and prompts of the kinds that people send.

The tests with this mark hold a whole system against programs that others wrote, with a tokenizer, a chat template and
weights that others made. The embedded models are for everything else: they are far quicker.
"""

import os

import pytest

from goodspeed.embedded import models
from goodspeed.errors import CheckpointError

NAME = "smollm2"
DRAFT_MODEL = "smollm2-draft"  # the model of the draft nodes that have one
PROMPTS = {  # by domain, as in the paper's data sets
    "chat": "Give me three tips for a long train journey with small children.",
    "coding": 'Finish this:\n\ndef running_mean(values, width=10):\n    """The mean of each `width` values."""\n    if',
    "translation": "Translate into English: Die Fähre nach Tromsø fährt um 7.15 Uhr ab, für 1.250 € (früh?)",
    "summarization": (
        "Summarize in one sentence: The old mill at the river burnt down in 1911. It was rebuilt by the baker's four "
        "sons, who sold flour until 1968. Since then it's been a museum, and 20,000 visitors came last year."
    ),
    "qa": "Which river flows through Vienna, Budapest and Belgrade?",
    "math": "A baker sells 12 loaves at 3.50 euros each and 117 rolls at 0.45 euros each. How much does she take in?",
    "rag": (
        "Bees\nA hive has one queen, up to 60000 workers and a few hundred drones.\n\nWasps\nA nest lasts for one "
        "summer.\n\nAnswer from these texts: how many queens has a hive?"
    ),
    "sql": (
        "Tables:\nboat(id, name, length_m)\ntrip(id, boat_id, day, fare)\n\n"
        "Write one SQL query that answers: which boats longer than 12 m have made more than 30 trips?"
    ),
}


def need() -> None:
    """Skips the test without the model, and says what to install; fails it under CI, where it must run."""
    try:
        models.packaged_file(NAME)
    except CheckpointError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


def chat(question: str, system: str = "You are a helpful AI assistant named SmolLM, trained by Hugging Face") -> str:
    """The prompt of a chat, as the model's makers want it; without a message of the system it has this one."""
    turns = (("system", system), ("user", question))
    return "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns) + "<|im_start|>assistant\n"
