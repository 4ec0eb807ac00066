"""Phases of a training step in order, and their labels in a trace."""

PHASES = (
    *("zero_grad", "forward", "backward", "backward_norms", "clip", "backward_weighted"),
    *("noise", "reduce_gradients", "optimizer_step"),
)
# Labels of ranges in a torch.profiler trace.
PHASE_LABEL = "phase:"
STEP_LABEL = "training_step"
