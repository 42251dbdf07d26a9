"""Makes a GGUF file's tokenizer, a byte-level BPE. Loads no torch.

Its ids are those of the model's own tokenizer, and of llama.cpp's. transformers converts such a tokenizer too, but
takes digits of SmolLM2's together, and cuts up added tokens that are not spelled in the byte alphabet, such as
DeepSeek's. A file says how texts are split before the merges only by a name; with another split its tokens would be
wrong, so a file of an unknown name is refused.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE

from goodspeed.engine.gguf.file import GgufFile, damaged
from goodspeed.engine.tokenizing.generation_settings import MAX_EOS_IDS
from goodspeed.engine.tokenizing.text import fingerprint, num_shared
from goodspeed.engine.tokenizing.tokenizer_folder import torch_out_of_sight
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import GoodSpeedError, UnsupportedModelError, first_line

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
ADDED = (CONTROL, USER_DEFINED)
"""Types of tokens. An unused one is a placeholder for an id without a token."""

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_REST_WITH_MARKS = r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"

GPT2 = "gpt-2"
LLAMA3_SPLIT = _WORDS + r"\p{N}{1,3}" + _REST
QWEN2_SPLIT = _WORDS + r"\p{N}" + _REST
QWEN35_SPLIT = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}" + _REST_WITH_MARKS
TEKKEN_SPLIT = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

SPLITS = {
    GPT2: (GPT2,),
    "smollm": ("digits", GPT2),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"), (LLAMA3_SPLIT, "bytes")),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), (QWEN2_SPLIT, "bytes")),
    "qwen35": (QWEN35_SPLIT, "bytes"),
    "tekken": (TEKKEN_SPLIT, "bytes"),
}
"""The steps that split a text before the merges, by llama.cpp's name of them."""

WHOLE_WORDS = (LLAMA3_SPLIT, TEKKEN_SPLIT)
"""Splits of vocabularies in which a word that is a token is never merged from parts. Their texts begin with `bos`
unless the file says otherwise."""

COMPOSED = (QWEN2_SPLIT, QWEN35_SPLIT)
"""Splits of vocabularies of texts in Unicode's composed form (NFC)."""

ENDS = ("eos", "eot", "eom")
"""Fields with an id that ends a text."""

NAMES_OF_ENDS = frozenset(
    {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>"}
)
"""Control tokens that end a text in whichever file, as in llama.cpp: many files name only one of several."""


def check(file: GgufFile) -> None:
    """Raises the errors that the header alone shows, for a model that is to be loaded later."""
    described = _Described.of(file)
    _ = described.eos_ids(file.vocab_size), file.context_len, file.parallel


def load(file: GgufFile) -> Vocabulary:
    """Returns the file's vocabulary. CheckpointError if it is damaged, UnsupportedModelError if it cannot be made."""
    described = _Described.of(file)
    try:
        tokenizer = GgufTokenizer(described)
        tokenizer_fingerprint = fingerprint(tokenizer)
    except GoodSpeedError:
        raise
    except Exception as error:  # whatever the libraries raise for vocabularies that they refuse
        raise damaged(file.name, f"its tokenizer cannot be made ({first_line(error)})") from error
    vocab_size = file.vocab_size if file.tensors else len(described.tokens)  # some files have no weights
    num_known = num_shared(tokenizer, vocab_size)
    if num_known is None:
        what = f"its tokenizer has {len(described.tokens)} tokens, but the model {vocab_size} rows"
        raise damaged(file.name, what)
    return Vocabulary(
        name=file.name,
        tokenizer=tokenizer,
        tokenizer_fingerprint=tokenizer_fingerprint,
        eos_ids=described.eos_ids(num_known),
        num_tokens=num_known,
    )


@dataclass(frozen=True)
class _Described:
    """A file's description of its tokenizer."""

    file: GgufFile
    split: tuple[str, ...]  # steps, see SPLITS
    tokens: list[str]
    kinds: list[int]  # types of the tokens

    @classmethod
    def of(cls, file: GgufFile) -> "_Described":
        split = _split(file)
        tokens = file.items("tokenizer.ggml.tokens", str)
        kinds = [NORMAL] * len(tokens)
        if "tokenizer.ggml.token_type" in file.fields:
            kinds = file.items("tokenizer.ggml.token_type", int)
        if len(kinds) != len(tokens):
            raise damaged(file.name, f"it has {len(tokens)} tokens, but types of {len(kinds)}")
        return cls(file, split, tokens, kinds)

    def added(self) -> list[AddedToken]:
        """Returns the tokens that are found in a text before it is split, in the order of their ids."""
        found = zip(self.tokens, self.kinds, strict=True)
        return [AddedToken(token, normalized=False, special=of == CONTROL) for token, of in found if of in ADDED]

    def vocab(self) -> dict[str, int]:
        """Returns the ids of used tokens; without added ones at the end, if the ids before them have no gap.

        The makers of Llama and Qwen have the added ones apart, too; fingerprints tell the difference.
        """
        used = {token: number for number, token in enumerate(self.tokens) if self.kinds[number] != UNUSED}
        end = 1 + max((number for number in used.values() if self.kinds[number] not in ADDED), default=-1)
        is_dense = [*used.values()] == [*range(len(used))]  # not so where two are spelled alike
        return {token: number for token, number in used.items() if number < end} if is_dense else used

    def special(self, name: str) -> int | None:
        """Returns the id of a field such as `eos`; None if the file has none."""
        key = f"tokenizer.ggml.{name}_token_id"
        number = self.file.fields.get(key)
        if number is None:
            return None
        if type(number) is not int or not 0 <= number < len(self.tokens):
            raise damaged(self.file.name, f"{key} is {ascii(number)[:40]}, but there are {len(self.tokens)} tokens")
        return number

    def named(self) -> dict[str, str]:
        """Returns the tokens that have a name, by transformers' names.

        Not an ordinary one for unknown text or padding, since texts show it, nor an unused one, which is no token.
        """
        names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
        found = {name: number for name, key in names.items() if (number := self.special(key)) is not None}
        left_out = {"bos": (UNUSED,), "eos": (UNUSED,)}
        return {
            f"{name}_token": self.tokens[number]
            for name, number in found.items()
            if self.kinds[number] not in left_out.get(name, (NORMAL, UNUSED))
        }

    def eos_ids(self, num_known: int) -> tuple[int, ...]:
        """Returns the ids below num_known that end a text."""
        given = [self.special(name) for name in ENDS]
        found = enumerate(zip(self.tokens, self.kinds, strict=True))
        named = [number for number, (token, of) in found if of == CONTROL and token in NAMES_OF_ENDS]
        ids = dict.fromkeys((*given, *named))
        if len(known := tuple(number for number in ids if number is not None and number < num_known)) > MAX_EOS_IDS:
            raise damaged(self.file.name, f"{len(known)} tokens end a text, but at most {MAX_EOS_IDS} may")
        return known

    def adds(self, name: str) -> int | None:
        """Returns the id of `bos` or `eos` if it is put around prompts."""
        default = name == "bos" and self.split[0] in WHOLE_WORDS
        if not self.file.fields.get(f"tokenizer.ggml.add_{name}_token", default):
            return None
        if (number := self.special(name)) is None:
            raise damaged(self.file.name, f"prompts are to have a token {name}, but it names none")
        return number

    def templates(self) -> str | dict[str, str] | None:
        """Returns the chat template, or several by their names."""
        fields = self.file.fields
        found = {"default": fields.get("tokenizer.chat_template")}
        for name in fields.get("tokenizer.chat_templates") or ():
            found[name] = fields.get(f"tokenizer.chat_template.{name}")
        texts = {name: text for name, text in found.items() if isinstance(text, str) and text}
        return texts if len(texts) > 1 else texts.get("default")


def _split(file: GgufFile) -> tuple[str, ...]:
    kind, name = (file.fields.get(f"tokenizer.ggml.{key}") for key in ("model", "pre"))
    if kind is None:
        raise UnsupportedModelError(f"{file.name}: the GGUF file has no tokenizer; use a file with one")
    if kind != "gpt2":
        what = f"its tokenizer is of kind {ascii(kind)[:40]}, but only byte-level BPE ('gpt2') is supported"
        raise UnsupportedModelError(f"{file.name}: {what}; use another model, or the original checkpoint")
    if not isinstance(name, str) or name not in SPLITS:
        how = "the GGUF file does not say how its tokenizer splits texts"
        if name is not None:
            how = f"its tokenizer splits texts as {ascii(name)[:40]}, which is none of {', '.join(SPLITS)}"
        raise UnsupportedModelError(f"{file.name}: {how}; use a newer file, or the original checkpoint")
    return SPLITS[name]


class GgufTokenizer:
    """The tokenizer with what nodes use of transformers' class.

    That class is made for a chat, and for whatever else is asked for: importing transformers takes a second and 30 MB.
    """

    def __init__(self, described: _Described) -> None:
        self.backend_tokenizer = _backend(described)
        self.added_tokens_decoder = self.backend_tokenizer.get_added_tokens_decoder()
        self.chat_template = described.templates()
        # Not the file itself, which is large.
        self._more = {"model_max_length": described.file.context_len, **described.named()}
        self.convert_ids_to_tokens = self.backend_tokenizer.id_to_token

    def __call__(self, text: str, *, add_special_tokens: bool = True, verbose: bool = True) -> dict[str, list[int]]:
        return {"input_ids": self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids}

    def decode(
        self, token_ids: list[int], *, skip_special_tokens: bool = False, clean_up_tokenization_spaces: bool = False
    ) -> str:
        return str(self.backend_tokenizer.decode(token_ids, skip_special_tokens=skip_special_tokens))

    def get_vocab(self) -> dict[str, int]:
        return self.backend_tokenizer.get_vocab()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # asked for by copy and pickle, before there is anything
            raise AttributeError(name)
        return getattr(self._whole, name)

    @cached_property
    def _whole(self) -> Any:
        with torch_out_of_sight():
            from transformers import PreTrainedTokenizerFast

            return PreTrainedTokenizerFast(
                tokenizer_object=self.backend_tokenizer,
                clean_up_tokenization_spaces=False,
                chat_template=self.chat_template,
                **self._more,
            )


def _backend(described: _Described) -> Tokenizer:
    split = described.split
    merges = described.file.items("tokenizer.ggml.merges", str)
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    found = Tokenizer(BPE(described.vocab(), pairs, ignore_merges=split[0] in WHOLE_WORDS))
    if split[0] in COMPOSED:
        found.normalizer = normalizers.NFC()
    steps = [_step(step) for step in split]
    found.pre_tokenizer = steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)
    found.decoder = decoders.ByteLevel()
    found.add_tokens(described.added())
    found.add_special_tokens([AddedToken(token, normalized=False) for token in described.named().values()])
    around = {name: number for name in ("bos", "eos") if (number := described.adds(name)) is not None}
    found.post_processor = processors.TemplateProcessing(
        single=[part for part in ("bos", "$A", "eos") if part == "$A" or part in around],
        special_tokens=[*around.items()],
    )
    return found


def _step(step: str) -> Any:
    if step == "digits":
        return pre_tokenizers.Digits(individual_digits=True)
    if step in (GPT2, "bytes"):
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=step == GPT2)
    return pre_tokenizers.Split(Regex(step), behavior="isolated")
