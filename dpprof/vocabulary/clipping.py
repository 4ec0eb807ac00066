"""How DP trainers of dpprof's own clip, in what form they take norms, and the settings that choose both."""

from dataclasses import dataclass

from dpprof.settings import setting

# The forms of a per-sample gradient norm: the cheapest of the others for each layer, or one for all.
MIXED, GRAM, EXPLICIT, BLOCKED = "mixed", "gram", "explicit", "blocked"
NORM_FORMS = (MIXED, GRAM, EXPLICIT, BLOCKED)

FLAT, LAYER_WISE, AUTOMATIC = "flat", "layer_wise", "automatic"
CLIPPINGS = (FLAT, LAYER_WISE, AUTOMATIC)
# What makes two of them another algorithm than the first.
OTHER_ALGORITHMS = {
    LAYER_WISE: "the gradient of each parameter is clipped by itself",
    AUTOMATIC: "every gradient is divided by its norm, small ones too",
}

# Numbers in the buffer that noise is drawn into: what stays in the cache of a CPU core, and enough to fill a
# GPU, by the type of device.
NOISE_BUFFER = {"cpu": 2**17, "cuda": 2**24}


@dataclass(frozen=True)
class PerSampleOptions:
    """The settings of trainers that take norms by rules of dpprof's own."""

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
