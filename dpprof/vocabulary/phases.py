"""Phases of a training step in order, and their labels in a trace."""

from urllib.parse import quote, unquote

PHASES = (
    "zero_grad",
    "forward",
    "backward",
    "backward_norms",
    "clip",
    "backward_weighted",
    "noise",
    "reduce_gradients",
    "optimizer_step",
)
# Labels of ranges in a torch.profiler trace.
PHASE_LABEL = "phase:"
STEP_LABEL = "training_step"
_KEPT = "".join(sorted({chr(code) for code in range(ord(" "), ord("~"))} - set('"\\%')))


def label_of(phase: str) -> str:
    """Return the label of a phase's range. What torch's JSON would not keep is percent-encoded."""
    return PHASE_LABEL + quote(phase, safe=_KEPT, errors="surrogatepass")


def phase_of(label: str) -> str | None:
    """Return the phase of a range with this label; None if it is another range."""
    if not label.startswith(PHASE_LABEL):
        return None
    return unquote(label.removeprefix(PHASE_LABEL), errors="surrogatepass")
