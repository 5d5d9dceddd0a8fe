"""cutaway evaluate RUN"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.cli.console import err, out, print_json
from cutaway.config import DecodeConfig, with_given
from cutaway.errors import ConfigError

if TYPE_CHECKING:
    from cutaway.data.builtin import SentencePair
    from cutaway.pipeline import Translator


@dataclass(frozen=True)
class Evaluation:
    """What a translator did with a set of pairs. Rates are shares from 0 to 1; BLEU and chrF go to 100."""

    translations: list[str]
    sentences: int
    bleu: float
    chrf: float
    exact_match: float
    perplexity: float
    bleu_signature: str
    chrf_signature: str

    def numbers(self) -> dict[str, Any]:
        return {k: v for k, v in dataclasses.asdict(self).items() if k != "translations"}


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/demo.")],
    split: Annotated[str, typer.Option(help="valid or test; tinyworld has unseen too.")] = "test",
    data: Annotated[
        tuple[Path, Path] | None, typer.Option(help="Two parallel files instead: source, reference.", metavar="SRC REF")
    ] = None,
    strategy: Annotated[str | None, typer.Option(help="greedy, beam or sample; default: the run's.")] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first so many pairs.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Numbers for programs.")] = False,
) -> None:
    """Score a run: BLEU and chrF with their signatures, exact match, perplexity, alignment.

    Examples:  cutaway evaluate runs/demo

               cutaway evaluate runs/demo --data test.en test.fr --json
    """
    from cutaway.data.corpus import load_pairs, read_pairs
    from cutaway.pipeline import Translator
    from cutaway.show.alignment import alignment_by_head, best_head, has_alignments

    translator = Translator.load(run, device)
    if limit is not None and limit < 1:
        raise ConfigError(f"--limit {limit} leaves nothing to score. Give at least 1.")
    pairs = (read_pairs(*data) if data else load_pairs(translator.config.data, split))[:limit]
    decode = with_given(translator.config.decode, strategy=strategy)
    with err.status(f"translating {len(pairs):,} sentences ..."):
        result = evaluate_pairs(translator, pairs, decode)
        numbers = {"run": str(run), "data": " ".join(map(str, data)) if data else split, **result.numbers()}
        if has_alignments(pairs):
            best = best_head(translator, load_pairs(translator.config.data, "valid"))  # type: ignore[arg-type]
            rate = alignment_by_head(translator, pairs)[best]  # type: ignore[arg-type]
            numbers |= {"alignment_error_rate": rate, "alignment_head": list(best)}
    print_json(numbers) if json else print_numbers(numbers)


def evaluate_pairs(translator: Translator, pairs: Sequence[SentencePair], decode: DecodeConfig) -> Evaluation:
    from cutaway.evaluate.scores import bleu, chrf, exact_match

    translations = translator.translate([pair.source for pair in pairs], decode)
    references = [pair.target for pair in pairs]
    scored = {"bleu": bleu(translations, references), "chrf": chrf(translations, references)}
    return Evaluation(
        translations=translations,
        sentences=len(pairs),
        bleu=scored["bleu"].value,
        chrf=scored["chrf"].value,
        exact_match=exact_match(translations, references),
        perplexity=perplexity_of(translator, pairs),
        bleu_signature=scored["bleu"].signature,
        chrf_signature=scored["chrf"].signature,
    )


def perplexity_of(translator: Translator, pairs: Sequence[SentencePair]) -> float:
    """How surprised the model is by the references, token for token."""
    from cutaway.data.batching import plain_batches
    from cutaway.data.prepare import encode_pairs
    from cutaway.evaluate.scores import perplexity
    from cutaway.train.objectives import OBJECTIVES, mean_nll

    config, tokenizer = translator.config, translator.tokenizer
    batches = plain_batches(encode_pairs(tokenizer, pairs), tokenizer, config.data.batch_tokens)
    return perplexity(mean_nll(translator.model, OBJECTIVES[config.model.family], batches))


def print_numbers(numbers: dict[str, Any]) -> None:
    out.print(f"{numbers['sentences']:,} sentences: {numbers['data']}")
    out.print(f"BLEU         {numbers['bleu']:6.2f}   {numbers['bleu_signature']}")
    out.print(f"chrF         {numbers['chrf']:6.2f}   {numbers['chrf_signature']}")
    out.print(f"exact match  {numbers['exact_match']:6.1%}")
    out.print(f"perplexity   {numbers['perplexity']:6.3f}   a token, references forced")
    if "alignment_error_rate" in numbers:
        layer, head = numbers["alignment_head"]
        rate = numbers["alignment_error_rate"]
        out.print(f"alignment    {rate:6.1%}   error rate of the best head: layer {layer}, head {head}")
