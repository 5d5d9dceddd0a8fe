import sys

import numpy as np
import pytest

from cutaway.config import DataConfig
from cutaway.data.augmentation import augmentation_for, distort_images
from cutaway.data.batching import BatchStream, evaluation_batches
from cutaway.data.builtin.digits import SPLITS, digit_sums, digits
from cutaway.data.distort import distort
from cutaway.data.tasks import EncodedImage
from cutaway.errors import DataError, MissingExtra


def stacked(pictures):
    return np.stack([picture.pixels for picture in pictures])


def test_the_splits_are_the_file_cut_in_order():
    from sklearn.datasets import load_digits

    data = load_digits()
    for split, part in SPLITS.items():
        pictures = digits(split, 10**6)
        found = sorted((picture.label, (picture.pixels[0] * 16).tolist()) for picture in pictures)
        assert found == sorted(
            (str(t), image.tolist()) for t, image in zip(data.target[part], data.images[part], strict=True)
        )
    assert stacked(digits("test", 5)).shape == (5, 1, 8, 8)
    assert stacked(digits("test", 5)).dtype == np.float32


@pytest.mark.parametrize("split", SPLITS)
def test_size_means_at_most_and_the_seed_draws_the_order(split):
    assert len(digits(split, 50)) == 50
    assert len(digits(split, 5_000)) == {"train": 1197, "valid": 200, "test": 400}[split]
    assert np.array_equal(stacked(digits(split, 50)), stacked(digits(split, 50)))
    assert not np.array_equal(stacked(digits(split, 50)), stacked(digits(split, 50, seed=1)))


@pytest.mark.parametrize("split", SPLITS)
def test_a_sum_is_of_two_digits_of_its_split(split):
    """Each of the four quarters is empty or a picture of the split, and the label adds up those two."""
    known = {p.pixels.tobytes(): int(p.label) for p in digits(split, 10**6)}
    pictures = digit_sums(split, 60)
    assert len(pictures) == 60
    for picture in pictures:
        quarters = [picture.pixels[:, r : r + 8, c : c + 8] for r in (0, 8) for c in (0, 8)]
        shown = [known[np.ascontiguousarray(q).tobytes()] for q in quarters if q.any()]
        assert len(shown) == 2
        assert str(sum(shown)) == picture.label
    assert np.array_equal(stacked(pictures), stacked(digit_sums(split, 60)))
    assert not np.array_equal(stacked(pictures), stacked(digit_sums(split, 60, seed=1)))


def test_distorted_pictures_are_like_the_originals_but_not_the_same():
    pixels = stacked(digits("train", 300))[:, 0]
    draw = np.random.default_rng(0)
    once, again = distort(pixels, draw), distort(pixels, draw)
    assert once.shape == pixels.shape
    assert once.dtype == np.float32
    assert once.min() >= 0
    assert once.max() <= 1
    assert not np.array_equal(once, again)
    assert np.array_equal(once, distort(pixels, np.random.default_rng(0)))
    assert np.allclose(distort(pixels, draw, strength=0.0), pixels, atol=1e-6)
    likeness = [np.corrcoef(a.ravel(), b.ravel())[0, 1] for a, b in zip(pixels, once, strict=True)]
    assert np.mean(likeness) > 0.8


def test_a_stream_distorts_anew_every_epoch_and_the_same_when_resumed():
    examples = [EncodedImage(picture.pixels, int(picture.label)) for picture in digits("train", 8)]

    def stream():
        return BatchStream(
            examples, "image_classification", None, 8, seed=1, change=augmentation_for(DataConfig(distortion=1.0), None)
        )

    one = stream()
    first, second = next(one), next(one)
    assert not np.allclose(np.sort(first.images.numpy().sum((1, 2, 3))), np.sort(second.images.numpy().sum((1, 2, 3))))
    other = stream()
    other.set_position({"epoch": 0, "next_batch": 1})
    assert np.array_equal(next(other).images, second.images)
    plain = evaluation_batches(examples, "image_classification", None, 8)[0]
    assert sorted(plain.images.numpy().sum((1, 2, 3))) == sorted(p.pixels.sum() for p in examples)


def test_the_channels_of_a_picture_are_distorted_together():
    pixels = np.random.default_rng(0).random((3, 1, 8, 8)).astype(np.float32)
    coloured = [EncodedImage(np.repeat(p, 3, axis=0), 0) for p in pixels]
    for picture in distort_images(coloured, np.random.default_rng(1), 1.0):
        assert np.array_equal(picture.pixels[0], picture.pixels[1])
        assert np.array_equal(picture.pixels[0], picture.pixels[2])


class Fixed:
    """Draws the same number for every picture: a turn, then a stretch, then a shift."""

    def __init__(self, turn=0.0, stretch=0.0, shift=(0.0, 0.0)):
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
