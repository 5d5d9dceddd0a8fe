"""Solutions of earlier exercises, for use in later ones.

    from cutaway.course.given import attention

They accept arrays or tensors and return the same kind.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from cutaway.course.exercises import encoder_block as exercise_4
from cutaway.course.exercises import full_transformer as exercise_5
from cutaway.course.exercises import multi_head_attention as exercise_2
from cutaway.course.exercises import positional_encoding as exercise_3
from cutaway.course.exercises import scaled_dot_product as exercise_1
from cutaway.course.values import as_tensors, is_tensor, pack, unpack


def wrap_reference(reference: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(reference)
    known = signature.replace(parameters=[p for p in signature.parameters.values() if p.name != "wrong"])

    @wraps(reference)
    def function(*arguments: Any, **named: Any) -> Any:
        bound = known.bind(*arguments, **named)
        bound.apply_defaults()
        result = reference(*unpack(pack(list(bound.args))))  # pack and unpack convert tensors to arrays
        return as_tensors(result) if any(map(holds_tensors, bound.args)) else result

    function.__signature__ = known  # type: ignore[attr-defined]
    return function


def holds_tensors(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(holds_tensors, value.values()))
    return any(map(holds_tensors, value)) if isinstance(value, (list, tuple)) else is_tensor(value)


softmax = wrap_reference(exercise_1.softmax)
attention = wrap_reference(exercise_1.attention)
split_heads = wrap_reference(exercise_2.split_heads)
merge_heads = wrap_reference(exercise_2.merge_heads)
multi_head_attention = wrap_reference(exercise_2.multi_head_attention)
sinusoidal = wrap_reference(exercise_3.sinusoidal)
embed = wrap_reference(exercise_3.embed)
layer_norm = wrap_reference(exercise_4.layer_norm)
feed_forward = wrap_reference(exercise_4.feed_forward)
encoder = wrap_reference(exercise_4.encoder)
shift_right = wrap_reference(exercise_5.shift_right)
