"""Per-sample gradient norms and clipped sums without per-sample backward passes, and without Opacus.

`layers` replaces the forward of layers with rules, `any_module` that of others. In backward, each call
reports a `Use` to the `Book`, which computes norms and keeps what clipped sums need.
"""
