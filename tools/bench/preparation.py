"""Preparing the kernel's documentation with GPT-2 ids against bare tiktoken (`against_datatrove` has the peer).

Two ways of counting: the whole preparation, everything that happens once included (starting workers, loading and
proving the tokenizer, hashing the input twice), and the same text ten times, where that counts for a tenth.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from _measure import Contender, measure

from data_prep.byte_pairs import read_byte_pairs
from data_prep.config import PreparationConfig
from data_prep.pipeline import prepare
from ledger.config import load_config

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
CORPUS, TOKENIZER = SHARED / "linux-doc.parquet", SHARED / "gpt2-tokenizer.json"
WORKERS = int(os.environ.get("WORKERS", "2"))


def configure(files: list[Path]) -> PreparationConfig:
    """Return the preparation that is measured: shuffled and split."""
    settings = [
        "source.kind=parquet",
        f"source.files=[{', '.join(map(str, files))}]",
        "tokenizer.kind=file",
        f"tokenizer.path={TOKENIZER}",
        f"workers={WORKERS}",
    ]
    return load_config([], settings, model=PreparationConfig)


def bare_tiktoken() -> Any:
    """Return tiktoken with GPT-2's entries, ready to encode."""
    tiktoken = importlib.import_module("tiktoken")
    pairs = read_byte_pairs(TOKENIZER.read_bytes())
    special = {"<|endoftext|>": 50_256}
    return tiktoken.Encoding(
        "gpt2", pat_str=pairs.pattern, mergeable_ranks=pairs.ranks, special_tokens=special
    )


def compare(files: list[Path], folder: Path, texts: list[str], *, times: int) -> dict[str, float]:
    """Measure with every contender; the files hold the texts so many times."""
    encoding, config, output = bare_tiktoken(), configure(files), folder / "data"
    tokens = sum(map(len, encoding.encode_ordinary_batch(texts, num_threads=WORKERS))) + len(texts)
    work = tokens * times / 1e6

    def bare() -> None:
        with ThreadPoolExecutor(WORKERS) as pool:
            for _ in range(times):
                list(pool.map(lambda text: encoding.encode_to_numpy(text, disallowed_special=()), texts))

    def whole() -> None:
        shutil.rmtree(output, ignore_errors=True)
        prepare(config, output=output)

    contenders = {"bare tiktoken": Contender(bare, work), "data_prep": Contender(whole, work)}
    rounds = int(os.environ.get("ROUNDS", "3"))
    return measure(contenders, rounds=rounds, unit="Mtokens/s", base="bare tiktoken")


def main() -> None:
    """Measure and print."""
    if not CORPUS.is_file() or not TOKENIZER.is_file():
        print(f"skipped: {CORPUS} and {TOKENIZER} are not here")
        return
    parquet = importlib.import_module("pyarrow.parquet")
    table = parquet.read_table(CORPUS)
    texts = table.column("text").to_pylist()
    size = -(-table.num_rows // WORKERS)
    halves = [table.slice(number * size, size) for number in range(WORKERS)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for times in (1, int(os.environ.get("TIMES", "10"))):
            files = [folder / f"{times}-times" / f"{number}.parquet" for number in range(times * WORKERS)]
            files[0].parent.mkdir()
            for number, path in enumerate(files):
                parquet.write_table(halves[number % WORKERS], path)
            print(f"\nthe text {times} times", flush=True)
            ratios = compare(files, folder, texts, times=times)
    print(f"target 0.75 of bare tiktoken: {ratios['data_prep']:.2f}")


if __name__ == "__main__":
    main()
