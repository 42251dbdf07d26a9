"""Files of chats: what is wrong is named, and the project's own are of every domain."""

from pathlib import Path

import pytest

from experiments.served.chats import FOLDER
from goodspeed.errors import PromptError
from training.chats import load
from training.smollm2.answers import MADE


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "it cannot be read"),
        ("\n", "there are no prompts; write one a line"),
        ('{"id": "1", "turns": ["a"]}\n{"id": 1, "turns": ["a"]}', "line 2: .*; write {"),
        ("what?", "line 1: .*; write {"),
        ('{"id": "1"}', "line 1: .*`turns`"),
        ('{"id": "1", "turns": []}', "line 1: the first of its turns is empty"),
        ('{"id": "1", "turns": ["a"], "answer": "b"}', "line 1: .*`answer`"),
    ],
)
@pytest.mark.parametrize("domains", [None, ["qa"]])
def test_a_wrong_file_is_named(tmp_path: Path, text: str | None, why: str, domains: list[str] | None) -> None:
    file = tmp_path / "qa.jsonl"
    if text is not None:
        file.write_text(text)
    with pytest.raises(PromptError, match=rf"qa\.jsonl.*{why}"):
        load(file if domains is None else tmp_path, domains)


def test_a_folder_without_files_has_no_prompts(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="there are no prompts; give a folder"):
        load(tmp_path)


def test_the_projects_prompts_are_of_eight_domains() -> None:
    found = load(FOLDER)
    assert len(found) == 8
    assert found.keys() == load(MADE).keys() - {"articles"}
    assert min(map(len, found.values())) >= 25
    everything = [chat for own in found.values() for chat in own]
    assert len({chat.turns for chat in everything}) == len({chat.id for chat in everything}) == len(everything)
