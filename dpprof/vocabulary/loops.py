"""The two training loops that every trainer can run, and what the second one saves.

`documented` is the loop of the library's own tutorial: PyTorch's for standard training, Opacus's for its
algorithms. It has `out = model(x)`, and `optimizer.zero_grad()` with its default. `lean` is the same loop
with every saving that a careful user can make without patching the library.
"""

DOCUMENTED, LEAN = "documented", "lean"
LOOPS = (DOCUMENTED, LEAN)

# How a page names them.
LOOP_NAMES = {
    DOCUMENTED: "the documented training loop (that of PyTorch's tutorial; of Opacus's for its algorithms)",
    LEAN: "the lean training loop (the documented one with every saving that needs no patch)",
}

# What a user changes in the documented loop to save memory.
OUTPUTS, GRADIENTS = "outputs", "gradients"
SAVINGS = {
    GRADIENTS: "call `zero_grad(set_to_none=True)`",
    OUTPUTS: "write `loss = criterion(model(x), y)`, without a variable for the model's output",
}
# All of them together, where there are several.
ALL = "all"


def savings_to_measure(savings: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Each saving alone, and all together if there are several, by the name of the trial.

    One step is done with each, in this order, and each must begin with what its own loop would have left.
    A step that keeps the output begins with the output of the step before: loops that keep it come first.
    """
    alone: dict[str, tuple[str, ...]] = {saving: (saving,) for saving in savings}
    return alone | {ALL: savings} if len(savings) > 1 else alone
