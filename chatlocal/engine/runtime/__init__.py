"""The part of the engine that knows only tensors: ids in, ids out."""
