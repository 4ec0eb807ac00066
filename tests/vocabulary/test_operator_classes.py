"""What class an operator or a kernel is of, which are collectives, and what a ring sends for those."""

import pytest

from dpprof.vocabulary.operator_classes import OPERATOR_CLASSES, class_by_name, class_in_phase, kernel_class
from dpprof.vocabulary.parallel import (
    ALL_GATHER,
    ALL_REDUCE,
    BROADCAST,
    REDUCE_SCATTER,
    bytes_sent,
    collective_of,
)

# Names of kernels by their class.
KERNELS = {
    "matrix_product": [
        "ampere_sgemm_128x64_nn",
        "cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x256_16x3_nt_align4>",
        "cublasLt::splitKreduce_kernel<(int)32, (int)16, int, float, float, float>",
        "triton_tem_fused_mm_0",
    ],
    "attention": [
        "pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<(int)64>>",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_6_64x128x64",
    ],
    "loss": [
        "at::native::<unnamed>::cunn_SoftMaxForward<(int)4, float, LogSoftMaxForwardEpilogue>",
        "at::native::<unnamed>::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>",
        "at::native::<unnamed>::softmax_warp_forward<f, f, f, (int)9, (bool)1, (bool)0>",
    ],
    "reduction": [
        "at::native::<unnamed>::softmax_warp_forward<float, float, float, (int)9>",
        "at::native::<unnamed>::softmax_warp_backward<f, f, f, (int)9, (bool)0, (bool)0>",
        "at::native::<unnamed>::vectorized_layer_norm_kernel<float, float>",
        "at::native::reduce_kernel<(int)512, at::native::ReduceOp<f, at::native::MeanOps<float>>>",
        "at::native::sbtopk::gatherTopK<float, unsigned int, (int)2, (bool)0>",
    ],
    "norm_clip": ["at::native::reduce_kernel<(int)512, at::native::ReduceOp<f, at::native::NormTwoOps<f>>>"],
    "embedding": [
        "at::native::<unnamed>::embedding_backward_feature_kernel<float, float, long>",
        "at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<Policy900, (bool)0, long>",
    ],
    "copy": [
        "at::native::<unnamed>::CatArrayBatchedCopy<at::native::OpaqueType<(unsigned int)4>>",
        "at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::Iter &)>",
    ],
    "noise": ["at::native::<unnamed>::distribution_elementwise_grid_stride_kernel<normal_and_transform<f>>"],
    "elementwise": [
        "at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>>",
        "at::native::vectorized_elementwise_kernel<(int)4, at::native::GeluBackwardCUDAKernelImpl>",
        "at::native::<unnamed>::fused_dropout_kernel_vec<float, float, unsigned int>",
        "at::native::vectorized_elementwise_kernel<(int)4, at::native::copysign_kernel>",
    ],
    "communication": ["ncclDevKernel_AllGather_RING_LL", "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL"],
    "other": ["my_kernel"],
}


@pytest.mark.parametrize("expected", KERNELS)
def test_kernel_classes(expected: str) -> None:
    assert {kernel_class(kernel, "forward") for kernel in KERNELS[expected]} == {expected}
    assert expected in OPERATOR_CLASSES


def test_the_phase_decides_first_but_of_communication() -> None:
    assert kernel_class("ampere_sgemm_128x64_nn", "clip") == "norm_clip"
    assert kernel_class("at::native::vectorized_elementwise_kernel", "noise") == "noise"
    assert kernel_class("multi_tensor_apply_kernel", "optimizer_step") == "optimizer"
    assert kernel_class("multi_tensor_apply_kernel", None) == "elementwise"
    for phase in ("backward", "clip"):
        assert class_in_phase(class_by_name("c10d::allreduce_"), phase) == "communication"
        assert {kernel_class(kernel, phase) for kernel in KERNELS["communication"]} == {"communication"}


@pytest.mark.parametrize(
    ("expected", "names"),
    [
        ("attention", "scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu_backward"),
        ("embedding", "embedding_dense_backward"),
        ("loss", "cross_entropy_loss _log_softmax_backward_data"),
        ("matrix_product", "mm"),
        ("norm_clip", "linalg_vector_norm"),
        ("noise", "normal_"),
        ("copy", "copy_"),
        ("reduction", "sum _softmax_backward_data"),
        ("elementwise", "add_ gelu_backward"),
        (None, "view summary"),
    ],
)
def test_class_by_name(expected: str | None, names: str) -> None:
    assert {class_by_name(f"aten::{name}") for name in names.split()} == {expected}
    assert expected is None or expected in OPERATOR_CLASSES


def test_operators_of_other_libraries_have_classes_too() -> None:
    assert class_by_name("mkldnn::_mkldnn_linear") == "matrix_product"
    assert class_by_name("AddmmBackward0") is None


@pytest.mark.parametrize(
    ("operator", "collective"),
    [
        ("c10d::allreduce_", ALL_REDUCE),
        ("c10d::_allgather_base_", ALL_GATHER),
        ("_c10d_functional::all_gather_into_tensor", ALL_GATHER),
        ("c10d::_reduce_scatter_base_", REDUCE_SCATTER),
        ("_c10d_functional::reduce_scatter_tensor", REDUCE_SCATTER),
        ("c10d::broadcast_", BROADCAST),
        ("_c10d_functional::wait_tensor", None),
        ("aten::all", None),
    ],
)
def test_a_collective_is_known_by_its_name(operator: str, collective: str | None) -> None:
    assert collective_of(operator) == collective


def test_a_ring_sends_all_but_a_rank_s_own_part() -> None:
    assert bytes_sent(ALL_GATHER, 800, 8) == bytes_sent(REDUCE_SCATTER, 800, 8) == 700
    assert bytes_sent(ALL_REDUCE, 800, 8) == 1400
    assert bytes_sent(ALL_REDUCE, 800, 1) == bytes_sent(BROADCAST, 800, 1) == 0
    assert bytes_sent(BROADCAST, 800, 8) == 800
