"""Write tokenizers, hostile texts, and what the library `tokenizers` and Cutaway make of them.

python dump_tokenizers.py FOLDER

names.json    the names of the tokenizers
NAME.json     tokenizer: its tokenizer.json; roles: its tokenizer_config.json; texts: for each text what is expected;
              streams: pieces of text as tokens come, and what stop strings leave of them
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import tokenizers
from hostile import hostile_texts, well_formed
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

from cutaway.data.tokenizer import Tokenizer
from cutaway.interop.tokenizer_files import add_lowercase, read_tokenizer
from cutaway.search.streaming import StopStrings, TextStream, cut_at_stop

TEXTS = [
    "The small cat sleeps on the warm stone, and the dog watches it.",
    "A small dog barks at the moon; the cat does not care at all. Don't we'll I'm it's 1234 007!",
    "L'arbre est grand. Ça va ? « Le chat, petit et noir, dort. » 1 + 2 = 3 naïve café œuvre",
    "Der Käse ist weiß. слово и дело 漢字 日本語 がぎ مرحبا नमस्ते 한국어 🙂 👍🏽 lowest unaffordable",
    "    return x\n        if y:\n\treturn [1, 2]\n",
] * 4
N = 1000
# the expressions of Llama 3, Qwen 2 and DeepSeek V3
LLAMA = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
DEEPSEEK = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""

MAKERS: dict[str, Callable[[Path], Tokenizer]] = {}


def maker(make: Callable[[Path], Tokenizer]) -> Callable[[Path], Tokenizer]:
    MAKERS[make.__name__] = make
    return make


for scheme in ("word", "char", "byte", "bpe"):
    MAKERS[scheme] = lambda folder, scheme=scheme: Tokenizer.train(TEXTS, scheme, 400)


@maker
def bpe_with_mask(folder: Path) -> Tokenizer:
    return Tokenizer.train(TEXTS, "bpe", 300, has_mask=True)


@maker
def word_lower(folder: Path) -> Tokenizer:
    tokenizer = Tokenizer.train(TEXTS, "word", 100)
    add_lowercase(tokenizer)
    return tokenizer


def gpt2_files(folder: Path, **settings: object) -> Tokenizer:
    model = json.loads(Tokenizer.train(TEXTS, "bpe", 340).to_json())["model"]
    merges = [" ".join(pair) for pair in model["merges"]]
    names = [name for name in model["vocab"] if not name.startswith("<")]
    write(folder / "vocab.json", {name: id for id, name in enumerate([*names, "<|endoftext|>"])})
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]) + "\n", encoding="utf-8")
    write(folder / "tokenizer_config.json", settings)
    ids = {"bos_token_id": len(names), "eos_token_id": len(names)}
    return read_tokenizer(folder, {"model_type": "gpt2", **ids})


@maker
def gpt2(folder: Path) -> Tokenizer:
    return gpt2_files(folder)


@maker
def gpt2_published(folder: Path) -> Tokenizer:
    """As transformers writes it: with a post-processor that changes offsets."""
    tokenizer = gpt2_files(folder)
    tokenizer.backend.post_processor = processors.ByteLevel(trim_offsets=True, add_prefix_space=False)
    return reopened(folder, tokenizer.backend, bos_token="<|endoftext|>", eos_token="<|endoftext|>")


@maker
def roberta(folder: Path) -> Tokenizer:
    tokenizer = gpt2_files(folder, add_prefix_space=True)
    backend = tokenizer.backend
    backend.add_special_tokens(["<s>", "</s>", "<pad>", "<unk>"])
    backend.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    sep, cls = ("</s>", backend.token_to_id("</s>")), ("<s>", backend.token_to_id("<s>"))
    backend.post_processor = processors.RobertaProcessing(sep, cls, trim_offsets=True, add_prefix_space=True)
    return reopened(folder, backend)


def llama3_like(folder: Path, expression: str, nfc: bool = False, **model: bool) -> Tokenizer:
    settings = json.loads(Tokenizer.train(TEXTS, "bpe", 400).to_json())["model"]
    merges = [tuple(pair) for pair in settings["merges"]]
    vocab, n = settings["vocab"], len(settings["vocab"])
    vocab |= {"xyzzy": n, "Ġxyzzy": n + 1}  # no merges lead to them
    backend = tokenizers.Tokenizer(models.BPE(vocab, merges, **model))
    backend.normalizer = normalizers.NFC() if nfc else None
    split = pre_tokenizers.Split(Regex(expression), "isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|reserved|>"])
    bos = backend.token_to_id("<|begin_of_text|>")
    template = processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", bos)])
    backend.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return reopened(
        folder, backend, bos_token="<|begin_of_text|>", eos_token="<|end_of_text|>", pad_token="<|reserved|>"
    )


@maker
def llama3(folder: Path) -> Tokenizer:
    return llama3_like(folder, LLAMA, ignore_merges=True)


@maker
def qwen2(folder: Path) -> Tokenizer:
    return llama3_like(folder, LLAMA.replace(r"\p{N}{1,3}", r"\p{N}"), nfc=True)


@maker
def deepseek(folder: Path) -> Tokenizer:
    return llama3_like(folder, DEEPSEEK)


@maker
def smollm(folder: Path) -> Tokenizer:
    """Single digits, then GPT-2's expression, and a vocabulary that lacks some bytes."""
    backend = tokenizers.Tokenizer(models.BPE())
    digits, level = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([digits, level])
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=250, special_tokens=["<|endoftext|>"], show_progress=False)
    backend.train_from_iterator(TEXTS, trainer)
    return reopened(folder, backend)


def llama2_like(folder: Path, **options: bool) -> Tokenizer:
    """SentencePiece's BPE with bytes."""
    special = ["<unk>", "<s>", "</s>"]
    learner = tokenizers.Tokenizer(models.BPE())
    learner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trainer = trainers.BpeTrainer(vocab_size=200, special_tokens=special, show_progress=False, max_token_length=8)
    learner.train_from_iterator([word for text in TEXTS for word in text.split()], trainer)
    model = json.loads(learner.to_str())["model"]
    names = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), *(n for n in model["vocab"] if n not in special)]
    merges = [tuple(pair) for pair in model["merges"]]
    vocab = {name: id for id, name in enumerate(names)}
    backend = tokenizers.Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if options.get("metaspace"):
        backend.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
    else:
        backend.normalizer = learner.normalizer
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(steps)
    backend.add_special_tokens(special)
    word, stripping = {"single_word": True, "normalized": False}, {"lstrip": True, "rstrip": True, "normalized": False}
    backend.add_tokens(["[INST]", "[INST]s", AddedToken("<tool>", **word), AddedToken("<t>", **stripping), "<t>s"])
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return reopened(folder, backend, pad_token="<unk>")


@maker
def llama2(folder: Path) -> Tokenizer:
    return llama2_like(folder)


@maker
def llama2_metaspace(folder: Path) -> Tokenizer:
    return llama2_like(folder, metaspace=True)


@maker
def bpe_unknown(folder: Path) -> Tokenizer:
    """Unknown characters stay apart; words are separated by white space and punctuation."""
    backend = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    backend.train_from_iterator(
        TEXTS[:2], trainers.BpeTrainer(vocab_size=90, special_tokens=special, show_progress=False)
    )
    return reopened(folder, backend)


def bert_like(folder: Path, **settings: object) -> Tokenizer:
    letters = sorted(set("".join(TEXTS)) - set(" \n\t"))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "The", "small", "cat", "##s", "sleep", "ca", "##va"]
    words += [*letters, *(f"##{letter}" for letter in letters), *"猫字漢", "##er"]
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(words)) + "\n", encoding="utf-8")
    write(folder / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer", **settings})
    return read_tokenizer(folder, {"model_type": "bert", "pad_token_id": 0})


@maker
def bert(folder: Path) -> Tokenizer:
    return bert_like(folder)


@maker
def bert_cased(folder: Path) -> Tokenizer:
    tokenizer = bert_like(folder, do_lower_case=False, tokenize_chinese_chars=False)
    tokenizer.backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return reopened(folder, tokenizer.backend)


def spm(folder: Path, name: str, texts: list[str] = TEXTS, **options: object) -> Path:
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts * 5), model_prefix=str(folder / name), hard_vocab_limit=False, minloglevel=2,
        **{"vocab_size": 150, **options},
    )  # fmt: skip
    return folder / f"{name}.model"


def t5_like(folder: Path, **options: object) -> Tokenizer:
    spm(folder, "spiece", pad_id=0, eos_id=1, unk_id=2, bos_id=-1, **options)
    return read_tokenizer(folder, {"model_type": "t5", "decoder_start_token_id": 0})


for name, options in {
    "t5": {},
    "t5_no_prefix": {"add_dummy_prefix": False},
    "t5_identity": {"normalization_rule_name": "identity"},
    "t5_casefold": {"normalization_rule_name": "nfkc_cf", "remove_extra_whitespaces": False},
    "t5_bytes": {"byte_fallback": True, "vocab_size": 420},
}.items():
    MAKERS[name] = lambda folder, options=options: t5_like(folder, **options)


@maker
def unigram(folder: Path) -> Tokenizer:
    """Splits with equal scores, a piece whose first character is no piece, and one that is written as unknown."""
    scores = {"<pad>": 0, "<s>": 0, "</s>": 0, "<unk>": 0, "xy": -15, "y": 5, "▁": -1}
    scores |= {"a": -1, "b": -2, "c": -1, "ab": -2, "bc": -3, "ba": -3, "abc": -4, "▁a": -2, "aba": -4, "ca": -2}
    backend = tokenizers.Tokenizer(models.Unigram([(piece, float(score)) for piece, score in scores.items()], 3))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    return reopened(folder, backend)


@maker
def marian(folder: Path) -> Tokenizer:
    from cutaway.interop.sentencepiece import read_model

    files = [spm(folder, "source", TEXTS[:2]), spm(folder, "target", TEXTS[2:4], vocab_size=90)]
    for file in files:
        file.rename(file.with_suffix(".spm"))
    pieces = [piece.text for file in files for piece in read_model(file.with_suffix(".spm")).pieces]
    own = [piece for piece in dict.fromkeys(pieces) if piece not in ("<s>", "</s>", "<unk>")]
    names = ["</s>", "<unk>", *own, ">>deu<<", ">>fra<<", "<pad>"]
    write(folder / "vocab.json", {name: id for id, name in enumerate(names)})
    return read_tokenizer(folder, {"model_type": "marian", "decoder_start_token_id": len(names) - 1})


@maker
def all_steps(folder: Path) -> Tokenizer:
    """The remaining steps."""
    backend = tokenizers.Tokenizer(
        models.WordLevel({"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "cat": 4, "the": 5}, "<unk>")
    )
    steps = [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Strip(right=False), normalizers.Lowercase()]
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(Regex("[aeiou]{2,}"), "oo")])
    backend.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_previous"), pre_tokenizers.Digits(),
        pre_tokenizers.Split("-", "merged_with_next"), pre_tokenizers.Split(Regex("[a-m]+"), "contiguous", invert=True),
        pre_tokenizers.Split(Regex(r"\w"), "removed", invert=True),
    ])  # fmt: skip
    return reopened(folder, backend)


def reopened(folder: Path, backend: tokenizers.Tokenizer, **roles: str) -> Tokenizer:
    path = folder / "tokenizer.json"
    backend.save(str(path))
    write(folder / "tokenizer_config.json", roles)
    return Tokenizer.open(path)


def write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def expected(tokenizer: Tokenizer, text: str, rng: random.Random) -> dict[str, object]:
    """What a text becomes, and what random ids near it decode to."""
    given, text = text, well_formed(text)
    encoding = tokenizer.backend.encode(text, add_special_tokens=False)
    ids = tokenizer.encode(text)
    mixed = [rng.randrange(tokenizer.vocab_size + 3) for _ in range(rng.choice([0, 1, 5, 20]))] + ids[:20]
    rng.shuffle(mixed)
    return {
        "text": given,
        "ids": encoding.ids,
        "tokens": encoding.tokens,
        "offsets": encoding.offsets,
        "decoded": tokenizer.backend.decode(encoding.ids, skip_special_tokens=False),
        "encoded": ids,
        "continued": tokenizer.encode(text, continues=True),
        "plain": tokenizer.decode(ids),
        "spans": tokenizer.spans(text),
        "unknown": tokenizer.unknown(text),
        "mixed": mixed,
        "mixed_decoded": tokenizer.backend.decode(mixed, skip_special_tokens=False),
        "mixed_plain": tokenizer.decode(mixed),
        "target": None if tokenizer.for_target is tokenizer else tokenizer.for_target.encode(text),
    }


def stream(tokenizer: Tokenizer, ids: list[int], rng: random.Random) -> dict[str, object]:
    """The pieces of text as tokens come, and what stop strings leave of them."""
    n = rng.randrange(min(3, len(ids)) + 1)
    before, after, text = ids[:n], ids[n:], tokenizer.decode(ids)
    texts = TextStream(tokenizer, before)
    pieces = [*(texts.add(token) for token in after), texts.end()]
    starts = [rng.randrange(len(text) + 1) for _ in range(rng.choice([0, 1, 3]))]
    stops = [text[start : start + rng.randrange(5)] + rng.choice(["", "", "x"]) for start in starts]
    until = StopStrings(stops)
    kept = [*(until.add(piece) for piece in pieces), until.end()]
    return {"before": before, "after": after, "pieces": pieces, "stops": stops, "kept": kept,
            "cut": cut_at_stop("".join(pieces), stops)}  # fmt: skip


def main(folder: Path) -> None:
    for name, make in MAKERS.items():
        with tempfile.TemporaryDirectory() as scratch:
            made = make(Path(scratch))
        content = made.to_json()
        tokenizer = Tokenizer.from_json(content, made.roles)  # the library as it reads the file
        special = [token.content for token in tokenizer.backend.get_added_tokens_decoder().values()]
        rng = random.Random(1)
        cases = [expected(tokenizer, text, rng) for text in hostile_texts(N, [*special, "</s>", "<unk>"])]
        ids = list(range(tokenizer.vocab_size + 2))
        properties = {
            "pad": tokenizer.pad, "bos": tokenizer.bos, "eos": tokenizer.eos, "unk": tokenizer.unk, "mask": tokenizer.mask,
            "vocabSize": tokenizer.vocab_size, "addsBos": tokenizer.adds_bos,
        }  # fmt: skip
        result = {
            "tokenizer": content, "roles": tokenizer.settings(), "properties": properties,
            "names": tokenizer.tokens(ids), "texts": cases,
            "streams": [stream(tokenizer, case["mixed"], rng) for case in cases[::5]],
        }  # fmt: skip
        write(folder / f"{name}.json", result)
    write(folder / "names.json", list(MAKERS))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
