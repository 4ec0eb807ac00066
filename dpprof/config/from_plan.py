"""Where an experiment's settings come from if they are not given."""

from dataclasses import dataclass

from dpprof.settings import setting


@dataclass(frozen=True)
class FromPlanConfig:
    """The setting that fills in others."""

    plan: str = setting(
        "", "plan.json of a plan, or its folder: its recommended row gives the settings that you do not give."
    )
