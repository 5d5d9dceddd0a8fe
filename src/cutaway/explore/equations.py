"""The equation of each part of a model, and the names of the axes of its output.

An equation shows the part as built: its position scheme, activation and norm. Axes have the letters of docs/design.md:
B batch, T/S/Q/K positions, D width, H heads, ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import nn

from cutaway.inference.fast.prepare import original_class
from cutaway.nn.probe import Probe


class Formula(NamedTuple):
    equation: str
    axes: str  # one name for each axis, separated by spaces


LAYER_NORM = "(x - mean(x)) / √(var(x) + ε) · w + b"
RMS_NORM = "x / √(mean(x²) + ε) · w"


def formula_of(model: nn.Module, name: str) -> Formula:
    """The equation and the axes of a module, by its name in the model."""
    module = model.get_submodule(name)
    owner_name, _, last = name.rpartition(".")
    owner = model.get_submodule(owner_name)
    if kind_of(module) == "Probe":
        formula = PROBES[last](model, owner, owner_name)
    else:
        describe = MODULES.get(kind_of(module))
        formula = describe(module, last) if describe else Formula("", "")
    axes = "N " + formula.axes.split()[-1] if ".experts." in name and formula.axes else formula.axes
    return formula._replace(axes=axes.replace("T", length_axis(model, name)))


def kind_of(module: nn.Module) -> str:
    return type_of(module).__name__


def type_of(module: nn.Module) -> type:
    """The class of a part; for a packed or quantized part, the class that it replaced."""
    return Probe if isinstance(module, Probe) else original_class(module)


MEMORY_PROJECTIONS = ("cross_attention.key", "cross_attention.value")


def length_axis(model: nn.Module, name: str) -> str:
    """S for source positions of an encoder-decoder, T elsewhere."""
    is_source = name.startswith(("source_embedding", "encoder")) or name.endswith(MEMORY_PROJECTIONS)
    return "S" if hasattr(model, "decoder") and is_source else "T"


def embedding_formula(model: nn.Module, owner: Any, name: str) -> Formula:
    if kind_of(owner) == "PatchEmbedding":
        before = "[class; patches W + b]" if owner.class_token is not None else "patches W + b"
        return Formula(f"x = {before}{position_term(owner)}", "B N D")
    parts = "E[ids]" + (" · √D" if owner.tokens.scale != 1 else "")
    parts += (" + segment" if owner.segments is not None else "") + position_term(owner)
    has_norm = kind_of(owner.norm) != "Identity"
    return Formula(f"x = norm({parts})" if has_norm else f"x = {parts}", "B T D")


def position_term(owner: Any) -> str:
    return {"SinusoidalPosition": " + PE(t)", "LearnedPosition": " + P[t]"}.get(kind_of(owner.position), "")


def projection_formula(letter: str, axis: str, groups: str) -> Callable[..., Formula]:
    def describe(model: nn.Module, owner: Any, name: str) -> Formula:
        source = "memory" if name.endswith("cross_attention") and letter != "q" else "x"
        linear = {"q": owner.query, "k": owner.key, "v": owner.value}[letter]
        matrix = f"W_{letter.upper()}" if kind_of(linear) != "LoRALinear" else f"(W_{letter.upper()} + α/r · B A)"
        text = f"{source} {matrix}" + (f" + b_{letter.upper()}" if linear.bias is not None else "")
        if letter != "v" and kind_of(owner.query_norm) != "Identity":
            text = f"norm({text})"
        if kind_of(owner) == "LinearAttention" and letter != "v":
            text = f"elu({text}) + 1"
        if letter != "v" and kind_of(owner.position) == "RotaryPosition":
            text = f"rotate({text}, t)"
        return Formula(f"{letter} = {text}", f"B {groups} {axis} E")

    return describe


def scores_formula(model: nn.Module, owner: Any, name: str) -> Formula:
    if kind_of(owner) == "LinearAttention":
        return Formula("scores = q kᵀ", "B H Q K")
    text = "q [p_k; k]ᵀ / √E" if kind_of(owner) == "PrefixedAttention" else "q kᵀ / √E"
    if owner.cap:
        text = f"cap · tanh({text} / cap)"
    bias = {"AlibiPosition": " - m_h · |i - j|", "RelativeBiasPosition": " + b_h[bucket(j - i)]"}
    bias["RelativePosition"] = " + q a[j - i] / √E"
    return Formula(f"scores = {text}{bias.get(kind_of(owner.position), '')}", "B H Q K")


def weights_formula(model: nn.Module, owner: Any, name: str) -> Formula:
    if kind_of(owner) == "AttentionPool":
        return Formula("weights = softmax(x w)", "B T")
    if kind_of(owner) == "LinearAttention":
        return Formula("weights = scores / Σ scores, 0 where masked", "B H Q K")
    return Formula("weights = softmax(scores), 0 where masked", "B H Q K")


def heads_formula(model: nn.Module, owner: Any, name: str) -> Formula:
    relative = " + weights a_V[j - i]" if kind_of(owner.position) == "RelativePosition" else ""
    values = "[p_v; v]" if kind_of(owner) == "PrefixedAttention" else "v"
    return Formula(f"heads = weights {values}{relative}", "B H Q E")


def update_formula(model: nn.Module, owner: Any, name: str) -> Formula:
    layer, _, last = name.rpartition(".")
    part = last.removesuffix("_residual")
    if part == "residual":
        parent: Any = model.get_submodule(layer)
        text = "self-attention + feed-forward" + (" + cross-attention" if parent.cross_attention is not None else "")
    elif part == "feed_forward":
        module: Any = model.get_submodule(f"{layer}.feed_forward")
        text = "Σ p_i · expert_i(x)" if kind_of(module) == "Experts" else with_bias("hidden W₂", module.contract, "b₂")
    else:
        attention: Any = model.get_submodule(f"{layer}.{part}")
        text = with_bias("Concat(heads) W_O", attention.output, "b_O")
    text = f"norm({text})" if kind_of(owner) == "SandwichNorm" else text
    return Formula(f"update = {text}", "B T D")


def stream_formula(model: nn.Module, owner: Any, name: str) -> Formula:
    is_post = kind_of(owner) == "PostNorm"
    return Formula("x = norm(x + update)" if is_post else "x = x + update", "B T D")


def hidden_formula(model: nn.Module, owner: Any, name: str) -> Formula:
    return Formula(f"hidden = {hidden_text(owner)}", "B T F")


def hidden_text(network: Any) -> str:
    activation = getattr(network.activation, "__name__", "f")
    if kind_of(network) == "GatedFeedForward":
        gate, value = with_bias("x W", network.gate, "b"), with_bias("x V", network.expand, "c")
        return f"{activation}({gate}) ⊙ ({value})"
    return f"{activation}({with_bias('x W₁', network.expand, 'b₁')})"


def feed_forward_text(network: Any) -> str:
    before = hidden_text(network)
    before = f"({before})" if kind_of(network) == "GatedFeedForward" else before
    return with_bias(f"{before} W₂", network.contract, "b₂")


def parallel_formula(module: Any, last: str) -> Formula:
    both = "attention({x}) + feed_forward({x})" + (" + cross_attention({x})" if module.cross_attention else "")
    is_post, is_sandwich = (kind_of(module.residual) == kind for kind in ("PostNorm", "SandwichNorm"))
    text = both.replace("{x}", "x" if is_post else "norm(x)")
    return Formula(f"norm(x + {text})" if is_post else f"x + norm₂({text})" if is_sandwich else f"x + {text}", "B T D")


def stack_formula(module: Any, last: str) -> Formula:
    layers = f"layer_{len(module.layers)}( ... layer_1(x))"
    return Formula(layers if kind_of(module.norm) == "Identity" else f"norm({layers})", "B T D")


def prompted_stack_formula(module: Any, last: str) -> Formula:
    plain = stack_formula(module, last)
    return plain._replace(equation=f"{plain.equation.replace('x', '[prompt; x]')}, without the prompt")


def encoder_only_formula(module: Any, last: str) -> Formula:
    axes = {"MaskedLanguageHead": "B T V", "TagHead": "B T C"}.get(kind_of(module.head), "B C")
    return Formula("head(encode(text))", axes)


def with_bias(product: str, linear: Any, bias: str) -> str:
    return product if linear.bias is None else f"{product} + {bias}"


def logits_formula(model: nn.Module, owner: Any, name: str) -> Formula:
    return {
        "LanguageHead": Formula("logits = x Wᵀ", "B T V"),
        "MaskedLanguageHead": Formula("logits = norm(gelu(x W₁ + b₁)) Wᵀ + b", "B T V"),
        "TagHead": Formula("logits = x W + b", "B T C"),
        "ClassHead": Formula("logits = pooled W + b", "B C"),
    }[kind_of(owner)]


def pooled_formula(model: nn.Module, owner: Any, name: str) -> Formula:
    how = {"FirstPool": "x[0]", "MeanPool": "mean of x over t", "MaxPool": "max of x over t"}
    return Formula(f"pooled = {how.get(kind_of(owner.pool), 'Σ weights_t · x_t')}", "B D")


def constant_formula(equation: str, axes: str) -> Callable[..., Formula]:
    return lambda model, owner, name: Formula(equation, axes)


PROBES: dict[str, Callable[..., Formula]] = {
    "embedded": embedding_formula,
    "q": projection_formula("q", "Q", "H"),
    "k": projection_formula("k", "K", "G"),
    "v": projection_formula("v", "K", "G"),
    "scores": scores_formula,
    "weights": weights_formula,
    "heads": heads_formula,
    "update": update_formula,
    "stream": stream_formula,
    "hidden": hidden_formula,
    "logits": logits_formula,
    "pooled": pooled_formula,
    "router": constant_formula("p = softmax(x W_r)", "B T N"),
    "load": constant_formula("share of the tokens for each expert", "N"),
    "balance": constant_formula("N · Σ share_i · mean p_i", ""),
}


def norm_formula(equation: str) -> Callable[[Any, str], Formula]:
    head_axes = {"query_norm": "B H Q E", "key_norm": "B G K E"}
    return lambda module, last: Formula(equation, head_axes.get(last, "B T D"))


def linear_formula(module: Any, last: str) -> Formula:
    return Formula(with_bias("x W", module, "b"), "B T " + LINEAR_AXES.get(last, "D"))


def lora_formula(module: Any, last: str) -> Formula:
    plain = linear_formula(module, last)
    return plain._replace(equation=f"{plain.equation} + α/r · x Aᵀ Bᵀ")


LINEAR_AXES = {"query": "H·E", "key": "G·E", "value": "G·E", "expand": "F", "gate": "F", "classify": "C", "route": "N"}

MODULES: dict[str, Callable[[Any, str], Formula]] = {
    "Linear": linear_formula,
    "LoRALinear": lora_formula,
    "LayerNorm": norm_formula(LAYER_NORM),
    "RMSNorm": norm_formula(RMS_NORM),
    "MultiHeadAttention": lambda module, last: Formula(
        "MultiHead(Q, K, V) = Concat(head_1, ..., head_H) W_O,  head_i = softmax(q_i k_iᵀ / √E) v_i", "B T D"
    ),
    "PrefixedAttention": lambda module, last: Formula(
        "MultiHead(Q, K, V) = Concat(head_1, ..., head_H) W_O,  head_i = softmax(q_i [p_k; k_i]ᵀ / √E) [p_v; v_i]",
        "B T D",
    ),
    "LinearAttention": lambda module, last: Formula("out_i = φ(q_i) Σ_j φ(k_j) v_jᵀ / φ(q_i) Σ_j φ(k_j)", "B T D"),
    "FeedForward": lambda module, last: Formula(f"FFN(x) = {feed_forward_text(module)}", "B T D"),
    "GatedFeedForward": lambda module, last: Formula(f"FFN(x) = {feed_forward_text(module)}", "B T D"),
    "Experts": lambda module, last: Formula("y = Σ p_i · expert_i(x) over the k most probable experts", "B T D"),
    "PreNorm": lambda module, last: Formula("x + f(norm(x))", "B T D"),
    "PostNorm": lambda module, last: Formula("norm(x + f(x))", "B T D"),
    "SandwichNorm": lambda module, last: Formula("x + norm₂(f(norm(x)))", "B T D"),
    "Layer": lambda module, last: Formula(
        "feed_forward(cross_attention(self_attention(x), memory)), each with residual connection and norm"
        if module.cross_attention
        else "feed_forward(self_attention(x)), each with residual connection and norm",
        "B T D",
    ),
    "ParallelLayer": parallel_formula,
    "Stack": stack_formula,
    "PromptedStack": prompted_stack_formula,
    "InputEmbedding": lambda module, last: embedding_formula(module, module, last),
    "PatchEmbedding": lambda module, last: embedding_formula(module, module, last),
    "TokenEmbedding": lambda module, last: Formula("E[ids]" + (" · √D" if module.scale != 1 else ""), "B T D"),
    "LanguageHead": lambda module, last: Formula("logits = x Wᵀ", "B T V"),
    "MaskedLanguageHead": lambda module, last: Formula("logits = norm(gelu(x W₁ + b₁)) Wᵀ + b", "B T V"),
    "TagHead": lambda module, last: Formula("logits = x W + b", "B T C"),
    "ClassHead": lambda module, last: Formula("logits = pool(x) W + b", "B C"),
    "EncoderDecoder": lambda module, last: Formula(
        "p(target | source) = softmax(head(decode(target, encode(source))))", "B T V"
    ),
    "DecoderOnly": lambda module, last: Formula("p(next token | text) = softmax(head(decode(text)))", "B T V"),
    "EncoderOnly": encoder_only_formula,
    "VisionTransformer": lambda module, last: Formula("head(encode(patches))", "B C"),
}
