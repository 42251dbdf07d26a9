"""Hypothesis strategies: all messages of the protocol, derived from the types in `messages.py`; and plain text."""

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import strategies as st

from goodspeed.wire.handshake import VERSION, Hello, Welcome
from goodspeed.wire.messages import DownMessage, UpMessage

UP, DOWN = UpMessage.__args__, DownMessage.__args__


def messages(classes: tuple[type, ...]) -> st.SearchStrategy[Any]:
    """Generates messages of these classes, of this version of the protocol."""
    return st.one_of([values_of(msgspec.inspect.type_info(cls)) for cls in classes]).map(ours)


def values_of(kind: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    """Generates the values that a message's field may have, and only those."""
    inspect = msgspec.inspect
    match kind:
        case inspect.IntType(ge=low, lt=below, le=high):
            return st.integers(low, below - 1 if below is not None else high)
        case inspect.FloatType(gt=above, ge=low, le=high):
            return st.floats(above if low is None else low, high, exclude_min=low is None)
        case inspect.StrType(pattern=str(pattern), max_length=longest):
            return st.from_regex(pattern).map(lambda s: s[:longest])
        case inspect.StrType(min_length=shortest, max_length=longest):
            return st.text(min_size=shortest or 0, max_size=min(longest or 50, 50))
        case inspect.BytesType(min_length=shortest, max_length=longest):
            return st.binary(min_size=shortest or 0, max_size=longest or 100)
        case inspect.VarTupleType(item_type=item, min_length=shortest, max_length=longest):
            return st.lists(values_of(item), min_size=shortest or 0, max_size=min(longest or 20, 20)).map(tuple)
        case inspect.LiteralType(values=values):
            return st.sampled_from(values)
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.UnionType(types=types):
            return st.one_of([values_of(each) for each in types])
        case inspect.StructType(cls=cls, fields=fields):
            of_fields = {field.name: values_of(field.type) for field in fields}
            return st.fixed_dictionaries(of_fields).map(lambda values: cls(**aligned(values)))
    raise NotImplementedError(kind)


def aligned(values: dict[str, Any]) -> dict[str, Any]:
    """Cuts parallel fields of a message to the same length, and a part to the whole."""
    for pair in (("tokens", "logprobs"), ("top_ids", "top_logprobs")):
        if all(values.get(name) is not None for name in pair):
            shorter = min(len(values[name]) for name in pair)
            values |= {name: values[name][:shorter] for name in pair}
    if "num_accepted" in values:
        values["num_accepted"] = min(values["num_accepted"], values["num_verified"])
    if values.get("probabilities"):
        num_tokens = len(values["tokens"])
        values["probabilities"] = (values["probabilities"] + bytes(num_tokens))[:num_tokens]
    if values.get("parents") is not None:
        raw = (values["parents"] + bytes(len(values["tokens"])))[: len(values["tokens"])]
        values["parents"] = bytes(each % (node + 1) for node, each in enumerate(raw))
    return values


def ours(message: Any) -> Any:
    return msgspec.structs.replace(message, version=VERSION) if isinstance(message, Hello | Welcome) else message


def plain_text(tokenizer: Callable[[], Any], max_size: int) -> st.SearchStrategy[str]:
    """Generates text without special tokens, whose names Hypothesis would find in our source."""
    return st.text(max_size=max_size).filter(
        lambda text: not any(name in text for name in tokenizer().all_special_tokens)
    )
