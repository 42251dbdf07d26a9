"""The text: deterministic, of its domain, split by name; no shipped prompt occurs in the training text."""

import json
from collections import Counter

import pytest

from goodspeed.embedded import prompts
from training import corpus, domains, held_out
from training.domains import Document


@pytest.fixture(scope="module")
def training_text() -> str:
    return held_out.training_text()


@pytest.mark.thorough
def test_no_shipped_prompt_occurs_in_the_training_text(training_text: str) -> None:
    assert len(training_text) > 30_000_000
    assert [p.seed for p in prompts.load() if p.prompt in training_text] == []


@pytest.mark.thorough
def test_training_text_is_what_would_be_searched(training_text: str) -> None:
    """The control: the opening of a document that was trained on is found."""
    assert all(domains.take(name, 1, held_out=False)[0].text in training_text for name in domains.NAMES)


def test_documents_that_say_a_prompt_are_not_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = next(one.prompt for one in prompts.load() if one.domain == "math")
    texts = ["Problem 1: ...", f"Before. {prompt} After.", "Problem 2: ..."]
    taken = [Document(f"math/{number}", text) for number, text in enumerate(texts)]
    monkeypatch.setattr(domains, "take", lambda *given, **named: taken)
    assert corpus.training_documents("math") == [taken[0], taken[2]]


def test_prompts_show_every_domain_in_order() -> None:
    shipped = prompts.load()
    assert [p.domain for p in shipped] == [domains.NAMES[i % 8] for i in range(len(shipped))]
    assert Counter(p.domain for p in shipped) == dict.fromkeys(domains.NAMES, held_out.PER_DOMAIN)
    assert len({p.prompt for p in shipped}) == len(shipped)
    assert [p.domain for p in prompts.demo()] == list(domains.NAMES)


@pytest.mark.thorough
@pytest.mark.parametrize("domain", domains.NAMES)
def test_documents_are_deterministic_and_differ(domain: str) -> None:
    first, again = domains.take(domain, 20_000, held_out=False), domains.take(domain, 20_000, held_out=False)
    assert first == again
    assert len({doc.text for doc in first}) == len(first)


@pytest.mark.parametrize("domain", domains.NAMES)
def test_split_is_by_name(domain: str) -> None:
    def names(held_out: bool) -> set[str]:
        return {doc.name for doc in domains.take(domain, 200_000, held_out)}

    assert names(True)
    assert not names(True) & names(False)


def test_a_module_is_held_out_of_code_and_docs_alike() -> None:
    held_out = {doc.name for domain in domains.SOURCES for doc in domains.take(domain, 10**7, held_out=True)}
    assert {"code/bz2", "docs/bz2"} <= held_out
    trained = {doc.name for domain in domains.SOURCES for doc in domains.take(domain, 10**7, held_out=False)}
    assert {"code/ast", "docs/ast"} <= trained


def answers_are_right(doc: Document) -> int:
    """Number of sums in a document; every one is checked."""
    num_sums = 0
    for line in doc.text.splitlines():
        if line.startswith("Working: "):
            for claim in line.removeprefix("Working: ").rstrip(".").split(". "):
                left, right = claim.split(" = ")
                first, sign, second = left.split()
                results = {"+": int(first) + int(second), "-": int(first) - int(second), "x": int(first) * int(second)}
                assert results[sign] == int(right) >= 0, claim
                num_sums += 1
    return num_sums


def test_arithmetic_is_right() -> None:
    assert sum(answers_are_right(doc) for doc in domains.take("math", 300_000, held_out=False)) > 1000


def test_records_are_json() -> None:
    for doc in domains.take("json", 50_000, held_out=False):
        parsed = json.loads(doc.text)
        assert parsed["count"] == len(parsed[parsed["kind"]])


def test_prompts_are_what_the_recipe_chooses_for_generated_domains() -> None:
    """Generated text is the same on every Python version, so its prompts can be made again."""
    for domain in domains.GENERATORS:
        openings = held_out.openings(domain)
        shipped = [p.prompt for p in prompts.load() if p.domain == domain]
        candidates = [next(openings) for _ in range(2 * len(shipped))]
        assert set(shipped) <= set(candidates)
