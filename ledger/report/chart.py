"""Line charts as inline SVG that keep their text readable at any width.

The curves lie in a picture that stretches with the page, their strokes do not; marks of the axes are placed in
per cent. A chart says in a table what its curves show, so nothing depends on seeing it, nor on telling colours apart:
superseded work is dashed and grey, and each curve has a dash pattern of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ledger.audit.charts import Measured
from ledger.audit.series import Point
from ledger.report.harmless import SHORT, clipped
from ledger.report.lines import number
from ledger.report.markup import Markup, element, table_of
from ledger.report.scales import Scale, compact, scale_of

__all__ = ["Chart", "Curve", "curve_of"]

WIDTH: Final = 2000
HEIGHT: Final = 1000
"""Units of the stretched picture; a point is drawn to the nearest."""
TOP: Final = 14
BODY: Final = 176
"""Pixels above the curves and of the curves."""

Place = tuple[float, float]
"""Step and value."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One measurement as it is drawn."""

    label: str
    lines: list[list[Place]]
    faint: list[list[Place]] = field(default_factory=list)
    """What was superseded."""
    nonfinite: list[float] = field(default_factory=list)
    """Steps at which it was not finite."""
    measured: Measured | None = None
    """What the table says of it; null for a line that is no measurement."""
    style: int = 0
    is_dots: bool = False

    @property
    def places(self) -> list[Place]:
        """Everything that is drawn."""
        return [place for line in (*self.lines, *self.faint) for place in line]


def curve_of(measured: Measured, *, style: int = 0, is_dots: bool = False, label: str | None = None) -> Curve:
    """Return a measurement's curve: the branch in one line, each superseded piece from where it left the branch."""
    ends = {piece.session: piece.points[-1] for piece in measured.pieces if piece.on_branch}
    faint = []
    for piece in measured.superseded:
        left = [] if is_dots or piece.session not in ends else [ends[piece.session]]
        faint.append(_places([*left, *piece.points]))
    branch = _places(measured.branch)
    return Curve(
        label=clipped(measured.name, longest=SHORT) if label is None else label,
        lines=[branch] if branch else [],
        faint=faint,
        nonfinite=[point.step for piece in measured.nonfinite for point in piece.points],
        measured=measured,
        style=style,
        is_dots=is_dots,
    )


def _places(points: Iterable[Point]) -> list[Place]:
    return [(point.step, point.value) for point in points]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Curves over the step, with a title, a sentence on what is shown and a table of the same."""

    title: str
    unit: str
    curves: list[Curve]
    note: str = ""
    last_step: float = 0
    from_zero: bool = False
    may_be_logarithmic: bool = True
    level: int = 3
    """Of its heading."""

    def render(self) -> Markup:
        """Return the chart as a figure."""
        places = [place for curve in self.curves for place in curve.places]
        heading = element(f"h{self.level}", self.title)
        if not places and not any(curve.nonfinite for curve in self.curves):
            return element("section", heading, element("p", "Nothing of it was measured.", class_="none"))
        across = Scale(low=0.0, high=max([1.0, self.last_step, *(step for step, _ in places)]))
        up = scale_of(
            (value for _, value in places),
            from_zero=self.from_zero,
            may_be_logarithmic=self.may_be_logarithmic,
        )
        how = f"{self.unit} over the step" + (", logarithmic scale" if up.is_logarithmic else "")
        caption = element("figcaption", element("p", f"{how}. {self.note}".strip()), self._legend())
        picture = self._picture(across, up, label=f"{self.title}: {how}; the table below says the same")
        figure = element("figure", caption, picture)
        return element("section", heading, figure, self._table(), class_="chart")

    def _legend(self) -> Markup:
        items = [
            _key(curve.label, f"c{curve.style}", is_dots=curve.is_dots)
            for curve in self.curves
            if curve.lines
        ]
        if any(curve.faint for curve in self.curves):
            items.append(_key("superseded", "c0 faint", is_dots=False))
        if any(curve.nonfinite for curve in self.curves):
            items.append(element("li", element("b", "×", aria_hidden="true"), " not finite"))
        return element("ul", *items, class_="legend")

    def _picture(self, across: Scale, up: Scale, *, label: str) -> Markup:
        rows = [(mark, TOP + BODY * (1 - up.share(mark))) for mark in up.marks(4)]
        grid = [
            element("line", x1=0, x2="100%", y1=f"{y:.1f}", y2=f"{y:.1f}", class_="grid") for _, y in rows
        ]
        bottom = TOP + BODY
        grid.append(element("line", x1=0, x2="100%", y1=bottom, y2=bottom, class_="axis"))
        paths = [path for curve in self.curves for path in _paths(curve, across, up)]
        body = element(
            "svg",
            *paths,
            x=0,
            y=TOP,
            width="100%",
            height=BODY,
            viewBox=f"0 0 {WIDTH} {HEIGHT}",
            preserveAspectRatio="none",
        )
        names = [element("text", compact(mark), x=2, y=f"{y - 3:.1f}", class_="mark") for mark, y in rows]
        names += [_mark_below(mark, across.share(mark), y=bottom + 16) for mark in across.marks(4)]
        crosses = [_cross(across.share(step)) for curve in self.curves for step in curve.nonfinite]
        return element(
            "svg", *grid, body, *crosses, *names,
            class_="plot", width="100%", height=bottom + 24, role="img", aria_label=label,
        )  # fmt: skip

    def _table(self) -> Markup:
        rows = []
        for curve in self.curves:
            if curve.measured is None:
                continue
            rows.append([curve.label, *_summary(curve.measured.branch), _counted(curve.measured)])
            lost = [point for piece in curve.measured.superseded for point in piece.points]
            if lost:
                rows.append([f"{curve.label}, superseded", *_summary(lost), ""])
        head = ["", "first", "last", "least", "greatest", "number"]
        return (
            table_of(head, rows, caption=f"{self.title} in numbers (in brackets: the step)")
            if rows
            else Markup("")
        )


def _summary(points: Sequence[Point]) -> list[str]:
    if not points:
        return ["-", "-", "-", "-"]
    least = min(points, key=lambda point: point.value)
    greatest = max(points, key=lambda point: point.value)
    return [
        number(points[0].value),
        number(points[-1].value),
        f"{number(least.value)} ({number(least.step)})",
        f"{number(greatest.value)} ({number(greatest.step)})",
    ]


def _counted(measured: Measured) -> str:
    others = f", {number(measured.nonfinite_count)} not finite" if measured.nonfinite_count else ""
    return number(measured.count + measured.nonfinite_count) + others


def _key(label: str, style: str, *, is_dots: bool) -> Markup:
    path = "M4 5h0M14 5h0M24 5h0" if is_dots else "M0 5H28"
    dots = " dots" if is_dots else ""
    stroke = element("path", d=path, class_=f"line {style}{dots}")
    return element("li", element("svg", stroke, width=28, height=10, aria_hidden="true"), " ", label)


def _mark_below(mark: float, share: float, *, y: float) -> Markup:
    anchor = "start" if share < 0.04 else "end" if share > 0.96 else "middle"
    return element("text", compact(mark), x=f"{100 * share:.2f}%", y=y, text_anchor=anchor, class_="mark")


def _cross(share: float) -> Markup:
    return element("text", "×", x=f"{100 * share:.2f}%", y=TOP - 2, text_anchor="middle", class_="cross")


def _paths(curve: Curve, across: Scale, up: Scale) -> list[Markup]:
    paths = []
    for lines, faint in ((curve.lines, ""), (curve.faint, " faint")):
        for line in lines:
            is_dots = curve.is_dots or len(line) == 1
            style = f"line c{curve.style}{faint}" + (" dots" if is_dots else "")
            paths.append(element("path", d=_drawn(line, across, up, is_dots=is_dots), class_=style))
    return paths


def _drawn(line: Iterable[Place], across: Scale, up: Scale, *, is_dots: bool) -> str:
    """Return a path to the nearest unit, what falls on one place drawn once."""
    places = [
        (round(WIDTH * across.share(step)), round(HEIGHT * (1 - up.share(value)))) for step, value in line
    ]
    if is_dots:
        return "".join(f"M{x} {y}h0" for x, y in dict.fromkeys(places))
    kept = [place for index, place in enumerate(places) if index == 0 or place != places[index - 1]]
    return "M" + "L".join(f"{x} {y}" for x, y in kept) if len(kept) > 1 else f"M{kept[0][0]} {kept[0][1]}h0"
