"""The units of a layer that sizes keep a prefix of, and the weights that they index: in one table for all that cut."""

# Of each weight of a layer that shrinks with it: which dimension, and whether heads or neurons index it.
UNIT_WEIGHTS = {
    "attention.q_proj.weight": (0, "heads"),
    "attention.q_proj.bias": (0, "heads"),
    "attention.k_proj.weight": (0, "heads"),
    "attention.k_proj.bias": (0, "heads"),
    "attention.v_proj.weight": (0, "heads"),
    "attention.v_proj.bias": (0, "heads"),
    "attention.o_proj.weight": (1, "heads"),
    "mlp.up_proj.weight": (0, "neurons"),
    "mlp.up_proj.bias": (0, "neurons"),
    "mlp.down_proj.weight": (1, "neurons"),
}
# The layers of those weights, each with its units.
UNIT_PROJECTIONS = {name.rpartition(".")[0]: units for name, (_, units) in UNIT_WEIGHTS.items()}
