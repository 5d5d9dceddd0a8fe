"""Images to classify: every input format gives the same model input as in training."""

import json
import sys

import numpy as np
import pytest
import torch
from helpers import run_cutaway
from PIL import Image
from untrained import untrained_pipeline

from cutaway.config import Config, DataConfig
from cutaway.data.image_input import pixels_of
from cutaway.data.prepare import prepare
from cutaway.errors import ConfigError, DataError, MissingExtra
from cutaway.explore.trace import trace
from cutaway.inference.pipelines import Classifier
from cutaway.models.weights import weights_to_bytes
from cutaway.runs import RunFolder
from cutaway.runs.files import write_bytes, write_json, write_text
from cutaway.runs.weights import seal_weights

SIDE = 28
BYTES = np.random.default_rng(0).integers(0, 256, (5, SIDE, SIDE), np.uint8)


def classifier(channels=1, **changes):
    return untrained_pipeline("vision", image_size=SIDE, patch_size=7, channels=channels, **changes)


def save_run(pipeline, path):
    folder = RunFolder(path)
    write_text(folder.config, pipeline.config.to_json())
    write_json(folder.labels, list(pipeline.labels))
    write_bytes(folder.path / "model.safetensors", seal_weights(weights_to_bytes(pipeline.model)))
    return folder


def training_probabilities(pipeline, folder, images):
    """The probabilities of the model for a .npz file that is prepared as training data."""
    np.savez(folder / "train.npz", images=images, labels=np.arange(len(images)))
    examples = prepare(DataConfig(root=str(folder), train=("train.npz",)), "image_classification").train
    with torch.no_grad():
        return pipeline.model(torch.tensor(np.stack([e.pixels for e in examples]))).softmax(-1).numpy()


def test_every_format_gives_the_same_result(tmp_path):
    """uint8, floats and image files, in Python and on the command line."""
    pipeline = classifier()
    save_run(pipeline, tmp_path / "run")
    expected = training_probabilities(pipeline, tmp_path, BYTES)
    assert np.abs(expected[0] - expected[1]).max() > 0.01
    floats = BYTES.astype(np.float32) / np.float32(255)
    files = []
    for number, image in enumerate(BYTES):
        files.append(tmp_path / f"{number}.png")
        Image.fromarray(image).save(files[-1])
    np.save(tmp_path / "bytes.npy", BYTES)
    np.savez_compressed(tmp_path / "bytes.npz", images=BYTES)
    np.savez(tmp_path / "floats.npz", images=floats[:, None], labels=np.arange(5))
    forms = {
        "bytes": BYTES, "with channels": BYTES[:, None], "a list": list(BYTES), "floats": floats,
        "double": floats.astype(np.float64), "tensor": torch.tensor(BYTES), "plain lists": floats.tolist(),
        "paths": files, "strings": [str(file) for file in files], "pillow": [Image.open(file) for file in files],
        "npy": tmp_path / "bytes.npy", "npz": str(tmp_path / "bytes.npz"), "labelled": tmp_path / "floats.npz",
        "mixed": [BYTES[0], floats[1], files[2], Image.open(files[3]), BYTES[4, None]],
    }  # fmt: skip
    for name, images in forms.items():
        found = np.array(pipeline.probabilities(images))
        assert found.shape == expected.shape, name
        assert np.abs(found - expected).max() < 1e-6, name
    assert np.array_equal(pipeline.probabilities(BYTES), pipeline.probabilities(files))
    for one in (BYTES[0], floats[0], BYTES[0][None], files[0], Image.open(files[0])):
        assert np.abs(np.array(pipeline.probabilities(one)) - expected[:1]).max() < 1e-6

    labels = [p.label for p in pipeline.classify(BYTES)]
    for source in (["--file", "bytes.npz"], ["--file", "bytes.npy"], ["--file", "floats.npz"], files, ["bytes.npz"]):
        result = run_cutaway("classify", "run", *source, "--json", cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        assert [line["label"] for line in lines] == labels
        assert np.abs(np.array([line["probability"] for line in lines]) - expected.max(1)).max() < 1e-6
    result = run_cutaway("classify", "run", "--file", "0.png", cwd=tmp_path)
    assert result.stdout.split("\t")[0] == labels[0]


def test_a_trace_has_the_same_input():
    pipeline = classifier()
    from_bytes, from_floats = (trace(pipeline, image) for image in (BYTES[0], BYTES[0, None] / np.float32(255)))
    assert np.array_equal(from_bytes.weights("encoder", 0), from_floats.weights("encoder", 0))


def test_the_channels_of_the_model_decide_how_three_dimensions_are_read():
    colour_images = np.random.default_rng(1).integers(0, 256, (2, 3, SIDE, SIDE), np.uint8)
    pipeline = classifier(channels=3)
    both = pipeline.probabilities(colour_images)
    assert np.allclose(pipeline.probabilities(colour_images[1]), both[1:])
    assert np.allclose(pipeline.probabilities(list(colour_images)), both)
    assert len(classifier().probabilities(colour_images[0])) == 3  # three grey ones


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "1", "LA", "CMYK"])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_an_image_file_is_converted_to_the_channels_of_the_model(tmp_path, mode, channels):
    image = Image.fromarray(np.full((SIDE, SIDE, 3), 255, np.uint8)).convert(mode)
    image.save(tmp_path / ("a.tiff" if mode == "CMYK" else "a.png"))
    (file,) = tmp_path.iterdir()
    pixels = pixels_of(file, classifier(channels).config.model)
    assert (pixels.shape, pixels.dtype) == ((channels, SIDE, SIDE), np.float32)
    assert (pixels == 1).all()


def test_colours_stay_in_their_order(tmp_path):
    red = np.zeros((SIDE, SIDE, 3), np.uint8)
    red[:, :, 0] = 204
    Image.fromarray(red).save(tmp_path / "red.png")
    pixels = pixels_of(tmp_path / "red.png", classifier(3).config.model)
    assert [channel.max() for channel in pixels] == [np.float32(0.8), 0, 0]


def test_16_bit_images_are_not_clipped(tmp_path):
    deep = np.linspace(0, 65535, SIDE * SIDE).astype(np.uint16).reshape(SIDE, SIDE)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    pixels = pixels_of(tmp_path / "deep.png", classifier().config.model)
    assert np.abs(pixels[0] - deep / 65535).max() < 1 / 255
    Image.fromarray(deep.astype(np.int32)).save(tmp_path / "deeper.tiff")
    with pytest.raises(DataError, match="32-bit pixels.*Save it with 8 bits"):
        pixels_of(tmp_path / "deeper.tiff", classifier().config.model)


@pytest.mark.parametrize("resize", ["bilinear", "bicubic", "nearest"])
def test_an_image_of_another_size_is_scaled(tmp_path, resize):
    large = np.random.default_rng(2).integers(0, 256, (60, 90), np.uint8)
    Image.fromarray(large).save(tmp_path / "large.png")
    model = classifier(resize=resize).config.model
    expected = Image.fromarray(large).resize((SIDE, SIDE), getattr(Image.Resampling, resize.upper()))
    assert np.array_equal(pixels_of(tmp_path / "large.png", model)[0] * 255, np.asarray(expected, np.float32))


def test_an_image_is_rotated_by_its_exif_orientation(tmp_path):
    image = Image.fromarray(np.tile(np.arange(SIDE, dtype=np.uint8) * 9, (SIDE, 1)))
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees
    image.save(tmp_path / "a.png", exif=exif)
    pixels = pixels_of(tmp_path / "a.png", classifier().config.model)[0]
    assert pixels[0].std() < 0.01 < pixels[:, 0].std()


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (BYTES[0].astype(np.int64), r"int64 \[28, 28\]. Expected uint8 from 0 to 255, or floats from 0 to 1"),
        (BYTES[0].astype(np.float32), "from 0 to 255. Expected uint8 from 0 to 255, or floats"),
        (np.full((SIDE, SIDE), np.nan), "Expected uint8"),
        (-np.ones((SIDE, SIDE)), "from -1 to -1. Expected"),
        (BYTES[0, :14, :14], r"\[14, 14\], but this model reads \[1, 28, 28\]. Scale it to that size first"),
        (np.zeros((SIDE, SIDE, 1), np.uint8), "the channels are last"),
    ],
)
def test_an_unknown_scale_or_size_is_refused(image, message):
    with pytest.raises(DataError, match=message):
        classifier().classify([image])


def test_files_that_are_not_images(tmp_path):
    pipeline = classifier()
    (tmp_path / "a.png").write_bytes(b"hello")
    Image.fromarray(BYTES[0]).save(tmp_path / "b.png")
    (tmp_path / "b.png").write_bytes((tmp_path / "b.png").read_bytes()[:300])
    for name in ("a.png", "b.png"):
        with pytest.raises(DataError, match=rf"{name} cannot be read as an image.*Give a PNG or JPEG"):
            pipeline.classify([tmp_path / name])
    with pytest.raises(DataError, match=r"there is no image file .*none.png"):
        pipeline.classify(tmp_path / "none.png")
    np.savez(tmp_path / "a.npz", pictures=BYTES)
    with pytest.raises(DataError, match="contains pictures, but no images"):
        pipeline.classify(tmp_path / "a.npz")
    np.save(tmp_path / "a.npy", BYTES * 1.0)
    with pytest.raises(DataError, match=r"a.npy contains images of float64 .*from 0 to 255. Expected uint8"):
        pipeline.classify(tmp_path / "a.npy")
    with pytest.raises(DataError, match="reads 2 channels, but image files have 1, 3, 4"):
        classifier(2).classify(Image.fromarray(BYTES[0]))


def test_the_error_without_pillow_names_it(tmp_path, monkeypatch):
    Image.fromarray(BYTES[0]).save(tmp_path / "a.png")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(
        MissingExtra, match=r"a.png needs Pillow.*pip install 'cutaway\[show\]' \(or pip install pillow"
    ):
        classifier().classify(tmp_path / "a.png")
    assert len(classifier().classify(BYTES)) == 5


def test_the_run_records_the_scale(tmp_path):
    pipeline = classifier()
    run = save_run(pipeline, tmp_path / "run")
    config = json.loads(run.config.read_text())
    assert config["model"]["pixels"] == "unit"
    for name in ("pixels", "resize"):  # a run from before these fields was trained with numbers from 0 to 1
        del config["model"][name]
    run.config.write_text(json.dumps(config))
    assert np.allclose(Classifier.load(run.path, "cpu").probabilities(BYTES), pipeline.probabilities(BYTES))
    config["model"]["pixels"] = "bytes"  # an unknown value is refused
    with pytest.raises(ConfigError, match="model.pixels = 'bytes' is not a choice"):
        Config.from_json(json.dumps(config))
