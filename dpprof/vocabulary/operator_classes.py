"""Classes of operators and kernels: the kind of work, by name and phase.

The first rule that applies decides:
1. Communication between ranks is `communication`.
2. Everything in the phases `clip`, `noise` and `optimizer_step` is `norm_clip`, `noise` and `optimizer`: a
   multiplication that clips is a cost of clipping.
3. Everything inside an operator of `attention`, `embedding` or `loss` belongs to that class.
4. Otherwise the name decides. An operator without a class (`empty`, `view`) belongs to the operator around
   it, or to `other`.
Kernels have only a name and a phase: rules 1, 2 and 4 apply, with patterns for kernel names of PyTorch,
cuBLAS, CUTLASS, cuDNN and CUB. So products of unfused attention count as matrix products there.
"""

import re
from functools import cache

from dpprof.vocabulary.parallel import COLLECTIVE_NAMESPACES, COMMUNICATION

_PHASE_CLASS = {"clip": "norm_clip", "noise": "noise", "optimizer_step": "optimizer"}
# Classes that include everything inside their operators.
WHOLE = ("attention", "embedding", "loss")
_CLASSES = [
    ("attention", r"scaled_dot_product|flash_attention|efficient_attention|cudnn_attention"),
    ("embedding", r"embedding|unique"),
    ("loss", r"cross_entropy|nll_loss|log_softmax|mse_loss|binary_cross_entropy"),
    (
        "matrix_product",
        r"mm|addmm|bmm|baddbmm|addmv|mv|dot|mkldnn_linear|convolution|\w+_rnn(_layer)?(_backward)?",
    ),
    ("norm_clip", r"linalg_vector_norm|norm|clamp|clamp_min|clamp_max"),
    ("noise", r"normal|randn|randn_like"),
    (
        "copy",
        r"copy|clone|cat|stack|contiguous|repeat|_reshape_copy|index_select|gather|index|slice_backward|to_copy",
    ),
    (
        "reduction",
        r"sum|mean|amax|max|min|argmax|cumsum|native_layer_norm.*|native_batch_norm.*|_?softmax.*|any|all",
    ),
    (
        "elementwise",
        r"add|sub|mul|div|rsub|neg|exp|log|sqrt|rsqrt|reciprocal|pow|square|abs|sigmoid|tanh|relu|gelu.*|silu.*"
        r"|where|masked_fill|threshold_backward|tanh_backward|fill|zero|ones|zeros|full|ones_like|zeros_like"
        r"|full_like|new_zeros|new_ones|new_full|lerp"
        r"|addcmul|addcdiv|eq|ne|lt|gt|le|ge|bitwise_.*|arange|triu|tril|native_dropout.*",
    ),
]
_WHOLE_PATTERN = {name: re.compile(pattern) for name, pattern in _CLASSES if name in WHOLE}
_NAME_PATTERN = [(name, re.compile(pattern)) for name, pattern in _CLASSES if name not in WHOLE]
# softmax_warp_forward<..., is_log_softmax, is_masked>
_LOG_SOFTMAX_OF_SHORT_ROWS = r"softmax_warp_\w+<.*(?:\(bool\)1|true),\s*(?:\(bool\)0|false)>"
# Patterns of kernel names; the first match counts, as fused attention contains products and a loss a softmax.
_KERNELS = [
    (class_name, re.compile("|".join(patterns.split()), re.IGNORECASE))
    for class_name, patterns in (
        (COMMUNICATION, r"nccl gloo"),
        ("attention", r"flash fmha attention sdpa mem_eff"),
        ("loss", rf"nll_?loss cross_?entropy log_?softmax mse_?loss {_LOG_SOFTMAX_OF_SHORT_ROWS}"),
        ("noise", r"normal_kernel normal_and_transform normal_fill"),
        (
            "matrix_product",
            r"gemm gemv cutlass xmma nvjet splitk cublas dot_kernel \bgemk tensorop triton_tem_\w*mm",
        ),
        ("embedding", r"embedding radix_?sort krn_partial compute_grad_weight unique sum_and_scatter"),
        (
            "copy",
            r"copy(?!sign) catarray gather(?!topk) scatter index_?select index_elementwise index_put "
            r"indexing_backward transpose nchwtonhwc nhwctonchw im2col col2im memcpy",
        ),
        ("norm_clip", r"norm(two|one|inf)?_?ops linalg_vector_norm lpnorm nrm2"),
        (
            "reduction",
            r"reduce softmax layer_?norm gamma_?beta batch_?norm welford scan moments topk triton_(red|per)_",
        ),
        ("elementwise", r"elementwise fill multi_tensor_apply tril triu arange memset dropout triton_poi_"),
    )
]
OPERATOR_CLASSES = (*(name for name, _ in _CLASSES), "optimizer", COMMUNICATION, "other")


@cache
def class_by_name(name: str) -> str | None:
    """Return the class by an operator's name alone, e.g. `aten::addmm` -> `matrix_product`."""
    if name.startswith(COLLECTIVE_NAMESPACES):
        return COMMUNICATION
    bare = name.rpartition("::")[2]
    for class_name, pattern in _WHOLE_PATTERN.items():
        if pattern.search(bare):
            return class_name
    stem = bare.strip("_")
    for class_name, pattern in _NAME_PATTERN:
        if pattern.fullmatch(bare) or pattern.fullmatch(stem):
            return class_name
    return None


def class_in_phase(class_name: str | None, phase: str | None) -> str:
    """Return the class of an operator in a phase, given its class by name."""
    if class_name == COMMUNICATION:
        return COMMUNICATION
    return _PHASE_CLASS.get(phase or "", class_name or "other")


@cache
def kernel_class(name: str, phase: str | None) -> str:
    """Return the class of a kernel by its demangled name and the phase that launched it."""
    found = next((class_name for class_name, pattern in _KERNELS if pattern.search(name)), None)
    return class_in_phase(found, phase)
