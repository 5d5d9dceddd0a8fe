"""From text to ids: read a corpus, make its tokenizer, encode, leave out what does not fit. No torch here.

So that it can be done in another process while this one is still busy importing torch (`cli/prefetch.py`). A small
corpus is prepared in memory, here; `large.py` does the same with one that is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from cutaway.config import DataConfig
from cutaway.data.chunks import MaskedTextChunks, TextChunks
from cutaway.data.collector import pause_garbage_collection
from cutaway.data.encoded import Encoded
from cutaway.data.filtering import FilteredExamples, filter_examples
from cutaway.data.prepared import PreparedData, ProgressCallback, fingerprint, ignore_progress, merge_counts
from cutaway.data.store import is_large, prepare_large
from cutaway.data.tasks import TASKS, Encoding, has_split, labels_of, load_split, order_labels
from cutaway.data.tokenizer import Tokenizer, make_tokenizer
from cutaway.errors import DataError

__all__ = ["PreparedData", "prepare", "tokenizer_for"]


def prepare(
    config: DataConfig, task: str, tokenizer_file: Path | None = None, on_progress: ProgressCallback = ignore_progress
) -> PreparedData:
    """Prepare a corpus; with a `tokenizer_file`, such as that of a run to be resumed, no tokenizer is trained, and the
    classes are those of the labels.json beside it, if it has them all.

    `on_progress` is called now and then while a large corpus is prepared, with what is being done and how much of it is.
    """
    if is_large(config, task):
        prepared = prepare_large(config, task, tokenizer_file, on_progress)
    else:
        prepared = prepare_small(config, task, tokenizer_file)
    too_long = [why for why in prepared.left_out if why.startswith("too long")]
    if too_long and config.long_texts(task) == "refuse":
        raise DataError(
            f"{prepared.left_out[too_long[0]]:,} examples are {too_long[0]}: longer than data.max_tokens = "
            f"{config.max_tokens}, and data.too_long = 'refuse'. Raise the first, or choose otherwise for the second."
        )
    return prepared


def prepare_small(config: DataConfig, task: str, tokenizer_file: Path | None = None) -> PreparedData:
    """In memory."""
    with pause_garbage_collection():
        examples = load_split(config, task, "train")
        valid = load_split(config, task, "valid") if has_split(config, "valid") else ()
        texts = (text for example in examples for text in TASKS[task].texts(example))
        tokenizer = tokenizer_for(config, task, texts, tokenizer_file)
        labels = order_labels(labels_of(task, examples), tokenizer_file)
        encoding = Encoding(tokenizer, labels, config.max_tokens)
        too_long = config.long_texts(task)
        train = fitting(TASKS[task].encode(examples, encoding), config.max_tokens, too_long)
        held_out = (
            fitting(TASKS[task].encode(valid, encoding), config.max_tokens, too_long)
            if valid
            else FilteredExamples.whole(())
        )
        return PreparedData(
            tokenizer=tokenizer.to_json() if tokenizer else "",
            roles=tokenizer.roles if tokenizer else {},
            labels=list(encoding.labels),
            train=train.kept.with_shifts() if isinstance(train.kept, TextChunks | MaskedTextChunks) else train.kept,
            valid=held_out.kept,
            examples=len(examples),
            left_out=merge_counts(train.left_out, held_out.left_out),
            cut=merge_counts(train.cut, held_out.cut),
            fingerprint=fingerprint(examples),
        )


def tokenizer_for(config: DataConfig, task: str, texts: Iterable[str], tokenizer_file: Path | None) -> Tokenizer | None:
    if TASKS[task].kind == "images":
        return None
    return make_tokenizer(config, texts, TASKS[task].has_mask, tokenizer_file)


def fitting(examples: Sequence[Encoded], max_tokens: int, too_long: str) -> FilteredExamples:
    """Without misfits. Texts have none: they are cut into pieces that fit."""
    if isinstance(examples, TextChunks | MaskedTextChunks) and len(examples):
        return FilteredExamples.whole(examples)
    return filter_examples(examples, max_tokens, too_long)
