import pytest

from vramcast.profiling.kernels import kernel_class, on_matrix_units, short_name


@pytest.mark.parametrize(
    ("name", "kind", "matrix"),
    [
        ("nvjet_tst_144x128_64x6_2x1_v_bz_bias_TNN", "GEMM", True),
        ("ampere_sgemm_128x64_nn", "GEMM", False),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN", "GEMM", True),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4>(Params)", "GEMM", True),
        ("void cublasLt::splitKreduce_kernel<32, 16>(cublasSplitKParams<float>)", "GEMM", False),
        ("pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128> >(Params)", "attention", True),
        ("fmhaSm100aKernel_QkvE4m3OBfloat16H64Page", "attention", True),
        ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16>(c10::BFloat16*)", "communication", False),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(RankData*)", "communication", False),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication", False),
        ("void dpsk::ep::internode::dispatch<true, 4>(int4*)", "communication", False),
        ("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)", "norm", False),
        ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_swiGlu_dynBatch", "MoE", True),
        ("multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float> >(int)", "optimizer", False),
        ("at::native::elementwise_kernel<128, 2, at::native::mul_kernel_cuda(x)::{lambda(float)#1}>(int)", "elementwise", False),
        ("triton_poi_fused_add_cos_sin_0", "elementwise", False),
        ("my_secret_kernel", "other", False),
    ],
)
def test_a_name_tells_class_and_matrix_units(name: str, kind: str, matrix: bool) -> None:
    assert (kernel_class(name), on_matrix_units(name)) == (kind, matrix)


def test_short_names_keep_what_a_generic_kernel_computes() -> None:
    add = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, A)"
    assert short_name(add) == "vectorized_elementwise_kernel[CUDAFunctor_add]"
    assert (
        short_name("void cudnn::ops::nchwToNhwcKernel<float, true, (cudnnKernelDataType_t)2>(x)")
        == "cudnn::ops::nchwToNhwcKernel"
    )
    assert short_name("_copy_page_indices_kernel") == "_copy_page_indices_kernel"
    assert short_name("(x)") == "(x)"
