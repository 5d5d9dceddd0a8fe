"""Findings of `cutaway data inspect`: what was seen, what it usually means, and what to do."""

from __future__ import annotations

from collections.abc import Iterator

from cutaway.diagnose.inspect import UNSEEN, DataReport, SplitReport

FEW = 1_000  # training examples
FEW_TO_MEASURE = 100
FEW_OF_A_LABEL = 10
MUCH_PADDING = 0.2
MANY_UNKNOWN = 0.01
MANY_COPIES = 0.01
MANY_UNEVEN = 0.01
MAJORITY = 0.8
NAMED = 5  # labels to list in a sentence


def corpus_findings(report: DataReport) -> list[str]:
    train = report.splits["train"]
    found = [*about_splits(report), *about_lengths(report), *about_tokens(report)]
    return [*found, *about_labels(report), *about_copies(report, train), *about_pairs(train)]


def about_splits(report: DataReport) -> Iterator[str]:
    train = report.splits["train"]
    if "valid" not in report.splits:
        yield (
            "There is no validation data. Overfitting will not be noticed. Set data.valid, or data.valid_share = 0.1."
        )
    if report.kind != "texts" and train.kept < FEW:
        yield f"There {only(train.kept)} to train on. Even a small model can memorize that few. Add training data."
    for name, split in held_out(report):
        if report.kind != "texts" and split.kept < FEW_TO_MEASURE:
            yield f"There {only(split.kept)} in the {name} data. Scores on so few are noisy. Hold out more."


def about_lengths(report: DataReport) -> Iterator[str]:
    for name, split in report.splits.items():
        if too_long := split.left_out.get("too long", split.cut):
            remedy = (
                f" Set data.max_tokens = {split.lengths.nearly_all}: then only 1 in 1,000 is too long."
                if split.lengths
                else ""
            )
            yield (
                f"{share(too_long, split.examples)} {name} examples are longer than data.max_tokens = "
                f"{report.max_tokens} and are {'truncated' if split.cut else 'skipped'}.{remedy}"
            )
        if empty := split.left_out.get("empty"):
            where = " on at least one side" if report.kind == "pairs" else ""
            yield f"{share(empty, split.examples)} {name} examples are empty{where} and are skipped. Check the files."
    padding = report.splits["train"].padding
    if padding is not None and padding > MUCH_PADDING:
        yield (
            f"{padding:.0%} of the training batches is padding, which wastes computation. Lower data.max_tokens or "
            "raise data.batch_tokens."
        )


def about_tokens(report: DataReport) -> Iterator[str]:
    for name, split in report.splits.items():
        if split.unknown is not None and split.unknown > MANY_UNKNOWN:
            yield (
                f"{split.unknown:.1%} of the {name} tokens are not in the vocabulary. The model cannot read or "
                'generate them. Raise data.vocab_size, or use data.tokenizer = "bpe", which can encode every text.'
            )
    if report.wanted_vocab_size and report.vocab_size < report.wanted_vocab_size * 0.9 and report.tokenizer == "bpe":
        yield (
            f"The vocabulary has {report.vocab_size:,} tokens, not {report.wanted_vocab_size:,}: the training data "
            "has too little text for more. Lower data.vocab_size."
        )


def about_labels(report: DataReport) -> Iterator[str]:
    train = report.splits["train"]
    for name, split in held_out(report):
        if split.unseen_labels:
            yield (
                f"{share(split.left_out.get(UNSEEN, 0), split.examples)} {name} examples have labels that the training "
                f"data does not have: {some(split.unseen_labels)}. "
                + ("Training stops with an error" if name == "valid" else "They count as wrong in a score")
                + ". Remove them, or add training examples with these labels."
            )
    total = sum(train.labels.values())
    if not total:
        return
    label, count = next(iter(train.labels.items()))
    if len(train.labels) == 1:
        yield f"All training examples have the label {label!r}. There is nothing to learn. Check the label column."
    elif count / total > MAJORITY:
        yield (
            f"{count / total:.0%} of the labels are {label!r}. Always predicting it gives the same accuracy. Compare "
            "scores with this baseline, or balance the labels."
        )
    rare = [label for label, count in train.labels.items() if count < FEW_OF_A_LABEL]
    if rare:
        have = "label has" if len(rare) == 1 else "labels have"
        yield (
            f"{len(rare)} {have} fewer than {FEW_OF_A_LABEL} training examples: {some(rare)}. That is too few to learn "
            "from. Add examples, or merge labels."
        )
    if train.contradictions:
        yield (
            f"{train.contradictions:,} training inputs occur with more than one label. At most one of them can be "
            "predicted. Correct the labels."
        )


def about_copies(report: DataReport, train: SplitReport) -> Iterator[str]:
    what = "lines" if report.kind == "texts" else "examples"
    if train.compared and train.duplicates / train.compared > MANY_COPIES:
        yield (
            f"{share(train.duplicates, train.compared)} training {what} are copies of an earlier one. They count more "
            "than others. Remove them unless this is intended."
        )
    for name, split in held_out(report):
        if split.overlap and split.overlap.alike:
            o = split.overlap
            more = f" ({o.alike:,} if case and white space are ignored)" if o.alike > o.exact else ""
            yield (
                f"{share(o.exact, o.compared)} {name} {what} also occur in the training data{more}. Scores on them "
                "measure memory. Remove them from the training data."
            )


def about_pairs(train: SplitReport) -> Iterator[str]:
    if train.uneven > MANY_UNEVEN * max(1, train.kept):
        yield (
            f"In {share(train.uneven, train.kept)} training pairs one side is more than three times as long as the "
            "other. The lines of the two files may not match. Check that they correspond."
        )
    if train.same_sides > MANY_COPIES * max(1, train.examples):
        yield (
            f"{share(train.same_sides, train.examples)} training pairs have the same text on both sides. The model "
            "learns to copy. Remove pairs that are not translated."
        )


def held_out(report: DataReport) -> list[tuple[str, SplitReport]]:
    return [(name, split) for name, split in report.splits.items() if name != "train"]


def only(count: int) -> str:
    return "is only 1 example" if count == 1 else f"are only {count:,} examples"


def share(count: int, total: int) -> str:
    """17 of 1,000 (1.7%)"""
    part = count / max(1, total)
    return f"{count:,} of {total:,} ({part:.1%})" if part >= 0.0005 or not count else f"{count:,} of {total:,}"


def some(labels: object) -> str:
    names = list(map(repr, labels))  # type: ignore[call-overload]
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
