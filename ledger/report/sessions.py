"""The sessions of a run as a timeline: each a line of text and a bar from its first step to its last."""

from __future__ import annotations

from typing import Any, Final

from ledger.records.documents import Verdict
from ledger.report.harmless import SHORT, clipped
from ledger.report.lines import number, seconds
from ledger.report.markup import Markup, element

__all__ = ["sessions_section"]

SHOWN_FIRST: Final = 10
SHOWN_LAST: Final = 30
HEIGHT: Final = 14


def sessions_section(verdict: Verdict, *, last_step: int) -> Markup:
    """Return the timeline. What was superseded is an open, dashed bar; the text says the same."""
    sessions: list[dict[str, Any]] = verdict.account.get("sessions") or []
    hidden = max(0, len(sessions) - SHOWN_FIRST - SHOWN_LAST)
    first = sessions[:SHOWN_FIRST] if hidden else sessions
    items = [_session(session, last_step=last_step) for session in first]
    if hidden:
        items.append(element("li", f"… {number(hidden)} sessions are not shown …", class_="soft"))
        items += [_session(session, last_step=last_step) for session in sessions[-SHOWN_LAST:]]
    said = "A filled bar lies on the current branch; a dashed, open one was superseded."
    return element(
        "section",
        element("h2", "Sessions"),
        element("p", said if items else "The log tells of none.", class_="soft"),
        element("ol", *items, class_="sessions"),
    )


def _session(session: dict[str, Any], *, last_step: int) -> Markup:
    first, last, kept = session["first_step"], session["last_step"], session["on_branch_up_to_step"]
    origin = f" from {clipped(session['parent'], longest=SHORT)}" if session["parent"] else ""
    said = [
        element("b", f"{session['session']}"),
        f" {session['start']}{origin}: step {number(first)} to {number(last)}, {session['status']}, ",
        f"{number(session['work']['tokens_seen'])} tokens in {seconds(session['elapsed_seconds'])}",
        _fate(last, kept),
        element("span", f" Started {session['started'][:19].replace('T', ' ')} UTC.", class_="soft"),
    ]
    return element("li", *said, _bar(first, last, first if kept is None else min(kept, last), last_step))


def _fate(last: int, kept: int | None) -> str:
    if kept is None:
        return "; superseded."
    return "." if kept >= last else f"; superseded beyond step {number(kept)}."


def _bar(first: int, last: int, kept: int, last_step: int) -> Markup:
    whole = max(1, last_step)
    bars = [element("rect", x=0, y=0, width="100%", height=HEIGHT, rx=3, class_="track")]
    for start, end, style in ((first, kept, "kept"), (kept, last, "lost")):
        if end > start:
            bars.append(
                element(
                    "rect",
                    x=f"{100 * start / whole:.2f}%",
                    y=1,
                    width=f"{100 * (end - start) / whole:.2f}%",
                    height=HEIGHT - 2,
                    class_=style,
                )
            )
    return element("svg", *bars, width="100%", height=HEIGHT, aria_hidden="true")
