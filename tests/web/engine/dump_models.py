"""Write tiny models and all their values, for the tests of the engine.

The values are those of the NumPy twin; for models that it does not have, those of PyTorch in double precision.

python dump_models.py FOLDER

cases.json           for each model: name, configuration, inputs, and the place of each probe's value
N.safetensors        its weights, which are exact in 32 bits
N.bin                the values of all probes, as 64-bit numbers
F16.json and so on   the same weights in each number format, and F16.safetensors and so on
defaults.json        the defaults of the settings
buckets.json         the buckets of relative distances
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import safetensors.torch
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from helpers import AXES, all_pairs, batch_for, name_of, perturbed_model, random_ids, tiny_config, tiny_of, twin_choices

from cutaway.config import ModelConfig
from cutaway.errors import ConfigError
from cutaway.models.weights import weights_to_bytes
from cutaway.nn.recording import record_activations
from cutaway.nn.relative_positions import t5_bucket
from cutaway.runs.weights import seal_weights
from cutaway.twin.build import build_model as build_twin
from cutaway.twin.modules import record_activations as record_twin

# Settings that all_pairs does not vary, and values at which they matter for texts of six tokens.
NAMED = {
    "paper": {},
    "llama-3.1": {"family": "decoder", "norm_placement": "pre", "position": "rope", "feed_forward": "swiglu",
                  "norm": "rms", "rope_scaling": "llama3", "rope_factor": 8.0, "rope_original_length": 8,
                  "rope_base": 30.0, "bias": False, "n_kv_heads": 1, "embeddings": "separate"},
    "linear-rope": {"family": "decoder", "position": "rope", "rope_scaling": "linear", "rope_factor": 3.0},
    "t5": {"norm_placement": "pre", "position": "relative_bias", "relative_buckets": 8, "relative_distance": 5,
           "norm": "rms", "bias": False, "embedding_scale": "one"},
    "shaw": {"position": "relative", "relative_clip": 2, "attention_kernel": "exact"},
    "six-heads": {"d_model": 24, "n_heads": 6, "n_kv_heads": 2, "position": "alibi"},
    "four-heads-linear": {"family": "decoder", "n_heads": 4, "n_kv_heads": 2, "attention": "linear",
                          "position": "learned"},
    "memory": {"family": "decoder", "cross_attention": True, "position": "learned"},
    "memory-parallel": {"family": "decoder", "cross_attention": True, "block": "parallel",
                        "norm_placement": "sandwich"},
    "bert": {"family": "encoder", "segments": 2, "embedding_norm": True, "position": "learned", "feed_forward": "gelu"},
    "colour": {"family": "vision", "channels": 3, "pooling": "mean", "position": "learned"},
    "wide-window": {"attention": "window", "attention_window": 3, "position": "rope", "d_head": 6},
    "stride": {"family": "decoder", "attention": "sparse", "attention_window": 3},
}  # fmt: skip


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # the tensors are tiny
    torch.set_default_dtype(torch.float64)
    choices = {**{name_of(choice): choice for choice in [*all_pairs(AXES)[0], *twin_choices()]}, **NAMED}
    cases = [dump_case(folder, i, name, tiny_of(**choice)) for i, (name, choice) in enumerate(choices.items())]
    write_json(folder / "cases.json", cases)
    write_json(folder / "defaults.json", dataclasses.asdict(ModelConfig()))
    dump_buckets(folder)
    dump_number_formats(folder)


def dump_case(folder: Path, i: int, name: str, config: ModelConfig) -> dict:
    model = perturbed_model(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.float())
    inputs = inputs_for(config)
    values, oracle = expected_values(model, config, inputs)
    (folder / f"{i}.safetensors").write_bytes(seal_weights(weights_to_bytes(model.float())))
    probes, start = [], 0
    for probe, value in values.items():
        probes.append({"name": probe, "shape": list(value.shape), "start": start})
        start += value.size
    np.concatenate([value.ravel() for value in values.values()]).astype("float64").tofile(folder / f"{i}.bin")
    # the values may be pixels, ids or booleans
    given = {key: None if value is None else value.tolist() for key, value in inputs.items()}
    return {"name": name, "config": dataclasses.asdict(config), "inputs": given, "probes": probes, "oracle": oracle}


def expected_values(
    model: torch.nn.Module, config: ModelConfig, inputs: dict[str, torch.Tensor | None]
) -> tuple[dict[str, np.ndarray], str]:
    """Probe name -> its value, in the order of computation, and who computed it: twin or torch."""
    with torch.no_grad(), record_activations(model) as recorded:
        model(*inputs.values())
    values = {name: value.numpy() for name, value in recorded.items()}
    try:
        other = build_twin(config)
    except ConfigError:
        return values, "torch"
    other.load({name: parameter.detach().numpy() for name, parameter in model.named_parameters()})
    with record_twin(other) as found:
        other(*(None if value is None else value.numpy() for value in inputs.values()))
    return {name: found.values[name] for name in values}, "twin"


def inputs_for(config: ModelConfig) -> dict[str, torch.Tensor | None]:
    """The arguments of the model, in order. Texts have padding."""
    if config.family == "vision":
        return {"images": torch.rand(3, config.channels, 4, 4).float().double()}
    batch = batch_for(config)
    if config.family == "encoder_decoder":
        source_mask = torch.arange(6)[None] < torch.tensor([6, 5, 3])[:, None]
        return {"source": batch.source, "target_in": batch.target_in, "source_mask": source_mask,
                "target_mask": batch.target_mask}  # fmt: skip
    inputs = {"ids": batch.ids, "mask": batch.mask}
    if config.cross_attention:
        memory = torch.randn(3, 5, config.d_model).float().double()
        inputs |= {"memory": memory, "memory_mask": torch.arange(5)[None] < torch.tensor([5, 2, 4])[:, None]}
    if config.segments:
        inputs["segments"] = random_ids(3, 6, seed=7) % config.segments
    return inputs


def dump_buckets(folder: Path) -> None:
    """The buckets of long distances, which texts of six tokens do not reach."""
    settings = [(32, 128, False), (32, 128, True), (12, 64, False), (4, 3, True), (64, 1000, False)]
    distances = torch.arange(-1100, 1101)
    tables = [{"arguments": given, "buckets": t5_bucket(distances, *given).tolist()} for given in settings]
    write_json(folder / "buckets.json", tables)


def dump_number_formats(folder: Path) -> None:
    """The weights of one model in each number format, and what a reader should find."""
    weights = {name: p.detach().float() for name, p in perturbed_model(tiny_config()).named_parameters()}
    weights["edge.cases"] = torch.tensor([0.0, -0.0, 6e-8, -3e-5, 65504.0, float("inf"), -1.5], dtype=torch.float32)
    for name, dtype in (("F32", torch.float32), ("F16", torch.float16), ("BF16", torch.bfloat16)):
        stored = {key: value.to(dtype) for key, value in weights.items()}
        write_format(folder, name, stored, {key: value.float() for key, value in stored.items()})
    stored, expected = {}, {}
    for key, value in weights.items():
        stored[key] = expected[key] = value
        if value.dim() == 2:
            scale = value.abs().amax(dim=1) / 127
            stored[key], stored[f"{key}.scale"] = (value / scale[:, None]).round().to(torch.int8), scale
            expected[key] = stored[key].float() * scale[:, None]
    write_format(folder, "I8", stored, expected)
    (folder / "F64.safetensors").write_bytes(safetensors.torch.save({"x": torch.zeros(2, dtype=torch.float64)}))


def write_format(folder: Path, name: str, stored: dict, expected: dict) -> None:
    data = safetensors.torch.save(stored, metadata={"note": "naïve \x7f €"})
    (folder / f"{name}.safetensors").write_bytes(seal_weights(data))
    write_json(folder / f"{name}.json", {key: {"shape": list(value.shape), "data": text_of(value)}
                                         for key, value in expected.items()})  # fmt: skip


def text_of(value: torch.Tensor) -> list[str]:
    """As text, because JSON has no infinity and no negative zero."""
    return [repr(number).replace("inf", "Infinity") for number in value.flatten().tolist()]


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))


if __name__ == "__main__":
    main()
