"""Where weights come from: Hugging Face folders and GGUF files, both into the same few fused tensors."""
