"""A setting that a file format cannot express."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Obstacle(NamedTuple):
    setting: str
    value: Any
    why: str  # as the exporter says it

    def __str__(self) -> str:
        """As a recipe has it."""
        return f"{self.setting} = {json.dumps(self.value, ensure_ascii=False)}"
