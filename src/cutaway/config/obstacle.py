"""A setting that a file format cannot express."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Obstacle(NamedTuple):
    setting: str
    value: Any
    why: str  # the exporter's message

    def __str__(self) -> str:
        """The setting as it is written in a recipe."""
        return f"{self.setting} = {json.dumps(self.value, ensure_ascii=False)}"
