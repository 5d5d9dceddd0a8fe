"""Import and export of complete folders, without transformers. After an error, nothing is left behind."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy
from foreign import EOS, PAD, write_theirs, write_tokenizer_of
from helpers import C, perturbed_model, run_cutaway, tiny_of

from cutaway.config import Config, DataConfig, DecodeConfig, FinetuneConfig
from cutaway.config.presets import preset
from cutaway.data.tokenizer import Tokenizer
from cutaway.errors import ConfigError, DataError, RunError
from cutaway.inference.pipelines import Classifier, Embedder, TextGenerator, Translator
from cutaway.interop.huggingface import export_folder, import_folder
from cutaway.interop.tensors import read_folder, write_folder
from cutaway.models.weights import weights_to_bytes
from cutaway.runs import RunFolder
from cutaway.runs.weights import read_sealed, seal_weights

GPT2 = preset("tiny-gpt2")
MARIAN = dataclasses.replace(preset("tiny"), output_bias=True, feed_forward="silu", attention_kernel="fused")


@pytest.fixture
def theirs(tmp_path):
    """A tiny, complete GPT-2 folder of Hugging Face."""
    write_theirs(tmp_path / "theirs", GPT2)
    return tmp_path / "theirs"


def change(path, **settings):
    value = json.loads(path.read_text())
    path.write_text(json.dumps({**value, **settings}))


def weights_in(run):
    return safetensors.numpy.load(read_sealed(RunFolder(run).model))


def test_an_imported_run(tmp_path, theirs):
    found = import_folder(theirs, tmp_path / "runs/new")
    run = RunFolder(tmp_path / "runs/new").require()
    config = run.read_config()
    assert config.model == GPT2
    assert (config.data.tokenizer, config.data.tokenizer_file) == ("file", "tokenizer.json")
    assert config.data.max_tokens == GPT2.max_length
    assert config.decode.strategy == "greedy"
    assert found.architecture == "GPT2LMHeadModel"
    assert found.task == "language_model"
    assert found.parameters == sum(array.size for array in weights_in(run.path).values())
    assert found.tensors == len(read_folder(theirs))
    assert not found.left_out
    assert TextGenerator.load(run.path).generate(["w5 w6"])[0].startswith("w5 w6")
    assert not list((tmp_path / "runs").glob(".*"))


def test_an_import_needs_neither_torch_nor_transformers(tmp_path, theirs):
    code = (
        "import sys; from cutaway.interop.huggingface import import_folder, export_folder\n"
        f"import_folder({str(theirs)!r}, {str(tmp_path / 'run')!r})\n"
        f"export_folder({str(tmp_path / 'run')!r}, {str(tmp_path / 'back')!r})\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    one, other = read_folder(theirs), read_folder(tmp_path / "back")
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_a_translator_never_generates_suppressed_tokens(tmp_path):
    """Marian's start token is its padding token, which it would otherwise generate."""
    write_theirs(tmp_path / "theirs", MARIAN, bad_words_ids=[[PAD], [5, 6]], num_beams=3)
    found = import_folder(tmp_path / "theirs", tmp_path / "run")
    decode = RunFolder(tmp_path / "run").read_config().decode
    assert (decode.strategy, decode.beam_size, decode.suppress) == ("beam", 3, (PAD,))
    assert any("[5, 6]" in note for note in found.notes)
    assert any("length_penalty" in note for note in found.notes)
    translator = Translator.load(tmp_path / "run")
    assert translator.tokenizer.bos == PAD
    best = translator.hypotheses(["w5 w6 w7", "w8"])
    assert all(PAD not in one.tokens for texts in best for one in texts)


def import_decoding(tmp_path, config, **said):
    """Import a folder with this generation_config.json. Return the decode settings and the notes."""
    write_theirs(tmp_path / "theirs", config)
    (tmp_path / "theirs/generation_config.json").write_text(json.dumps(said))
    found = import_folder(tmp_path / "theirs", tmp_path / "run", overwrite=True)
    return RunFolder(tmp_path / "run").read_config().decode, found.notes


def test_sampling_settings(tmp_path):
    said = {
        "do_sample": True, "temperature": 0.7, "top_p": 0.9, "min_p": 0.05, "repetition_penalty": 1.2,
        "no_repeat_ngram_size": 3, "min_new_tokens": 4, "max_new_tokens": 30, "suppress_tokens": [4],
    }  # fmt: skip
    decode, notes = import_decoding(tmp_path, GPT2, **said)
    assert decode == DecodeConfig(
        strategy="sample", temperature=0.7, top_p=0.9, top_k=50, min_p=0.05, repetition_penalty=1.2, no_repeat_ngram=3,
        min_length=4, max_length=30, suppress=(4,),
    )  # fmt: skip
    assert notes == ()
    back = export_folder(tmp_path / "run", tmp_path / "back")
    again = json.loads((tmp_path / "back/generation_config.json").read_text())
    assert {name: again[name] for name in said} == said
    assert again["top_k"] == 50
    assert again["eos_token_id"] == EOS
    assert "generation_config.json" in back.files
    import_folder(tmp_path / "back", tmp_path / "again")
    assert RunFolder(tmp_path / "again").read_config().decode == decode


def test_their_lengths_count_the_start_token(tmp_path):
    decode, notes = import_decoding(tmp_path / "translator", MARIAN, max_length=20, min_length=5)
    assert (decode.max_length, decode.min_length, notes) == (19, 4, ())
    decode, _ = import_decoding(
        tmp_path / "new", MARIAN, max_length=20, min_length=5, max_new_tokens=7, min_new_tokens=2
    )
    assert (decode.max_length, decode.min_length) == (7, 2)
    decode, notes = import_decoding(tmp_path / "all", MARIAN, max_length=MARIAN.max_length)
    assert (decode.max_length, notes) == (0, ())  # no limit except the positions
    decode, notes = import_decoding(tmp_path / "generator", GPT2, max_length=20, min_length=5)
    assert (decode.max_length, decode.min_length) == (0, 0)
    assert len(notes) == 2
    assert all("counts the prompt" in note for note in notes)


@pytest.mark.parametrize(
    ("said", "parts"),
    [
        ({"typical_p": 0.9}, ["typical_p = 0.9 is not kept: Cutaway has no such setting"]),
        ({"typical_p": 1.0, "begin_suppress_tokens": [], "diversity_penalty": 0.0, "forced_bos_token_id": None}, []),
        ({"forced_bos_token_id": 0}, ["forced_bos_token_id = 0 is not kept"]),
        ({"stop_strings": ["END"]}, ["stop_strings = ['END'] is not kept: give it with each call"]),
        ({"repetition_penalty": 1.1}, ["transformers also counts the start token"]),
        ({"repetition_penalty": 1.1, "bad_words_ids": [[PAD]]}, []),
        ({"num_beams": 2, "length_penalty": 0.0, "min_length": 4}, ["min_length in beam search: transformers changes log-prob"]),
        ({"num_beams": 2, "length_penalty": 0.0, "min_length": 4, "renormalize_logits": True}, []),
        ({"num_beams": 2, "length_penalty": 0.0, "do_sample": True}, ["beam search does not sample"]),
        ({"num_beams": 2, "early_stopping": True}, ["length_penalty = 1.0 has another formula", "early_stopping = True"]),
    ],
)  # fmt: skip
def test_notes_on_decode_settings(tmp_path, said, parts):
    """A note for each setting that is lost or has another meaning; none for settings that are kept or have no effect."""
    _, notes = import_decoding(tmp_path, MARIAN, **said)
    assert len(notes) == len(parts)
    assert all(part in note for part, note in zip(parts, notes, strict=True))


def test_beam_search_without_a_length_penalty_is_kept(tmp_path):
    decode, _ = import_decoding(tmp_path, MARIAN, num_beams=3, length_penalty=0.0, early_stopping="never")
    assert (decode.strategy, decode.beam_size, decode.length_penalty) == ("beam", 3, 0.0)
    exported = export_folder(tmp_path / "run", tmp_path / "back")
    back = json.loads((tmp_path / "back/generation_config.json").read_text())
    assert (back["num_beams"], back["length_penalty"], back["early_stopping"]) == (3, 0.0, "never")
    assert exported.notes == ()


@pytest.mark.parametrize("head", ["classes", "tags"])
def test_labels_are_kept(tmp_path, head):
    changes = {"head": head, "n_classes": C} | ({"pooling": "cls_tanh"} if head == "classes" else {})
    write_theirs(tmp_path / "theirs", dataclasses.replace(preset("tiny-bert"), **changes))
    import_folder(tmp_path / "theirs", tmp_path / "run")
    assert RunFolder(tmp_path / "run").read_labels() == ["class 0", "class 1", "class 2"]
    export_folder(tmp_path / "run", tmp_path / "back")
    back = json.loads((tmp_path / "back/config.json").read_text())
    assert back["id2label"] == {"0": "class 0", "1": "class 1", "2": "class 2"}
    assert back["label2id"] == {"class 0": 0, "class 1": 1, "class 2": 2}


def test_image_normalisation_moves_into_the_first_projection(tmp_path):
    config = dataclasses.replace(preset("tiny-vit"), channels=3)
    ours = write_theirs(tmp_path / "theirs", config)
    mean, std = [0.4, 0.5, 0.6], [0.2, 0.25, 0.5]
    said = {"do_normalize": True, "image_mean": mean, "image_std": std, "do_rescale": True, "rescale_factor": 1 / 255}
    (tmp_path / "theirs/preprocessor_config.json").write_text(json.dumps(said))
    found = import_folder(tmp_path / "theirs", tmp_path / "run")
    assert any("0.25" in note for note in found.notes)
    new = weights_in(tmp_path / "run")
    image = np.random.default_rng(0).random((3, 2, 2))  # one patch
    theirs = (image - np.array(mean)[:, None, None]) / np.array(std)[:, None, None]
    expected = ours["embedding.project.weight"] @ theirs.reshape(-1) + ours["embedding.project.bias"]
    found_output = new["embedding.project.weight"] @ image.reshape(-1) + new["embedding.project.bias"]
    assert np.allclose(found_output, expected, atol=1e-5)
    assert Classifier.load(tmp_path / "run").classify([np.zeros((3, 4, 4), np.float32)])[0].label.startswith("class")
    export_folder(tmp_path / "run", tmp_path / "back")
    back = json.loads((tmp_path / "back/preprocessor_config.json").read_text())
    assert (back["image_mean"], back["image_std"], back["do_rescale"]) == ([0.0] * 3, [1.0] * 3, True)


@pytest.mark.parametrize(
    ("said", "resize", "noted"),
    [
        ({}, "bilinear", False),
        ({"resample": 3, "size": {"height": 4, "width": 4}}, "bicubic", False),
        ({"resample": 0, "size": 4}, "nearest", False),
        ({"size": {"shortest_edge": 6}, "do_center_crop": True, "crop_size": 4}, "bilinear", True),
    ],
)
def test_the_filter_that_scales_image_files(tmp_path, said, resize, noted):
    write_theirs(tmp_path / "theirs", preset("tiny-vit"))
    (tmp_path / "theirs/preprocessor_config.json").write_text(json.dumps({"do_normalize": False, **said}))
    found = import_folder(tmp_path / "theirs", tmp_path / "run")
    assert RunFolder(tmp_path / "run").read_config().model.resize == resize
    assert any("image to 4×4" in note for note in found.notes) == noted
    export_folder(tmp_path / "run", tmp_path / "back")
    import_folder(tmp_path / "back", tmp_path / "again")
    assert RunFolder(tmp_path / "again").read_config().model.resize == resize


@pytest.mark.parametrize(
    ("said", "pooling"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode": "mean"}, "mean"),
        ({"pooling_mode": ["cls"]}, "cls"),
        (None, "mean"),
    ],
)
def test_poolings(tmp_path, said, pooling):
    config = dataclasses.replace(preset("tiny-bert"), head="vectors", pooling="mean")
    write_theirs(tmp_path / "theirs", config)
    if said:
        (tmp_path / "theirs/1_Pooling").mkdir()
        (tmp_path / "theirs/1_Pooling/config.json").write_text(json.dumps(said))
    import_folder(tmp_path / "theirs", tmp_path / "run")
    assert RunFolder(tmp_path / "run").read_config().model.pooling == pooling
    export_folder(tmp_path / "run", tmp_path / "back")
    import_folder(tmp_path / "back", tmp_path / "again")
    assert RunFolder(tmp_path / "again").read_config().model.pooling == pooling


def test_an_unsupported_pooling(tmp_path):
    write_theirs(tmp_path / "theirs", dataclasses.replace(preset("tiny-bert"), head="vectors", pooling="mean"))
    (tmp_path / "theirs/1_Pooling").mkdir()
    (tmp_path / "theirs/1_Pooling/config.json").write_text('{"pooling_mode_lasttoken": true}')
    check_import_error(tmp_path, r"the pooling pooling_mode_lasttoken.*Supported", ConfigError)


VECTORS = dataclasses.replace(preset("tiny-bert"), head="vectors", pooling="mean")
ST = "sentence_transformers.models."


def write_sentence_encoder(
    folder, modules=("Transformer", "Pooling", "Normalize"), pooling=(), prompts=None, bert=None
):
    write_theirs(folder, VECTORS)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode": "mean", **dict(pooling)}))
    listed = [{"type": name if "." in name else ST + name} for name in modules]
    (folder / "modules.json").write_text(json.dumps(listed))
    if prompts is not None:
        (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    if bert is not None:
        (folder / "sentence_bert_config.json").write_text(json.dumps(bert))


PROMPTS = {"prompts": {"query": "w5 w6 ", "passage": "w7 ", "none": ""}, "default_prompt_name": "query"}


def test_prompts_are_kept(tmp_path):
    write_sentence_encoder(tmp_path / "theirs", prompts=PROMPTS)
    found = import_folder(tmp_path / "theirs", tmp_path / "run")
    assert found.notes == ("the model has prompts: query, passage. Without --prompt, 'query' is put before every text.",)  # fmt: skip
    embedder = Embedder.load(tmp_path / "run", "cpu")
    plain = embedder.embed(["w5 w6 w9 w8", "w7 w9 w8", "w9 w8"], prompt="")
    for prompt, wanted in ((None, plain[0]), ("query", plain[0]), ("passage", plain[1]), ("none", plain[2])):
        assert np.allclose(embedder.embed(["w9 w8"], prompt=prompt), [wanted])
    assert np.abs(np.subtract(plain[0], plain[2])).max() > 0.01
    with pytest.raises(ConfigError, match=r"there is no prompt 'qery'. Did you mean 'query'\? Allowed: query, passage"):
        embedder.embed(["w9"], prompt="qery")
    for more, wanted in ((), plain[0]), (("--prompt", "passage"), plain[1]), (("--prompt", ""), plain[2]):
        result = run_cutaway("embed", "run", "w9 w8", *more, cwd=tmp_path)
        assert np.allclose(json.loads(result.stdout), wanted, atol=1e-6), result.stderr
    (tmp_path / "in.txt").write_text("w9 w8\n")
    result = run_cutaway("embed", "run", "--file", "in.txt", "--out", "v.npy", "--prompt", "passage", cwd=tmp_path)
    assert np.allclose(np.load(tmp_path / "v.npy"), plain[1:2], atol=1e-6), result.stderr
    result = run_cutaway("embed", "run", "w9", "--prompt", "x", cwd=tmp_path)
    assert (result.returncode, "there is no --prompt x" in result.stderr) == (1, True)
    export_folder(tmp_path / "run", tmp_path / "back")
    assert json.loads((tmp_path / "back/config_sentence_transformers.json").read_text()) == PROMPTS
    import_folder(tmp_path / "back", tmp_path / "again")
    assert np.allclose(Embedder.load(tmp_path / "again", "cpu").embed(["w9 w8"]), plain[:1])
    export_folder(tmp_path / "run", tmp_path / "back", overwrite=True)


def test_a_model_without_prompts(tmp_path):
    write_sentence_encoder(tmp_path / "theirs", prompts={"prompts": {"query": "", "document": None}})
    assert import_folder(tmp_path / "theirs", tmp_path / "run").notes == ()
    assert Embedder.load(tmp_path / "run", "cpu").embed(["w9"], prompt="document")
    with pytest.raises(
        ConfigError, match="data.prompts = .* would have no effect, because only model.head = 'vectors'"
    ):
        Config(data=DataConfig(prompts={"a": "b"}))
    with pytest.raises(ConfigError, match=r"data.prompts = \{'a': 1\} is of type dict; expected dict"):
        DataConfig(prompts={"a": 1})


def test_lower_casing_is_kept(tmp_path):
    for small in (True, False):
        folder = tmp_path / str(small)
        write_sentence_encoder(folder / "theirs", bert={"do_lower_case": small})
        import_folder(folder / "theirs", folder / "run")
        export_folder(folder / "run", folder / "back")
        import_folder(folder / "back", folder / "again")
        for run in ("run", "again"):
            one, other = Embedder.load(folder / run, "cpu").embed(["w5 w6", "W5 w6"])
            assert np.allclose(one, other) == small


def test_the_longest_text(tmp_path):
    for name, bert, length, longest in (
        ("by max_seq_length", {"max_seq_length": 9}, 7, 9),
        ("by the tokenizer", {"max_seq_length": None}, 7, 7),
        ("by the positions", None, 10**30, VECTORS.max_length),
    ):
        write_sentence_encoder(tmp_path / name, bert=bert)
        change(tmp_path / name / "tokenizer_config.json", model_max_length=length)
        import_folder(tmp_path / name, tmp_path / f"{name} run")
        assert Embedder.load(tmp_path / f"{name} run", "cpu").max_tokens == longest


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"modules": ["Transformer", "Pooling", "Dense"]}, r"type = 'Dense'.*Supported: Transformer, Pooling, Normal"),
        ({"modules": ["Transformer", "Normalize", "Pooling"]}, "Transformer, Normalize, Pooling.*in this order"),
        ({"modules": ["custom_st.Transformer", "Pooling"]}, "type = 'custom_st.Transformer'"),
        ({"pooling": {"include_prompt": False}, "prompts": PROMPTS}, "include_prompt = False.*not pooled"),
        ({"prompts": {"prompts": {}, "default_prompt_name": "query"}}, "default_prompt_name = 'query'"),
        ({"prompts": {"truncate_dim": 4}}, "truncate_dim = 4 in its config_sentence_transformers.json"),
        ({"bert": {"transformer_task": "fill-mask"}}, "transformer_task = 'fill-mask'.*Supported: 'feature-extraction'"),
        ({"bert": {"tokenizer_args": {"do_lower_case": True}}}, "tokenizer_args"),
    ],
)  # fmt: skip
def test_unsupported_settings_of_sentence_encoders(tmp_path, said, message):
    write_sentence_encoder(tmp_path / "theirs", **said)
    check_import_error(tmp_path, message, ConfigError)


def test_an_unsupported_module_without_a_pooling(tmp_path):
    write_theirs(tmp_path / "theirs", VECTORS)
    (tmp_path / "theirs/modules.json").write_text(json.dumps([{"type": ST + "Dense"}]))
    check_import_error(tmp_path, r"type = 'Dense'.*Supported: Transformer, Pooling, Normalize", ConfigError)


def test_notes_on_sentence_encoders(tmp_path):
    write_sentence_encoder(
        tmp_path / "theirs",
        modules=["Transformer", "Pooling"],
        pooling={"include_prompt": False},  # no effect without prompts
        prompts={"similarity_fn_name": "dot", "prompts": {}},
    )
    notes = import_folder(tmp_path / "theirs", tmp_path / "run").notes
    assert len(notes) == 2
    assert "no Normalize" in notes[0]
    assert "compares vectors by 'dot'" in notes[1]


def test_pegasus_needs_tokenizer_json(tmp_path):
    write_theirs(tmp_path / "theirs", dataclasses.replace(preset("tiny"), norm_placement="pre"))
    (tmp_path / "theirs/tokenizer.json").rename(tmp_path / "theirs/spiece.model")
    check_import_error(tmp_path, r"no tokenizer.json in .*Pegasus.*AutoTokenizer")


# Errors. Nothing is left behind.


def check_import_error(tmp_path, message, kind=DataError, **options):
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(kind, match=message):
        import_folder(tmp_path / "theirs", tmp_path / "run", **options)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_missing_folder(tmp_path):
    check_import_error(tmp_path, r"no config.json in .*theirs.*Give the folder")


def test_missing_weights(tmp_path, theirs):
    (theirs / "model.safetensors").rename(theirs / "pytorch_model.bin")
    check_import_error(tmp_path, r"only in pytorch_model.bin(?s:.*)GPT2LMHeadModel.from_pretrained")


def test_an_unsupported_architecture(tmp_path, theirs):
    change(theirs / "config.json", model_type="mamba")
    check_import_error(
        tmp_path, r"model_type 'mamba'.*Supported: gpt2, llama, bert, t5, marian, pegasus, vit", ConfigError
    )


@pytest.mark.parametrize("classes", [["GPT2ForSequenceClassification"], [], None])
def test_an_unsupported_class(tmp_path, theirs, classes):
    change(theirs / "config.json", architectures=classes)
    check_import_error(tmp_path, r'"architectures".*GPT2LMHeadModel, GPT2Model', ConfigError)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_layer": 1}, r"transformer.h.1.attn.c_attn.bias.*and 9 more.*number of layers"),
        ({"n_layer": 3}, r"no tensor 'transformer.h.2.*config.json"),
        ({"n_embd": 10}, r"'transformer.wte.weight' .*the shape \(11, 8\).*requires \(11, 10\)"),
        ({"scale_attn_weights": False}, r"scale_attn_weights = False.*Supported: True"),
        ({"quantization_config": {"bits": 4}}, r"quantization_config = .*Supported: None"),
        ({"n_head": 3}, r"GPT-2 in .*d_model = 8 is not divisible by model.n_heads = 3"),
        ({"n_head": "two"}, r"GPT-2 in .*model.n_heads = 'two' is of type str"),
        ({"resid_pdrop": [1]}, r"GPT-2 in .*model.dropout = "),
        ({"num_beams": "many"}, r"the settings of the GPT-2 in .* are invalid.*again"),
        ({"do_sample": True, "top_p": 7}, r"decode.top_p = 7.0"),
    ],
)
def test_invalid_settings(tmp_path, theirs, settings, message):
    change(theirs / "config.json", **settings)
    check_import_error(tmp_path, message, (ConfigError, DataError))


def test_a_tokenizer_of_another_model(tmp_path, theirs):
    write_tokenizer_of(theirs, 15)
    check_import_error(tmp_path, r"the tokenizer in .* has 15 tokens, but the model has 11")
    write_tokenizer_of(theirs, 9)  # unused rows of the embedding are allowed
    import_folder(theirs, tmp_path / "run")
    assert TextGenerator.load(tmp_path / "run").tokenizer.vocab_size == 9


def test_no_tokenizer(tmp_path, theirs):
    (theirs / "tokenizer.json").unlink()
    check_import_error(tmp_path, "no tokenizer")


def test_a_damaged_config(tmp_path, theirs):
    (theirs / "config.json").write_text("{")
    check_import_error(tmp_path, "config.json is not valid JSON")
    (theirs / "config.json").write_text("[]")
    check_import_error(tmp_path, "config.json contains a list")


def test_a_folder_that_is_not_empty(tmp_path, theirs):
    run = tmp_path / "run"
    run.mkdir()
    (run / "thesis.txt").write_text("mine")
    check_import_error(tmp_path, r"run is not empty.*--overwrite", RunError)
    check_import_error(tmp_path, r"was not written by this command.*another", RunError, overwrite=True)
    (run / "thesis.txt").unlink()
    import_folder(theirs, run)  # an empty one is fine
    check_import_error(tmp_path, r"run is not empty", RunError)
    import_folder(theirs, run, overwrite=True)
    (run / "thesis.txt").write_text("mine")
    check_import_error(tmp_path, r"contains other files \(thesis.txt\).*Move them", RunError, overwrite=True)
    (run / "thesis.txt").unlink()
    with RunFolder(run).lock():
        check_import_error(tmp_path, "another process is training", RunError, overwrite=True)


def test_the_source_is_never_replaced(tmp_path, theirs):
    with pytest.raises(RunError, match="was not written by this command"):
        import_folder(theirs, theirs, overwrite=True)
    import_folder(theirs, tmp_path / "run")
    with pytest.raises(RunError, match="was not written by this command"):
        export_folder(tmp_path / "run", tmp_path / "run", overwrite=True)
    assert RunFolder(tmp_path / "run").require()


# Exports.


@pytest.fixture
def own_run(tmp_path):
    """A function that writes a run with any model."""

    def make(model, **config):
        run = RunFolder(tmp_path / "run")
        run.path.mkdir()
        data = DataConfig(tokenizer="word", vocab_size=20, max_tokens=32)
        run.config.write_text(Config(model=model, data=data, **config).to_json())
        run.model.write_bytes(seal_weights(weights_to_bytes(perturbed_model(model))))
        write_tokenizer_of(run.path, model.vocab_size)
        return run.path

    return make


def test_an_export_is_complete(tmp_path, own_run):
    run = own_run(tiny_of(norm_placement="pre"))
    found = export_folder(run, tmp_path / "theirs")
    assert found.architecture == "PegasusForConditionalGeneration"
    assert set(found.files) == {
        "config.json", "generation_config.json", "model.safetensors", "special_tokens_map.json", "tokenizer.json",
        "tokenizer_config.json",
    }  # fmt: skip
    assert set(found.files) == {path.name for path in (tmp_path / "theirs").iterdir()}
    said = json.loads((tmp_path / "theirs/config.json").read_text())
    tokenizer = Tokenizer.open(run / "tokenizer.json")
    assert said["decoder_start_token_id"] == said["bos_token_id"] == tokenizer.bos
    assert (said["eos_token_id"], said["pad_token_id"]) == (tokenizer.eos, tokenizer.pad)
    assert found.parameters == sum(array.size for array in weights_in(run).values())


def test_an_export_in_shards(tmp_path, own_run):
    run = own_run(tiny_of())
    whole = export_folder(run, tmp_path / "whole")
    parts = export_folder(run, tmp_path / "parts", shard_bytes=2_000)
    assert whole.tensors == parts.tensors
    assert sum(name.startswith("model-") for name in parts.files) > 3
    one, other = read_folder(tmp_path / "whole"), read_folder(tmp_path / "parts")
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_overwriting_an_export(tmp_path, own_run):
    run = own_run(tiny_of())
    export_folder(run, tmp_path / "theirs", shard_bytes=2_000)
    with pytest.raises(RunError, match="not empty"):
        export_folder(run, tmp_path / "theirs")
    export_folder(run, tmp_path / "theirs", overwrite=True)
    assert not list((tmp_path / "theirs").glob("model-*"))
    (tmp_path / "theirs/README.md").write_text("mine")
    with pytest.raises(RunError, match=r"contains other files \(README.md\)"):
        export_folder(run, tmp_path / "theirs", overwrite=True)


def test_a_model_that_cannot_be_exported(tmp_path, own_run):
    run = own_run(tiny_of("decoder", position="alibi", norm_placement="pre"))
    with pytest.raises(ConfigError, match=r"GPT-2 is nearest, except for: model.position = 'alibi' \(GPT-2 has"):
        export_folder(run, tmp_path / "theirs")
    assert not (tmp_path / "theirs").exists()


def test_an_adapter_cannot_be_exported(tmp_path, own_run):
    run = own_run(tiny_of(), finetune=FinetuneConfig(base="runs/base", method="lora"))
    with pytest.raises(ConfigError, match=r"adapter \(finetune.method = 'lora'\) on 'runs/base'.*Merge it first"):
        export_folder(run, tmp_path / "theirs")
    assert not (tmp_path / "theirs").exists()


def test_weights_of_another_model(tmp_path, own_run):
    run = own_run(tiny_of())
    change(run / "config.json", model={**json.loads((run / "config.json").read_text())["model"], "encoder_layers": 3})
    with pytest.raises(RunError, match=r"does not fit its config.json: missing \['encoder.layers.2"):
        export_folder(run, tmp_path / "theirs")
    assert not (tmp_path / "theirs").exists()


def test_double_precision_is_kept(tmp_path, theirs):
    arrays = {name: array.astype(np.float64) for name, array in read_folder(theirs).items()}
    write_folder(theirs, arrays)
    import_folder(theirs, tmp_path / "run")
    assert {array.dtype for array in weights_in(tmp_path / "run").values()} == {np.dtype(np.float64)}
    export_folder(tmp_path / "run", tmp_path / "back")
    assert json.loads((tmp_path / "back/config.json").read_text())["dtype"] == "float64"
    again = read_folder(tmp_path / "back")
    assert all(np.array_equal(array, again[name]) for name, array in arrays.items())
