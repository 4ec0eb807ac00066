"""Another accountant: Google's privacy loss distributions."""

from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant

from dpprof.privacy.guarantee import PrivateSteps


def pld_epsilon(noise: float, steps: PrivateSteps, mesh: float) -> float:
    accountant = PLDAccountant(value_discretization_interval=mesh)
    accountant.compose(PoissonSampledDpEvent(steps.sample_rate, GaussianDpEvent(noise)), steps.steps)
    return float(accountant.get_epsilon(steps.delta))
