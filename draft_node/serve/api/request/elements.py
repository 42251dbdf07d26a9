"""How much there is in a JSON body, counted before anything is made of it. Knows nothing about what the body says.

Whoever reads JSON in Python holds the interpreter until all is built, whatever thread it is on: some microseconds for
each list or object, less for a string, and a tenth of one for a number. Counting costs a few milliseconds for 4 MiB.
"""

from draft_node.serve.api.request.errors import ApiError

MAX_CONTAINERS = 1 << 12
"""Lists and objects. A conversation has one for each message and each part of one."""

MAX_STRINGS = 1 << 14
"""Strings, names of members included."""

MAX_VALUES = 1 << 18
"""Numbers and all else that commas part: 64 prompts of 4,096 token ids."""

MAX_BARE_BYTES = 2 << 20
"""Bytes besides strings and spaces: eight for each value. Numbers of 19 digits and more take longer than others."""


def check(*texts: bytes) -> None:
    """ApiError 413 for more than these in all texts; whether each is valid JSON is for others to say.

    A body is one text; what is JSON inside of its strings are others.
    """
    num_strings = 0
    outsides = list[bytes]()
    for text in texts:
        pieces = _without_escapes(text).split(b'"', 2 * MAX_STRINGS + 1)  # outside of strings, inside, outside...
        num_strings += len(pieces) // 2
        if num_strings > MAX_STRINGS:
            raise _too_many(MAX_STRINGS, "strings")
        outsides.append(b"".join(pieces[::2]))
    outside = b" ".join(outsides)
    if outside.count(b"[") + outside.count(b"{") > MAX_CONTAINERS:
        raise _too_many(MAX_CONTAINERS, "lists and objects")
    if outside.count(b",") >= MAX_VALUES:
        raise _too_many(MAX_VALUES, "values")
    if len(outside) > MAX_BARE_BYTES < len(outside) - outside.count(b" "):
        raise _too_many(MAX_BARE_BYTES, "bytes besides its strings and spaces")


def _without_escapes(body: bytes) -> bytes:
    """The body without escape sequences, so that each quote left begins or ends a string.

    A backslash outside a string is invalid JSON; the parser refuses it.
    """
    if b"\\" not in body:
        return body
    return body.replace(b"\\\\", b"").replace(b'\\"', b"")


def _too_many(most: int, what: str) -> ApiError:
    return ApiError(413, f"the body has more than {most} {what}, the most that is taken; send it as several requests")
