"""What the model is. Everything here travels with a checkpoint as remote code: torch, transformers and siblings only."""
