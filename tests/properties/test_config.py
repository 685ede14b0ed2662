"""Whatever stands in a configuration file, reading it ends in a configuration or in one clear error."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ledger.config import dump_config, load_config
from ledger.errors import ConfigError
from tests.ledger.config.models import Experiment, Optimizer

# Pieces that YAML gives a meaning to, glued in any order.
words = "optimizer lr schedule name cosine weights country a 1 1e-3 017 ~ null << = . é".split()
signs = [
    ": ",
    ", ",
    "\n",
    "\n  ",
    "- ",
    "? ",
    " #",
    "---",
    "...",
    "&a",
    "*a",
    "!t",
    "\r\n",
    *":[]{}'\"#|>%@`\\\t\0\x85\ufeff",
]
pieces = st.sampled_from([*words, *signs])
texts = st.lists(pieces, max_size=30).map("".join)
good = "optimizer: {lr: 1}\n"


def load(content: bytes, *overrides: str) -> Experiment | ConfigError:
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        Path(file.name).write_bytes(content)
        try:
            return load_config([file.name], overrides, model=Experiment)
        except ConfigError as error:
            return error


def check(result: Experiment | ConfigError) -> None:
    """Anything but an error in one line, in our words, is a configuration."""
    if isinstance(result, ConfigError):
        assert len(str(result).splitlines()) == 1
        assert "pydantic" not in str(result)


@given(content=st.binary(max_size=60) | texts.map(str.encode))
def test_any_bytes_are_read_or_refused(content: bytes):
    check(load(content))


@given(tail=texts)
def test_anything_behind_a_good_beginning_is_read_or_refused(tail: str):
    check(load(good.encode() + tail.encode()))


@given(override=st.text(max_size=20) | texts.map(lambda text: f"country={text}"))
def test_any_override_is_read_or_refused(override: str):
    check(load(good.encode(), override))


@given(
    country=st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=40),
    rate=st.floats(min_value=0, exclude_min=True, allow_infinity=False, allow_subnormal=False),
    weights=st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8), st.floats(0, 1)
    ),
)
def test_every_configuration_survives_being_written_and_read(
    country: str, rate: float, weights: dict[str, float]
):
    config = Experiment(optimizer=Optimizer(lr=rate), country=country, weights=weights)
    assert load(dump_config(config).encode()) == config
