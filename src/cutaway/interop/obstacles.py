"""What stands in the way of an export: settings that a format cannot express. No torch here.

Each exporter refuses by its list of obstacles, so `export_note` can say before a training what an export after it
would say.
"""

from __future__ import annotations

from collections.abc import Sequence

from cutaway.config import Config, FinetuneConfig, ModelConfig
from cutaway.config.obstacle import Obstacle
from cutaway.runs.merge import can_merge


def in_onnx(config: ModelConfig) -> list[Obstacle]:
    """What a graph, which is drawn before any text is seen, cannot express."""
    found = []
    if config.experts:
        why = (
            f"model.experts = {config.experts} cannot be exported to ONNX: which tokens an expert gets, and how many, "
            "is known only when a text is read, and a graph is drawn before. Train a model with experts = 0 for that."
        )
        found.append(Obstacle("experts", config.experts, why))
    if config.attention == "linear" and config.family in ("decoder", "encoder_decoder"):
        why = (
            f"model.attention = 'linear' with model.family = {config.family!r} cannot be exported to ONNX: it goes "
            "through a text chunk by chunk, so its graph would be for texts of one length. Train a model with "
            'attention = "full" or "window" for that.'
        )
        found.append(Obstacle("attention", config.attention, why))
    return found


def in_merging(finetune: FinetuneConfig) -> list[Obstacle]:
    """What keeps a fine-tuned run from being a plain model, which hf and ct2 need."""
    if not finetune.is_adapter or can_merge(finetune):
        return []
    return [Obstacle("finetune.method", finetune.method, "only LoRA's matrices can be merged into weights")]


def export_obstacles(config: Config) -> dict[str, list[Obstacle]]:
    """For each format, what keeps a run of this configuration from being exported to it; nothing: it can be."""
    from cutaway.inference.engines import ct2_model
    from cutaway.interop import huggingface

    merging = in_merging(config.finetune)
    return {
        "hf": [*huggingface.obstacles(config.model), *merging],
        "onnx": in_onnx(config.model),
        "ct2": [*ct2_model.obstacles(config.model), *merging],
    }


def export_note(config: Config) -> str:
    """Which formats a run of this configuration can be exported to, and which not; empty, if there is nothing to say.

        Export: hf and onnx, not ct2 (feed_forward = "relu2")

    That a format is for another family of models is not said: nobody would export a classifier to CTranslate2.
    """
    found = {
        name: obstacles
        for name, obstacles in export_obstacles(config).items()
        if all(obstacle.setting != "family" for obstacle in obstacles)
    }
    possible = [name for name, obstacles in found.items() if not obstacles]
    impossible = [f"not {name} ({listed(obstacles)})" for name, obstacles in found.items() if obstacles]
    if not impossible:
        return ""
    return "Export: " + ", ".join([" and ".join(possible)] * bool(possible) + impossible)


def listed(obstacles: Sequence[Obstacle], shown: int = 3) -> str:
    more = f" and {len(obstacles) - shown} more" if len(obstacles) > shown else ""
    return ", ".join(map(str, obstacles[:shown])) + more
