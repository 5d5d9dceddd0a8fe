"""The NumPy twin: a second implementation of the Transformer, in plain NumPy, with every derivative written by hand.

It has three purposes:
- to read: every computation is visible, including the backward pass;
- to test: it shares no code with the PyTorch modules, and tests compare every value and gradient of the two;
- to use: it runs trained models on machines without torch.

    ops.py         operations, each with its derivative
    modules.py     modules, parameters and probes, and their names
    positions.py   position schemes
    basics.py      operations with parameters: linear, norms, feed-forward, embedding, head
    attention.py   multi-head attention and its KV cache
    layers.py      residual connections, a layer, a stack of layers
    model.py       the encoder-decoder, the decoder-only model, and their masks
    build.py       build a model from a configuration
    batch.py       token ids as padded arrays
    optim.py       Adam, the paper's schedule, gradient clipping
    train.py       the training loop
    stepper.py     one decoding step of a model
    search.py      greedy search and sampling
    beam.py        beam search
    rules.py       decoding rules that change the logits

No file in this folder imports torch.
"""
