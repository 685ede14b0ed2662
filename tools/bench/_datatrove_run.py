"""Tokenizes Parquet files with datatrove, in whatever environment has it: `PARQUET_FOLDER TOKENIZER OUTPUT WORKERS`.

One task a worker and a file, documents in the order of their files, end-of-text behind each: what the benchmark
compares id by id. Nothing of this project is imported.
"""

from __future__ import annotations

import sys
from pathlib import Path

from datatrove.executor import LocalPipelineExecutor  # type: ignore[import-not-found,unused-ignore]
from datatrove.pipeline.readers import ParquetReader  # type: ignore[import-not-found,unused-ignore]
from datatrove.pipeline.tokens import DocumentTokenizer  # type: ignore[import-not-found,unused-ignore]


def main(source: str, tokenizer: str, output: str, workers: int) -> None:
    """Run the pipeline."""
    LocalPipelineExecutor(
        pipeline=[
            ParquetReader(source, glob_pattern="*.parquet"),
            DocumentTokenizer(
                output_folder=str(Path(output) / "tokens"),
                tokenizer_name_or_path=tokenizer,
                eos_token="<|endoftext|>",  # noqa: S106 - no secret
                shuffle_documents=False,
            ),
        ],
        tasks=workers,
        workers=workers,
        logging_dir=str(Path(output) / "logs"),
    ).run()


if __name__ == "__main__":
    main(*sys.argv[1:4], workers=int(sys.argv[4]))
