"""Verification while something else goes on."""

from __future__ import annotations

import pytest

from ledger.dataset.background import BackgroundVerification, files_to_verify
from ledger.dataset.manifest import Dataset
from ledger.errors import EvidenceMissingError, LedgerError, UsageError, VerificationError
from tests.ledger.dataset.builders import build_dataset, documents


@pytest.fixture
def dataset(tmp_path) -> Dataset:
    return build_dataset(tmp_path / "data", splits={"train": documents(40), "validation": documents(5)})


def verified(dataset: Dataset) -> tuple[list[str], LedgerError | None]:
    """Verify to the end; return what was drained, and what it raised."""
    verification = BackgroundVerification(files_to_verify(dataset), share=1.0)
    verification.start()
    verification.wait()
    names: list[str] = []
    try:
        while found := verification.drain():
            names += [file.name for file in found]
    except LedgerError as error:
        return names, error
    return names, None


def test_every_array_is_verified_once_in_the_order_of_the_manifest(dataset):
    names, error = verified(dataset)
    assert error is None
    assert names == [file.name for file in files_to_verify(dataset)]
    assert {"train-00000.npy", "train-00000.ends.npy", "validation-00000.npy"} <= set(names)


def test_a_damaged_file_is_named_after_those_before_it_were_told(dataset):
    path = dataset.directory / "train-00001.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    names, error = verified(dataset)
    assert names[0] == "train-00000.npy"
    assert "train-00001.npy" not in names
    assert isinstance(error, VerificationError)
    assert "train-00001.npy" in str(error)


def test_damage_is_raised_again_and_again(dataset):
    (dataset.directory / "train-00000.npy").write_bytes(b"")
    verification = BackgroundVerification(files_to_verify(dataset))
    verification.start()
    verification.wait()
    for _ in range(2):
        with pytest.raises(VerificationError, match="train-00000"):
            verification.drain()


def test_a_file_that_is_gone_is_an_error_too(dataset):
    (dataset.directory / "train-00000.npy").unlink()
    _, error = verified(dataset)
    assert isinstance(error, EvidenceMissingError)
    assert "train-00000.npy" in str(error)


def test_closing_ends_it_at_once(dataset):
    verification = BackgroundVerification(files_to_verify(dataset), share=1e-9)
    verification.start()
    verification.close()
    assert not verification._thread.is_alive()


def test_one_that_never_began_can_be_closed_and_drained(dataset):
    verification = BackgroundVerification(files_to_verify(dataset))
    assert verification.drain() == []
    verification.close()


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(UsageError):
        BackgroundVerification([], share=share)
