from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

from ledger.audit import RULES, reconcile
from ledger.records.documents import Finding, Verdict
from ledger.report.ci import junit_xml, sarif_log
from tests.ledger.audit.editing import edit, of_kind

HOSTILE = "\x00\x1b[31m<script>&\ud7ff\ufffe \N{RIGHT-TO-LEFT OVERRIDE} ]]>"


def broken(copy_of: Callable[[str], Path]) -> Verdict:
    run = copy_of("plain")
    edit(run, lambda events: of_kind(events, "val")[0].update(rng_after="ab" * 32))
    return reconcile(run)


def test_every_rule_is_one_test(copy_of: Callable[[str], Path]):
    verdict = broken(copy_of)
    suite = ET.fromstring(junit_xml(verdict, run="run"))  # noqa: S314 (our own)
    cases = {case.attrib["name"][:5]: case for case in suite.findall("testcase")}
    assert {rule for rule in RULES if rule not in cases} == set()
    failed = [name for name, case in cases.items() if case.find("failure") is not None]
    assert failed == ["LG214"]
    assert (suite.attrib["failures"], suite.attrib["tests"]) == ("1", str(len(suite.findall("testcase"))))
    skipped = [case for case in suite.findall("testcase") if case.find("skipped") is not None]
    assert len(skipped) == len(verdict.not_checked) + len(verdict.not_applicable)


def test_a_finding_has_its_line_and_byte(copy_of: Callable[[str], Path]):
    verdict = broken(copy_of)
    (run,) = sarif_log(verdict, run="run")["runs"]
    (result,) = run["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "metrics.jsonl"
    where = verdict.findings[0].where
    assert f"line {place['region']['startLine']} " in where
    assert where.endswith(f"byte {place['region']['byteOffset']}")
    assert (result["ruleId"], result["level"]) == ("LG214", "error")
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "LG214"


def test_hostile_text_comes_out_harmless(copy_of: Callable[[str], Path]):
    finding = Finding(rule="LG306", severity="hint", where=HOSTILE, message=HOSTILE)
    verdict = broken(copy_of)
    verdict = verdict.model_copy(update={"findings": [*verdict.findings, finding], "status": HOSTILE})
    text = junit_xml(verdict, run=HOSTILE)
    assert text.isascii()
    assert "\x1b" not in text
    suite = ET.fromstring(text)  # noqa: S314 (our own)
    assert "<script>" in "".join(suite.itertext())
    assert json.dumps(sarif_log(verdict, run=HOSTILE), ensure_ascii=True).isascii()


def test_a_finding_without_a_line_has_its_file(copy_of: Callable[[str], Path]):
    finding = Finding(rule="LG401", severity="error", where="checkpoints/step 1", message="is absent")
    verdict = broken(copy_of).model_copy(update={"findings": [finding]})
    (result,) = sarif_log(verdict, run="run")["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "checkpoints/step", "uriBaseId": "RUN"}
    }
