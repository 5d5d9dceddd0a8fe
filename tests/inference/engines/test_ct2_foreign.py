"""Imported models, compared with CTranslate2's own converter; and exported LoRA runs."""

import os
import random

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before transformers is imported

import ctranslate2
import pytest
import torch
from foreign import EOS, IDS, PAD, words, write_tokenizer_of
from helpers import run_cutaway, small_recipe

from cutaway.config import DecodeConfig
from cutaway.inference.engines.ct2_converter import export_ct2
from cutaway.inference.pipelines import Translator
from cutaway.inference.training.setup import start_training
from cutaway.interop.huggingface import import_folder
from cutaway.runs import RunFolder

pytestmark = pytest.mark.slow

V = 61


def random_model(kind, **settings):
    import transformers as hf

    config = {"MarianMTModel": "MarianConfig", "GPT2LMHeadModel": "GPT2Config", "LlamaForCausalLM": "LlamaConfig",
              "T5ForConditionalGeneration": "T5Config"}[kind]  # fmt: skip
    torch.manual_seed(0)
    model = getattr(hf, kind)(getattr(hf, config)(vocab_size=V, **IDS | settings)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" in name and kind == "MarianMTModel":
                continue  # sinusoids
            noise = torch.randn_like(parameter)
            parameter.copy_(noise.sign() * parameter + 0.3 * noise if parameter.dim() == 1 else 0.6 * noise)
        if kind == "MarianMTModel":
            model.final_logits_bias.normal_(std=0.3)
    return model


WIDTHS = {"hidden_size": 16, "intermediate_size": 40, "num_attention_heads": 4, "num_hidden_layers": 3}
MODELS = {
    "gpt2": lambda: random_model("GPT2LMHeadModel", n_embd=16, n_layer=3, n_head=4, n_positions=64),
    "llama": lambda: random_model("LlamaForCausalLM", num_key_value_heads=2, max_position_embeddings=64, **WIDTHS),
    # CTranslate2's converter removes the last row of a Marian vocabulary, as padding
    "marian": lambda: random_model(
        "MarianMTModel", d_model=16, encoder_layers=3, decoder_layers=2, max_position_embeddings=64, encoder_ffn_dim=40,
        decoder_ffn_dim=40, encoder_attention_heads=4, decoder_attention_heads=4, scale_embedding=True,
        decoder_start_token_id=PAD, forced_eos_token_id=None, activation_function="swish",
    ),
    "t5": lambda: random_model(
        "T5ForConditionalGeneration", d_model=16, d_kv=4, d_ff=40, num_heads=4, num_layers=3, num_decoder_layers=2,
        relative_attention_num_buckets=8, relative_attention_max_distance=16, decoder_start_token_id=PAD,
    ),
}  # fmt: skip
LOADERS = {"gpt2": "GPT2Config", "llama": "LlamaConfig", "marian": "BartConfig", "t5": "T5Config"}


def convert(name, model, folder):
    """Convert a model with CTranslate2's converter, without its tokenizer, which would need real files."""
    from ctranslate2.converters.transformers import _MODEL_LOADERS

    if name == "marian":  # like CTranslate2's loader of Marian, but without removing the last token
        model.config.normalize_before = model.config.normalize_embedding = False
    spec = _MODEL_LOADERS[LOADERS[name]].get_model_spec(model)
    if name in ("gpt2", "llama"):
        spec.register_vocabulary(words(V))
        spec.config.layer_norm_epsilon = getattr(model.config, "rms_norm_eps", 1e-5)
    else:
        spec.register_source_vocabulary(words(V))
        spec.register_target_vocabulary(words(V))
        spec.config.decoder_start_token = "<pad>"
        spec.config.layer_norm_epsilon = 1e-6 if name == "t5" else 1e-5
    folder.mkdir()
    spec.validate()
    spec.optimize()
    spec.save(str(folder))
    return folder


def run_folder(folder, is_translator, **options):
    draw, names = random.Random(0), words(V)
    texts = [[names[draw.randrange(5, V)] for _ in range(n)] for n in (1, 4, 9, 17)]
    suppressed = [["<pad>"]]
    if is_translator:
        texts = [[*text, names[EOS]] for text in texts]
        model = ctranslate2.Translator(str(folder))
        found = model.translate_batch(
            texts,
            max_decoding_length=20,
            return_scores=True,
            suppress_sequences=suppressed,
            length_penalty=0,
            **options,
        )
        return [(one.hypotheses, one.scores) for one in found]
    model = ctranslate2.Generator(str(folder))
    found = model.generate_batch(
        texts, max_length=20, return_scores=True, suppress_sequences=suppressed, length_penalty=0, **options
    )
    return [(one.sequences, one.scores) for one in found]


@pytest.mark.parametrize("name", MODELS)
def test_exports_equal_ctranslate2_conversions(name, tmp_path):
    model = MODELS[name]()
    model.save_pretrained(tmp_path / "theirs")
    write_tokenizer_of(tmp_path / "theirs", V)
    import_folder(tmp_path / "theirs", tmp_path / "run")
    export_ct2(tmp_path / "run", tmp_path / "ours")
    other = convert(name, model, tmp_path / "converted")
    is_translator = name in ("marian", "t5")
    for options in ({"beam_size": 1}, {"beam_size": 4}, {"beam_size": 3, "num_hypotheses": 3}):
        ours, expected = (run_folder(folder, is_translator, **options) for folder in (tmp_path / "ours", other))
        assert [texts for texts, _ in ours] == [texts for texts, _ in expected]
        assert len({round(scores[0], 3) for _, scores in ours}) == 4  # outputs depend on the inputs
        for (_, one), (_, another) in zip(ours, expected, strict=True):
            assert one == pytest.approx(another, abs=1e-3)


RECIPE = """
[finetune]
base = "runs/base"
method = "lora"
rank = 2

[data]
corpus = "reverse"
size = 100
heldout_size = 10
batch_tokens = 256
max_tokens = 64

[train]
steps = 8
schedule = "constant"
lr = 1e-2
samples = 0
processes = 1
"""


def test_a_lora_run_is_merged_with_its_base(tmp_path):
    start_training(small_recipe(steps=4, samples=0), RunFolder(tmp_path / "runs/base")).trainer.run()
    (tmp_path / "lora.toml").write_text(RECIPE, encoding="utf-8")
    result = run_cutaway("train", "lora.toml", "--run", "runs/lora", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    texts, decode = ["b c d", "a", "e f g h a b"], DecodeConfig(strategy="greedy", max_length=6)
    ours, same, base = (
        Translator.load(tmp_path / "runs" / run, "cpu", engine=engine)
        for run, engine in (("lora", "ct2"), ("lora", "torch"), ("base", "ct2"))
    )
    found = [text[0].log_probability for text in ours.hypotheses(texts, decode)]
    assert ours.translate(texts, decode) == same.translate(texts, decode)
    assert found == pytest.approx([text[0].log_probability for text in same.hypotheses(texts, decode)], abs=1e-4)
    assert found != pytest.approx([text[0].log_probability for text in base.hypotheses(texts, decode)], abs=1e-4)
    assert export_ct2(tmp_path / "runs/lora", tmp_path / "folder").difference < 1e-4
