"""Folders as Hugging Face writes them, made without its libraries: for tests that import them."""

from __future__ import annotations

import json
from pathlib import Path

import tokenizers
from helpers import perturbed_model
from tokenizers import models, pre_tokenizers

from cutaway.config import ModelConfig
from cutaway.interop import names
from cutaway.interop.huggingface import choose_architecture
from cutaway.interop.tensors import write_folder

PAD, EOS, UNK, BOS, MASK = range(5)
SPECIAL = ("<pad>", "</s>", "<unk>", "<s>", "<mask>")
ROLES = {
    "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "bos_token": "<s>", "mask_token": "<mask>",
    "cls_token": "<s>", "sep_token": "</s>",
}  # fmt: skip
IDS = {"pad_token_id": PAD, "eos_token_id": EOS, "bos_token_id": BOS}


def words(size: int) -> list[str]:
    return [*SPECIAL, *(f"w{i}" for i in range(len(SPECIAL), size))][:size]


def write_tokenizer_of(folder: Path, size: int) -> None:
    """A vocabulary of so many words: "w5 w6 w7"."""
    backend = tokenizers.Tokenizer(models.WordLevel({w: i for i, w in enumerate(words(size))}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens([name for name in SPECIAL if name in words(size)])
    (folder / "tokenizer.json").write_text(backend.to_str(), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(ROLES), encoding="utf-8")


def write_theirs(folder: Path, config: ModelConfig, **settings: object) -> dict:
    """Our configuration as a folder of theirs, with random weights; `settings` go into its config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    architecture = choose_architecture(config)
    ours = {name: p.detach().numpy() for name, p in perturbed_model(config).named_parameters()}
    theirs = names.write(architecture.table(config), ours, "a run")
    write_folder(folder, theirs)
    ids = {} if config.family == "vision" else dict(IDS)
    if config.family == "encoder_decoder":
        ids["decoder_start_token_id"] = PAD
    labels = {"id2label": {str(i): f"class {i}" for i in range(config.n_classes)}} if config.n_classes else {}
    said = {"model_type": architecture.model_type, **architecture.config_to(config), **ids, **labels, **settings}
    (folder / "config.json").write_text(json.dumps(said), encoding="utf-8")
    if config.family != "vision":
        write_tokenizer_of(folder, config.vocab_size)
    return ours
