"""Compare the decoding speed of Cutaway's engines, Hugging Face's generate and CTranslate2, measured in turns.

    python benchmarks/decoding.py --data multi30k --json decoding.json

The model is that of training_throughput.py (d_model 256, 3 + 3 layers, a vocabulary of 8,000) with random weights. The
script writes a run folder and exports it for Hugging Face and for CTranslate2. Every output has 30 tokens, because
</s> is suppressed. There are two tables:

- one thread: tokens per second for one sentence and for a batch of 64, with greedy search and a beam of 5. Input and
  output are token ids.
- all cores: tokens per second for a text file. `cutaway translate --file` starts processes of one thread each;
  CTranslate2, called directly, is one process with as many workers of one thread (its best setting). The time is the
  difference between a long and a short file, so it does not include the start.

`--small` uses the size of recipes/demo.toml. `--before ../old/src` adds torch int8 of another version of Cutaway:

    python benchmarks/decoding.py --before ../old/src --only "Cutaway torch int8 before" "Cutaway torch int8"

Each implementation runs in a separate process and sleeps while others are measured. Rates are medians over the rounds.
Ratios are computed within a round, so that other load on the machine affects all.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

TOKENS, BEAM = 30, 5  # tokens of an output; beam size
CASES = {
    "1 greedy": (1, 1),
    f"1 beam {BEAM}": (1, BEAM),
    "64 greedy": (64, 1),
    f"64 beam {BEAM}": (64, BEAM),
}
REST = 0.2  # seconds until idle threads sleep
PEER, BEFORE = "Hugging Face", "Cutaway torch int8 before"
# name -> (class, engine and dtype)
ALONE = {
    PEER: ("HuggingFace", "float32"),
    "Cutaway torch": ("Cutaway", "torch float32"),
    "Cutaway torch int8": ("Cutaway", "torch int8"),
    "Cutaway numpy": ("Cutaway", "numpy float32"),
    "Cutaway ct2": ("Cutaway", "ct2 float32"),
    "Cutaway ct2 int8": ("Cutaway", "ct2 int8"),
    "CTranslate2": ("CTranslate2", "float32"),
    "CTranslate2 int8": ("CTranslate2", "int8"),
}
BULK = {
    "CTranslate2 directly": ("direct", "float32"),
    "cutaway translate, ct2": ("command", "ct2 float32"),
    "CTranslate2 directly, int8": ("direct", "int8"),
    "cutaway translate, ct2 int8": ("command", "ct2 int8"),
    "cutaway translate, torch": ("command", "torch float32"),
    "cutaway translate, torch int8": ("command", "torch int8"),
}
COMPARED_WITH = {  # in the second table
    "cutaway translate, ct2": "CTranslate2 directly",
    "cutaway translate, ct2 int8": "CTranslate2 directly, int8",
    "cutaway translate, torch": "CTranslate2 directly",
    "cutaway translate, torch int8": "CTranslate2 directly, int8",
}
STATE: dict[str, Any] = {}  # of a worker process, between its turns


def main() -> None:
    options = read_arguments()
    if options.before:
        ALONE[BEFORE] = ("Cutaway", f"torch int8 {options.before.resolve()}")
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
    figures: dict[str, Any] = {"cores": os.cpu_count(), "load_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        data = ["--data", str(options.data)] if options.data else []
        data += ["--small"] if options.small else []
        subprocess.run([sys.executable, __file__, "--make", name, *data], check=True)
        if "alone" in options.tables:
            figures["alone"] = one_thread(place, options)
        if "bulk" in options.tables:
            figures["bulk"] = all_cores(place, options)
    if options.json:
        from cutaway.runs.files import write_json

        write_json(options.json, figures)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Compare the decoding speed of Cutaway, Hugging Face and CTranslate2, measured in turns.",
        epilog="example: python benchmarks/decoding.py --data multi30k --rounds 9 --json decoding.json",
    )
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="with train.de and train.en; default: tinyworld")
    parser.add_argument(
        "--rounds", type=int, default=7, help="of the first table (default: %(default)s), after one to warm up"
    )
    parser.add_argument("--bulk-rounds", type=int, default=3, help="of the second table (default: %(default)s)")
    parser.add_argument("--lines", type=int, nargs=2, default=[1_000, 4_000], help="of the short and the long file")
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"some of: {', '.join([*ALONE, BEFORE, *BULK])}")
    parser.add_argument("--small", action="store_true", help="d_model 128, 2 + 2 layers, a vocabulary of 4,000")
    parser.add_argument("--before", type=Path, metavar="SRC", help="sources of another version, to compare int8")
    parser.add_argument("--tables", nargs="+", choices=["alone", "bulk"], default=["alone", "bulk"])
    parser.add_argument("--json", type=Path, metavar="OUT", help="write all measurements")
    parser.add_argument("--quick", action="store_true", help="few rounds and lines, to check that it works")
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--ctranslate2", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        make_models(options.make, options.data, options.small)
        sys.exit()
    if options.ctranslate2:
        translate_with_ctranslate2(*options.ctranslate2)
        sys.exit()
    if options.quick:
        options.rounds, options.bulk_rounds, options.lines = 1, 1, [64, 256]
    return options


def chosen_names(table: dict[str, Any], options: argparse.Namespace) -> list[str]:
    return sorted((name for name in table if not options.only or name in options.only), key=BEFORE.__ne__)


# ---- the model and the texts -------------------------------------------------------------------------------------


def make_models(place: Path, data: Path | None, small: bool) -> None:
    """Write a run folder with random weights, its exports, and sentences to translate."""
    import torch
    from throughput.pairs import read_pairs, tokenizer_of
    from throughput.shape import Shape

    from cutaway.config import Config, DataConfig, DecodeConfig, ModelConfig
    from cutaway.inference.engines.ct2_converter import export_ct2
    from cutaway.interop.huggingface import export_folder
    from cutaway.models.build import build_model
    from cutaway.models.weights import weights_to_bytes
    from cutaway.runs import RunFolder
    from cutaway.runs.files import write_bytes, write_json, write_text
    from cutaway.runs.weights import seal_weights

    shape = Shape(d_model=128, d_ff=512, layers=2, vocab_size=4_000) if small else Shape()
    prepared = read_pairs(data, "de-en", shape, 10_000)
    tokenizer = tokenizer_of(prepared)
    model = ModelConfig(
        d_model=shape.d_model,
        d_ff=shape.d_ff,
        n_heads=shape.n_heads,
        encoder_layers=shape.layers,
        decoder_layers=shape.layers,
        max_length=shape.max_length,
        vocab_size=shape.vocab_size,
    )
    decode = DecodeConfig(strategy="greedy", length_penalty=0.0, suppress=(tokenizer.eos,), max_length=TOKENS)
    run = RunFolder(place / "run")
    run.path.mkdir()
    write_text(run.tokenizer, tokenizer.to_json())
    write_json(run.tokenizer_roles, tokenizer.settings())
    run.write_config(Config(model, DataConfig(max_tokens=shape.max_length - 1), decode=decode))
    torch.manual_seed(0)
    write_bytes(run.model, seal_weights(weights_to_bytes(build_model(model))))
    export_folder(run.path, place / "hf")
    for dtype in ("float32", "int8"):
        export_ct2(run.path, place / f"ct2-{dtype}", dtype, check=False)
    lines = [tokenizer.decode(pair.source) for pair in prepared.train[:5_000]]
    (place / "lines.txt").write_text("\n".join(lines) + "\n")


# ---- one thread --------------------------------------------------------------------------------------------------


class HuggingFace:
    """MarianMTModel.generate, with its cache and SDPA attention."""

    def __init__(self, place: Path, what: str):
        import torch
        from transformers import MarianMTModel
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self.torch = torch
        self.model = MarianMTModel.from_pretrained(place / "hf", attn_implementation="sdpa").eval()
        self.model.generation_config.max_length = None

    def translate(self, rows: Sequence[Sequence[int]], beam: int) -> list[list[int]]:
        torch, longest = self.torch, max(map(len, rows))
        pad = self.model.config.pad_token_id
        ids = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        options = {"length_penalty": 0.0, "early_stopping": False} if beam > 1 else {}
        with torch.inference_mode():
            found = self.model.generate(
                input_ids=ids, attention_mask=mask, num_beams=beam, do_sample=False,
                max_new_tokens=TOKENS, min_new_tokens=TOKENS, **options,
            )  # fmt: skip
        return [row[1 : TOKENS + 1] for row in found.tolist()]


class Cutaway:
    """An engine, as `cutaway translate` uses it."""

    def __init__(self, place: Path, what: str):
        from cutaway import Translator

        engine, dtype = what.split()[:2]
        self.translator = Translator.load(place / "run", engine=engine, dtype=dtype, device="cpu")

    def translate(self, rows: Sequence[Sequence[int]], beam: int) -> list[list[int]]:
        from dataclasses import replace

        from cutaway.search.request import Search

        translator, tokenizer = self.translator, self.translator.tokenizer
        strategy = "greedy" if beam == 1 else "beam"
        decode = replace(translator.config.decode, strategy=strategy, beam_size=beam)
        search = Search(decode, [TOKENS] * len(rows), range(len(rows)), tokenizer.bos, tokenizer.eos)
        return [found[0].tokens for found in translator.engine.translate(rows, search)]


class CTranslate2:
    """CTranslate2, called directly with one thread."""

    def __init__(self, place: Path, what: str):
        import ctranslate2

        folder = str(place / f"ct2-{what}")
        self.translator = ctranslate2.Translator(folder, compute_type=what, inter_threads=1, intra_threads=1)
        self.tokens = vocabulary_of(place)

    def translate(self, rows: Sequence[Sequence[int]], beam: int) -> list[list[int]]:
        ids = {token: id for id, token in enumerate(self.tokens)}
        found = self.translator.translate_batch(
            [[self.tokens[id] for id in row] for row in rows], beam_size=beam, length_penalty=0,
            max_decoding_length=TOKENS, min_decoding_length=TOKENS,
        )  # fmt: skip
        return [[ids[token] for token in result.hypotheses[0]] for result in found]


def vocabulary_of(place: Path) -> list[str]:
    from cutaway.data.tokenizer import Tokenizer
    from cutaway.inference.engines.ct2_converter import token_names

    tokenizer = Tokenizer.open(place / "run" / "tokenizer.json")
    return token_names(tokenizer, tokenizer.vocab_size)


def prepare(place: Path, kind: str, what: str) -> None:
    """Load an implementation, once in each process."""
    sys.path[:0] = what.split()[2:]  # sources of another version
    if "numpy" not in what and kind != "CTranslate2":
        import torch

        torch.set_num_threads(1)
    from cutaway.data.tokenizer import Tokenizer

    tokenizer = Tokenizer.open(place / "run" / "tokenizer.json")
    lines = (place / "lines.txt").read_text().splitlines()[:64]
    STATE["rows"] = [[*ids, tokenizer.eos] for ids in tokenizer.encode_batch(lines)]
    STATE["implementation"] = globals()[kind](place, what)


def turn(case: str, number: int) -> tuple[float, list[list[int]]]:
    """Return tokens per second and the output."""
    batch, beam = CASES[case]
    rows, times = STATE["rows"], 8 if batch == 1 else 1
    pieces = [[rows[(8 * number + i) % len(rows)]] for i in range(times)] if batch == 1 else [rows]
    before = time.perf_counter()
    found = [text for piece in pieces for text in STATE["implementation"].translate(piece, beam)]
    return len(found) * TOKENS / (time.perf_counter() - before), found


def one_thread(place: Path, options: argparse.Namespace) -> dict[str, Any]:
    names, spawn = chosen_names(ALONE, options), get_context("spawn")
    pools: dict[str, Pool] = {name: spawn.Pool(1, prepare, (place, *ALONE[name])) for name in names}
    rates: dict[str, dict[str, list[float]]] = {case: {name: [] for name in names} for case in CASES}
    agree: dict[str, dict[str, float]] = {case: {} for case in CASES}
    try:
        for number in range(options.rounds + 1):
            for case in CASES:
                written: dict[str, list[list[int]]] = {}
                for name in names[:: 1 if number % 2 else -1]:
                    rate, written[name] = pools[name].apply(turn, (case, number))
                    if number:
                        rates[case][name].append(rate)
                    time.sleep(REST)
                agree[case] = {n: share(a == b for a, b in zip(w, written[names[0]], strict=True))
                               for n, w in written.items()}  # fmt: skip
            print(f"round {number} of {options.rounds}", file=sys.stderr)
    finally:
        for pool in pools.values():
            pool.terminate()
    print(f"\nOne thread: tokens per second (divided by those of {names[0]})\n")
    print_table(list(CASES), names, rates, lambda name: names[0])
    print(f"\nFraction of outputs equal to those of {names[0]}\n")
    for name in names:
        print(f"{name:32}" + "".join(f"{agree[case][name]:>20.0%}" for case in CASES))
    return {"rates": rates, "agreement": agree}


def share(items: Any) -> float:
    found = list(items)
    return sum(found) / len(found)


def print_table(
    columns: Sequence[str],
    names: Sequence[str],
    rates: Any,
    compared_with: Callable[[str], str | None],
    width: int = 20,
) -> None:
    print(f"{'':32}" + "".join(f"{column:>{width}}" for column in columns))
    for name in names:
        cells = []
        for column in columns:
            mine, other = rates[column][name], compared_with(name)
            ratio = ""
            if other in names:
                ratio = f" ({statistics.median(a / b for a, b in zip(mine, rates[column][other], strict=True)):.2f})"
            cells.append(f"{statistics.median(mine):,.0f}{ratio}")
        print(f"{name:32}" + "".join(f"{cell:>{width}}" for cell in cells))


# ---- all cores --------------------------------------------------------------------------------------------------


def all_cores(place: Path, options: argparse.Namespace) -> dict[str, Any]:
    names, (short, long) = chosen_names(BULK, options), options.lines
    lines = (place / "lines.txt").read_text().splitlines()
    for n in (short, long):
        (place / f"{n}.txt").write_text("\n".join((lines * (n // len(lines) + 1))[:n]) + "\n")
    rates: dict[str, list[float]] = {name: [] for name in names}
    starts: dict[str, list[float]] = {name: [] for name in names}
    for number in range(options.bulk_rounds):
        for name in names[:: 1 if number % 2 else -1]:
            seconds = {n: translate_file(place, n, *BULK[name]) for n in (short, long)}
            a_line = (seconds[long] - seconds[short]) / (long - short)
            rates[name].append(TOKENS / a_line)
            starts[name].append(seconds[short] - short * a_line)
        print(f"round {number + 1} of {options.bulk_rounds}", file=sys.stderr)
    print(f"\n{os.cpu_count()} cores, a file: tokens per second (divided by CTranslate2), seconds to start\n")
    for name in names:
        other = COMPARED_WITH.get(name)
        ratio = ""
        if other in names:
            ratio = f" ({statistics.median(a / b for a, b in zip(rates[name], rates[other], strict=True)):.2f})"
        print(f"{name:32}{statistics.median(rates[name]):>12,.0f}{ratio:8}{statistics.median(starts[name]):>8.1f}")
    return {"rates": rates, "starts": starts}


def translate_file(place: Path, lines: int, kind: str, what: str) -> float:
    source, out = place / f"{lines}.txt", place / "out.txt"
    before = time.perf_counter()
    if kind == "direct":
        subprocess.run([sys.executable, __file__, "--ctranslate2", str(place), str(source), str(out), what], check=True)
    else:
        engine, dtype = what.split()
        command = [sys.executable, "-m", "cutaway", "translate", place / "run", "--file", source, "--out", out]
        command += ["--engine", engine, "--dtype", dtype, "--device", "cpu"]
        subprocess.run([*map(str, command)], check=True, stderr=subprocess.DEVNULL)
    seconds = time.perf_counter() - before
    written = len(out.read_text().splitlines())
    assert written == lines, f"{kind} {what}: {written} lines of {lines}"
    return seconds


def translate_with_ctranslate2(place: str, source: str, out: str, dtype: str) -> None:
    """Translate a file with one call of CTranslate2."""
    import ctranslate2

    from cutaway.data.tokenizer import Tokenizer

    tokenizer, names = Tokenizer.open(Path(place) / "run" / "tokenizer.json"), vocabulary_of(Path(place))
    workers = len(os.sched_getaffinity(0))
    translator = ctranslate2.Translator(
        f"{place}/ct2-{dtype}", compute_type=dtype, inter_threads=workers, intra_threads=1
    )
    lines = Path(source).read_text().splitlines()
    rows = [[*(names[id] for id in ids), names[tokenizer.eos]] for ids in tokenizer.encode_batch(lines)]
    found = translator.translate_batch(
        rows, max_batch_size=128, beam_size=1, max_decoding_length=TOKENS, min_decoding_length=TOKENS
    )
    ids = {name: id for id, name in enumerate(names)}
    texts = [tokenizer.decode([ids[token] for token in result.hypotheses[0]]) for result in found]
    Path(out).write_text("\n".join(" ".join(text.splitlines()) for text in texts) + "\n")


if __name__ == "__main__":
    main()
