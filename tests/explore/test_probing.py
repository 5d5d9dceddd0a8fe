"""Linear probes, on planted directions and on an untrained model."""

import random

import pytest
import torch
from untrained import untrained_pipeline

from cutaway.data.builtin.tinyworld import DIRECTIONS, tinyworld
from cutaway.data.builtin.tinyworld.features import source_features
from cutaway.errors import DataError
from cutaway.explore.causes.probing import Word, accuracy_of, probe_feature, probe_grammar


def test_a_planted_direction_is_read_and_noise_is_not():
    torch.manual_seed(0)
    labels = torch.randint(3, (240,))
    is_test = torch.arange(240) % 3 == 0
    noise = torch.randn(240, 4)
    assert accuracy_of(noise, labels, is_test) < 0.5
    directions = 4 * torch.eye(3, 4)
    assert accuracy_of(noise + 2 * directions[labels], labels, is_test) > 0.97


def test_the_control_has_one_random_label_for_each_word():
    """What is known of a word's name can be learned by heart, so probe and control are equal."""
    torch.manual_seed(0)
    vectors = {name: torch.randn(16) for name in ("cat", "dog", "king", "table", "beach", "house")}
    genders = dict(zip(vectors, "mmmfff", strict=True))
    words = [
        Word({"embedding": vectors[name], "layer 0": torch.randn(16)}, name, {"gender": genders[name]}, i % 3 == 0)
        for i in range(40)
        for name in vectors
    ]
    found = probe_feature(words, "gender", "noun", random.Random(1))
    assert found.accuracy["embedding"] == found.control["embedding"] == 1
    assert found.accuracy["layer 0"] < 0.75
    assert found.majority == pytest.approx(0.5)
    assert found.count == sum(word.is_test for word in words)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_features_of_source_words_show_in_the_words(direction):
    for pair in tinyworld(direction, "test", 60):
        found = source_features(direction, pair)
        assert len(found) == len(pair.source_words)
        for word, features in zip(pair.source_words, found, strict=True):
            if features is None:
                continue
            if word.lower() in ("these", "many", "some", "two"):
                assert features.values["number"] == "plural"
            if word.lower() in ("a", "an", "every"):
                assert features.values["number"] == "singular"
            if word in ("I", "we", "We"):
                assert features.values["person"] == "1"
            if word in ("they", "They"):
                assert features.values == {"person": "3", "number": "plural"}
            if word in ("was", "were", "did"):
                assert features.values["tense"] == "past"
            if word == "will":
                assert features.values["tense"] == "future"


def test_agreeing_words_have_one_gender():
    [pair] = [pair for pair in tinyworld("en-fr", "test", 30) if pair.source.endswith("dances on the small beach.")]
    values = dict(zip(pair.source_words, source_features("en-fr", pair), strict=True))
    for word in ("the", "small", "beach"):
        assert values[word].values == {"gender": "f", "number": "singular"}
    assert values["dances"].values == {"tense": "present", "person": "3", "number": "singular"}
    assert values["on"] is None


def test_other_corpora_have_no_grammar():
    with pytest.raises(DataError, match="tinyworld only"):
        probe_grammar(untrained_pipeline(), [])
