import pytest

from dpprof.vocabulary.operator_classes import OPERATOR_CLASSES, class_by_name, kernel_class


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("ampere_sgemm_128x64_nn", "matrix_product"),
        ("cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x256_16x3_nt_align4>", "matrix_product"),
        ("cublasLt::splitKreduce_kernel<(int)32, (int)16, int, float, float, float>", "matrix_product"),
        ("pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<(int)64>>", "attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_6_64x128x64", "attention"),
        ("at::native::<unnamed>::cunn_SoftMaxForward<(int)4, float, LogSoftMaxForwardEpilogue>", "loss"),
        ("at::native::<unnamed>::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>", "loss"),
        ("at::native::<unnamed>::softmax_warp_forward<float, float, float, (int)9>", "reduction"),
        ("at::native::<unnamed>::vectorized_layer_norm_kernel<float, float>", "reduction"),
        (
            "at::native::reduce_kernel<(int)512, at::native::ReduceOp<float, at::native::MeanOps<float>>>",
            "reduction",
        ),
        (
            "at::native::reduce_kernel<(int)512, at::native::ReduceOp<float, at::native::NormTwoOps<float>>>",
            "norm_clip",
        ),
        ("at::native::<unnamed>::embedding_backward_feature_kernel<float, float, long>", "embedding"),
        ("at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<Policy900, (bool)0, long>", "embedding"),
        ("at::native::<unnamed>::CatArrayBatchedCopy<at::native::OpaqueType<(unsigned int)4>>", "copy"),
        ("at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::Iter &)>", "copy"),
        (
            "at::native::<unnamed>::distribution_elementwise_grid_stride_kernel<normal_and_transform<f>>",
            "noise",
        ),
        (
            "at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>>",
            "elementwise",
        ),
        (
            "at::native::vectorized_elementwise_kernel<(int)4, at::native::GeluBackwardCUDAKernelImpl>",
            "elementwise",
        ),
        ("at::native::<unnamed>::softmax_warp_forward<f, f, f, (int)9, (bool)1, (bool)0>", "loss"),
        ("at::native::<unnamed>::softmax_warp_backward<f, f, f, (int)9, (bool)0, (bool)0>", "reduction"),
        ("at::native::<unnamed>::fused_dropout_kernel_vec<float, float, unsigned int>", "elementwise"),
        ("at::native::vectorized_elementwise_kernel<(int)4, at::native::copysign_kernel>", "elementwise"),
        ("at::native::sbtopk::gatherTopK<float, unsigned int, (int)2, (bool)0>", "reduction"),
        ("triton_tem_fused_mm_0", "matrix_product"),
        ("my_kernel", "other"),
    ],
)
def test_kernel_classes(kernel: str, expected: str) -> None:
    assert kernel_class(kernel, "forward") == expected
    assert expected in OPERATOR_CLASSES


def test_the_phase_decides_first() -> None:
    assert kernel_class("ampere_sgemm_128x64_nn", "clip") == "norm_clip"
    assert kernel_class("at::native::vectorized_elementwise_kernel", "noise") == "noise"
    assert kernel_class("multi_tensor_apply_kernel", "optimizer_step") == "optimizer"
    assert kernel_class("multi_tensor_apply_kernel", None) == "elementwise"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aten::scaled_dot_product_attention", "attention"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu_backward", "attention"),
        ("aten::embedding_dense_backward", "embedding"),
        ("aten::cross_entropy_loss", "loss"),
        ("aten::_log_softmax_backward_data", "loss"),
        ("aten::mm", "matrix_product"),
        ("mkldnn::_mkldnn_linear", "matrix_product"),
        ("aten::linalg_vector_norm", "norm_clip"),
        ("aten::normal_", "noise"),
        ("aten::copy_", "copy"),
        ("aten::sum", "reduction"),
        ("aten::_softmax_backward_data", "reduction"),
        ("aten::add_", "elementwise"),
        ("aten::gelu_backward", "elementwise"),
        ("aten::view", None),
        ("aten::summary", None),
        ("AddmmBackward0", None),
    ],
)
def test_class_by_name(name: str, expected: str | None) -> None:
    assert class_by_name(name) == expected
    assert expected is None or expected in OPERATOR_CLASSES
