"""What tensors are called here and there: one table for both ways.

                       ours                                    theirs
    Entry   self_attention.{query,key,value}.weight  ◀─read──  attn.c_attn.weight, lying on its side
                                                     ──write─▶

A table is complete: every tensor that it names must be in the file, in its shape, and every tensor in the file must be
in the table, or known to be of no use. What `read` does is what a tensor itself can do (cut, turn, scale), so it works
on PyTorch's tensors too, and the tests send gradients through it.
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
    """How a tensor of theirs becomes one of ours, and back again."""

    read: Callable[[Array], Array]
    write: Callable[[Array], Array]


AS_IS = TensorTransform(lambda w: w, lambda w: w)
ON_ITS_SIDE = TensorTransform(lambda w: w.T, lambda w: w.T)


def times(factor: float) -> TensorTransform:
    """ours = theirs · factor"""
    return TensorTransform(lambda w: w * factor, lambda w: w / factor)


def divided_by(divisor: float) -> TensorTransform:
    """ours = theirs / divisor"""
    return TensorTransform(lambda w: w / divisor, lambda w: w * divisor)


def shaped(ours: Shape, theirs: Shape) -> TensorTransform:
    """The same numbers in another shape."""
    return TensorTransform(lambda w: w.reshape(ours), lambda w: w.reshape(theirs))


def rows(order: Sequence[int]) -> TensorTransform:
    """Row i of ours is row order[i] of theirs. For a bias, its numbers."""
    there, back = list(order), inverse(order)
    return TensorTransform(lambda w: w[there], lambda w: w[back])


def columns(order: Sequence[int]) -> TensorTransform:
    there, back = list(order), inverse(order)
    return TensorTransform(lambda w: w[:, there], lambda w: w[:, back])


def inverse(order: Sequence[int]) -> list[int]:
    back = [0] * len(order)
    for i, place in enumerate(order):
        back[place] = i
    return back


@dataclass(frozen=True)
class NameRule:
    """Some tensors of ours, the tensors of theirs that hold the same numbers, and the way between them."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    shapes: tuple[Shape, ...]  # of theirs
    read: Callable[[Sequence[Array]], Sequence[Array]]
    write: Callable[[Sequence[Array]], Sequence[Array]]


def one(ours: str, theirs: str, shape: Shape, change: TensorTransform = AS_IS) -> NameRule:
    """A tensor under two names."""
    return NameRule((ours,), (theirs,), (shape,), lambda w: [change.read(w[0])], lambda w: [change.write(w[0])])


def linear(
    ours: str,
    theirs: str,
    d_out: int,
    d_in: int,
    bias: bool = True,
    weight_change: TensorTransform = AS_IS,
    bias_change: TensorTransform = AS_IS,
) -> list[NameRule]:
    """The weight [out, in] of a projection, and its bias [out]."""
    entries = [one(f"{ours}.weight", f"{theirs}.weight", (d_out, d_in), weight_change)]
    return entries + ([one(f"{ours}.bias", f"{theirs}.bias", (d_out,), bias_change)] if bias else [])


def norm(ours: str, theirs: str, width: int, bias: bool = True, change: TensorTransform = AS_IS) -> list[NameRule]:
    kinds = ("weight", "bias") if bias else ("weight",)
    return [one(f"{ours}.{kind}", f"{theirs}.{kind}", (width,), change) for kind in kinds]


def stacked(ours: Sequence[str], theirs: str, shape: Shape, change: TensorTransform = AS_IS) -> NameRule:
    """Several tensors of ours, of one size, above one another in one of theirs; `change` comes first in reading."""

    def read(arrays: Sequence[Array]) -> list[Array]:
        whole = change.read(arrays[0])
        size = whole.shape[0] // len(ours)
        return [whole[i * size : (i + 1) * size] for i in range(len(ours))]

    return NameRule(tuple(ours), (theirs,), (shape,), read, lambda w: [change.write(np.concatenate(list(w)))])


def given(theirs: str, shape: Shape, make: Callable[[], Array], tolerance: float = 0.0) -> NameRule:
    """A tensor of theirs of which we have none, because its numbers are known: a table of sinusoids, zeros."""

    def read(arrays: Sequence[Array]) -> list[Array]:
        check_known(theirs, arrays[0], make(), tolerance)
        return []

    return NameRule((), (theirs,), (shape,), read, lambda w: [make()])


def check_known(name: str, found: Array, known: Array, tolerance: float) -> None:
    difference = float(np.abs(np.asarray(found) - known).max()) if known.size else 0.0
    if not difference <= tolerance:
        raise DataError(
            f"the tensor {name!r} is not what its architecture defines (it differs by up to {difference:.3g}), and "
            "Cutaway's model has no place for other numbers. A model with such weights cannot be imported."
        )


def in_layers(n: int, ours: str, theirs: str, layer: Callable[[str, str], Iterable[NameRule]]) -> list[NameRule]:
    """The entries of a layer, for each of `n`."""
    return [entry for i in range(n) for entry in layer(f"{ours}.{i}", f"{theirs}.{i}")]


@dataclass(frozen=True)
class NameTable:
    """All tensors of an architecture.

    A file may spell a name otherwise, and hold a tensor twice; the second must then equal the first. Of such
    duplicates, those in `copies` are also written.
    """

    entries: Sequence[NameRule]
    spellings: Sequence[tuple[str, str]] = ()  # a pattern in a name -> what a file may have instead
    duplicates: Mapping[str, str] = field(default_factory=dict)  # the second name of a tensor -> the first
    copies: Sequence[str] = ()
    unused: Mapping[str, str] = field(default_factory=dict)  # a pattern of names -> why nobody misses such a tensor
    known: Sequence[NameRule] = ()  # tensors of known numbers: a file need not have them; they are written
    checked: Sequence[NameRule] = ()  # the same, not written

    @property
    def names(self) -> list[str]:
        """Of ours."""
        return [name for entry in self.entries for name in entry.ours]

    def spelled(self, name: str) -> list[str]:
        """Every way in which a file may spell a name, the usual one first."""
        found = [name]
        for pattern, instead in self.spellings:
            found += [other for old in found if (other := re.sub(pattern, instead, old)) not in found]
        return found

    def candidates(self, name: str) -> list[str]:
        """Every name under which a file may hold a tensor."""
        doubles = [double for double, first in self.duplicates.items() if first == name]
        return [spelling for n in (name, *doubles) for spelling in self.spelled(n)]


def read(table: NameTable, weights: Mapping[str, Array], where: str) -> tuple[dict[str, Array], dict[str, str]]:
    """Their tensors as ours; and of those that were left out, why."""
    ours: dict[str, Array] = {}
    left_out: dict[str, str] = {}
    seen: set[str] = set()
    for entry in table.entries:
        arrays = []
        for name, shape in zip(entry.theirs, entry.shapes, strict=True):
            found = [n for n in table.candidates(name) if n in weights]
            arrays.append(the_only(found, name, shape, weights, where))
            seen.update(found)
            left_out |= dict.fromkeys(found[1:], f"the same as {found[0]}")
        ours |= zip(entry.ours, entry.read(arrays), strict=True)
    for entry in (*table.known, *table.checked):
        for name in (n for n in table.candidates(entry.theirs[0]) if n in weights):
            entry.read([the_only([name], name, entry.shapes[0], weights, where)])
            left_out[name] = "its numbers are known"
    left_out |= useless(table, [n for n in weights if n not in seen and n not in left_out], where)
    return ours, left_out


def the_only(found: Sequence[str], name: str, shape: Shape, weights: Mapping[str, Array], where: str) -> Array:
    """The tensor that all names in `found` stand for, in the shape that it must have."""
    question = "Is the config.json beside it the one of these weights?"
    if not found:
        raise DataError(f"{where} has no tensor {name!r}, which should be there in the shape {shape}. {question}")
    first = weights[found[0]]
    if tuple(first.shape) != shape:
        raise DataError(
            f"the tensor {found[0]!r} in {where} has the shape {tuple(first.shape)}; by config.json it should have "
            f"{shape}. {question}"
        )
    for other in found[1:]:
        if not np.array_equal(first, weights[other]):
            raise DataError(
                f"the tensors {found[0]!r} and {other!r} in {where} should be one and the same, and they differ. "
                'If the model is one that does not tie them, say "tie_word_embeddings": false in config.json.'
            )
    return first


def useless(table: NameTable, names: Iterable[str], where: str) -> dict[str, str]:
    """Why each of these tensors can be left out; one of which nothing is known is refused."""
    reasons = {name: next((why for p, why in table.unused.items() if re.fullmatch(p, name)), None) for name in names}
    unknown = [name for name, why in reasons.items() if why is None]
    if unknown:
        more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
        raise DataError(
            f"{where} holds tensors that this architecture does not have: {', '.join(sorted(unknown)[:3])}{more}. "
            "Without them the model would not be the same. Does config.json give the right number of layers, and the "
            "architecture that these weights were made with?"
        )
    return {name: why for name, why in reasons.items() if why is not None}


def write(table: NameTable, ours: Mapping[str, Array], where: str) -> dict[str, Array]:
    """Our tensors as theirs."""
    missing, surplus = set(table.names) - ours.keys(), ours.keys() - set(table.names)
    if missing or surplus:
        raise RunError(
            f"{where} does not fit its config.json: missing {sorted(missing)[:3]}, unknown {sorted(surplus)[:3]}. "
            "Is config.json the one that it was trained with?"
        )
    theirs: dict[str, Array] = {}
    for entry in (*table.entries, *table.known):
        arrays = entry.write([ours[name] for name in entry.ours])
        for name, array, shape in zip(entry.theirs, arrays, entry.shapes, strict=True):
            if tuple(array.shape) != shape:
                raise RunError(
                    f"{' and '.join(entry.ours)} in {where} would make {name!r} {tuple(array.shape)}; by config.json "
                    f"it should be {shape}. Is config.json the one that it was trained with?"
                )
            theirs[name] = np.ascontiguousarray(array)
    for double in table.copies:
        theirs[double] = theirs[table.duplicates[double]]
    return theirs
