"""A history's file follows the history, and a disk that takes nothing costs no text."""

import asyncio
import os

import pytest

from draft_node.process import histories
from draft_node.process.histories import HistoryKeeper
from goodspeed.errors import ConfigError
from goodspeed.files import remove_abandoned
from goodspeed.ngram import history_file
from goodspeed.ngram.history import History
from tests.draft_node.test_daemon_stops import make_daemon, stop
from tests.memory_network import MemoryNetwork
from tests.waiting import run_async

TEXT = range(20)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history"


def make_keeper(path, told=None):
    history = History(1000, per_user=True, tokenizer="t")
    history.load(path)
    told = [] if told is None else told
    return history, HistoryKeeper(history, str(path), lambda what, *values: told.append(what % values))


def num_saved(path):
    return History(1000, per_user=True, tokenizer="t").load(path)


def test_what_changed_is_saved_and_nothing_else(path):
    history, keeper = make_keeper(path)
    asyncio.run(keeper.save())
    keeper.save_last()
    assert not path.exists()
    history.add("ana", TEXT)
    asyncio.run(keeper.save())
    assert num_saved(path) == 1
    path.unlink()
    asyncio.run(keeper.save())
    keeper.save_last()
    assert not path.exists()
    history.add("ana", TEXT)
    keeper.save_last()
    assert num_saved(path) == 2


def test_what_was_loaded_is_not_written_again(path):
    history, keeper = make_keeper(path)
    history.add("ana", TEXT)
    keeper.save_last()
    _, keeper = make_keeper(path)
    path.unlink()
    keeper.save_last()
    assert not path.exists()


def test_an_older_write_does_not_replace_a_newer_one(path):
    history, keeper = make_keeper(path)
    history.add("ana", TEXT)
    older = (history.num_added, history.contents())
    history.add("ben", TEXT)
    keeper.save_last()
    keeper._write(*older)
    assert num_saved(path) == 2


def test_a_disk_that_takes_nothing_is_told_of_once_and_tried_again(path, monkeypatch):
    told: list[str] = []
    history, keeper = make_keeper(path, told)

    def full(*_):
        raise OSError(28, os.strerror(28))

    history.add("ana", TEXT)
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", full)
        asyncio.run(keeper.save())
        asyncio.run(keeper.save())
        keeper.save_last()
    assert told == [
        f"cannot write the history file {path}: No space left on device; give another path; "
        "until then texts are kept in memory only"
    ]
    asyncio.run(keeper.save())
    assert num_saved(path) == 1
    history.add("ana", TEXT)
    monkeypatch.setattr(os, "fsync", full)
    keeper.save_last()
    assert len(told) == 2


@run_async
async def test_a_node_saves_now_and_then_and_when_it_stops(path, monkeypatch):
    monkeypatch.setattr(histories, "SAVE_S", 0.0)
    history, keeper = make_keeper(path)
    saved = asyncio.Event()
    loop = asyncio.get_running_loop()
    write = history_file.write

    def tell(*what):
        write(*what)
        loop.call_soon_threadsafe(saved.set)

    monkeypatch.setattr(history_file, "write", tell)
    serving = asyncio.create_task(make_daemon(MemoryNetwork(), keeper).serve())
    history.add("ana", TEXT)
    await saved.wait()
    assert num_saved(path) == 1
    monkeypatch.setattr(HistoryKeeper, "save", lambda _: asyncio.sleep(0))
    history.add("ana", TEXT)
    await stop(serving)
    assert num_saved(path) == 2


def test_a_file_is_held_until_the_last_texts_are_saved(path, monkeypatch):
    held = histories.hold(str(path))
    link = path.with_name("link")
    link.symlink_to(path)
    history, _ = make_keeper(path)
    keeper = HistoryKeeper(history, str(path), print, held)
    write = history_file.write

    def write_held(*what):
        for name in (path, link):
            with pytest.raises(ConfigError, match="another draft node uses it; give each node a file of its own"):
                histories.hold(str(name))
        write(*what)

    monkeypatch.setattr(history_file, "write", write_held)
    history.add("ana", TEXT)
    asyncio.run(keeper.save())
    history.add("ana", TEXT)
    keeper.save_last()
    assert not path.with_name("history.lock").exists()
    histories.hold(str(path)).release()
    assert num_saved(path) == 2


def test_what_killed_processes_left_is_removed_and_nothing_else(path):
    abandoned = path.with_name(".history.0123456789abcdef")
    others = {path.with_name(name) for name in (".history.0123456789abcdefg", ".history.2.0123456789abcdef")}
    for one in (abandoned, *others):
        one.touch()
    remove_abandoned(path)
    assert set(path.parent.iterdir()) == others
