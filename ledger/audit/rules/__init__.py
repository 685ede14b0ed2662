"""The one registry of rules: id, title, severities and the page that `ledger explain` prints.

Pages stand apart from the checkers so that a reader of either sees one thing at a time.
"""

from __future__ import annotations

from typing import Final

from ledger.audit.rules.base import Rule
from ledger.audit.rules.lg1_form import FORM_RULES
from ledger.audit.rules.lg2_counters import COUNTER_RULES
from ledger.audit.rules.lg3_sessions import SESSION_RULES
from ledger.audit.rules.lg4_checkpoints import CHECKPOINT_RULES
from ledger.audit.rules.lg5_data import DATA_RULES
from ledger.audit.rules.lg6_recipe import RECIPE_RULES
from ledger.audit.rules.lg7_completion import COMPLETION_RULES
from ledger.audit.rules.lg8_equivalence import EQUIVALENCE_RULES
from ledger.audit.rules.lg9_gates import GATE_RULES

__all__ = ["EXPLAINED", "RULES", "Rule"]

RULES: Final[dict[str, Rule]] = {
    rule.id: rule
    for group in (
        FORM_RULES,
        COUNTER_RULES,
        SESSION_RULES,
        CHECKPOINT_RULES,
        DATA_RULES,
        RECIPE_RULES,
        COMPLETION_RULES,
        EQUIVALENCE_RULES,
    )
    for rule in group
}
"""Those that an audit of a run decides."""

EXPLAINED: Final[dict[str, Rule]] = {**RULES, **{rule.id: rule for rule in GATE_RULES}}
"""Those, and the ones that judge the stages of a pilot."""
