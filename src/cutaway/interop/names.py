"""Tables that map tensor names, in both directions.

                          ours                                    theirs
    NameRule   self_attention.{query,key,value}.weight  ◀─read──  attn.c_attn.weight, transposed
                                                        ──write─▶

A table is complete. Every tensor that it names must be in the file, with its shape. Every tensor in the file must be in
the table, or listed there as unused. `read` uses only operations that PyTorch tensors have too (slice, transpose,
scale), so tests can send gradients through it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cutaway.errors import DataError, RunError
from cutaway.interop.tensors import Array

Shape = tuple[int, ...]


@dataclass(frozen=True)
class TensorTransform:
    """A conversion from their tensor to ours (`read`) and back (`write`)."""

    read: Callable[[Array], Array]
    write: Callable[[Array], Array]


UNCHANGED = TensorTransform(lambda w: w, lambda w: w)
TRANSPOSED = TensorTransform(lambda w: w.T, lambda w: w.T)


def multiply(factor: float) -> TensorTransform:
    """ours = theirs · factor"""
    return TensorTransform(lambda w: w * factor, lambda w: w / factor)


def divide(divisor: float) -> TensorTransform:
    """ours = theirs / divisor"""
    return TensorTransform(lambda w: w / divisor, lambda w: w * divisor)


def reshape(ours: Shape, theirs: Shape) -> TensorTransform:
    """The same numbers, in our shape and in theirs."""
    return TensorTransform(lambda w: w.reshape(ours), lambda w: w.reshape(theirs))


def permute_rows(order: Sequence[int]) -> TensorTransform:
    """Row i of ours is row order[i] of theirs. For a bias: number i."""
    there, back = list(order), inverse(order)
    return TensorTransform(lambda w: w[there], lambda w: w[back])


def permute_columns(order: Sequence[int]) -> TensorTransform:
    there, back = list(order), inverse(order)
    return TensorTransform(lambda w: w[:, there], lambda w: w[:, back])


def inverse(order: Sequence[int]) -> list[int]:
    """The inverse permutation."""
    back = [0] * len(order)
    for i, position in enumerate(order):
        back[position] = i
    return back


@dataclass(frozen=True)
class NameRule:
    """Tensors of ours, the tensors of theirs with the same numbers, and the conversion in both directions."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    shapes: tuple[Shape, ...]  # of theirs
    read: Callable[[Sequence[Array]], Sequence[Array]]
    write: Callable[[Sequence[Array]], Sequence[Array]]


def rename_rule(ours: str, theirs: str, shape: Shape, change: TensorTransform = UNCHANGED) -> NameRule:
    """One tensor, with our name and theirs."""
    return NameRule((ours,), (theirs,), (shape,), lambda w: [change.read(w[0])], lambda w: [change.write(w[0])])


def linear_rules(
    ours: str,
    theirs: str,
    d_out: int,
    d_in: int,
    bias: bool = True,
    weight_change: TensorTransform = UNCHANGED,
    bias_change: TensorTransform = UNCHANGED,
) -> list[NameRule]:
    """The weight [out, in] of a projection, and its bias [out]."""
    rules = [rename_rule(f"{ours}.weight", f"{theirs}.weight", (d_out, d_in), weight_change)]
    return rules + ([rename_rule(f"{ours}.bias", f"{theirs}.bias", (d_out,), bias_change)] if bias else [])


def norm_rules(
    ours: str, theirs: str, width: int, bias: bool = True, change: TensorTransform = UNCHANGED
) -> list[NameRule]:
    kinds = ("weight", "bias") if bias else ("weight",)
    return [rename_rule(f"{ours}.{kind}", f"{theirs}.{kind}", (width,), change) for kind in kinds]


def split_rule(ours: Sequence[str], theirs: str, shape: Shape, change: TensorTransform = UNCHANGED) -> NameRule:
    """One tensor of theirs, split along the rows into equal tensors of ours. `change` comes before the split."""

    def read(arrays: Sequence[Array]) -> list[Array]:
        whole = change.read(arrays[0])
        size = whole.shape[0] // len(ours)
        return [whole[i * size : (i + 1) * size] for i in range(len(ours))]

    return NameRule(tuple(ours), (theirs,), (shape,), read, lambda w: [change.write(np.concatenate(list(w)))])


def constant_rule(theirs: str, shape: Shape, make: Callable[[], Array], tolerance: float = 0.0) -> NameRule:
    """A tensor of theirs with known numbers, such as sinusoids or zeros. We do not store it."""

    def read(arrays: Sequence[Array]) -> list[Array]:
        check_constant(theirs, arrays[0], make(), tolerance)
        return []

    return NameRule((), (theirs,), (shape,), read, lambda w: [make()])


def check_constant(name: str, found: Array, expected: Array, tolerance: float) -> None:
    difference = float(np.abs(np.asarray(found) - expected).max()) if expected.size else 0.0
    if not difference <= tolerance:
        raise DataError(
            f"the tensor {name!r} differs by up to {difference:.3g} from the constant that its architecture defines. "
            "Cutaway's model always uses the constant, so this model cannot be imported."
        )


def layer_rules(n: int, ours: str, theirs: str, layer: Callable[[str, str], Iterable[NameRule]]) -> list[NameRule]:
    """The rules of all `n` layers."""
    return [rule for i in range(n) for rule in layer(f"{ours}.{i}", f"{theirs}.{i}")]


@dataclass(frozen=True)
class NameTable:
    """All tensors of an architecture.

    A file may use another spelling of a name. It may also store a tensor twice; then both must be equal.
    """

    rules: Sequence[NameRule]
    spellings: Sequence[tuple[str, str]] = ()  # regular expression -> another spelling
    duplicates: Mapping[str, str] = field(default_factory=dict)  # second name of a tensor -> first name
    written_duplicates: Sequence[str] = ()  # duplicates that an export contains too
    unused: Mapping[str, str] = field(default_factory=dict)  # regular expression of names -> why the model ignores them
    constants: Sequence[NameRule] = ()  # optional in a file; an export contains them
    unwritten_constants: Sequence[NameRule] = ()  # optional in a file; an export does not contain them

    @property
    def names(self) -> list[str]:
        """Our names."""
        return [name for rule in self.rules for name in rule.ours]

    def all_spellings(self, name: str) -> list[str]:
        """Every spelling of a name, the usual one first."""
        found = [name]
        for pattern, instead in self.spellings:
            found += [other for old in found if (other := re.sub(pattern, instead, old)) not in found]
        return found

    def candidates(self, name: str) -> list[str]:
        """Every name that this tensor may have in a file."""
        seconds = [second for second, first in self.duplicates.items() if first == name]
        return [spelling for n in (name, *seconds) for spelling in self.all_spellings(n)]


def read(table: NameTable, weights: Mapping[str, Array], where: str) -> tuple[dict[str, Array], dict[str, str]]:
    """Convert their tensors to ours. Also return the tensors that were left out, each with the reason."""
    ours: dict[str, Array] = {}
    left_out: dict[str, str] = {}
    seen: set[str] = set()
    for rule in table.rules:
        arrays = []
        for name, shape in zip(rule.theirs, rule.shapes, strict=True):
            found = [n for n in table.candidates(name) if n in weights]
            arrays.append(read_tensor(found, name, shape, weights, where))
            seen.update(found)
            left_out |= dict.fromkeys(found[1:], f"the same as {found[0]}")
        ours |= zip(rule.ours, rule.read(arrays), strict=True)
    for rule in (*table.constants, *table.unwritten_constants):
        for name in (n for n in table.candidates(rule.theirs[0]) if n in weights):
            rule.read([read_tensor([name], name, rule.shapes[0], weights, where)])
            left_out[name] = "a constant"
    left_out |= explain_unused(table, [n for n in weights if n not in seen and n not in left_out], where)
    return ours, left_out


def read_tensor(found: Sequence[str], name: str, shape: Shape, weights: Mapping[str, Array], where: str) -> Array:
    """Return the tensor that all names in `found` refer to. Raise if it is missing, differs or has another shape."""
    advice = "Check that config.json belongs to these weights."
    if not found:
        raise DataError(f"{where} has no tensor {name!r} of shape {shape}. {advice}")
    first = weights[found[0]]
    if tuple(first.shape) != shape:
        raise DataError(
            f"the tensor {found[0]!r} in {where} has the shape {tuple(first.shape)}; config.json requires {shape}. "
            f"{advice}"
        )
    for other in found[1:]:
        if not np.array_equal(first, weights[other]):
            raise DataError(
                f"the tensors {found[0]!r} and {other!r} in {where} should be equal, but they differ. If the model "
                'does not tie them, set "tie_word_embeddings": false in config.json.'
            )
    return first


def explain_unused(table: NameTable, names: Iterable[str], where: str) -> dict[str, str]:
    """Return why each of these tensors can be left out. An unknown tensor raises."""
    reasons = {name: next((why for p, why in table.unused.items() if re.fullmatch(p, name)), None) for name in names}
    unknown = [name for name, why in reasons.items() if why is None]
    if unknown:
        more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
        raise DataError(
            f"{where} has tensors that this architecture does not have: {', '.join(sorted(unknown)[:3])}{more}. "
            "Check the architecture and the number of layers in config.json."
        )
    return {name: why for name, why in reasons.items() if why is not None}


def write(table: NameTable, ours: Mapping[str, Array], where: str) -> dict[str, Array]:
    """Convert our tensors to theirs."""
    missing, surplus = set(table.names) - ours.keys(), ours.keys() - set(table.names)
    if missing or surplus:
        raise RunError(
            f"{where} does not fit its config.json: missing {sorted(missing)[:3]}, unknown {sorted(surplus)[:3]}. "
            "Restore the config.json that it was trained with."
        )
    theirs: dict[str, Array] = {}
    for rule in (*table.rules, *table.constants):
        arrays = rule.write([ours[name] for name in rule.ours])
        for name, array, shape in zip(rule.theirs, arrays, rule.shapes, strict=True):
            if tuple(array.shape) != shape:
                raise RunError(
                    f"{' and '.join(rule.ours)} in {where} would give {name!r} the shape {tuple(array.shape)}; "
                    f"config.json requires {shape}. Restore the config.json that it was trained with."
                )
            theirs[name] = np.ascontiguousarray(array)
    for second in table.written_duplicates:
        theirs[second] = theirs[table.duplicates[second]]
    return theirs
