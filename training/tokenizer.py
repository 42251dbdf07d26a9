"""The family's tokenizer: byte-level BPE that gives back every byte.

Digits stand alone, so that arithmetic can be learned. Documents are separated by END; nothing is put before a prompt.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCAB_SIZE = 4096
END, END_ID = "<|end|>", 0  # end of sequence, and padding
MAX_LENGTH = 2048
# The format of the `chat` domain (domains/chats.py), which the models learned. They learned no tools: tools, calls and
# thoughts are rendered in few tokens, and calls in the form that the parser `hermes` reads. An assistant's turn is
# rendered as it was written, so that it is found in the prefix cache. The marker of a thought is written in two parts:
# readers of templates would take one that has it for a model that thinks.
CHAT_TEMPLATE = (
    "{% if tools %}Tools:{% for tool in tools %} {{ tool.function.name }}"
    "({{ tool.function.parameters.properties | join(', ') }}){% endfor %}{{ '\n\n' }}{% endif %}"
    "{% for message in messages %}{{ message['role'] | capitalize }}:"
    "{% if message.reasoning_content %} {{ '<' ~ 'think>' ~ message.reasoning_content ~ '</' ~ 'think>' }}{% endif %}"
    "{% if message['content'] or not message.tool_calls %} {{ message['content'] }}{% endif %}"
    "{% for call in message.tool_calls or [] %}{{ '' if loop.first else '\n' }}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}"
    "{{ '\n\n' }}{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)

# A blank line ends a turn in that format, and there is none within a turn.
TURN_END = "\n\n"


def train(texts: Iterable[str], vocab_size: int = VOCAB_SIZE) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    digits, byte_level = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json, as AutoTokenizer reads them."""
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": END,
        "model_max_length": MAX_LENGTH,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def load(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))
