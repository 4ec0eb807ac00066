"""Checks of `verify`, described in words."""

# Chance that a correct trainer fails any of its noise checks.
FALSE_ALARM_RATE = 1e-6

# `_accumulated`: over several physical batches in a step.
CHECKS = {
    "gradient_float64": "the clipped gradient is that of the naive per-sample loop, in float64",
    "gradient_float32": "the same in float32",
    "gradient_bf16": "the same under bf16 autocast",
    "gradient_float64_accumulated": "accumulated over physical batches, in float64",
    "gradient_float32_accumulated": "accumulated over physical batches, in float32",
    "gradient_bf16_accumulated": "accumulated over physical batches, under bf16 autocast",
    "gradient_unclipped": "nothing is clipped where all norms are below max_grad_norm",
    "gradient_next_step": "the next step has nothing of this one's gradient",
    "gradient_as_many_samples": "the same with as many samples as a tensor has rows that all samples share",
    "noise_deviation": "the noise has the standard deviation asked for, in every parameter",
    "noise_coordinates": "every coordinate has noise of this deviation, independent of the others",
    "noise_steps": "the noise of a step is independent of that of other steps",
    "noise_parameters": "the noise of a parameter is independent of that of other parameters",
    "noise_deviation_accumulated": "the standard deviation, accumulated over physical batches",
    "noise_coordinates_accumulated": "every coordinate, accumulated over physical batches",
    "noise_steps_accumulated": "between steps, accumulated over physical batches",
    "noise_parameters_accumulated": "between parameters, accumulated over physical batches",
    "sensitivity_ordinary": "removing a sample moves the sum of clipped gradients by max_grad_norm at most",
    "sensitivity_zero": "the same for a sample without a gradient",
    "sensitivity_huge": "for a sample whose gradient is multiplied by a million",
    "sensitivity_overflow": "for a gradient whose squared norm is too large for float32",
    "sensitivity_constant": "for samples that are all equal",
    "sensitivity_repeated": "for inputs that repeat one token or number",
    "sensitivity_large_input": "for an input multiplied by ten thousand",
    "sensitivity_nan": "a sample whose loss is NaN is refused or left out",
    "sensitivity_infinity": "a sample whose loss is infinite is refused or left out",
    "weights_moved": "every trainable weight moves, as the optimizer makes of p.grad",
    "weights_frozen": "frozen weights stay as they are, without a gradient",
}
