"""What the search for the largest size is asked."""

from dataclasses import dataclass

from dpprof.config.settings import refuse, setting

# What a fit searches the largest of.
FIT_ALONG = ("batch_size", "seq_len")


@dataclass(frozen=True)
class FitConfig:
    """The settings of the fit entry point that nothing else has."""

    along: str = setting(
        "batch_size", "What to find the largest of; the other one is taken as given.", choices=FIT_ALONG
    )
    logical_batch: int = setting(
        0,
        "Samples in the logical batch that training needs; tells how many physical steps it takes.",
        minimum=0,
    )
    verify: bool = setting(False, "Measure the answer and the next larger size on this machine's device.")

    def __post_init__(self) -> None:
        """Raises ConfigError."""
        if self.logical_batch and self.along != "batch_size":
            raise refuse("logical_batch", self.logical_batch, "0 with along=seq_len")
