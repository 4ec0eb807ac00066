"""The phases of a training step, in the order in which they run, and their labels in a trace."""

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
# Labels of the ranges that a step leaves in a torch.profiler trace.
PHASE_LABEL = "phase:"
STEP_LABEL = "training_step"
