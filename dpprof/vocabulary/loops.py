"""The two training loops of every trainer, and the savings of the second.

`documented` is the library's tutorial loop: PyTorch's for standard training, Opacus's for its algorithms,
with `out = model(x)` and default `optimizer.zero_grad()`. `lean` adds every memory saving that a user can
make without patching the library.
"""

DOCUMENTED, LEAN = "documented", "lean"
LOOPS = (DOCUMENTED, LEAN)

LOOP_NAMES = {
    DOCUMENTED: "the documented training loop (that of PyTorch's tutorial; of Opacus's for its algorithms)",
    LEAN: "the lean training loop (the documented one with every saving that needs no patch)",
}

# Memory savings over the documented loop.
OUTPUTS, GRADIENTS = "outputs", "gradients"
SAVINGS = {
    GRADIENTS: "call `zero_grad(set_to_none=True)`",
    OUTPUTS: "write `loss = criterion(model(x), y)`, without a variable for the model's output",
}
ALL = "all"


def savings_to_measure(savings: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return each saving alone, and all together if there are several, by the name of the trial.

    One step is run with each, in this order, and must begin with what its own loop would have left. Loops
    that keep the output come first, as such a step starts with the output of the step before.
    """
    alone: dict[str, tuple[str, ...]] = {saving: (saving,) for saving in savings}
    return alone | {ALL: savings} if len(savings) > 1 else alone
