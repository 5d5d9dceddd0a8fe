"""Obstacles to an export: settings that a format cannot express. No torch here.

Exporters raise because of these lists, so `export_note` can warn before training.
"""

from __future__ import annotations

from collections.abc import Sequence

from cutaway.config import Config, FinetuneConfig, ModelConfig
from cutaway.config.obstacle import Obstacle
from cutaway.runs.merge import can_merge


def onnx_obstacles(config: ModelConfig) -> list[Obstacle]:
    """Settings that a static graph cannot express."""
    found = []
    if config.experts:
        why = (
            f"model.experts = {config.experts} cannot be exported to ONNX: the number of tokens of an expert depends "
            "on the input, and a graph is static. Train a model with experts = 0."
        )
        found.append(Obstacle("experts", config.experts, why))
    if config.attention == "linear" and config.family in ("decoder", "encoder_decoder"):
        why = (
            f"model.attention = 'linear' with model.family = {config.family!r} cannot be exported to ONNX: it "
            "processes a text in chunks, so a graph would only work for one length. Train a model with "
            'attention = "full" or "window".'
        )
        found.append(Obstacle("attention", config.attention, why))
    return found


def merge_obstacles(finetune: FinetuneConfig) -> list[Obstacle]:
    """Why an adapter cannot be merged into its base. hf and ct2 need a merged model."""
    if not finetune.is_adapter or can_merge(finetune):
        return []
    return [Obstacle("finetune.method", finetune.method, "only LoRA can be merged into the weights")]


def export_obstacles(config: Config) -> dict[str, list[Obstacle]]:
    """The obstacles of each format. Empty: a run with this configuration can be exported."""
    from cutaway.inference.engines import ct2_model
    from cutaway.interop import huggingface

    merging = merge_obstacles(config.finetune)
    return {
        "hf": [*huggingface.obstacles(config.model), *merging],
        "onnx": onnx_obstacles(config.model),
        "ct2": [*ct2_model.obstacles(config.model), *merging],
    }


def export_note(config: Config) -> str:
    """Which formats a run with this configuration can be exported to. Empty if all are possible.

        Export: hf and onnx, not ct2 (feed_forward = "relu2")

    Formats for another family of models are not mentioned, such as CTranslate2 for a classifier.
    """
    found = {
        name: obstacles
        for name, obstacles in export_obstacles(config).items()
        if all(obstacle.setting != "family" for obstacle in obstacles)
    }
    possible = [name for name, obstacles in found.items() if not obstacles]
    impossible = [f"not {name} ({join_obstacles(obstacles)})" for name, obstacles in found.items() if obstacles]
    if not impossible:
        return ""
    return "Export: " + ", ".join([" and ".join(possible)] * bool(possible) + impossible)


def join_obstacles(obstacles: Sequence[Obstacle], shown: int = 3) -> str:
    more = f" and {len(obstacles) - shown} more" if len(obstacles) > shown else ""
    return ", ".join(map(str, obstacles[:shown])) + more
