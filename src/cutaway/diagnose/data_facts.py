"""Statistics of the data of a run, for `cutaway doctor`. No torch here.

Most come from the report of `cutaway data inspect`. This file adds how the references are written, and whether the
data is still the data of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from cutaway.config import Config, DataConfig
from cutaway.data.tasks import has_split, load_split, stream_split
from cutaway.diagnose.inspect import inspect_data
from cutaway.diagnose.observations import DataFacts, HeldOutOverlap
from cutaway.errors import DataError, RunError
from cutaway.runs import RunFolder

MASKED_SHARE = 0.15  # share of masked tokens, as in data/batching.py (not imported: it needs torch)


def collect_data_facts(run: RunFolder, config: Config) -> DataFacts:
    """Read and encode the data of a run again."""
    task = config.model.task
    data = without_lost_test(config.data, task)
    report = inspect_data(data, task, tokenizer_file=run.tokenizer if run.tokenizer.is_file() else None)
    train, valid = report.splits["train"], report.splits.get("valid")
    answers = valid.answers if valid else None
    answer_count = answers.count if answers else 0
    written = references(data) if task == "translation" else []
    return DataFacts(
        train_examples=train.in_batches,
        left_out=sum(train.left_out.values()),
        valid_examples=valid.in_batches if valid else 0,
        valid_answers=round(answer_count * MASKED_SHARE) if task == "masked_language_model" else answer_count,
        padding=train.padding,
        unknown=(valid or train).unknown,
        overlaps={k: HeldOutOverlap(v.overlap.whole, v.examples) for k, v in report.splits.items() if v.overlap},
        majority=answers.majority if answers else None,
        answer_entropy=train.answers.entropy if train.answers else None,
        lower_cased=share(written, lambda text: text == text.lower()),
        tokenized=share(written, lambda text: any(mark in f"{text} " for mark in (" . ", " , ", " ? ", " ! "))),
        subwords=share(written, lambda text: "@@ " in text or "▁" in text),
        is_other_data=recorded != train.fingerprint if (recorded := recorded_fingerprint(run)) else None,
    )


def without_lost_test(data: DataConfig, task: str) -> DataConfig:
    """Drop missing test files: training does not need them, so the rest can still be checked."""
    try:
        if data.test:
            load_split(data, task, "test")
    except DataError:
        return replace(data, test=())
    return data


def references(data: DataConfig) -> list[str]:
    """The target texts of the test data, or of the validation data if there is no test data."""
    split = next((split for split in ("test", "valid") if has_split(data, split)), None)
    return [pair.target for pair in stream_split(data, "translation", split)] if split else []


def share(texts: Sequence[str], holds: Callable[[str], bool]) -> float | None:
    """The share of the texts with letters for which `holds` is true."""
    lettered = [text for text in texts if any(map(str.isalpha, text))]
    return sum(map(holds, lettered)) / len(lettered) if lettered else None


def recorded_fingerprint(run: RunFolder) -> str | None:
    try:
        return str(run.read_data()["fingerprint"])
    except (RunError, KeyError):
        return None
