import sys

import numpy as np
import pytest

from cutaway.data.builtin.digits import SPLITS, digits, distort
from cutaway.errors import DataError, MissingExtra


def stacked(pictures):
    return np.stack([picture.pixels for picture in pictures])


def test_the_splits_are_the_file_cut_in_order():
    from sklearn.datasets import load_digits

    data = load_digits()
    pictures = digits("train", 1197) + digits("valid", 10**6) + digits("test", 10**6)
    assert np.array_equal(stacked(pictures)[:, 0] * 16, data.images)
    assert [picture.label for picture in pictures] == [str(label) for label in data.target]


@pytest.mark.parametrize("split", SPLITS)
def test_size_means_at_most(split):
    assert len(digits(split, 50)) == 50
    assert len(digits(split, 5_000)) == {"train": 5_000, "valid": 200, "test": 400}[split]


def test_distorted_copies_follow_the_originals():
    originals, pictures = digits("train", 1197), digits("train", 3_000)
    assert np.array_equal(stacked(pictures[:1197]), stacked(originals))
    pixels = stacked(pictures)
    assert pixels.shape == (3_000, 1, 8, 8)
    assert pixels.dtype == np.float32
    assert pixels.min() >= 0
    assert pixels.max() <= 1
    assert len(np.unique(pixels.reshape(3_000, -1), axis=0)) > 2_990
    assert {picture.label for picture in pictures} == set("0123456789")


def test_distortion_is_drawn_with_the_seed():
    last = [stacked(digits("train", 1_300, seed))[-100:] for seed in (0, 0, 1)]
    assert np.array_equal(last[0], last[1])
    assert not np.array_equal(last[0], last[2])


class Fixed:
    """Draws the same number for every picture: a turn, then a stretch, then a shift."""

    def __init__(self, turn=0.0, stretch=1.0, shift=(0.0, 0.0)):
        self.values = iter([turn, stretch, shift])

    def uniform(self, low, high, shape):
        return np.broadcast_to(np.asarray(next(self.values), dtype=float), shape)


def test_distort_by_known_amounts():
    pixels = np.random.default_rng(0).random((3, 8, 8)).astype(np.float32)
    assert np.allclose(distort(pixels, Fixed()), pixels, atol=1e-6)
    shifted = distort(pixels, Fixed(shift=(1.0, -2.0)))  # each pixel comes from one row below and two columns before
    assert np.allclose(shifted[:, :-1, 2:], pixels[:, 1:, :-2], atol=1e-6)
    assert np.all(shifted[:, -1] == 0)
    assert np.all(shifted[:, :, :2] == 0)
    assert np.allclose(distort(pixels, Fixed(turn=np.pi / 2)), np.rot90(pixels, -1, axes=(1, 2)), atol=1e-6)
    halves = distort(pixels, Fixed(shift=(0.5, 0.0)))
    assert np.allclose(halves[:, :-1], (pixels[:, :-1] + pixels[:, 1:]) / 2, atol=1e-6)


def test_errors(monkeypatch):
    with pytest.raises(DataError, match="'digits' has no split 'tset'. Did you mean 'test'"):
        digits("tset", 1)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingExtra, match=r"needs scikit-learn.*cutaway\[data\]"):
        digits("train", 1)
