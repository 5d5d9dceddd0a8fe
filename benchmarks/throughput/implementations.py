"""Cutaway and other libraries, each built as its users would build it, with the same work to do.

All have the same architecture, the same places of dropout, fused Adam with a constant learning rate, and gradients
clipped at 1. If a library has one dropout for everything, it is set to 0 where the others have none. So a library here
does less work than with its defaults.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.config import Config, DataConfig, ModelConfig, TrainConfig
from cutaway.data.batching import PairBatch
from cutaway.data.prepare import PreparedData
from cutaway.data.tokenizer import Tokenizer
from cutaway.inference.training.setup import start_training
from cutaway.models.build import count_parameters
from cutaway.runs import RunFolder

from .pairs import SEED, tokenizer_of
from .shape import Shape

LEARNING_RATE, BETAS, EPSILON, CLIP_NORM = 1e-4, (0.9, 0.98), 1e-9, 1.0

Loss = Callable[[nn.Module, PairBatch], Tensor]  # the mean over the target tokens of a batch


class Implementation(Protocol):
    parameters: int

    def step(self, batch: PairBatch) -> float:
        """Train on a batch, or on this process's part of it. Return the loss per token."""
        ...


class Cutaway:
    """The training step of `cutaway train`, also under torchrun."""

    def __init__(self, shape: Shape, prepared: PreparedData):
        model = ModelConfig(
            d_model=shape.d_model,
            d_ff=shape.d_ff,
            n_heads=shape.n_heads,
            encoder_layers=shape.layers,
            decoder_layers=shape.layers,
            dropout=shape.dropout,
            attention_dropout=shape.attention_dropout,
            max_length=shape.max_length,
        )
        train = TrainConfig(
            schedule="constant",
            lr=LEARNING_RATE,
            beta1=BETAS[0],
            beta2=BETAS[1],
            epsilon=EPSILON,
            clip_norm=CLIP_NORM,
            label_smoothing=shape.label_smoothing,
            seed=SEED,
            device="cpu",
        )
        data = DataConfig(max_tokens=shape.max_length - 1, batch_tokens=shape.batch_tokens)
        self.folder = tempfile.TemporaryDirectory()  # of a run that is not saved
        training = start_training(Config(model, data, train), RunFolder(self.folder.name), prepared=prepared)
        self.trainer, self.parameters = training.trainer, training.parameters

    def step(self, batch: PairBatch) -> float:
        return float(self.trainer.step(batch).loss)


class Peer:
    """A model of another library in a usual training loop."""

    def __init__(self, model: nn.Module, loss: Loss):
        self.model, self.loss, self.parameters = model, loss, count_parameters(model)
        self.rank, self.size, self.worker = 0, 1, model
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            import torch.distributed as dist
            from torch.nn.parallel import DistributedDataParallel

            dist.init_process_group("gloo")
            self.rank, self.size = dist.get_rank(), dist.get_world_size()
            self.worker = DistributedDataParallel(model)
        # Marian's position table is a parameter, but is not trained
        weights = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.Adam(weights, lr=LEARNING_RATE, betas=BETAS, eps=EPSILON, fused=True)

    def step(self, batch: PairBatch) -> float:
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.worker, batch.part(self.rank, self.size))
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP_NORM)
        self.optimizer.step()
        return loss.item()


def cross_entropy(logits_BTV: Tensor, batch: PairBatch, tokenizer: Tokenizer, shape: Shape) -> Tensor:
    return F.cross_entropy(
        logits_BTV.flatten(0, 1),
        batch.target_out.flatten(),
        ignore_index=tokenizer.pad,
        label_smoothing=shape.label_smoothing,
    )


class TorchTransformer(nn.Module):
    """torch.nn.Transformer with tied embedding and output, as in PyTorch's tutorial."""

    positions: Tensor

    def __init__(self, shape: Shape):
        super().__init__()
        self.embedding = nn.Embedding(shape.vocab_size, shape.d_model)
        nn.init.normal_(self.embedding.weight, std=shape.d_model**-0.5)
        self.register_buffer("positions", sinusoids(shape.max_length, shape.d_model))
        self.dropout = nn.Dropout(shape.dropout)
        self.transformer = nn.Transformer(
            shape.d_model, shape.n_heads, shape.layers, shape.layers, shape.d_ff, shape.dropout, batch_first=True
        )
        for module in self.transformer.modules():  # its one `dropout` setting applies to these two as well
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = shape.attention_dropout
            if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout.p = 0.0  # inside the feed-forward network

    def embed(self, ids: Tensor) -> Tensor:
        scaled = self.embedding(ids) * math.sqrt(self.embedding.embedding_dim)
        return self.dropout(scaled + self.positions[: ids.size(1)])

    def forward(self, source: Tensor, target_in: Tensor, source_padding: Tensor, target_padding: Tensor) -> Tensor:
        """Masks are True for masked positions, as in nn.Transformer."""
        future = torch.ones(target_in.size(1), target_in.size(1), dtype=torch.bool).triu(diagonal=1)
        x = self.transformer(
            self.embed(source),
            self.embed(target_in),
            tgt_mask=future,
            src_key_padding_mask=source_padding,
            tgt_key_padding_mask=target_padding,
            memory_key_padding_mask=source_padding,
        )
        return F.linear(x, self.embedding.weight)


def sinusoids(length: int, width: int) -> Tensor:
    """[length, width], as in the paper, section 3.5."""
    angles = torch.arange(length)[:, None] / 10_000 ** (torch.arange(0, width, 2) / width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


def torch_transformer(shape: Shape, prepared: PreparedData) -> Peer:
    tokenizer = tokenizer_of(prepared)

    def loss(model: nn.Module, batch: PairBatch) -> Tensor:
        logits = model(batch.source, batch.target_in, ~batch.source_mask, ~batch.target_mask)
        return cross_entropy(logits, batch, tokenizer, shape)

    return Peer(TorchTransformer(shape), loss)


def marian(shape: Shape, prepared: PreparedData) -> Peer:
    """Hugging Face's MarianMTModel with SDPA attention; target padding is not masked, as with its data collator."""
    from transformers import MarianConfig, MarianMTModel

    tokenizer = tokenizer_of(prepared)
    sides: dict[str, Any] = {"attn_implementation": "sdpa"}
    for side in ("encoder", "decoder"):
        sides |= {
            f"{side}_layers": shape.layers,
            f"{side}_attention_heads": shape.n_heads,
            f"{side}_ffn_dim": shape.d_ff,
        }
    model = MarianMTModel(
        MarianConfig(
            vocab_size=shape.vocab_size,
            decoder_vocab_size=shape.vocab_size,
            d_model=shape.d_model,
            max_position_embeddings=shape.max_length,
            activation_function="relu",
            dropout=shape.dropout,
            attention_dropout=shape.attention_dropout,
            scale_embedding=True,
            init_std=shape.d_model**-0.5,
            pad_token_id=tokenizer.pad,
            eos_token_id=tokenizer.eos,
            forced_eos_token_id=tokenizer.eos,
            decoder_start_token_id=tokenizer.bos,
            **sides,
        )
    )

    def loss(model: nn.Module, batch: PairBatch) -> Tensor:
        out = model(
            input_ids=batch.source,
            attention_mask=batch.source_mask,
            decoder_input_ids=batch.target_in,
            use_cache=False,
        )
        return cross_entropy(out.logits, batch, tokenizer, shape)

    return Peer(model, loss)


class XTransformers(nn.Module):
    """x-transformers' encoder and decoder in wrappers, because its XTransformer cannot tie output and embedding."""

    def __init__(self, shape: Shape):
        super().__init__()
        from x_transformers import Decoder, Encoder, TransformerWrapper  # type: ignore[import-not-found]

        layers = {
            "dim": shape.d_model,
            "depth": shape.layers,
            "heads": shape.n_heads,
            "attn_dim_head": shape.d_model // shape.n_heads,
            "attn_flash": True,
            "attn_dropout": shape.attention_dropout,
            "attn_sublayer_dropout": shape.dropout,
            "ff_mult": shape.d_ff // shape.d_model,
            "ff_custom_activation": nn.ReLU(),
            "ff_sublayer_dropout": shape.dropout,
            "pre_norm": False,
        }
        options = {
            "num_tokens": shape.vocab_size,
            "max_seq_len": shape.max_length,
            "emb_dropout": shape.dropout,
            "scaled_sinu_pos_emb": True,
        }
        self.encoder = TransformerWrapper(attn_layers=Encoder(**layers), return_only_embed=True, **options)
        self.decoder = TransformerWrapper(
            attn_layers=Decoder(cross_attend=True, **layers),
            token_emb=self.encoder.token_emb,
            tie_embedding=True,
            **options,
        )

    def forward(self, source: Tensor, target_in: Tensor, source_mask: Tensor) -> Tensor:
        """Target padding is not masked, as in its XTransformer: no earlier token can attend to it."""
        memory = self.encoder(source, mask=source_mask)
        return self.decoder(target_in, context=memory, context_mask=source_mask)


def x_transformers(shape: Shape, prepared: PreparedData) -> Peer:
    tokenizer = tokenizer_of(prepared)

    def loss(model: nn.Module, batch: PairBatch) -> Tensor:
        return cross_entropy(model(batch.source, batch.target_in, batch.source_mask), batch, tokenizer, shape)

    return Peer(XTransformers(shape), loss)


def joeynmt(shape: Shape, prepared: PreparedData) -> Peer:
    """JoeyNMT's model, batch and loss, as in a step of its TrainManager."""
    import logging

    from joeynmt.batch import Batch  # type: ignore[import-not-found]
    from joeynmt.model import build_model as build_joey  # type: ignore[import-not-found]
    from joeynmt.transformer_layers import (  # type: ignore[import-not-found]
        MultiHeadedAttention,
        PositionwiseFeedForward,
    )

    side = {
        "type": "transformer",
        "num_layers": shape.layers,
        "num_heads": shape.n_heads,
        "embeddings": {"embedding_dim": shape.d_model, "scale": True, "dropout": shape.dropout},
        "hidden_size": shape.d_model,
        "ff_size": shape.d_ff,
        "dropout": shape.dropout,
        "layer_norm": "post",
    }
    logging.disable(logging.INFO)  # it logs the whole model
    config = {"tied_embeddings": True, "tied_softmax": True, "encoder": side, "decoder": side}
    tokenizer = tokenizer_of(prepared)
    vocabulary = joey_vocabulary(shape, tokenizer)
    model = build_joey(config, vocabulary, vocabulary)
    model.loss_function = ("crossentropy", shape.label_smoothing)
    for module in model.modules():  # its one `dropout` setting applies to these two as well
        if isinstance(module, MultiHeadedAttention):
            module.dropout.p = shape.attention_dropout
        if isinstance(module, PositionwiseFeedForward):
            module.pwff_layer[2].p = 0.0  # between its two linear maps

    def loss(model: nn.Module, batch: PairBatch) -> Tensor:
        joey_batch = Batch(
            src=batch.source,
            src_length=batch.source_mask.sum(dim=1),
            src_prompt_mask=None,
            trg=torch.cat([batch.target_in[:, :1], batch.target_out], dim=1),
            trg_prompt_mask=None,
            indices=torch.arange(batch.rows),
            device=torch.device("cpu"),
            pad_index=tokenizer.pad,
            eos_index=tokenizer.eos,
        )
        joey_batch.sort_by_src_length()
        loss_sum, _, _, _ = model(return_type="loss", **vars(joey_batch))
        return joey_batch.normalize(loss_sum, "tokens")

    return Peer(model, loss)


def joey_vocabulary(shape: Shape, tokenizer: Tokenizer) -> Any:
    """Return a vocabulary of placeholder words with the special token ids of Cutaway's tokenizer."""
    from joeynmt.vocabulary import Vocabulary  # type: ignore[import-not-found]

    special = SimpleNamespace(
        unk_token="<unk>",
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        sep_token=None,
        unk_id=0,
        pad_id=1,
        bos_id=2,
        eos_id=3,
        sep_id=None,
        lang_tags=[],
    )
    vocabulary = Vocabulary([f"word{i}" for i in range(shape.vocab_size - 4)], special)
    vocabulary.pad_index, vocabulary.bos_index = tokenizer.pad, tokenizer.bos
    vocabulary.eos_index, vocabulary.unk_index = tokenizer.eos, tokenizer.unk
    return vocabulary
