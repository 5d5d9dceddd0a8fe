"""From text to ids: read a corpus, train its tokenizer, encode and filter. No torch here.

Without torch, another process can do this while the main process still imports torch (`cli/prefetch.py`). A small
corpus is prepared in memory, here. A large corpus is prepared by `store.py`.
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
    """Prepare a corpus.

    `tokenizer_file`: the tokenizer of a run to resume or fine-tune. Then no tokenizer is trained, and the labels come
    from the labels.json next to it, if that contains all labels of the data.
    `on_progress` is called from time to time while a large corpus is prepared.
    """
    if is_large(config, task):
        prepared = prepare_large(config, task, tokenizer_file, on_progress)
    else:
        prepared = prepare_small(config, task, tokenizer_file)
    too_long = [why for why in prepared.left_out if why.startswith("too long")]
    if too_long and config.long_texts(task) == "refuse":
        raise DataError(
            f"{prepared.left_out[too_long[0]]:,} examples are {too_long[0]}: longer than data.max_tokens = "
            f"{config.max_tokens}, and data.too_long = 'refuse'. Raise data.max_tokens, or change data.too_long."
        )
    return prepared


def prepare_small(config: DataConfig, task: str, tokenizer_file: Path | None = None) -> PreparedData:
    """Prepare a corpus in memory."""
    with pause_garbage_collection():
        examples = load_split(config, task, "train")
        valid = load_split(config, task, "valid") if has_split(config, "valid") else ()
        texts = (text for example in examples for text in TASKS[task].texts(example))
        tokenizer = tokenizer_for(config, task, texts, tokenizer_file)
        labels = order_labels(labels_of(task, examples), tokenizer_file)
        encoding = Encoding(tokenizer, labels, config.max_tokens)
        too_long = config.long_texts(task)
        train = filter_unless_chunked(TASKS[task].encode(examples, encoding), config.max_tokens, too_long)
        valid_examples = (
            filter_unless_chunked(TASKS[task].encode(valid, encoding), config.max_tokens, too_long)
            if valid
            else FilteredExamples.keep_all(())
        )
        return PreparedData(
            tokenizer=tokenizer.to_json() if tokenizer else "",
            roles=tokenizer.roles if tokenizer else {},
            labels=list(encoding.labels),
            train=train.kept.with_shifts() if isinstance(train.kept, TextChunks | MaskedTextChunks) else train.kept,
            valid=valid_examples.kept,
            examples=len(examples),
            left_out=merge_counts(train.left_out, valid_examples.left_out),
            cut=merge_counts(train.cut, valid_examples.cut),
            fingerprint=fingerprint(examples),
        )


def tokenizer_for(config: DataConfig, task: str, texts: Iterable[str], tokenizer_file: Path | None) -> Tokenizer | None:
    if TASKS[task].kind == "images":
        return None
    return make_tokenizer(config, texts, TASKS[task].has_mask, tokenizer_file)


def filter_unless_chunked(examples: Sequence[Encoded], max_tokens: int, too_long: str) -> FilteredExamples:
    """Filter the examples. Chunks always fit, so they are not filtered."""
    if isinstance(examples, TextChunks | MaskedTextChunks) and len(examples):
        return FilteredExamples.keep_all(examples)
    return filter_examples(examples, max_tokens, too_long)
