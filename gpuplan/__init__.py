"""gpuplan: whether a language model fits your GPU hosts, where, with which flags, why not, and what would make it fit."""
