"""A tokenizer.json read by the `tokenizers` library alone, with the part of transformers' interface that nodes use.

transformers takes seconds to import and loads torch wherever that is installed. `reads_alike` says for which folders
transformers takes the file as it is; for all others only transformers knows what it makes of it.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from goodspeed.engine.tokenizing import chat_template

FILE, CONFIG, MODEL_CONFIG, TEMPLATE = "tokenizer.json", "tokenizer_config.json", "config.json", "chat_template.jinja"

GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Classes of transformers, before and since release 5, that take tokenizer.json as it is."""

SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""Settings that name special tokens, for chat templates as well."""

CHANGES = (
    *("add_bos_token", "add_eos_token", "split_special_tokens", "fix_mistral_regex", "auto_map"),
    *("extra_special_tokens", "additional_special_tokens", "model_specific_special_tokens"),
)
"""Settings by which transformers changes what the file says."""

OTHER_FILES = ("tekken.json", "special_tokens_map.json", "added_tokens.json", "additional_chat_templates")
"""Files that transformers reads as well."""


def reads_alike(folder: Path) -> bool:
    """Whether transformers makes of this folder's tokenizer.json exactly what the file says.

    Then its class is a generic one, and tokenizer_config.json neither changes nor adds a token. Raises ValueError for
    files that are no JSON objects, OSError for those that cannot be read.
    """
    if any((folder / name).exists() for name in OTHER_FILES):
        return False
    settings = _read_object(folder / CONFIG)
    kind = settings.get("tokenizer_class")
    if kind not in GENERIC and (kind is not None or (folder / MODEL_CONFIG).exists()):
        return False
    if any(settings.get(name) for name in CHANGES):
        return False
    added = {token["content"]: token["special"] for token in _read_object(folder / FILE).get("added_tokens", ())}
    return all(added.get(token) for token in _special_tokens(settings).values()) and all(
        added.get(token["content"]) is token.get("special", False)
        for token in settings.get("added_tokens_decoder", {}).values()
    )


class FastTokenizer:
    """Encodes, decodes and renders chats like transformers' generic fast tokenizer."""

    def __init__(
        self,
        backend: Tokenizer,
        special_tokens: Mapping[str, str],
        chat_template: str | Mapping[str, str] | None,
    ) -> None:
        """special_tokens: texts by the names in SPECIAL; chat_template: several are by their names."""
        backend.no_truncation()
        backend.no_padding()
        self.backend_tokenizer = backend
        self.special_tokens_map = dict(special_tokens)
        self.chat_template = chat_template

    @classmethod
    def from_folder(cls, folder: Path) -> "FastTokenizer":
        """Reads a folder for which `reads_alike` holds; raises what the library raises for damaged files."""
        settings = _read_object(folder / CONFIG)
        backend = Tokenizer.from_file(str(folder / FILE))
        return cls(backend, _special_tokens(settings), _chat_template(folder, settings))

    def __call__(self, text: str, *, add_special_tokens: bool = True, verbose: bool = True) -> dict[str, list[int]]:
        """Encodes one text; verbose is transformers', which warns of long texts."""
        return {"input_ids": self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids}

    def decode(
        self, token_ids: Sequence[int], *, skip_special_tokens: bool = False, clean_up_tokenization_spaces: bool = False
    ) -> str:
        """Decodes; ValueError where blanks are to be cleaned up, which no node asks for."""
        if clean_up_tokenization_spaces:
            raise ValueError("blanks are not cleaned up here; decode without that")
        return str(self.backend_tokenizer.decode(list(token_ids), skip_special_tokens=skip_special_tokens))

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        tokenize: bool = True,
        return_dict: bool = False,
        **settings: Any,
    ) -> list[int]:
        """Encodes a conversation up to the assistant's turn; the template writes the special tokens itself.

        ValueError for the other ways in which transformers could do it, which no node asks for.
        """
        if not add_generation_prompt or not tokenize or return_dict:
            raise ValueError("a conversation becomes token ids up to the assistant's turn, and nothing else")
        template = chat_template.for_tools(self.chat_template, tools=bool(tools))
        if template is None:
            raise ValueError("this tokenizer has no chat template")
        text = chat_template.render(template, messages, self.special_tokens_map, tools, settings)
        return self(text, add_special_tokens=False)["input_ids"]

    def get_vocab(self) -> dict[str, int]:
        return dict(self.backend_tokenizer.get_vocab(with_added_tokens=True))

    def convert_ids_to_tokens(self, token_id: int) -> str | None:
        """Returns the token's name; None for an id beyond the vocabulary."""
        name: str | None = self.backend_tokenizer.id_to_token(token_id)
        return name

    @property
    def added_tokens_decoder(self) -> dict[int, AddedToken]:
        return dict(self.backend_tokenizer.get_added_tokens_decoder())

    @property
    def eos_token_id(self) -> int | None:
        name = self.special_tokens_map.get("eos_token")
        found: int | None = None if name is None else self.backend_tokenizer.token_to_id(name)
        return found


def _special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    """Returns texts of special tokens; each is given as a text or as an object with its content."""
    given = {name: settings[name] for name in SPECIAL if settings.get(name) is not None}
    return {name: token["content"] if isinstance(token, dict) else str(token) for name, token in given.items()}


def _chat_template(folder: Path, settings: Mapping[str, Any]) -> str | dict[str, str] | None:
    """Returns the template, the file's, else the setting's, which may be several by name."""
    if (folder / TEMPLATE).exists():
        return (folder / TEMPLATE).read_text(encoding="utf-8")
    given = settings.get("chat_template")
    if isinstance(given, list):
        return {one["name"]: one["template"] for one in given}
    return None if given is None else str(given)


def _read_object(path: Path) -> dict[str, Any]:
    """Returns a file's JSON object, an empty one for a missing file."""
    if not path.exists():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} is no JSON object")
    return content
