"""Per-sample gradient norms and clipped sums without per-sample backward passes, and without Opacus.

`layers` replaces the forward of the layers that it has rules for, `any_module` that of all others. In
backward, each call reports a `Use` to the `Book`, which takes its norm in the cheapest form and
keeps what the clipped sum needs.
"""
