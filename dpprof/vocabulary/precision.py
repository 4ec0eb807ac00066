"""Words for the types of numbers that a run computes in and that its weights have."""

from collections.abc import Iterable

from dpprof.vocabulary.formats import joined

# TF32 is how a GPU may multiply fp32.
FP64, FP32, TF32, FP16, BF16 = "fp64", "fp32", "tf32", "fp16", "bf16"
_SHORT = {"float64": FP64, "float32": FP32, "float16": FP16, "bfloat16": BF16}


def short_dtype(name: str) -> str:
    """Return the short name of one of torch's types: `bf16` of `torch.bfloat16`; else torch's own."""
    name = name.removeprefix("torch.")
    return _SHORT.get(name, name)


def dtypes_in_words(names: Iterable[str]) -> str:
    """Name the types that weights have, each once: `bf16 and fp32`."""
    return joined(sorted(set(names)))


def precision_in_words(precision: str, weights_dtype: str) -> str:
    """Return a precision with the type of the weights: `fp32, weights in bf16`.

    Weights in fp32, as every precision has them, go without saying; so do those whose type is not known.
    """
    return precision if weights_dtype in ("", FP32) else f"{precision}, weights in {weights_dtype}"


def may_be_alike(one: str, other: str) -> bool:
    """Tell if weights may have the same types: not where both are known and differ."""
    return not one or not other or one == other
