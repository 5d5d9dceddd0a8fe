"""The NumPy twin: the same Transformer once more, with nothing but arrays, and every derivative written by hand.

It is here for three reasons. To be **read**: nothing happens that is not on the page. To be **checked against**: it
shares no line with the PyTorch modules, and tests hold every value and every gradient of the two together. And to be
**used**: it runs trained models where there is no torch.

    ops.py         the operations, each with its derivative
    parts.py       what a model is made of: parameters, probes, and their names
    positions.py   how order is told
    basics.py      operations with parameters: linear, norms, feed-forward, embedding, head
    attention.py   multi-head attention and its cache
    layers.py      residual connections, a layer, a stack of layers
    model.py       the encoder-decoder and the decoder alone, and their masks
    build.py       from a configuration to a model
    batch.py       rows of token ids as arrays
    optim.py       Adam, the paper's schedule, clipping
    train.py       a training loop on one screen
    stepper.py     a model in the middle of writing texts
    search.py      greedy search and sampling;  beam.py: beam search;  rules.py: what may come next
    run.py         a run folder put to work

No torch is imported anywhere in this folder.
"""
