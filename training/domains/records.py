"""The `json` domain: lists of records with one schema per document."""

import json
from collections.abc import Callable
from random import Random

FIRST = (
    "Ana Ben Carla David Elif Farid Gina Hans Iris Jorge Kaya Liam Mina Noah Olga Pavel Quinn Rita Samir Tara".split()
)
LAST = "Silva Novak Khan Moreau Jensen Rossi Tanaka Okafor Weber Costa Lindgren Petrov Nguyen Haddad Murphy".split()
CITIES = "Porto Bergen Lyon Genoa Osaka Lagos Zagreb Quito Tampere Ghent Graz Cork Perth Izmir Hanoi Bilbao".split()
COUNTRIES = "Portugal Norway France Italy Japan Nigeria Croatia Ecuador Finland Belgium Austria Ireland".split()
TAGS = "new sale urgent fragile organic archived verified public internal draft popular seasonal".split()
ITEMS = "lamp chair kettle backpack keyboard notebook bicycle jacket camera blender tent clock scarf drill".split()

Value = object
Field = Callable[[Random], Value]


def name(rng: Random) -> str:
    return f"{rng.choice(FIRST)} {rng.choice(LAST)}"


def date(rng: Random) -> str:
    return f"{rng.randint(2012, 2025)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


def email(rng: Random) -> str:
    return (
        f"{rng.choice(FIRST)}.{rng.choice(LAST)}@{rng.choice(['example.com', 'mail.example', 'example.org'])}".lower()
    )


def address(rng: Random) -> dict[str, Value]:
    street = f"{rng.randint(1, 150)} {rng.choice(['Mill', 'Park', 'Station', 'Church', 'Lake', 'King'])} Street"
    return {"street": street, "city": rng.choice(CITIES), "country": rng.choice(COUNTRIES)}


def tags(rng: Random) -> list[str]:
    return rng.sample(TAGS, rng.randint(1, 3))


FIELDS: dict[str, Field] = {
    "age": lambda rng: rng.randint(18, 80),
    "email": email,
    "address": address,
    "tags": tags,
    "active": lambda rng: rng.random() < 0.7,
    "score": lambda rng: rng.randint(0, 100) / 10,
    "created": date,
    "city": lambda rng: rng.choice(CITIES),
    "item": lambda rng: rng.choice(ITEMS),
    "price": lambda rng: rng.randint(100, 9999) / 100,
    "quantity": lambda rng: rng.randint(1, 40),
    "phone": lambda rng: f"+{rng.randint(30, 49)} {rng.randint(100, 999)} {rng.randint(1000, 9999)}",
    "parent": lambda rng: rng.choice([None, rng.randint(1, 500)]),
    "language": lambda rng: rng.choice(["en", "de", "fr", "pt", "ja", "it"]),
}


def document(rng: Random) -> str:
    """A collection of three to seven records; consecutive ids, the same fields in the same order."""
    fields = rng.sample(list(FIELDS), rng.randint(3, 6))
    first_id = rng.randint(1, 900)
    records: list[dict[str, Value]] = []
    for offset in range(rng.randint(3, 7)):
        record: dict[str, Value] = {"id": first_id + offset, "name": name(rng)}
        records.append(record | {field: FIELDS[field](rng) for field in fields})
    kind = rng.choice(["users", "customers", "members", "contacts", "orders", "entries"])
    return json.dumps({"kind": kind, "count": len(records), kind: records}, indent=2) + "\n"
