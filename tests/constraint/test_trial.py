"""Trials in a process of their own: what is refused there, what ends it, and that nobody else notices."""

import json
import re
import signal
import subprocess
import sys
import threading

import pytest

from goodspeed.constraint import compiling
from goodspeed.constraint import trial as trials
from goodspeed.constraint.compiling import Constraints
from goodspeed.constraint.trial import KILLED, Trial
from goodspeed.engine.tokenizing.vocabulary import Vocabulary
from goodspeed.errors import ConstraintError, ProcessError
from goodspeed.wire.generation import Constraint
from tests.constraint.babbler import VOCABULARY

GOOD, WRONG = Constraint("regex", "[ab]{3}"), Constraint("regex", "a(")
SLOW = Constraint("json_schema", '{"type": "integer", "multipleOf": 999999}')


@pytest.fixture(scope="module")
def trial() -> Trial:
    return Trial(VOCABULARY)


def test_what_takes_too_long_ends_the_process_and_is_the_only_one_refused(trial: Trial) -> None:
    assert trial.problem(GOOD) is None
    process = trial._process
    found = dict[str, str | None]()

    def ask(constraint: Constraint) -> None:
        found[constraint.source] = trial.problem(constraint)

    threads = [threading.Thread(target=ask, args=[each]) for each in (SLOW, GOOD, WRONG)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[SLOW.source] == KILLED
    assert found[GOOD.source] is None
    assert "unclosed group" in str(found[WRONG.source])
    assert process.returncode in (-signal.SIGPROF, -signal.SIGABRT)  # by its own limits of processor time, or of memory


@pytest.mark.parametrize("told", ["", '"no'], ids=["nothing", "half an answer"])
def test_a_process_that_hangs_is_killed_by_the_clock(monkeypatch: pytest.MonkeyPatch, told: str) -> None:
    """Its own limit counts processor time, of which one that sleeps takes none."""
    program = "import sys, time; sys.stdin.readline(); print('true', flush=True)"
    program += f"; sys.stdin.readline(); print('{told}', end='', flush=True); time.sleep(3600)"
    monkeypatch.setattr(trials, "python_module", lambda _: [sys.executable, "-c", program])
    monkeypatch.setattr(trials, "ANSWER_S", 0.2)
    trial = Trial(VOCABULARY)
    assert trial.problem(GOOD) == KILLED


def test_a_process_that_cannot_be_started_is_told_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "python_module", lambda _: ["/nowhere/python"])
    told = r"does not start; check the node's limits .* \(No such file or directory\)"
    with pytest.raises(ProcessError, match=told):
        Trial(VOCABULARY).problem(GOOD)
    assert re.search(told, str(Constraints(VOCABULARY, Trial(VOCABULARY)).compiled(GOOD)))


def test_memory_is_bounded() -> None:
    """The worker's own limit: what allocates more than it ends with an error, and not with the machine's memory."""
    program = (
        "from goodspeed.constraint import worker; worker._limit_memory()\n"
        "try: bytearray(2 * worker.MEMORY_BYTES)\n"
        "except MemoryError: print('bounded')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == ("bounded\n" if sys.platform == "linux" else "")


def test_no_process_before_the_first_constraint_and_none_after_the_end() -> None:
    trial = Trial(VOCABULARY)
    assert trial._process is None
    trial.problem(GOOD)
    process = trial._process
    assert process is not None
    del trial
    assert process.returncode is not None


def test_a_process_that_ended_between_two_trials_costs_no_constraint_its_trial(trial: Trial) -> None:
    trial.problem(GOOD)
    process = trial._process
    process.kill()
    process.wait()
    assert trial.problem(GOOD) is None


def test_the_process_has_no_model_in_it() -> None:
    program = "import sys, goodspeed.constraint.worker; print({'torch', 'transformers', 'zmq'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_what_does_not_pass_is_not_compiled_here(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    constraints = Constraints(VOCABULARY, trial)
    monkeypatch.setattr(constraints, "get", None)
    assert str(constraints.compiled(SLOW)) == KILLED
    assert constraints.tried(GOOD) is None
    assert isinstance(constraints.compiled(WRONG), ConstraintError)


def test_sources_of_any_characters_pass_the_pipe(trial: Trial) -> None:
    assert trial.problem(Constraint("choice", json.dumps(["é\n\u2028", "\x00"], ensure_ascii=False))) is None
    assert "cannot be read" in str(trial.problem(Constraint("json_schema", '{"const": "\ud800"}')))


def test_the_process_may_start_beside_the_caller_and_starts_once() -> None:
    trial = Trial(VOCABULARY)
    trial.start()
    trial.start()
    assert trial.problem(GOOD) is None
    process = trial._process
    assert trial.problem(WRONG) is not None
    assert trial._process is process


def test_a_tokenizer_that_cannot_be_read_is_told_of_at_the_first_constraint() -> None:
    trial = Trial(Vocabulary(name="x", tokenizer=object(), tokenizer_fingerprint="", eos_ids=(0,), num_tokens=1 << 20))
    constraints = Constraints(trial._vocabulary, trial)
    constraints.prepare()
    assert "fast tokenizer" in str(constraints.compiled(GOOD))


@pytest.mark.parametrize("is_large", [False, True])
def test_a_large_vocabulary_is_read_before_the_first_constraint(is_large, monkeypatch) -> None:
    started = list[Trial]()
    monkeypatch.setattr(Trial, "start", lambda trial: started.append(trial))
    monkeypatch.setattr(compiling, "MAX_QUICK_TOKENS", VOCABULARY.num_tokens - is_large)
    constraints = Constraints(VOCABULARY, Trial(VOCABULARY))
    constraints.prepare()
    assert (len(started), constraints._table is not None) == (is_large, is_large)
