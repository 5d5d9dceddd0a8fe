"""Train, resume, load, use and evaluate a model for each task, on its built-in corpus."""

import json

import numpy as np
import pytest
import torch
from helpers import max_difference, tiny_of

from cutaway.config import Config, DataConfig, DecodeConfig, ModelConfig, TrainConfig
from cutaway.data.tasks import load_split
from cutaway.errors import DataError, RunError
from cutaway.inference.evaluation import baseline, evaluate_run
from cutaway.inference.pipelines import Classifier, Tagger, TextGenerator, Translator, load_pipeline
from cutaway.inference.training.setup import resume, start_training
from cutaway.models.balance import balance_losses
from cutaway.models.build import build_model
from cutaway.models.weights import weights_to_bytes
from cutaway.nn.experts import Experts
from cutaway.runs import RunFolder

SIZES = {"d_model": 16, "d_ff": 32, "n_heads": 2, "dropout": 0.1}
TEXT = {"max_length": 64, "position": "rope", "norm_placement": "pre"}
CODE = {"size": 40, "heldout_size": 6, "tokenizer": "bpe", "vocab_size": 300, "max_tokens": 48, "batch_tokens": 256}

RECIPES = {
    "language_model": (
        ModelConfig(family="decoder", decoder_layers=1, **SIZES, **TEXT),
        DataConfig(corpus="python", **{**CODE, "size": 2, "heldout_size": 1}),
    ),
    "masked_language_model": (
        ModelConfig(family="encoder", encoder_layers=1, **SIZES, **TEXT),
        DataConfig(corpus="python", **{**CODE, "size": 2, "heldout_size": 1}),
    ),
    "classification": (
        ModelConfig(family="encoder", head="classes", pooling="mean", encoder_layers=1, experts=2, **SIZES, **TEXT),
        DataConfig(corpus="python:expressions", **CODE),
    ),
    "tagging": (
        ModelConfig(family="encoder", head="tags", encoder_layers=1, **SIZES, **{**TEXT, "max_length": 512}),
        DataConfig(corpus="python:tags", **{**CODE, "max_tokens": 256}, too_long="skip"),
    ),
    "image_classification": (
        ModelConfig(
            family="vision", head="classes", encoder_layers=1, position="learned", image_size=8, patch_size=4, **SIZES
        ),
        DataConfig(corpus="digits", size=60, heldout_size=10, batch_tokens=16, distortion=1.0),
    ),
}
every_task = pytest.mark.parametrize("task", RECIPES)


def recipe(task, **train):
    model, data = RECIPES[task]
    settings = {"steps": 8, "warmup": 4, "valid_every": 4, "save_every": 4, "log_every": 2, **train}
    return Config(model=model, data=data, train=TrainConfig(**settings), decode=DecodeConfig(strategy="greedy"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A trained run of each task."""
    folders = {}
    for task in RECIPES:
        folders[task] = RunFolder(tmp_path_factory.mktemp("runs") / task)
        start_training(recipe(task), folders[task]).trainer.run()
    return folders


@every_task
def test_the_run_folder_has_metrics_config_and_labels(task, runs):
    rows = runs[task].read_metrics()
    assert rows[-2]["loss"] < rows[0]["loss"] * 1.05
    assert {"valid_loss", "valid_perplexity", "valid_accuracy"} <= rows[-1].keys()
    config = runs[task].read_config()
    assert config.model.task == task
    assert runs[task].tokenizer.is_file() == (task != "image_classification")
    if config.model.head != "language":
        labels = json.loads(runs[task].labels.read_text("utf-8"))
        assert labels == sorted(labels)
        assert len(labels) == config.model.n_classes > 1


@every_task
def test_resumed_equals_uninterrupted(task, runs, tmp_path):
    run = RunFolder(tmp_path / "run")
    start_training(recipe(task, steps=4), run).trainer.run()
    resumed = resume(recipe(task), run)
    resumed.trainer.run()
    whole = (runs[task].pointer("latest") / "model.safetensors").read_bytes()
    assert (run.pointer("latest") / "model.safetensors").read_bytes() == whole


@every_task
def test_evaluation_has_the_same_figures_as_the_baseline(task, runs):
    pipeline = load_pipeline(runs[task].path)
    examples = load_split(pipeline.config.data, task, "test")
    figures = evaluate_run(pipeline, examples)
    simple = baseline(pipeline, examples)
    numbers = {name: value for name, value in figures.items() if isinstance(value, float)}
    assert set(numbers) == set(simple.figures)
    assert all(np.isfinite(value) for value in [*numbers.values(), *simple.figures.values()])
    assert 0 <= figures["accuracy"] <= 1
    assert evaluate_run(pipeline, examples) == figures


def test_a_run_for_another_task_is_an_error(runs):
    with pytest.raises(RunError, match=r"was trained for tagging; expected one .* translation. Use .*cutaway tag"):
        Translator.load(runs["tagging"].path)
    with pytest.raises(RunError, match=r"trained for language model.*cutaway generate"):
        Classifier.load(runs["language_model"].path)


def test_generated_text_starts_with_the_prompt(runs):
    generator = TextGenerator.load(runs["language_model"].path)
    decode = DecodeConfig(strategy="greedy", max_length=12)
    prompts = ["def f(", "", "import", "class A:\n    x = 'é'"]
    texts = generator.generate(prompts, decode)
    assert all(text.startswith(prompt) for prompt, text in zip(prompts, texts, strict=True))
    assert texts == [generator.generate([prompt], decode)[0] for prompt in prompts]  # the batch changes nothing
    found = generator.hypotheses(prompts, decode)
    assert all(len(h.tokens) <= 12 for [h] in found)


def test_greedy_generation_equals_the_argmax_of_an_uncached_forward(runs):
    generator = TextGenerator.load(runs["language_model"].path)
    [[found]] = generator.hypotheses(["def f("], DecodeConfig(strategy="greedy", max_length=10))
    ids = [generator.tokenizer.bos, *generator.tokenizer.encode("def f(")]
    for token in found.tokens:
        assert generator.model(torch.tensor([ids]))[0, -1].argmax() == token
        ids.append(token)


def test_beam_search_with_a_decoder_only_model(runs):
    generator = TextGenerator.load(runs["language_model"].path)
    [found] = generator.hypotheses(["def f("], DecodeConfig(strategy="beam", beam_size=3, max_length=6), n_best=3)
    assert len(found) == 3
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
    ids = [generator.tokenizer.bos, *generator.tokenizer.encode("def f(")]
    for h in found:
        row = torch.tensor([[*ids, *h.tokens]])
        log_p = generator.model(row[:, :-1]).log_softmax(-1)[0, len(ids) - 1 :]
        total = log_p.gather(1, row[0, len(ids) :, None]).sum().item()
        if not h.finished:
            assert h.log_probability == pytest.approx(total, abs=1e-4)


def test_a_prompt_that_is_too_long_is_an_error(runs):
    generator = TextGenerator.load(runs["language_model"].path)
    with pytest.raises(DataError, match=r"the prompt has \d+ tokens, and this model has positions for 64"):
        generator.generate(["x = 1\n" * 40])
    exactly = "a" * 63  # with <s>; at most one token for each byte
    assert generator.generate([exactly])[0].startswith(exactly)


def test_classification_does_not_depend_on_the_batch(runs):
    classifier = Classifier.load(runs["classification"].path)
    texts = ["f(x)[0]", "a + b * c(d)", "not x.y", ""]
    together = classifier.probabilities(texts)
    for text, row in zip(texts, together, strict=True):
        assert sum(row) == pytest.approx(1, abs=1e-5)
        assert row == pytest.approx(classifier.probabilities([text])[0], abs=1e-5)
    for prediction, row in zip(classifier.classify(texts), together, strict=True):
        assert prediction.probability == max(row)
        assert prediction.label == classifier.labels[row.index(max(row))]


def test_images_are_classified(runs):
    classifier = Classifier.load(runs["image_classification"].path)
    images = [p.pixels for p in load_split(classifier.config.data, "image_classification", "test")]
    together = classifier.probabilities(images, batch_size=3)
    assert np.allclose(together, classifier.probabilities(images, batch_size=10), atol=1e-6)
    with pytest.raises(DataError, match=r"this model reads \[1, 8, 8\]"):
        classifier.classify([np.zeros((1, 6, 6), dtype=np.float32)])
    with pytest.raises(RunError, match="has no tokenizer"):
        classifier.tokenizer


def test_tagging_does_not_depend_on_the_batch(runs):
    tagger = Tagger.load(runs["tagging"].path)
    sentences = [tagger.words("def f(x):\n    return x"), ["x"], [], tagger.words("y = 'a b'  # c")]
    together = tagger.tag(sentences)
    assert [len(tags) for tags in together] == [len(words) for words in sentences]
    assert together == [tagger.tag([words])[0] for words in sentences]
    assert {tag for tags in together for tag in tags} <= set(tagger.labels)


def test_the_balance_loss_evens_out_the_experts():
    """This loss alone corrects a router that prefers one expert."""
    config = tiny_of(family="decoder", experts=4)
    torch.manual_seed(0)
    model, ids = build_model(config), torch.randint(4, 11, (8, 12))
    mixtures = [module for module in model.modules() if isinstance(module, Experts)]
    with torch.no_grad():
        for mixture in mixtures:
            mixture.route.weight[0] *= 10  # the first expert has the largest router logits
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    history = []
    for _ in range(60):
        with balance_losses(model) as losses:
            model(ids)
        optimizer.zero_grad()
        torch.stack(losses).sum().backward()
        optimizer.step()
        history.append(max(loss.item() for loss in losses))
    assert history[0] > 1.05
    assert history[-1] < 1 + (history[0] - 1) / 2


def test_collecting_the_balance_loss_does_not_change_the_output():
    """It records a probe, which must not change any value."""
    model = build_model(tiny_of(family="decoder", experts=3)).eval()
    ids = torch.randint(4, 11, (2, 5))
    with balance_losses(model) as losses:
        watched = model(ids)
    assert max_difference(watched, model(ids)) == 0
    assert len(losses) == 2
    assert len(weights_to_bytes(model)) > 0
