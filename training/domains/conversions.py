"""The `convert` domain: worked unit conversions and small tables."""

from random import Random

# (larger unit, smaller unit, how many of the smaller make one of the larger)
UNITS = [
    ("kilometres", "metres", 1000), ("metres", "centimetres", 100), ("centimetres", "millimetres", 10),
    ("kilograms", "grams", 1000), ("tonnes", "kilograms", 1000), ("litres", "millilitres", 1000),
    ("hours", "minutes", 60), ("minutes", "seconds", 60), ("days", "hours", 24), ("weeks", "days", 7),
    ("years", "months", 12), ("feet", "inches", 12), ("yards", "feet", 3), ("miles", "yards", 1760),
    ("pounds", "ounces", 16), ("gallons", "pints", 8), ("dozens", "pieces", 12), ("euros", "cents", 100),
    ("kilobytes", "bytes", 1024), ("decades", "years", 10),
]  # fmt: skip


def number(value: float) -> str:
    return f"{value:.10g}"


def down(rng: Random) -> str:
    large, small, factor = rng.choice(UNITS)
    value = rng.randint(2, 90)
    ask = rng.choice([f"Convert {value} {large} to {small}.", f"How many {small} are {value} {large}?"])
    rule = f"One of the {large} is {factor} {small}."
    return f"Q: {ask}\n{rule}\n{value} x {factor} = {value * factor}.\nA: {value * factor} {small}\n"


def up(rng: Random) -> str:
    large, small, factor = rng.choice(UNITS)
    value = rng.randint(2, 90)
    total = value * factor
    ask = rng.choice([f"Convert {total} {small} to {large}.", f"How many {large} are {total} {small}?"])
    rule = f"It takes {factor} {small} to make one of the {large}."
    return f"Q: {ask}\n{rule}\n{total} / {factor} = {value}.\nA: {value} {large}\n"


def mixed(rng: Random) -> str:
    large, small, factor = rng.choice(UNITS)
    whole, rest = rng.randint(1, 20), rng.randint(1, factor - 1)
    total = whole * factor + rest
    ask = f"Write {whole} {large} and {rest} {small} in {small}."
    return (
        f"Q: {ask}\n{whole} x {factor} = {whole * factor}.\n{whole * factor} + {rest} = {total}.\nA: {total} {small}\n"
    )


def temperature(rng: Random) -> str:
    celsius = rng.randint(-8, 24) * 5
    scaled = celsius * 9 // 5
    return (
        f"Q: Convert {celsius} degrees Celsius to Fahrenheit.\n{celsius} x 9 / 5 = {scaled}.\n"
        f"{scaled} + 32 = {scaled + 32}.\nA: {scaled + 32} degrees Fahrenheit\n"
    )


def table(rng: Random) -> str:
    large, small, factor = rng.choice(UNITS)
    start, step = rng.randint(1, 20), rng.choice([1, 2, 3, 5, 10])
    rows = [(start + step * i, (start + step * i) * factor) for i in range(rng.randint(5, 9))]
    if rng.random() < 0.3:
        large, small, rows = small, large, [(b, a) for a, b in rows]
    return f"| {large} | {small} |\n| --- | --- |\n" + "".join(f"| {number(a)} | {number(b)} |\n" for a, b in rows)


def document(rng: Random) -> str:
    """Five to ten worked conversions and tables, in any order."""
    parts = [
        rng.choices([down, up, mixed, temperature, table], [3, 2, 3, 1, 3])[0](rng) for _ in range(rng.randint(5, 10))
    ]
    return "\n".join(parts)
