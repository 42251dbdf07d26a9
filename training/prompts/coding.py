"""Functions to be completed, whose examples are computed, and programs to be written."""

from ast import literal_eval
from collections.abc import Callable
from random import Random
from typing import NamedTuple

STUB = "Complete this Python function. Answer with code only.\n\n{imports}\n\ndef {head}:\n{doc}\n"


class Step(NamedTuple):
    name: str
    said: str
    does: Callable[[list[int]], object]


CHOSEN = (
    Step("even", "even numbers", lambda x: [n for n in x if n % 2 == 0]),
    Step("odd", "odd numbers", lambda x: [n for n in x if n % 2]),
    Step("positive", "positive numbers", lambda x: [n for n in x if n > 0]),
    Step("negative", "negative numbers", lambda x: [n for n in x if n < 0]),
    Step("unique", "distinct numbers", lambda x: list(dict.fromkeys(x))),
    Step("repeated", "numbers that occur more than once", lambda x: [n for n in dict.fromkeys(x) if x.count(n) > 1]),
    Step("small", "numbers between 0 and 9", lambda x: [n for n in x if 0 <= n <= 9]),
    Step("divisible_by_three", "numbers that are divisible by three", lambda x: [n for n in x if n % 3 == 0]),
    Step("two_digit", "numbers with two digits", lambda x: [n for n in x if 10 <= abs(n) <= 99]),
    Step("first", "first three numbers", lambda x: x[:3]),
    Step("every_second", "numbers at even indices", lambda x: x[::2]),
    Step("all", "numbers", lambda x: x),
)
RESULTS = (
    Step("sum", "the sum of the", sum),
    Step("count", "the number of the", len),
    Step("list", "a list of the", list),
    Step("sorted", "a sorted list of the", sorted),
    Step("max", "the largest of the", lambda x: max(x, default=None)),
    Step("min", "the smallest of the", lambda x: min(x, default=None)),
    Step("squares", "the squares of the", lambda x: [n * n for n in x]),
    Step("reversed", "in reverse order the", lambda x: x[::-1]),
    Step("mean", "the mean of the", lambda x: sum(x) / len(x) if x else 0.0),
    Step("doubled", "twice the values of the", lambda x: [2 * n for n in x]),
    Step("running", "the running totals of the", lambda x: [sum(x[: i + 1]) for i in range(len(x))]),
    Step("any", "True if there are any of the", lambda x: bool(x)),
)
TEXTS: tuple[tuple[str, str, Callable[[str], object]], ...] = (
    ("count_vowels", "Return the number of vowels in a string.", lambda s: sum(c in "aeiou" for c in s.lower())),
    ("reverse_string", "Return the string in reverse order.", lambda s: s[::-1]),
    ("is_palindrome", "Check if the string reads the same forwards and backwards.", lambda s: s == s[::-1]),
    ("capitalize_words", "Capitalize the first letter of every word.", lambda s: s.title()),
    ("count_words", "Return how many words the sentence has.", lambda s: len(s.split())),
    ("longest_word", "Return the longest word; the first one if there are "
    "several.", lambda s: max(s.split(), key=len)),
    ("remove_spaces", "Remove all spaces from a string.", lambda s: s.replace(" ", "")),
    ("char_frequency", "Return a dictionary with the frequency of each "
    "character.", lambda s: {c: s.count(c) for c in s}),
    ("first_repeated", "Return the first character that occurs twice, or None.",
     lambda s: next((c for c in s if s.count(c) > 1), None)),
    ("swap_case", "Turn lower case letters into upper case and the other way round.", lambda s: s.swapcase()),
    ("sort_letters", "Return the letters of the string in alphabetical order.", lambda s: "".join(sorted(s))),
    ("initials", "Return the initials of the words of a string.", lambda s: "".join(w[0] for w in s.split())),
    ("remove_vowels", "Return the string without vowels.", lambda s: "".join(c for c in s if c not in "aeiou")),
    ("last_word_length", "Return the length of the last word.", lambda s: len(s.split()[-1])),
)  # fmt: skip
NUMBERS: tuple[tuple[str, str, Callable[[int], object]], ...] = (
    ("factorial", "Return the factorial of n.", lambda n: _product(range(1, n + 1))),
    ("sum_of_digits", "Return the sum of the decimal digits of n.", lambda n: sum(map(int, str(n)))),
    ("is_perfect_square", "Return True if n is the square of an integer.", lambda n: round(n**0.5) ** 2 == n),
    ("divisors", "Return all positive divisors of n in ascending order.",
     lambda n: [d for d in range(1, n + 1) if n % d == 0]),
    ("to_binary", "Return the binary form of n as a string.", lambda n: f"{n:b}"),
    ("triangular", "Return the n-th triangular number.", lambda n: n * (n + 1) // 2),
    ("count_down", "Return a list of the numbers from n to 1.", lambda n: list(range(n, 0, -1))),
    ("collatz", "Return the Collatz sequence that begins with n.", lambda n: _collatz(n)),
    ("is_leap_year", "Return True if the year is a leap "
    "year.", lambda n: n % 4 == 0 and (n % 100 != 0 or n % 400 == 0)),
    ("multiplication_table", "Return the first five multiples of n.", lambda n: [n * i for i in range(1, 6)]),
    ("prime_factors", "Return the prime factors of n in ascending order.", lambda n: _factors(n)),
    ("fizz_buzz", "Return a list of the numbers up to n; multiples of 3 are 'Fizz'.",
     lambda n: ["Fizz" if i % 3 == 0 else i for i in range(1, n + 1)]),
)  # fmt: skip
WORDS = (
    "hello world python level racecar banana apple tree moon river letter noon open source data green summer".split()
)
LANGUAGES = "Python Python Python JavaScript Java C++ C Go Rust TypeScript Bash Ruby PHP SQL HTML".split()
TASKS = (
    "sort a list of names, read a CSV file and print the average of a column, reverse a linked list, find prime "
    "numbers, "
    "count the words in a text file, compute the Fibonacci sequence, implement a stack, implement binary search, "
    "check if two strings are anagrams, merge two sorted arrays, build a to-do list, convert Celsius to Fahrenheit, "
    "download a web page, parse JSON, validate an email address, generate a random password, play tic-tac-toe, "
    "find the largest number in an array, remove duplicates from a list, draw a bar chart, connect to a database, "
    "traverse a binary tree, implement quicksort, implement a queue with two stacks, compute a factorial with "
    "recursion, "
    "multiply two matrices, find the shortest path in a graph, count the lines of all files in a folder, "
    "show a countdown timer, encrypt a text with a Caesar cipher, rename all files in a directory, simulate rolling "
    "two dice"
).split(", ")
ASKED = (
    "Write a {language} program to {task}.", "How do I {task} in {language}?", "Write a function in {language} to "
    "{task}.",
    "Can you show me how to {task} using {language}? Explain the code.", "Give me {language} code to {task}, with "
    "comments.",
    "Implement a {language} program that can {task}. Include a test.", "I need to {task} in {language}. What is the "
    "best way?",
)  # fmt: skip


def write(random: Random) -> str:
    """Returns a request; three in four are functions to be completed."""
    which = random.random()
    if which < 0.25:
        return random.choice(ASKED).format(language=random.choice(LANGUAGES), task=random.choice(TASKS))
    if which < 0.6:
        return _of_a_list(random)
    return _of_a_text(random) if which < 0.8 else _of_a_number(random)


def _of_a_list(random: Random) -> str:
    chosen, result = random.choice(CHOSEN), random.choice(RESULTS)
    name = (
        f"{result.name}_{chosen.name}" if random.random() < 0.7 else f"{random.choice(('get', 'find'))}_{chosen.name}"
    )
    argument = random.choice(("numbers", "l", "lst", "nums", "values", "arr"))
    typed = random.choice((f"{argument}: list", argument, f"{argument}: List[int]"))
    drawn = [[random.randint(-9, 30) for _ in range(random.randint(3, 7))] for _ in range(random.randint(1, 3))]
    shown = [(repr(each), repr(result.does(chosen.does(each)))) for each in drawn]  # type: ignore[arg-type]
    said = random.choice(("Return {}.", "Given a list of integers, return {}.", "Write a function that returns {}."))
    return _stub(random, name, typed, said.format(f"{result.said} {chosen.said} of the list"), shown)


def _of_a_text(random: Random) -> str:
    name, said, does = random.choice(TEXTS)
    drawn = [" ".join(random.sample(WORDS, random.randint(1, 3))) for _ in range(random.randint(1, 3))]
    argument = random.choice(("s", "text", "string", "sentence"))
    shown = [(repr(each), repr(does(each))) for each in drawn]
    return _stub(random, name, random.choice((f"{argument}: str", argument)), said, shown)


def _of_a_number(random: Random) -> str:
    name, said, does = random.choice(NUMBERS)
    drawn = random.sample(range(1, 13), random.randint(1, 4))
    return _stub(random, name, random.choice(("n: int", "n")), said, [(str(each), repr(does(each))) for each in drawn])


def _stub(random: Random, name: str, arguments: str, said: str, shown: list[tuple[str, str]]) -> str:
    imports = "from typing import List\n" if "List" in arguments else ""
    arrow = random.choice(("", "", " -> " + _type_of(shown[0][1])))
    called = [f"    >>> {name}({given})\n    {result}" for given, result in shown]
    quote = random.choice(('"""', '"""', "'''"))
    space = random.choice(("", " "))
    doc = f"    {quote}{space}{said}\n" + "\n".join(called) + f"\n    {quote}"
    return STUB.format(imports=imports, head=f"{name}({arguments}){arrow}", doc=doc)


def _type_of(shown: str) -> str:
    return type(literal_eval(shown)).__name__


def _product(numbers: range) -> int:
    total = 1
    for number in numbers:
        total *= number
    return total


def _collatz(number: int) -> list[int]:
    found = [number]
    while found[-1] != 1:
        found.append(found[-1] // 2 if found[-1] % 2 == 0 else 3 * found[-1] + 1)
    return found


def _factors(number: int) -> list[int]:
    found, divisor = [], 2
    while number > 1:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return found
