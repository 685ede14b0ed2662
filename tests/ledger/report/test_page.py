"""The page of a run: well-formed, self-contained, readable without seeing colours, harmless whatever records hold."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.audit.charts import chart_run
from ledger.report.harmless import code_span
from ledger.report.markdown import run_markdown
from ledger.report.markup import element
from ledger.report.run_page import run_page
from ledger.report.scales import compact, round_numbers, scale_of
from ledger.report.style import CSS
from tests.ledger.audit.editing import edit, of_kind
from tests.ledger.audit.healthy import HEALTHY
from tests.ledger.report.reading import Page
from tests.support.long_log import SPIKE, SPIKE_AT, write_long_run

Run = Callable[[str], Path]
HOSTILE = "\x1b[31m</title><script>alert(1)</script>\u202e&lt;@team #1 `` ` http://x.example |\x9b\n# head"
STEERING = set("\x1b\x9b\u202e\u2066\u200b")


@pytest.mark.parametrize("name", HEALTHY)
def test_every_honest_run_has_a_page_that_is_whole_and_needs_nothing(name: str, healthy_run: Run):
    charts = chart_run(healthy_run(name))
    html = run_page(charts, name=name)
    page = Page(html)
    assert page.problems == []
    assert charts.verdict.verdict.upper() in page.texts
    assert run_page(chart_run(healthy_run(name)), name=name) == html
    headings = [int(tag[1]) for tag in page.tags if re.fullmatch("h[1-6]", tag)]
    assert headings[0] == 1
    assert headings.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(headings))


def test_the_page_tells_what_was_superseded_and_what_was_spent(healthy_run: Run):
    charts = chart_run(healthy_run("resumed"))
    page = Page(run_page(charts, name="resumed"))
    assert "training, superseded" in page.texts
    assert "superseded beyond step 3" in page.text
    assert "Spent is at least this" in page.text
    faint = [value for tag, name, value in page.attributes if name == "class" and "faint" in value]
    assert any(value.startswith("line c0 faint") for value in faint)
    assert not charts_differ(charts)


def charts_differ(charts: Any) -> bool:
    """Tell whether the account on the page is another than the verdict's."""
    page = Page(run_page(charts, name="run"))
    spent = charts.verdict.spent
    return str(spent.step) not in page.texts or str(spent.tokens_seen) not in page.texts


def test_every_picture_has_a_name_and_a_table_beside_it(healthy_run: Run):
    html = run_page(chart_run(healthy_run("resumed")), name="resumed")
    named = re.findall(r'role="img" aria-label="([^"]+)"', html)
    assert len(named) == html.count("<figure>") == html.count(" in numbers (in brackets: the step)</caption>")
    hidden = html.count('aria-hidden="true"')
    assert html.count("<svg") == 2 * len(named) + hidden - html.count('<b aria-hidden="true">')


def test_what_is_not_finite_is_marked_and_counted(copy_of: Run):
    run = copy_of("plain")
    edit(run, lambda events: of_kind(events, "train")[2].update(loss="NaN", loss_last="NaN"))
    page = Page(run_page(chart_run(run), name="run"))
    assert "FAILED" in page.texts
    assert "6, 1 not finite" in page.texts
    assert any("LG207" in text for text in page.texts)


def test_hostile_names_and_texts_come_out_harmless(copy_of: Run):
    run = copy_of("plain")

    def spoil(events: list[dict[str, Any]]) -> None:
        events[0]["run"]["name"] = HOSTILE
        for train in of_kind(events, "train"):
            train["memory"] = {HOSTILE + str(index): 1.0 for index in range(9)}
        events[-1]["reason"] = HOSTILE
        events[-1]["status"] = "stopped"

    edit(run, spoil)
    charts = chart_run(run)
    html = run_page(charts, name=HOSTILE)
    page = Page(html)
    assert page.problems == []
    assert not STEERING & set(html)
    assert "<script>alert(1)</script>" in page.text
    assert "\\x1b[31m</title>" in page.text
    assert "Not drawn, because there are many" in page.text
    markdown = run_markdown(charts, name=HOSTILE)
    assert not STEERING & set(markdown)
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", markdown)
    assert not re.search(r"@team|#1|http:|<script", outside)
    assert "\n# head" not in markdown


@given(st.text(alphabet=st.sampled_from("`ab|\\\n\r <@#\u202e\x1b"), max_size=30))
def test_nothing_ends_a_code_span(text: str):
    span = code_span(text)
    fence = re.match("`+", span)
    assert fence is not None
    size = len(fence.group())
    inside = span[size:-size]
    assert span.endswith(fence.group())
    assert size not in {len(run) for run in re.findall("`+", inside)}
    assert not inside.startswith("`")
    assert not inside.endswith("`")
    assert not set("\n\r|\u202e\x1b") & set(inside)


@given(st.text(max_size=20), st.text(alphabet="\"'<>& =/`\x00é", max_size=20))
def test_text_and_attributes_never_become_markup(text: str, value: str):
    page = Page(element("p", text, title=value))
    assert page.tags == ["p"]
    assert [name for _, name, _ in page.attributes] == ["title"]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=5), st.booleans())
def test_every_value_lies_on_its_axis_or_just_outside(values: list[float], from_zero: bool):
    scale = scale_of(values, from_zero=from_zero)
    assert scale.low < scale.high
    assert all(-1 <= scale.share(value) <= 2 for value in values)
    assert all(scale.low <= mark <= scale.high for mark in scale.marks(4))
    assert len(scale.marks(4)) <= 40


def test_the_numbers_beside_an_axis_are_round():
    assert round_numbers(0, 10, count=4) == [0, 5, 10]
    assert [compact(value) for value in (0.0001, 12, 1500, 2e6, 1e16)] == [
        "0.0001", "12", "1.5k", "2M", "1e+16"
    ]  # fmt: skip
    wide = scale_of([0.001, 10.0])
    assert wide.is_logarithmic
    assert wide.marks(4) == [0.01, 1.0]
    assert not scale_of([0.0, 1e6]).is_logarithmic


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_stand_out_from_the_paper(theme: str):
    blocks = re.findall(r":root\{([^}]*)\}", CSS)
    colours = dict(re.findall(r"--(\w+):(#[0-9a-f]+)", blocks[0 if theme == "light" else 1]))
    for name in ("ink", "soft", "good", "bad", "open"):
        assert contrast(colours[name], colours["paper"]) >= 4.5, name
    for name in ("c0", "c1", "c2", "c3", "c4", "c5", "lost", "soft"):
        assert contrast(colours[name], colours["fill"]) >= 3, name


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colours as WCAG 2 defines it."""
    bright, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[index : index + 2], 16) / 255 for index in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.slow
def test_a_long_run_makes_a_small_page_with_its_extremes(tmp_path: Path):
    write_long_run(tmp_path / "run", events=200_000)
    charts = chart_run(tmp_path / "run")
    html = run_page(charts, name="run")
    assert len(html.encode()) < 500_000
    assert Page(html).problems == []
    assert charts.loss.count == 200_000 - 200_000 // 997
    greatest = max(charts.loss.branch, key=lambda point: point.value)
    assert greatest.value == SPIKE
    assert greatest.microbatches == 2 * SPIKE_AT
    assert charts.skip_reasons == {"nonfinite_loss": 200}
    assert {found.rule for found in charts.verdict.findings if found.severity == "error"} == set()
