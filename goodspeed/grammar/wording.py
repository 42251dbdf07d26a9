"""What llguidance says of a constraint, in words of whoever wrote it: what is wrong in his own text, and what to do.

llguidance quotes grammars that were made of what it was given, and calls things as its code does. What is not known
here is passed on without these quotations. Knows nothing else about llguidance.
"""

import re

MAX_CHARS = 400
MAX_QUOTED = 48
"""Characters of a pattern that are quoted around what is wrong in it."""

_PATTERN = re.compile(r"regex parse error:\n {4}(.*)\n( *)(\^*).*\nerror: (.*)")
_PLACE = re.compile(r"(?:at )?(\d+)\((\d+)\): ")
_EXCERPT = re.compile(r"\n\s*\d+ \| ")

_OF_PATTERNS = (
    ("look-around", "what stands before or after a text cannot be asked for; leave out (?=, (?!, (?<= and (?<!"),
    ("backreferences", "what a group matched cannot be referred to; write out what may stand there"),
    ("unclosed group", "unclosed group; close it with ), or write \\( for the character"),
    ("unopened group", "unopened group; open it with (, or write \\) for the character"),
    ("unclosed character class", "unclosed character class; close it with ], or write \\[ for the character"),
    ("unclosed counted repetition", "unclosed count; close it with }, or write \\{ for the character"),
    (
        "repetition operator missing",
        "nothing stands before it that it could repeat; write a backslash before it for the character",
    ),
    ("valid decimal", "a count begins with a number; write {0,3} for up to 3, or \\{ for the character"),
    ("invalid repetition count range", "the lower count is above the upper; swap them"),
    ("invalid character class range", "the range ends before it begins; swap its characters"),
    ("unrecognized flag", "this kind of group is not taken; write (?:...), or (?i) to ignore case"),
    ("unrecognized escape sequence", "this escape is not known; leave out its backslash, or all of it"),
    ("property not found", "this class of characters is not known; name one like \\p{Letter}"),
)
"""What the error has in it, and what is said instead."""

_LESS = "write fewer or simpler patterns, rules or choices"

_OTHERS = (
    (r".*NoExtension.*", "no text satisfies it"),
    (
        r".*lookarounds not supported yet; (?:WordUnicode|WordAscii)\w* in regex /(.*)/",
        r'the pattern "\1" has \\b or \\B, which are not taken; leave them out',
    ),
    (
        r".*lookarounds not supported yet; \w* in regex /(.*)/",
        r'the pattern "\1" has ^ or $ in its middle; leave them out',
    ),
    # grammars
    (
        r"lexer error",
        'this cannot be read; close the quote or slash before it, and write texts in "", not in single quotes',
    ),
    (r"no start rule found", "no rule is called start; call the first one so"),
    (r'unknown name: (".*")', r"\1 is not defined; write a rule for it, or put a text in quotes"),
    (r"Expected token '_', found '='.*", "a rule is written as name: and what it is; write no ::="),
    (r"Expected token (.*), found .* \(at \"(.*)\" \(.*\)\)", r"\1 is expected where \2 is; write it there"),
    (r'circular reference in token (".*") definition', r"the terminal \1 refers to itself; name it in lower case"),
    (r"duplicate rule: (.*)", r"the rule \1 is defined twice; join the two by |"),
    (r"unknown grammar (@\S*)", r"\1 would be another grammar, which is not taken; write its rules here"),
    (r'unknown special token: (".*?").*', r"\1 is no special token of this model; put a text in quotes"),
    (r"Unknown common regex: (\S*); .*", r"%import knows no \1; write a rule for it"),
    (r"lark grammar too deeply nested.*", "parentheses are nested too deep; write rules for parts of it"),
    # schemas
    (
        r"Invalid type: (.*)",
        r'the type "\1" is not known; write string, number, integer, boolean, object, array or null',
    ),
    (r"Unknown format: (.*)", r'the format "\1" is not known; leave it out, or write a pattern'),
    (r"Unimplemented keys: \[(.*)\]", r"\1: not taken in a schema; leave it out"),
    (r"Pointer '(.*)' does not exist", r'$ref "#\1" does not exist in the schema; correct it, or define it there'),
    (r"Resource '(.*)' is not present .*", r'"\1" is not fetched; leave $schema out'),
    (r"oneOf constraints are not supported.*", "oneOf is taken where its choices cannot overlap; write anyOf instead"),
    (r"Unsatisfiable schema: Regex is empty.*", "no text keeps all patterns, formats and lengths; leave one out"),
    (r"Unsatisfiable schema: anyOf is empty", "enum or anyOf has no choices; write at least one"),
    (r"Unsatisfiable schema: (.*)", r"nothing satisfies the schema: \1; correct one of them"),
    (r"invalid multiple of", "multipleOf is not above 0; write a larger one"),
    (r"Expected f64 for '(.*)', got (.*)", r"\1 is \2; write a number"),
    (r"Expected string for '(.*)' item, got (.*)", r"\1 has \2; write strings"),
    (r"Expected (.*) for '(.*)', got (.*)", r"\2 is \3; write a JSON \1"),
    (
        r"circular references with sibling keys are not supported: (?:json-schema:///)?(.*)",
        r'$ref "\1" leads back to itself beside other keywords; leave the reference out, or what is beside it',
    ),
    (
        r"Schema intersection stack level exceeded",
        "a $ref leads back to itself beside other keywords; leave the reference out, or what is beside it",
    ),
    (r"(\$?\w+) must be a string, got (.*)", r"\1 is \2; write a string"),
    (r"schema must be an object or boolean", "a schema within the schema is no object; write one, or true or false"),
    # what costs too much
    (r"schema too large", "the schema is too large, with all choices of allOf written out; leave some out"),
    (r".*(?:[Tt]oo many items|Current row has).*", f"it may go on in too many ways at one place; {_LESS}"),
    (r".*(?:too big|fuel|too many (?:states|expressions)).*", f"it takes too much work; {_LESS}"),
)


def own_words(said: str, *, has_lines: bool) -> str:
    """Returns on one line what the library says. has_lines: its lines and columns are those of what was sent."""
    said = said.replace("<non-verbose/>", "").strip()
    pattern, place = _PATTERN.search(said), _PLACE.match(said)
    if pattern is not None:
        words = _of_pattern(*pattern.groups())
    else:
        rest = said[place.end() :] if place is not None else said
        words = _of_others(" ".join(_EXCERPT.split(rest)[0].split()))
    if not has_lines:
        words = words.removeprefix("%json: ")
    if place is not None and has_lines:
        words = f"line {place[1]}, column {place[2]}: {words}"
    return words if len(words) <= MAX_CHARS else words[: MAX_CHARS - 3] + "..."


def without_place(words: str) -> str:
    """Returns the same of a grammar that was made of something else, whose lines say nothing to whoever sent that."""
    return re.sub(r"^line \d+, column \d+: (?:%json: )?", "", words)


def _of_pattern(pattern: str, blanks: str, marked: str, error: str) -> str:
    """What is wrong in a regular expression, and where; blanks: before the mark below it."""
    at = max(0, len(blanks) - 4)
    at, pattern = at - pattern[:at].count("\\/"), pattern.replace("\\/", "/")  # each slash was escaped for the library
    part = pattern[at : at + max(1, len(marked))][:MAX_QUOTED]
    where = f'at "{part}"' if part else "at its end"
    where += f" (character {at + 1})" if "/" not in pattern else ""  # else nobody knows which its author had escaped
    words = next((known for key, known in _OF_PATTERNS if key in error), f"{error}; correct it")
    return f'the pattern "{_around(pattern, at)}" is wrong {where}: {words}'


def _around(pattern: str, at: int) -> str:
    first = max(0, at - MAX_QUOTED // 2)
    quoted = pattern[first : first + MAX_QUOTED]
    return "..." * (first > 0) + quoted + "..." * (first + len(quoted) < len(pattern))


def _of_others(words: str) -> str:
    if inner := re.fullmatch(r"failed to compile JSON schema: (.*)", words):
        return f"%json: {_of_others(inner[1])}"
    for known, instead in _OTHERS:
        if found := re.fullmatch(known, words):
            return found.expand(instead).replace('\\"', '"')
    return words
