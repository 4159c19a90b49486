"""What the model is. It travels with every checkpoint as remote code: torch, transformers and siblings only."""
