"""How text comes out of a model: searches over a step function, with a cache that the caller owns."""
