"""Why a model wrote one token and not another: causes, measured.

margin.py        what is explained: logit(token) - logit(rival)
attribution.py   which input tokens the margin depends on: occlusion, gradients, attention
direct.py        the margin as a sum over embedding, heads and feed-forward networks
effects.py       the margin without each head and sub-layer
patching.py      the margin with values of another sentence: where the difference is stored, and on which path it moves
why.py           all of it for one token, with one sentence that names the cause
head_effects.py  heads by how many test tokens are lost without them; heads that copy
probing.py       what of the grammar can be read from each layer, on tinyworld
grammar.py       the translators for which the grammar is known
benchmark.py     which of the methods name the true cause, on tinyworld

figure.py and tables.py draw the results.

    from cutaway import Translator
    from cutaway.explore.causes import why

    found = why(Translator.load("runs/demo"), "We think that he dances on the small beach.", token="la", rival="le")
    print(found.sentence)
"""

from cutaway.explore.causes.margin import Margin
from cutaway.explore.causes.patching import Patching
from cutaway.explore.causes.why import Why, patch_texts, trace_path, why

__all__ = ["Margin", "Patching", "Why", "patch_texts", "trace_path", "why"]
