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


def stack(images):
    return np.stack([image.pixels for image in images])


def test_the_splits_are_contiguous_parts_of_the_file():
    from sklearn.datasets import load_digits

    data = load_digits()
    for split, part in SPLITS.items():
        images = digits(split, 10**6)
        found = sorted((image.label, (image.pixels[0] * 16).tolist()) for image in images)
        assert found == sorted(
            (str(t), image.tolist()) for t, image in zip(data.target[part], data.images[part], strict=True)
        )
    assert stack(digits("test", 5)).shape == (5, 1, 8, 8)
    assert stack(digits("test", 5)).dtype == np.float32


@pytest.mark.parametrize("split", SPLITS)
def test_size_is_a_maximum_and_the_seed_shuffles(split):
    assert len(digits(split, 50)) == 50
    assert len(digits(split, 5_000)) == {"train": 1197, "valid": 200, "test": 400}[split]
    assert np.array_equal(stack(digits(split, 50)), stack(digits(split, 50)))
    assert not np.array_equal(stack(digits(split, 50)), stack(digits(split, 50, seed=1)))


@pytest.mark.parametrize("split", SPLITS)
def test_a_sum_has_two_digits_of_its_split(split):
    """Each quarter is empty or an image of the split. The label is the sum of the two digits."""
    known = {p.pixels.tobytes(): int(p.label) for p in digits(split, 10**6)}
    images = digit_sums(split, 60)
    assert len(images) == 60
    for image in images:
        quarters = [image.pixels[:, r : r + 8, c : c + 8] for r in (0, 8) for c in (0, 8)]
        shown = [known[np.ascontiguousarray(q).tobytes()] for q in quarters if q.any()]
        assert len(shown) == 2
        assert str(sum(shown)) == image.label
    assert np.array_equal(stack(images), stack(digit_sums(split, 60)))
    assert not np.array_equal(stack(images), stack(digit_sums(split, 60, seed=1)))


def test_distorted_images_are_similar_to_the_originals():
    pixels = stack(digits("train", 300))[:, 0]
    draw = np.random.default_rng(0)
    once, again = distort(pixels, draw), distort(pixels, draw)
    assert once.shape == pixels.shape
    assert once.dtype == np.float32
    assert once.min() >= 0
    assert once.max() <= 1
    assert not np.array_equal(once, again)
    assert np.array_equal(once, distort(pixels, np.random.default_rng(0)))
    assert np.allclose(distort(pixels, draw, strength=0.0), pixels, atol=1e-6)
    correlations = [np.corrcoef(a.ravel(), b.ravel())[0, 1] for a, b in zip(pixels, once, strict=True)]
    assert np.mean(correlations) > 0.8


def test_distortion_differs_in_every_epoch_and_a_resumed_stream_repeats_it():
    examples = [EncodedImage(image.pixels, int(image.label)) for image in digits("train", 8)]

    def stream():
        return BatchStream(
            examples,
            "image_classification",
            None,
            8,
            seed=1,
            augment=augmentation_for(DataConfig(distortion=1.0), None),
        )

    one = stream()
    first, second = next(one), next(one)
    assert not np.allclose(np.sort(first.images.numpy().sum((1, 2, 3))), np.sort(second.images.numpy().sum((1, 2, 3))))
    other = stream()
    other.set_position({"epoch": 0, "next_batch": 1})
    assert np.array_equal(next(other).images, second.images)
    plain = evaluation_batches(examples, "image_classification", None, 8)[0]
    assert sorted(plain.images.numpy().sum((1, 2, 3))) == sorted(p.pixels.sum() for p in examples)


def test_all_channels_of_an_image_have_the_same_distortion():
    pixels = np.random.default_rng(0).random((3, 1, 8, 8)).astype(np.float32)
    colour_images = [EncodedImage(np.repeat(p, 3, axis=0), 0) for p in pixels]
    for image in distort_images(colour_images, np.random.default_rng(1), 1.0):
        assert np.array_equal(image.pixels[0], image.pixels[1])
        assert np.array_equal(image.pixels[0], image.pixels[2])


class FixedGenerator:
    """A random generator with the same values for every image: an angle, then a stretch, then a shift."""

    def __init__(self, angle=0.0, stretch=0.0, shift=(0.0, 0.0)):
        self.values = iter([angle, stretch, shift])

    def uniform(self, low, high, shape):
        return np.broadcast_to(np.asarray(next(self.values), dtype=float), shape)


def test_distort_by_known_amounts():
    pixels = np.random.default_rng(0).random((3, 8, 8)).astype(np.float32)
    assert np.allclose(distort(pixels, FixedGenerator()), pixels, atol=1e-6)
    shifted = distort(
        pixels, FixedGenerator(shift=(1.0, -2.0))
    )  # each pixel comes from the next row, two columns before
    assert np.allclose(shifted[:, :-1, 2:], pixels[:, 1:, :-2], atol=1e-6)
    assert np.all(shifted[:, -1] == 0)
    assert np.all(shifted[:, :, :2] == 0)
    assert np.allclose(distort(pixels, FixedGenerator(angle=np.pi / 2)), np.rot90(pixels, -1, axes=(1, 2)), atol=1e-6)
    halves = distort(pixels, FixedGenerator(shift=(0.5, 0.0)))
    assert np.allclose(halves[:, :-1], (pixels[:, :-1] + pixels[:, 1:]) / 2, atol=1e-6)


def test_errors(monkeypatch):
    with pytest.raises(DataError, match="'digits' has no split 'tset'. Did you mean 'test'"):
        digits("tset", 1)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingExtra, match=r"needs scikit-learn.*cutaway\[data\]"):
        digits("train", 1)
