"""How published checkpoints are fetched and read: GGUF files and Hugging Face folders."""
