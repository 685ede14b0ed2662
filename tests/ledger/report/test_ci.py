from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema

from ledger.audit import RULES, reconcile
from ledger.audit.findings import Findings
from ledger.records.documents import Finding, Verdict
from ledger.records.waivers import Waiver
from ledger.report.ci import junit_xml, sarif_log
from tests.ledger.audit.editing import edit, of_kind

HOSTILE = "\x00\x7f\x9b\x1b[31m<script>&\ud7ff\ufffe \N{RIGHT-TO-LEFT OVERRIDE} ]]>"


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
    assert not {"\x1b", "\x7f"} & set(text)
    assert "&#155;" not in text
    suite = ET.fromstring(text)  # noqa: S314 (our own)
    assert "<script>" in "".join(suite.itertext())
    assert json.dumps(sarif_log(verdict, run=HOSTILE), ensure_ascii=True).isascii()


def test_a_finding_without_a_line_has_its_file(copy_of: Callable[[str], Path]):
    finding = Finding(rule="LG401", severity="error", where="checkpoints/step 1", message="is absent")
    verdict = broken(copy_of).model_copy(update={"findings": [finding]})
    (result,) = sarif_log(verdict, run="run")["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "checkpoints/step%201", "uriBaseId": "RUN"}
    }


SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"const": "2.1.0"},
        "runs": {"type": "array", "items": {"$ref": "#/$defs/run"}},
    },
    "additionalProperties": False,
    "$defs": {
        "text": {
            "type": "object",
            "required": ["text"],
            "properties": {"text": {"type": "string", "minLength": 1}},
        },
        "level": {"enum": ["none", "note", "warning", "error"]},
        "run": {
            "type": "object",
            "required": ["tool", "results"],
            "additionalProperties": False,
            "properties": {
                "originalUriBaseIds": {"type": "object"},
                "properties": {"type": "object"},
                "tool": {
                    "type": "object",
                    "required": ["driver"],
                    "properties": {
                        "driver": {
                            "type": "object",
                            "required": ["name"],
                            "properties": {"rules": {"type": "array", "items": {"$ref": "#/$defs/rule"}}},
                        }
                    },
                },
                "results": {"type": "array", "items": {"$ref": "#/$defs/result"}},
            },
        },
        "rule": {
            "type": "object",
            "required": ["id"],
            "properties": {
                "id": {"type": "string"},
                "shortDescription": {"$ref": "#/$defs/text"},
                "fullDescription": {"$ref": "#/$defs/text"},
                "help": {"$ref": "#/$defs/text"},
                "defaultConfiguration": {"properties": {"level": {"$ref": "#/$defs/level"}}},
            },
        },
        "result": {
            "type": "object",
            "required": ["ruleId", "ruleIndex", "level", "message", "locations"],
            "additionalProperties": False,
            "properties": {
                "ruleId": {"type": "string"},
                "properties": {"type": "object"},
                "ruleIndex": {"type": "integer", "minimum": 0},
                "level": {"$ref": "#/$defs/level"},
                "message": {"$ref": "#/$defs/text"},
                "locations": {
                    "type": "array",
                    "items": {
                        "properties": {
                            "physicalLocation": {
                                "required": ["artifactLocation"],
                                "properties": {
                                    "artifactLocation": {
                                        "properties": {
                                            "uri": {
                                                "pattern": r"^(file://)?([A-Za-z0-9._~/-]|%[0-9A-F]{2})+$"
                                            },
                                            "uriBaseId": {"type": "string"},
                                        },
                                        "additionalProperties": False,
                                    },
                                    "region": {
                                        "minProperties": 1,
                                        "additionalProperties": False,
                                        "properties": {
                                            "startLine": {"type": "integer", "minimum": 1},
                                            "byteOffset": {"type": "integer", "minimum": -1},
                                        },
                                    },
                                },
                            }
                        }
                    },
                },
                "suppressions": {
                    "items": {
                        "required": ["kind"],
                        "properties": {"kind": {"enum": ["inSource", "external"]}},
                    }
                },
            },
        },
    },
}
"""What SARIF 2.1.0 requires of the parts that are written here."""


def test_sarif_has_what_its_standard_requires_whatever_the_names(copy_of: Callable[[str], Path]):
    waiver = Waiver(
        rule="LG604", where=HOSTILE, reason=HOSTILE, name=HOSTILE, expires="2999-01-01T00:00:00.000000Z"
    )
    places = (HOSTILE, "a b/c#d?e%f", "metrics.jsonl line 0", "", "../x", "caf\\udce9")
    findings = [
        Finding(rule="LG306", severity="hint", where=where, message="x", waiver=waiver) for where in places
    ]
    verdict = broken(copy_of)
    verdict = verdict.model_copy(update={"findings": [*verdict.findings, *findings], "run_id": None})
    log = sarif_log(verdict, run="caf\udce9")
    jsonschema.Draft202012Validator(SARIF).validate(log)
    (run,) = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert sorted(set(rules)) == rules
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert {
            place["physicalLocation"]["artifactLocation"].get("uriBaseId") for place in result["locations"]
        } <= {
            None,
            *run["originalUriBaseIds"],
        }
    assert json.loads(json.dumps(log)) == log
    json.dumps(log, ensure_ascii=False).encode()  # no lone surrogate


PLACES = {
    "checkpoints/a b#c%?.bin": "checkpoints/a%20b%23c%25%3F.bin",
    "caf\\udce9 line": "caf%E9%20line",
    "latest:of/all": "latest%3Aof/all",
    "run.json, session 2": "run.json",
    "line 3 (seq 2), byte 5": "line%203%20%28seq%202%29%2C%20byte%205",
    "metrics.jsonl seq 7": "metrics.jsonl",
    "metrics.jsonl byte 7": "metrics.jsonl",
    "session 2, seq 5": "metrics.jsonl",
    "--expect-head": "metrics.jsonl",
    "/data/my set/train-00000.npy": "file:///data/my%20set/train-00000.npy",
    "//data/x": "file:///data/x",
}
"""Where findings say that something is, and the URI of the file that they mean."""


def test_a_place_names_its_whole_file_as_a_uri(copy_of: Callable[[str], Path]):
    findings = [Finding(rule="LG406", severity="error", where=where, message="x") for where in PLACES]
    log = sarif_log(broken(copy_of).model_copy(update={"findings": findings}), run="run")
    places = [result["locations"][0]["physicalLocation"] for result in log["runs"][0]["results"]]
    assert [place["artifactLocation"]["uri"] for place in places] == list(PLACES.values())
    based = [place["artifactLocation"].get("uriBaseId") for place in places]
    assert based == [None if uri.startswith("file:") else "RUN" for uri in PLACES.values()]


def test_the_counts_of_a_suite_are_those_of_its_tests(copy_of: Callable[[str], Path]):
    finding = Finding(rule="LG406", severity="missing", where=HOSTILE, message=HOSTILE)
    verdict = broken(copy_of)
    skipped = verdict.not_checked | {HOSTILE: HOSTILE}
    verdict = verdict.model_copy(update={"findings": [*verdict.findings, finding], "not_checked": skipped})
    suite = ET.fromstring(junit_xml(verdict, run=HOSTILE))  # noqa: S314 (our own)
    for count, kind in (("tests", "."), ("failures", "failure"), ("skipped", "skipped"), ("errors", "error")):
        cases = [case for case in suite.iter("testcase") if kind == "." or case.find(kind) is not None]
        assert suite.attrib[count] == str(len(cases)), count
    names = [(case.attrib["classname"], case.attrib["name"]) for case in suite.iter("testcase")]
    assert len(set(names)) == len(names)


def test_what_was_counted_and_not_kept_is_said(copy_of: Callable[[str], Path]):
    findings = Findings()
    for number in range(250):
        findings.add("LG201", "wrong", where=f"line {number}")
    verdict = broken(copy_of).model_copy(
        update={"findings": findings.kept, "rule_counts": findings.rule_counts}
    )
    assert "… and 150 more" in "".join(ET.fromstring(junit_xml(verdict, run="run")).itertext())  # noqa: S314
    properties = sarif_log(verdict, run="run")["runs"][0]["properties"]
    assert properties["countsByRule"] == {"LG201": {"error": 250}}
