"""Converts a tokenizer to llama.cpp's form: tokens with their types, merges, and the name of a pre-tokenizer."""

import json
from dataclasses import dataclass
from typing import Any

import gguf

from goodspeed.engine.gguf.vocabulary import GPT2, SPLITS, WHOLE_WORDS
from goodspeed.engine.tokenizing.text import PROBE, num_shared, num_tokens
from goodspeed.errors import UnsupportedModelError

PRE_TOKENIZERS = {steps: name for name, steps in reversed(SPLITS.items())}
"""llama.cpp's name of each pre-tokenizer, by the patterns that split a text before the merges."""

SPECIAL = {"bos": "bos_token_id", "eos": "eos_token_id", "unk": "unk_token_id", "pad": "pad_token_id"}


@dataclass(frozen=True)
class GgufVocabulary:
    """Describes a byte-level BPE tokenizer as llama.cpp needs it. llama.cpp may give texts that are not in NFC other
    ids."""

    tokens: list[str]
    kinds: list[gguf.TokenType]
    merges: list[str]
    pre_tokenizer: str
    special: dict[str, int]
    adds_bos: bool
    chat_template: str | None

    @classmethod
    def of(cls, tokenizer: Any, num_rows: int) -> "GgufVocabulary":
        """Describes the tokens that the model has rows for. UnsupportedModelError for a tokenizer that llama.cpp would
        not encode alike, or that is another model's."""
        backend = getattr(tokenizer, "backend_tokenizer", None)
        described: dict[str, Any] = {"model": {"type": "no tokenizer.json"}}
        if backend is not None:
            described = json.loads(backend.to_str())
        model = described["model"]
        if model["type"] != "BPE" or model.get("byte_fallback"):
            raise UnsupportedModelError(f"its tokenizer is {model['type']}, but only byte-level BPE can be exported")
        pre_tokenizer = _pre_tokenizer(described)
        if bool(model.get("ignore_merges")) != (SPLITS[pre_tokenizer][0] in WHOLE_WORDS):
            raise UnsupportedModelError(f"its tokenizer's ignore_merges differs from llama.cpp's for {pre_tokenizer}")
        num = num_shared(tokenizer, num_rows)
        if num is None:
            what = f"its tokenizer has {num_tokens(tokenizer)} tokens, but the model {num_rows} rows"
            raise UnsupportedModelError(f"{what}; use the tokenizer that belongs to the model")
        tokens, kinds = _tokens(model["vocab"], described["added_tokens"], num)
        special = {name: getattr(tokenizer, field, None) for name, field in SPECIAL.items()}
        template = getattr(tokenizer, "chat_template", None)
        return cls(
            tokens=tokens,
            kinds=kinds,
            merges=[pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]],
            pre_tokenizer=pre_tokenizer,
            special={name: int(number) for name, number in special.items() if number is not None and number < num},
            adds_bos=_adds_bos(tokenizer, special["bos"]),
            chat_template=template if isinstance(template, str) else None,
        )

    def add_to(self, writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(self.pre_tokenizer)
        writer.add_token_list(self.tokens)
        writer.add_token_types(self.kinds)
        writer.add_token_merges(self.merges)
        for name, number in self.special.items():
            getattr(writer, f"add_{name}_token_id")(number)
        if "bos" not in self.special and "eos" in self.special:
            writer.add_bos_token_id(self.special["eos"])  # else llama.cpp takes id 11, whatever that is
        writer.add_add_bos_token(self.adds_bos)
        writer.add_add_eos_token(False)
        if self.chat_template:
            writer.add_chat_template(self.chat_template)


def _tokens(vocab: dict[str, int], added: list[dict[str, Any]], num: int) -> tuple[list[str], list[gguf.TokenType]]:
    """Returns each id's text and type; ids without a token get a placeholder, which is never part of a text."""
    tokens = [f"[PAD{number}]" for number in range(num)]
    kinds = [gguf.TokenType.UNUSED] * num
    for token, number in vocab.items():
        if number < num:
            tokens[number], kinds[number] = token, gguf.TokenType.NORMAL
    for one in (one for one in added if one["id"] < num):
        tokens[one["id"]] = one["content"]
        kinds[one["id"]] = gguf.TokenType.CONTROL if one["special"] else gguf.TokenType.USER_DEFINED
    return tokens, kinds


def _pre_tokenizer(described: dict[str, Any]) -> str:
    outer = described["pre_tokenizer"] or {"type": "none"}
    found = tuple(_step(step) for step in outer.get("pretokenizers", [outer]))
    normalizer = (described["normalizer"] or {}).get("type", "NFC")
    if found not in PRE_TOKENIZERS or normalizer != "NFC":
        raise UnsupportedModelError(
            f"llama.cpp's name of its pre-tokenizer ({' then '.join(found)[:120]}; {normalizer}) is unknown; use "
            "a GGUF file from the model's makers"
        )
    return PRE_TOKENIZERS[found]


def _step(step: dict[str, Any]) -> str:
    match step:
        case {"type": "Digits", "individual_digits": True}:
            return "digits"
        case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": bool(splits)}:
            return GPT2 if splits else "bytes"
        case {"type": "Split", "behavior": "Isolated", "invert": False, "pattern": {"Regex": str(regex)}}:
            return regex
    return str(step["type"])


def _adds_bos(tokenizer: Any, bos: int | None) -> bool:
    """True if a prompt begins with `bos`. UnsupportedModelError if anything else is put around it."""
    plain = tokenizer(PROBE, add_special_tokens=False)["input_ids"]
    whole = tokenizer(PROBE)["input_ids"]
    if whole == plain:
        return False
    if bos is None or whole != [bos, *plain]:
        raise UnsupportedModelError("its tokenizer adds more to a prompt than one token at the beginning")
    return True
