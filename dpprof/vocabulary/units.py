"""Units: the one place where bytes become MiB and seconds become milliseconds."""

MIB, GIB = 2**20, 2**30
MS_PER_S, US_PER_S = 1e3, 1e6


def mib(num_bytes: float) -> float:
    """Convert bytes to MiB."""
    return num_bytes / MIB


def gib(num_bytes: float) -> float:
    """Convert bytes to GiB."""
    return num_bytes / GIB


def ms(seconds: float) -> float:
    """Convert seconds to milliseconds."""
    return MS_PER_S * seconds
