"""Clipping methods and norm forms of dpprof's own DP trainers, and the settings for both."""

from dataclasses import dataclass

from dpprof.vocabulary.settings import setting

# Forms of a per-sample gradient norm; mixed takes the cheapest of the others for each layer.
MIXED, GRAM, EXPLICIT, BLOCKED = "mixed", "gram", "explicit", "blocked"
NORM_FORMS = (MIXED, GRAM, EXPLICIT, BLOCKED)

FLAT, LAYER_WISE, AUTOMATIC = "flat", "layer_wise", "automatic"
CLIPPINGS = (FLAT, LAYER_WISE, AUTOMATIC)
# Clippings that change the algorithm, and how.
OTHER_ALGORITHMS = {
    LAYER_WISE: "the gradient of each parameter is clipped by itself",
    AUTOMATIC: "every gradient is divided by its norm, small ones too",
}

# Elements of the noise buffer by device type: fits the cache of a CPU core, or is enough to fill a GPU.
NOISE_BUFFER = {"cpu": 2**17, "cuda": 2**24}


@dataclass(frozen=True)
class PerSampleOptions:
    """Settings of dpprof's own trainers with per-sample norms."""

    norm: str = setting(
        MIXED,
        "form of per-sample gradient norms: mixed takes the cheapest for each layer",
        choices=NORM_FORMS,
    )
    clipping: str = setting(
        FLAT,
        "flat clips each sample's whole gradient; layer_wise each parameter's, to C / sqrt(parameters); "
        "automatic divides by the norm, without a threshold (AUTO-S)",
        choices=CLIPPINGS,
    )
