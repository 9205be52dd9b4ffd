"""One module per family of quantized checkpoints; `engine.architectures.quantizer` chooses among them."""
