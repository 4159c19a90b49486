"""The structure of a supernet: made from a checkpoint, ranked, measured, and cut into members."""
