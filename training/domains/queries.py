"""The `sql` domain: a schema, then questions and the queries that answer them."""

from random import Random

NOUNS = (
    "orders customers products invoices employees flights hotels books students courses suppliers shipments payments "
    "tickets stations rentals players matches sensors readings recipes patients visits projects tasks cities rooms"
).split()
TEXT = "name city country status category colour title code region level kind owner".split()
NUMBERS = "price total amount quantity age weight rating distance duration score size capacity".split()
DATES = "created_at updated_at shipped_on due_on started_at paid_on".split()
VALUES = {
    "status": "open closed pending late paid",
    "colour": "red blue green black white",
    "category": "food toys tools music sport",
    "city": "Lisbon Oslo Turin Lima Kyoto",
    "country": "Peru Japan Norway Italy Chile",
    "region": "north south east west",
    "level": "low middle high",
    "kind": "small large special standard",
    "owner": "maria tomas yuki ahmed",
}
AGGREGATES = {"AVG": "average", "SUM": "sum of the", "MAX": "highest", "MIN": "lowest"}


def schema(rng: Random, table: str, parent: str | None) -> tuple[str, list[str], list[str], str]:
    """(the CREATE statement, text columns, number columns, date column) of a random table."""
    text, numbers, date = rng.sample(TEXT, rng.randint(2, 3)), rng.sample(NUMBERS, rng.randint(2, 3)), rng.choice(DATES)
    columns = [f"{c} TEXT" for c in text] + [f"{c} REAL" for c in numbers] + [f"{date} DATE"]
    rng.shuffle(columns)
    key = [f"{parent[:-1]}_id INTEGER REFERENCES {parent}(id)"] if parent else []
    lines = ",\n".join(f"    {c}" for c in ["id INTEGER PRIMARY KEY", *key, *columns])
    return f"CREATE TABLE {table} (\n{lines}\n);\n", text, numbers, date


def literal(rng: Random, column: str) -> str:
    return rng.choice(VALUES.get(column, "alpha beta gamma delta").split())


def condition(rng: Random, text: list[str], numbers: list[str], date: str) -> tuple[str, str]:
    """(in words, in SQL)"""
    choice, number, value = rng.random(), rng.choice(numbers), rng.randint(1, 40) * 5
    if choice < 0.4:
        word, sign = rng.choice([("above", ">"), ("below", "<"), ("of at least", ">="), ("of at most", "<=")])
        return f"with a {number} {word} {value}", f"{number} {sign} {value}"
    if choice < 0.8:
        column = rng.choice(text)
        value_text = literal(rng, column)
        return f"whose {column} is {value_text}", f"{column} = '{value_text}'"
    year = rng.randint(2005, 2025)
    return f"with {date} after {year}", f"{date} > '{year}-12-31'"


def question(rng: Random, table: str, text: list[str], numbers: list[str], date: str) -> tuple[str, str]:
    words, where = condition(rng, text, numbers, date)
    column, number, kind = rng.choice(text), rng.choice(numbers), rng.randrange(6)
    if kind == 0:
        return f"How many {table} {words} are there?", f"SELECT COUNT(*) FROM {table} WHERE {where};"
    if kind == 1:
        return f"List the {column} of all {table} {words}.", f"SELECT {column} FROM {table} WHERE {where};"
    if kind == 2:
        call = rng.choice(list(AGGREGATES))
        ask = f"What is the {AGGREGATES[call]} {number} of {table} {words}?"
        return ask, f"SELECT {call}({number}) FROM {table} WHERE {where};"
    if kind == 3:
        ask = f"Count the {table} for each {column}."
        return ask, f"SELECT {column}, COUNT(*) FROM {table} GROUP BY {column};"
    if kind == 4:
        top = rng.randint(3, 20)
        ask = f"Show the {top} {table} with the largest {number}."
        return ask, f"SELECT * FROM {table} ORDER BY {number} DESC LIMIT {top};"
    words_2, where_2 = condition(rng, text, numbers, date)
    return f"Which {table} are {words} and {words_2}?", f"SELECT * FROM {table} WHERE {where} AND {where_2};"


def join(rng: Random, table: str, parent: str, parent_text: list[str], numbers: list[str]) -> tuple[str, str]:
    column, number = rng.choice(parent_text), rng.choice(numbers)
    ask = f"Give the total {number} of {table} for each {column} of {parent}."
    selected, on = f"{parent}.{column}, SUM({table}.{number})", f"{table}.{parent[:-1]}_id = {parent}.id"
    return (
        ask,
        f"SELECT {selected} FROM {table}\nJOIN {parent} ON {on} GROUP BY {parent}.{column};",
    )


def document(rng: Random) -> str:
    """Two related tables and five to nine questions, each with its query."""
    parent, table = rng.sample([n for n in NOUNS if not n.endswith("ies")], 2)
    parent_sql, parent_text, parent_numbers, parent_date = schema(rng, parent, None)
    table_sql, text, numbers, date = schema(rng, table, parent)
    parts = [parent_sql + table_sql]
    for _ in range(rng.randint(5, 9)):
        pick = rng.random()
        if pick < 0.2:
            ask, sql = join(rng, table, parent, parent_text, numbers)
        elif pick < 0.65:
            ask, sql = question(rng, table, text, numbers, date)
        else:
            ask, sql = question(rng, parent, parent_text, parent_numbers, parent_date)
        parts.append(f"-- {ask}\n{sql}\n")
    return "\n".join(parts)
