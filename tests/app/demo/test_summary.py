"""The comparison of runs with drafts and without, by hand."""

import math
import re
from typing import Any

import pytest

from goodspeed.app.demo import summary
from goodspeed.app.demo.answers import ALONE
from goodspeed.app.demo.options import DemoConfig
from tests.app.demo import made


def summarized(alone_s: float, drafts_s: float) -> dict[str, Any]:
    return summary.summarize(DemoConfig(), made.runs(alone_s, drafts_s))


def test_what_runs_come_to() -> None:
    result = summarized(alone_s=8.0, drafts_s=4.0)
    math_, sql = result["clients"]
    assert [math_[name] for name in ("domain", "draft_node", "num_tokens", "num_rounds")] == ["math", "draft-1", 10, 5]
    assert (math_["goodput"], sql["goodput"]) == (2.0, 1.0)
    assert math_["draft_acceptance_rate"] == 5 / 8
    # medians of two runs, at 4 and 12 s, and of two at 8 and 24 s
    assert math_["tokens_per_s"] == pytest.approx((10 / 4 + 10 / 12) / 2)
    assert math_["alone_tokens_per_s"] == pytest.approx((10 / 8 + 10 / 24) / 2)
    assert result["tokens_per_s"] == pytest.approx((30 / 8 + 30 / 24) / 2)
    assert result["alone"]["tokens_per_s"] == pytest.approx(result["tokens_per_s"] / 2)
    assert result["alone"]["speedup"] == pytest.approx(2.0)
    assert result["num_tokens"] == 30
    assert result["log_utility"] == pytest.approx(math.log(2.0))
    assert result["jain"] == pytest.approx(3**2 / (2 * 5))
    assert result["drafted_by"] == {"model": 12, "ngram": 4, "self": 0}
    assert result["accepted_by"] == {"model": 8, "ngram": 2, "self": 0}


def test_the_factor_is_the_texts_mean_not_that_of_the_sums() -> None:
    runs = made.runs(alone_s=8.0, drafts_s=8.0)
    for run in runs:
        if run.way == ALONE:
            run.answers[0].elapsed_s *= 4
    result = summary.summarize(DemoConfig(), runs)
    assert result["alone"]["speedup"] == pytest.approx(2.0)  # 4 and 1
    assert re.match("With drafts 2.00 times as fast .* all together 1.00 times", summary.closing(result))


def test_the_closing_line_says_what_drafts_brought_and_whether_the_texts_are_the_targets() -> None:
    assert summary.closing(summarized(alone_s=8.0, drafts_s=4.0)) == (
        "With drafts 2.00 times as fast as the same target alone in the same run (geometric mean of 2 at once), all "
        "together 2.00 times (2 and 1 tokens/s). All texts are token for token the target's own."
    )
    slower = summary.closing(summarized(alone_s=4.0, drafts_s=5.0))
    assert re.match("With drafts 0.80 times as fast as .*; drafting does not pay here. All texts are", slower)
    equal = summary.closing(summarized(alone_s=4.0, drafts_s=4.01))
    assert equal.startswith("With drafts 1.00 times")
    assert "does not pay" not in equal


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_text_that_differs_in_any_run_is_told(number: int) -> None:
    runs = made.runs(alone_s=8.0, drafts_s=4.0)
    runs[number].answers[1].token_ids[7] = 99
    result = summary.summarize(DemoConfig(), runs)
    assert [one["is_different"] for one in result["clients"]] == [False, True]
    assert summary.closing(result).endswith(". 1 of 2 texts differ between the runs.")
    paper = summary.summarize(DemoConfig(preset="paper"), runs)
    assert summary.closing(paper).endswith(" differ between the runs, as the preset's rule draws them anew.")


def test_an_answer_without_a_token_counts_for_no_rate() -> None:
    runs = made.runs(alone_s=8.0, drafts_s=4.0)
    for run in runs:
        run.answers[0].token_ids, run.answers[0].elapsed_s, run.answers[0].counts["rounds"] = [], 0.0, 0
    result = summary.summarize(DemoConfig(), runs)
    assert result["alone"]["speedup"] == pytest.approx(2.0)
    assert (result["jain"], result["log_utility"]) == (1.0, 0.0)
    assert "math " in summary.to_text(result)


def test_the_table_has_a_line_for_each_question_and_explains_its_columns() -> None:
    text = summary.to_text(summarized(alone_s=8.0, drafts_s=4.0))
    heading, first, second, *rest = text.splitlines()
    assert heading.split() == "question draft node tokens rounds accepted goodput tokens/s alone times".split()
    assert first.split() == "math draft-1 small 10 5 0.62 2.00 1.7 0.8 2.00".split()
    assert second.split() == "sql draft-1 small 20 20 0.62 1.00 1.7 0.8 2.00".split()
    assert "accepted of drafted tokens: model 8 of 12, ngram 2 of 4, self 0 of 0; Jain index" in text
    for name in ("rounds", "accepted", "goodput", "alone", "Jain index", "log-utility"):
        assert f"{name}: " in text
    assert rest[-1].startswith("With drafts 2.00 times")
