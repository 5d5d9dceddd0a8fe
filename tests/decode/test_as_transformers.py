"""Every search against Hugging Face's `generate`, with the same weights: tiny random Marian and GPT-2 models.

Where definitions differ, docs/decoding.md says how, and which settings agree. These are tested here.
"""

import json
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before transformers is imported

import pytest
import torch
from foreign import EOS, IDS, PAD, write_tokenizer_of

from cutaway.config import DecodeConfig
from cutaway.decode.filters import build_filters
from cutaway.decode.rules import RuledStepper, TokenHistory, build_rules
from cutaway.inference.engines.torch_engine import TorchEngine
from cutaway.inference.pipelines import load_pipeline
from cutaway.interop.generation import NOT_KEPT
from cutaway.interop.huggingface import export_folder, import_folder
from cutaway.runs import RunFolder
from cutaway.runs.files import write_text
from cutaway.search.request import Search, Start

pytestmark = pytest.mark.slow

V, LIMIT = 61, 12
MARIAN = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "max_position_embeddings": 80, "dropout": 0.0,
          "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
          "decoder_start_token_id": PAD, "forced_eos_token_id": None}  # fmt: skip
GPT2 = {"n_embd": 16, "n_inner": 40, "n_layer": 3, "n_head": 4, "n_positions": 80,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}  # fmt: skip


def make(kind, seed=5):
    import transformers as hf

    torch.manual_seed(seed)
    if kind == "marian":
        model = hf.MarianMTModel(hf.MarianConfig(vocab_size=V, **IDS, **MARIAN))
        model.generation_config.bad_words_ids = [[PAD]]
    elif kind == "pegasus":
        model = hf.PegasusForConditionalGeneration(hf.PegasusConfig(vocab_size=V, **IDS, **MARIAN))
    else:
        model = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=V, **IDS, **GPT2))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                spread = 0.3 if parameter.dim() == 1 else 0.7
                parameter.copy_(parameter * (parameter.dim() == 1) + spread * torch.randn_like(parameter))
    return model.eval()


@pytest.fixture(scope="module", params=["marian", "gpt2"])
def pair(request, tmp_path_factory):
    """(their model, our engine, the imported `suppress` setting, whether it translates)"""
    folder, theirs = tmp_path_factory.mktemp(request.param), make(request.param)
    theirs.save_pretrained(folder / "theirs")
    write_tokenizer_of(folder / "theirs", V)
    import_folder(folder / "theirs", folder / "run")
    run = RunFolder(folder / "run")
    config = run.read_config()
    ours = TorchEngine.load(run, config, run.weights, "cpu", "float32")
    return theirs, ours, config.decode.suppress, request.param == "marian"


def rows(n=16):
    """Sources or prompts of mixed lengths."""
    torch.manual_seed(7)
    return [torch.randint(5, V, (1 + i % 7,)).tolist() for i in range(n)]


def choose_eos(pair):
    """A token that about half of the texts contain, but not as the first: a good </s> for the test."""
    texts = [best[0].tokens for best in search_ours(pair, rows(), EOS, strategy="greedy")]
    half = len(texts) / 2
    return min(range(5, V), key=lambda word: abs(half - sum(word in text[1:] and word != text[0] for text in texts)))


def search_ours(pair, texts, end, prefixes=(), **settings):
    _, engine, suppress, translates = pair
    search = Search(
        DecodeConfig(suppress=suppress, **settings), [LIMIT] * len(texts), range(len(texts)), PAD, end, 1, prefixes
    )
    return (engine.translate if translates else engine.generate)(texts, search)


def search_theirs(pair, texts, end, prefixes=(), **settings):
    """The new tokens of each text. One text at a time, so that there is no padding."""
    theirs, _, _, translates = pair
    written = []
    for i, text in enumerate(texts):
        prefix = list(prefixes[i]) if prefixes else []
        given = {"input_ids": torch.tensor([text if translates else [*text, *prefix]])}
        if translates:
            given["decoder_input_ids"] = torch.tensor([[PAD, *prefix]])
        read = 1 + len(prefix) if translates else len(text) + len(prefix)
        given["attention_mask"] = torch.ones_like(given["input_ids"])
        out = theirs.generate(
            **given, max_new_tokens=LIMIT, do_sample=False, eos_token_id=end, pad_token_id=PAD, **settings
        )
        new = out[0, read:].tolist()
        written.append(new[: new.index(end)] if end in new else new)
    return written


# ours, theirs
SETTINGS = {
    "greedy": ({"strategy": "greedy"}, {"num_beams": 1}),
    "repetition": ({"strategy": "greedy", "repetition_penalty": 1.6}, {"num_beams": 1, "repetition_penalty": 1.6}),
    "encouraged": ({"strategy": "greedy", "repetition_penalty": 0.7}, {"num_beams": 1, "repetition_penalty": 0.7}),
    "bigrams": ({"strategy": "greedy", "no_repeat_ngram": 2}, {"num_beams": 1, "no_repeat_ngram_size": 2}),
    "no word twice": ({"strategy": "greedy", "no_repeat_ngram": 1}, {"num_beams": 1, "no_repeat_ngram_size": 1}),
    "long": ({"strategy": "greedy", "min_length": 7}, {"num_beams": 1, "min_new_tokens": 7}),
    "all": (
        {"strategy": "greedy", "repetition_penalty": 1.3, "no_repeat_ngram": 3, "min_length": 5},
        {"num_beams": 1, "repetition_penalty": 1.3, "no_repeat_ngram_size": 3, "min_new_tokens": 5},
    ),
    "beam": (
        {"strategy": "beam", "beam_size": 4, "length_penalty": 0.0},
        {"num_beams": 4, "length_penalty": 0.0, "early_stopping": "never"},
    ),
    "wide beam": (
        {"strategy": "beam", "beam_size": 9, "length_penalty": 0.0},
        {"num_beams": 9, "length_penalty": 0.0, "early_stopping": "never"},
    ),
}


@pytest.mark.parametrize("has_prefix", [False, True], ids=["no prefix", "prefix"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_same_tokens(pair, setting, has_prefix):
    end, texts = choose_eos(pair), rows()
    prefixes = [[5 + i, 9][: i % 3] for i in range(len(texts))] if has_prefix else ()
    ours, theirs = SETTINGS[setting]
    found = search_ours(pair, texts, end, prefixes, **ours)
    assert [best[0].tokens for best in found] == search_theirs(pair, texts, end, prefixes, **theirs)
    assert len({len(best[0].tokens) for best in found}) > 1  # some texts end and some are cut off


def test_the_same_beam_score(pair):
    """Without a length penalty, the score is the log-probability. No token is forbidden here, because in a beam they do not
    renormalize after forbidding tokens."""
    theirs, end, texts = pair[0], choose_eos(pair), rows(6)
    theirs.generation_config.bad_words_ids = None
    pair = (*pair[:2], (), pair[3])
    for text, [best] in zip(texts, search_ours(pair, texts, end, strategy="beam", length_penalty=0.0), strict=True):
        out = theirs.generate(
            torch.tensor([text]), max_new_tokens=LIMIT, num_beams=4, length_penalty=0.0, early_stopping="never",
            eos_token_id=end, pad_token_id=PAD, return_dict_in_generate=True, output_scores=True, do_sample=False,
        )  # fmt: skip
        assert best.score == pytest.approx(float(out.sequences_scores[0]), abs=1e-4)


@pytest.mark.parametrize(
    "setting",
    [{"temperature": 0.6}, {"top_k": 5}, {"top_k": 500}, {"top_p": 0.8}, {"min_p": 0.1}, {"min_p": 1.0},
     {"temperature": 1.7, "top_k": 20, "top_p": 0.7, "min_p": 0.05}],
    ids=str,
)  # fmt: skip
def test_the_same_filters(setting):
    from transformers.generation import logits_process as hf

    theirs = {"temperature": hf.TemperatureLogitsWarper, "top_k": hf.TopKLogitsWarper, "top_p": hf.TopPLogitsWarper,
              "min_p": hf.MinPLogitsWarper}  # fmt: skip
    logits = 3 * torch.randn(50, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    ours, expected = logits, logits.clone()
    for apply in build_filters(DecodeConfig(**{"strategy": "sample", "temperature": 1.0, "top_p": 1.0, **setting})):
        ours = apply(ours)
    for name, value in setting.items():  # in the order of their `generate`
        expected = theirs[name](value)(None, expected)
    assert torch.equal(ours.isfinite(), expected.isfinite())
    assert torch.allclose(ours, expected)


class FixedLogits:
    """A stepper that returns the same logits at each step."""

    def __init__(self, logits):
        self.logits = logits

    def step(self, tokens):
        return self.logits

    def keep(self, rows):
        self.logits = self.logits[rows]


@pytest.mark.parametrize("setting", [{"repetition_penalty": 1.8}, {"repetition_penalty": 0.5}, {"no_repeat_ngram": 1},
                                     {"no_repeat_ngram": 2}, {"no_repeat_ngram": 3}, {"suppress": (3, 4)},
                                     {"min_length": 3}], ids=str)  # fmt: skip
def test_the_same_rules(setting):
    from transformers.generation import logits_process as hf

    generator = torch.Generator().manual_seed(2)
    read, logits = torch.randint(0, 6, (30, 12), generator=generator), torch.randn(30, 8, generator=generator)
    [(name, value)] = setting.items()
    theirs = {
        "repetition_penalty": lambda: hf.RepetitionPenaltyLogitsProcessor(value),
        "no_repeat_ngram": lambda: hf.NoRepeatNGramLogitsProcessor(value),
        "suppress": lambda: hf.SuppressTokensLogitsProcessor(value),
        "min_length": lambda: hf.MinNewTokensLengthLogitsProcessor(12, value, EOS, device="cpu"),
    }[name]()
    search = Search(DecodeConfig(**setting), [1] * 30, range(30), PAD, EOS)
    history = TokenHistory(Start.of(read.tolist(), (), is_history=True), torch.device("cpu"))
    ours = RuledStepper(FixedLogits(logits), build_rules(search), history).step(read[:, -1])
    assert torch.allclose(ours, theirs(read, logits.clone()))


# Folders: their `generate` and our pipelines, each with the settings in its folder.

# a seed for `make` whose model generates different texts, and a frequent token that serves as </s>
SEED_AND_EOS = {"pegasus": (3, 13), "gpt2": (5, 10)}
EXACT = {"num_beams": 4, "length_penalty": 0.0, "early_stopping": "never", "renormalize_logits": True}
FOLDERS = {
    "greedy": {},
    "repetition": {"repetition_penalty": 1.6},
    "bigrams": {"no_repeat_ngram_size": 2},
    "new tokens": {"min_new_tokens": 7, "max_new_tokens": 9},
    "suppressed": {"suppress_tokens": [7, 9], "bad_words_ids": [[PAD], [10], [13], [11]]},  # they never forbid </s>
    "all": {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3, "min_new_tokens": 5, "suppress_tokens": [8]},
    "beam": EXACT,
    "beam with rules": {**EXACT, "no_repeat_ngram_size": 2, "min_new_tokens": 6},
    "lengths": {"min_length": 7, "max_length": 10},
}


def write_folder_of(kind, folder, generation):
    """One of their models, with these settings in generation_config.json."""
    seed, end = SEED_AND_EOS[kind]
    make(kind, seed).save_pretrained(folder)
    write_tokenizer_of(folder, V)
    roles = json.loads((folder / "tokenizer_config.json").read_text())
    write_text(folder / "tokenizer_config.json", json.dumps(roles | {"eos_token": f"w{end}"}))
    start = {"decoder_start_token_id": PAD, "bad_words_ids": [[PAD]]} if kind == "pegasus" else {}
    write_text(folder / "generation_config.json", json.dumps({**IDS, "eos_token_id": end, **start, **generation}))


def compare_texts(run, folder):
    """Generate with our run and with their folder, and compare. Return the texts."""
    import transformers as hf

    ours, translates = load_pipeline(run), RunFolder(run).read_config().model.family == "encoder_decoder"
    end = ours.tokenizer.eos
    theirs = (hf.AutoModelForSeq2SeqLM if translates else hf.AutoModelForCausalLM).from_pretrained(folder).eval()
    texts = [[word for word in row if word != end] or [5] for row in rows(24)]
    found = ours.hypotheses([" ".join(f"w{id}" for id in text) for text in texts])
    for text, [best] in zip(texts, found, strict=True):
        given = torch.tensor([[*text, end] if translates else ours.tokenizer.add_bos(text)])
        new = theirs.generate(given, attention_mask=torch.ones_like(given))[0, 1 if translates else given.size(1) :]
        assert new.tolist() == [*best.tokens, *([end] if best.finished else [])]
    return [best.tokens for [best] in found]


@pytest.mark.parametrize(
    ("kind", "case"),  # for a decoder, their "lengths" include the prompt; ours do not
    [(kind, case) for kind in SEED_AND_EOS for case in FOLDERS if (kind, case) != ("gpt2", "lengths")],
)
def test_an_imported_folder_generates_the_same_texts(kind, case, tmp_path):
    limit = {} if case == "lengths" else {"max_new_tokens": LIMIT}
    write_folder_of(kind, tmp_path / "theirs", limit | FOLDERS[case])
    import_folder(tmp_path / "theirs", tmp_path / "run")
    texts = compare_texts(tmp_path / "run", tmp_path / "theirs")
    assert len({len(text) for text in texts}) > 1  # some texts end and some are cut off
    export_folder(tmp_path / "run", tmp_path / "back")
    assert compare_texts(tmp_path / "run", tmp_path / "back") == texts


def test_every_setting_of_theirs_is_handled():
    from transformers import GenerationConfig

    kept = {
        "max_length", "max_new_tokens", "min_length", "min_new_tokens", "do_sample", "num_beams", "temperature", "top_k",
        "top_p", "min_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size", "bad_words_ids",
        "suppress_tokens", "eos_token_id", "decoder_start_token_id", "early_stopping", "renormalize_logits",
        "stop_strings",
    }  # fmt: skip
    # Settings that do not change the text: how it is computed, additional outputs, how a text that is cut off ends.
    irrelevant = {
        "use_cache", "cache_implementation", "cache_config", "max_cache_len", "num_return_sequences", "output_attentions",
        "output_hidden_states", "output_scores", "output_logits", "return_dict_in_generate", "pad_token_id",
        "bos_token_id", "forced_eos_token_id", "remove_invalid_values", "low_memory", "compile_config",
        "disable_compile", "continuous_batching_config", "prefill_chunk_size", "_from_model_config",
        "transformers_version", "use_mtp", "is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule",
        "assistant_confidence_threshold", "prompt_lookup_num_tokens", "max_matching_ngram_size", "assistant_early_exit",
        "assistant_lookbehind", "target_lookbehind", "assistant_ensemble_weight", "speculation_type",
    }  # fmt: skip
    assert set(GenerationConfig().to_dict()) - kept - irrelevant - set(NOT_KEPT) == set()
    assert not set(NOT_KEPT) & (kept | irrelevant)
