"""A verdict for machines that show test results and code findings: JUnit XML and SARIF 2.1.0.

The verdict is the exit code's to tell; these say where to look. JUnit's form is the one that the Ant task writes and
CI systems read; SARIF is OASIS' (https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement, tostring

from ledger.audit.rules import RULES
from ledger.records.documents import Finding, Severity, Verdict
from ledger.records.fields import Json
from ledger.records.layout import LOG, RUN

__all__ = ["junit_xml", "sarif_log"]

FAILING: Final = frozenset({"error", "missing"})
"""Severities that keep a verdict from being passed."""
LEVELS: Final[dict[Severity, str]] = {
    "error": "error",
    "missing": "error",
    "warning": "warning",
    "hint": "note",
}
BASE: Final = "RUN"
"""What paths are relative to in SARIF."""
SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"

_IN_LOG = re.compile(
    rf"{re.escape(LOG)} "
    r"(?:line (?P<line>[0-9]{1,9})(?: \(seq [0-9]+\))?(?:, byte (?P<byte>[0-9]{1,15}))?|byte [0-9]+|seq [0-9]+)"
    r"|session [0-9]+(?:, seq [0-9]+)?"
)
"""Places in the log; any other is the path of a file, whatever its name looks like."""
_IN_RUN_DOCUMENT = re.compile(rf"{re.escape(RUN)}, session [0-9]+")
_NO_FILE: Final = frozenset({"", "--expect-head", "dataset"})
"""Places that are no file's: the log stands for them, because every result needs one."""
_RAW_BYTE = re.compile(rb"\\udc([89a-f][0-9a-f])")
"""How findings spell a byte of a file's name that is no UTF-8."""
_NOT_XML = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(verdict: Verdict, *, run: str) -> str:
    """Return JUnit XML in ASCII: each rule is a test, what was not checked or does not apply is skipped."""
    by_rule: dict[str, list[Finding]] = {}
    for found in verdict.findings:
        by_rule.setdefault(found.rule, []).append(found)
    suite = Element("testsuite", name="ledger reconcile")
    for rule in sorted({*verdict.checked, *by_rule}):
        _add_rule(suite, rule, by_rule.get(rule, []), counts=verdict.rule_counts.get(rule, {}))
    for reasons in (verdict.not_checked, verdict.not_applicable):
        for name, reason in reasons.items():
            if name not in by_rule:
                SubElement(_case(suite, name), "skipped", message=_xml_text(reason))
    for count, kind in (
        ("tests", "testcase"),
        ("failures", "testcase/failure"),
        ("skipped", "testcase/skipped"),
    ):
        suite.set(count, str(len(suite.findall(kind))))
    suite.set("errors", "0")
    properties = Element("properties")
    for key, value in (
        ("run", verdict.run_id or run),
        ("verdict", verdict.verdict),
        ("status", verdict.status),
    ):
        SubElement(properties, "property", name=key, value=_xml_text(value))
    suite.insert(0, properties)
    data: bytes = tostring(suite, encoding="us-ascii", xml_declaration=True)
    return data.decode("ascii") + "\n"


def _add_rule(
    suite: Element, rule: str, findings: Sequence[Finding], *, counts: Mapping[Severity, int]
) -> None:
    case = _case(suite, rule)
    counting = [found for found in findings if found.severity in FAILING and found.waiver is None]
    if counting:
        failure = SubElement(
            case, "failure", type=counting[0].severity, message=_xml_text(counting[0].message)
        )
        lines = [f"{found.where}: {found.message}" for found in counting]
        more = sum(count for severity, count in counts.items() if severity in FAILING) - len(counting)
        failure.text = _xml_text("\n".join([*lines, *([f"… and {more} more"] if more > 0 else [])]))
    others = [found for found in findings if found not in counting]
    if others:
        lines = [f"{_kind(found)} {found.where}: {found.message}" for found in others]
        SubElement(case, "system-out").text = _xml_text("\n".join(lines))


def _case(suite: Element, name: str) -> Element:
    title = f"{name} {RULES[name].title}" if name in RULES else name
    group = f"ledger.{name[:3]}" if name[:5] in RULES else "ledger"
    return SubElement(suite, "testcase", classname=group, name=_xml_text(title))


def _kind(found: Finding) -> str:
    return found.severity if found.waiver is None else f"waived by {found.waiver.name}: {found.severity}"


def _xml_text(text: str) -> str:
    """Return text without the characters that XML cannot hold, or that could steer a terminal."""
    return _NOT_XML.sub("\ufffd", text)


def sarif_log(verdict: Verdict, *, run: str) -> dict[str, Json]:
    """Return a SARIF log: the rules with their pages, and each finding that was kept."""
    used = sorted({found.rule for found in verdict.findings})
    driver: dict[str, Json] = {
        "name": "ledger",
        "version": verdict.tool_version,
        "rules": [_sarif_rule(rule) for rule in used],
    }
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "originalUriBaseIds": {BASE: {"description": {"text": "The folder of the run."}}},
                "results": [_sarif_result(found, index=used.index(found.rule)) for found in verdict.findings],
                "properties": {
                    "run": _xml_text(verdict.run_id or run),
                    "verdict": verdict.verdict,
                    "status": verdict.status,
                    "counts": dict(verdict.finding_counts),
                    "countsByRule": {rule: dict(counts) for rule, counts in verdict.rule_counts.items()},
                    "notChecked": dict(verdict.not_checked),
                },
            }
        ],
    }


def _sarif_rule(rule: str) -> dict[str, Json]:
    page = RULES[rule]
    return {
        "id": rule,
        "shortDescription": {"text": page.title},
        "fullDescription": {"text": page.meaning},
        "help": {"text": f"{page.causes}\n\n{page.advice}"},
        "defaultConfiguration": {"level": LEVELS[page.severities[0]]},
    }


def _sarif_result(found: Finding, *, index: int) -> dict[str, Json]:
    result: dict[str, Json] = {
        "ruleId": found.rule,
        "ruleIndex": index,
        "level": LEVELS[found.severity],
        "message": {"text": f"{found.where}: {found.message}"},
        "locations": [{"physicalLocation": _place(found.where)}],
        "properties": {"severity": found.severity},
    }
    if found.waiver is not None:
        reason = f"{found.waiver.name}, until {found.waiver.expires}: {found.waiver.reason}"
        result["suppressions"] = [{"kind": "external", "justification": reason}]
    return result


def _place(where: str) -> dict[str, Json]:
    """Return a finding's place: the file, and the line and byte where it names them."""
    match = _IN_LOG.fullmatch(where)
    if match is None:
        file = RUN if _IN_RUN_DOCUMENT.fullmatch(where) else LOG if where in _NO_FILE else where
        return {"artifactLocation": _artifact(file)}
    place: dict[str, Json] = {"artifactLocation": _artifact(LOG)}
    if match["line"] is not None:
        region: dict[str, Json] = {"startLine": max(1, int(match["line"]))}
        if match["byte"] is not None:
            region["byteOffset"] = int(match["byte"])
        place["region"] = region
    return place


def _artifact(file: str) -> dict[str, Json]:
    """Return where a file lies: in the run, or for an absolute path (a dataset's) anywhere."""
    uri = quote(
        _RAW_BYTE.sub(lambda found: bytes.fromhex(found[1].decode()), file.encode("utf-8", "replace"))
    )
    if uri.startswith("/"):
        return {"uri": f"file:///{uri.lstrip('/')}"}
    return {"uri": uri, "uriBaseId": BASE}
