// The table of cuBLASLt's functions, that our declarations agree with NVIDIA's header where one is installed,
// and what the emulated library refuses as the real one does.
#include "mantissa/device/cuda/cublaslt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <numeric>

#include "mantissa/numerics/short_formats.h"
#include "tests/device/emulated_gpu_harness.h"
#include "tests/device/same.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#define MANTISSA_TEST_CUBLASLT_HEADER
#endif

namespace mantissa::testing {
namespace {

using cuda::BlasStatus;
using cuda::BlasType;

TEST(CublasLt, ALibraryThatIsNotThereIsOneLine) {
    const auto table = cuda::load_cublaslt("libno_such_cublas.so.1");
    EXPECT_FALSE(table);
    EXPECT_EQ(
        table.reason(),
        "there is no cuBLASLt here (libno_such_cublas.so.1 cannot be loaded); install CUDA's libcublas 12 or "
        "13");
}

TEST(CublasLt, ALibraryThatLacksAFunctionIsOneLine) {
    const auto table = cuda::load_cublaslt("libm.so.6");
    EXPECT_FALSE(table);
    EXPECT_EQ(table.reason(),
              "cuBLASLt (libm.so.6) has no function cublasLtCreate; that of CUDA 12 or 13 is needed");
}

/// One product of matrices stored by columns on the emulated GPU: 4 x 6 by 6 x 5.
class EmulatedCublasLt : public ::testing::Test {
  protected:
    explicit EmulatedCublasLt(const cuda::EmulatedGpuOptions& options = {.threads = 1, .algorithms = 3})
        : gpu(options) {}
    void SetUp() override {
        blas = gpu.gpu().cublaslt();
        ASSERT_EQ(blas.create(&handle), BlasStatus::success);
        ASSERT_EQ(blas.matmul_desc_create(&product, cuda::BlasCompute::f32, BlasType::f32),
                  BlasStatus::success);
        ASSERT_EQ(blas.matmul_preference_create(&preference), BlasStatus::success);
        for (const auto least :
             {cuda::PreferenceAttribute::min_alignment_a, cuda::PreferenceAttribute::min_alignment_b,
              cuda::PreferenceAttribute::min_alignment_c, cuda::PreferenceAttribute::min_alignment_d})
            prefer(least, std::uint32_t{16});
        prefer(cuda::PreferenceAttribute::max_workspace, std::uint64_t{0});
        prefer(cuda::PreferenceAttribute::reduction_schemes, cuda::reduce_in_f32);
        a = layout(BlasType::f32, 4, 6, 4);
        b = layout(BlasType::f32, 6, 5, 6);
        d = layout(BlasType::f32, 4, 5, 4);
        numbers.resize(64);
        std::iota(numbers.begin(), numbers.end(), 1.0f);
        at_a = gpu.upload(numbers);
        at_b = gpu.upload(numbers);
        at_d = gpu.allocate(256);
    }

    template <class T>
    void prefer(cuda::PreferenceAttribute attribute, T value) {
        ASSERT_EQ(blas.matmul_preference_set_attribute(preference, attribute, &value, sizeof value),
                  BlasStatus::success);
    }
    cuda::MatrixLayout layout(BlasType type, std::uint64_t rows, std::uint64_t columns,
                              std::int64_t leading) {
        cuda::MatrixLayout made = nullptr;
        EXPECT_EQ(blas.matrix_layout_create(&made, type, rows, columns, leading), BlasStatus::success);
        return made;
    }
    BlasStatus find() {
        int found = 0;
        return blas.matmul_algo_get_heuristic(handle, product, a, b, d, d, preference, 1, &best, &found);
    }
    std::vector<cuda::MatmulHeuristic> find_all() {
        std::vector<cuda::MatmulHeuristic> offered(8);
        int found = 0;
        EXPECT_EQ(blas.matmul_algo_get_heuristic(handle, product, a, b, d, d, preference, 8, offered.data(),
                                                 &found),
                  BlasStatus::success);
        offered.resize(static_cast<std::size_t>(found));
        return offered;
    }
    BlasStatus multiply(cuda::DevicePtr of_a, cuda::DevicePtr of_b, cuda::DevicePtr of_d,
                        cuda::DevicePtr workspace = 0) {
        const float one = 1, nothing = 0;
        const auto pointer = [](cuda::DevicePtr address) { return reinterpret_cast<void*>(address); };
        return blas.matmul(handle, product, &one, pointer(of_a), a, pointer(of_b), b, &nothing, pointer(of_d),
                           d, pointer(of_d), d, &best.algorithm, pointer(workspace),
                           workspace == 0 ? 0 : best.workspace, gpu.stream());
    }
    std::vector<float> sums_of_a_product() {
        std::vector<float> sums;
        for (int column = 0; column < 5; ++column)
            for (int row = 0; row < 4; ++row) {
                sums.push_back(0);
                for (int k = 0; k < 6; ++k)
                    sums.back() += numbers[static_cast<std::size_t>(row + 4 * k)] *
                                   numbers[static_cast<std::size_t>(k + 6 * column)];
            }
        return sums;
    }

    GpuUnderTest gpu;
    cuda::CublasLt blas;
    cuda::BlasHandle handle = nullptr;
    cuda::MatmulDescription product = nullptr;
    cuda::MatmulPreference preference = nullptr;
    cuda::MatrixLayout a = nullptr, b = nullptr, d = nullptr;
    cuda::MatmulHeuristic best;
    std::vector<float> numbers;
    cuda::DevicePtr at_a = 0, at_b = 0, at_d = 0;
};

TEST_F(EmulatedCublasLt, MultipliesWhenSomebodyWaits) {
    ASSERT_EQ(find(), BlasStatus::success);
    // Written before the product runs, which is when somebody waits.
    ASSERT_EQ(multiply(at_a, at_b, at_d), BlasStatus::success);
    EXPECT_EQ(gpu.download<float>(at_d, 20), sums_of_a_product());
}

/// Whole numbers are the same in whatever parts they are added up; each way has the workspace that it asked
/// for, and no other.
TEST_F(EmulatedCublasLt, OffersSumsInParts) {
    EXPECT_EQ(find_all().size(), 1u) << "parts have no workspace";
    prefer(cuda::PreferenceAttribute::max_workspace, std::uint64_t{1} << 20);
    const std::vector<cuda::MatmulHeuristic> offered = find_all();
    ASSERT_EQ(offered.size(), 3u);
    for (std::size_t parts = 1; parts <= 3; ++parts) {
        best = offered[parts - 1];
        EXPECT_EQ(best.workspace, parts == 1 ? 0 : parts * 20 * sizeof(float));
        EXPECT_EQ(multiply(at_a, at_b, at_d), parts == 1 ? BlasStatus::success : BlasStatus::not_supported);
        ASSERT_EQ(multiply(at_a, at_b, at_d, best.workspace > 0 ? gpu.allocate(best.workspace) : 0),
                  BlasStatus::success);
        EXPECT_EQ(gpu.download<float>(at_d, 20), sums_of_a_product()) << parts;
    }
}

TEST_F(EmulatedCublasLt, WaysToAddThatNobodyMayTakeShow) {
    prefer(cuda::PreferenceAttribute::reduction_schemes, std::uint32_t{7});
    ASSERT_EQ(find(), BlasStatus::success);
    ASSERT_EQ(multiply(at_a, at_b, at_d), BlasStatus::success);
    EXPECT_EQ(gpu.download<float>(at_d, 1)[0], sums_of_a_product()[0] * (1 + 1.0f / 16));
}

TEST_F(EmulatedCublasLt, RefusesWhatTheRealOneRefuses) {
    ASSERT_EQ(find(), BlasStatus::success);
    EXPECT_EQ(multiply(at_a + 4, at_b, at_d), BlasStatus::not_supported) << "not aligned as was promised";
    EXPECT_EQ(multiply(at_a + 2, at_b, at_d), BlasStatus::not_supported) << "no address of a number";
    EXPECT_EQ(multiply(0, at_b, at_d), BlasStatus::not_supported);
    best.algorithm = {};
    EXPECT_EQ(multiply(at_a, at_b, at_d), BlasStatus::invalid_value) << "no algorithm";
    std::swap(a, b);
    EXPECT_EQ(find(), BlasStatus::invalid_value) << "extents that do not fit";
    std::swap(a, b);
    a = layout(BlasType::f32, 4, 6, 3);
    EXPECT_EQ(find(), BlasStatus::invalid_value) << "columns that overlap";
    a = layout(BlasType::bf16, 4, 6, 4);
    EXPECT_EQ(find(), BlasStatus::not_supported) << "operands of two types";
    b = layout(BlasType::bf16, 6, 5, 6);
    EXPECT_EQ(find(), BlasStatus::success) << "sums of BF16 in FP32";
    d = layout(BlasType::f16, 4, 5, 4);
    EXPECT_EQ(find(), BlasStatus::not_supported) << "FP16 of BF16";
    ASSERT_EQ(blas.matrix_layout_destroy(d), BlasStatus::success);
    EXPECT_EQ(find(), BlasStatus::invalid_value) << "a layout that is gone";
    EXPECT_EQ(blas.matrix_layout_destroy(d), BlasStatus::invalid_value);
}

/// GELU's input lies in rows of a multiple of 8, and is of the output's type.
TEST_F(EmulatedCublasLt, RefusesEpiloguesThatTheRealOneRefuses) {
    const auto set = [&](cuda::MatmulAttribute attribute, auto value) {
        ASSERT_EQ(blas.matmul_desc_set_attribute(product, attribute, &value, sizeof value),
                  BlasStatus::success);
    };
    set(cuda::MatmulAttribute::epilogue, cuda::BlasEpilogue::gelu);
    EXPECT_EQ(find(), BlasStatus::success);
    for (const auto epilogue : {cuda::BlasEpilogue::gelu_kept, cuda::BlasEpilogue::gelu_gradient}) {
        set(cuda::MatmulAttribute::epilogue, epilogue);
        set(cuda::MatmulAttribute::kept_leading, std::int64_t{4});
        EXPECT_EQ(find(), BlasStatus::invalid_value) << "no multiple of 8";
        set(cuda::MatmulAttribute::kept_leading, std::int64_t{8});
        ASSERT_EQ(find(), BlasStatus::success);
        set(cuda::MatmulAttribute::kept_pointer, cuda::DevicePtr{0});
        EXPECT_EQ(multiply(at_a, at_b, at_d), BlasStatus::not_supported) << "no address of GELU's input";
        set(cuda::MatmulAttribute::kept_pointer, gpu.allocate(256) + 4);
        EXPECT_EQ(multiply(at_a, at_b, at_d), BlasStatus::not_supported) << "not aligned";
    }
    set(cuda::MatmulAttribute::epilogue, static_cast<cuda::BlasEpilogue>(2));
    EXPECT_EQ(find(), BlasStatus::not_supported) << "ReLU is not emulated";
    set(cuda::MatmulAttribute::epilogue, cuda::BlasEpilogue::gelu_bias);
    set(cuda::MatmulAttribute::bias_type, BlasType::bf16);
    EXPECT_EQ(find(), BlasStatus::not_supported) << "a bias of another type than the output";
    set(cuda::MatmulAttribute::bias_type, BlasType::f32);
    EXPECT_EQ(find(), BlasStatus::success);
    a = layout(BlasType::bf16, 4, 6, 4);
    b = layout(BlasType::bf16, 6, 5, 6);
    EXPECT_EQ(find(), BlasStatus::not_supported) << "GELU of BF16 is BF16";
}

/// Products of bytes: 8 x 12 by 12 x 5, of which A lies transposed.
class EmulatedCublasLtOfBytes : public EmulatedCublasLt {
  protected:
    void SetUp() override {
        EmulatedCublasLt::SetUp();
        describe(cuda::BlasCompute::i32, BlasType::i32);
        a = layout(BlasType::s8, 12, 8, 12);
        b = layout(BlasType::s8, 12, 5, 12);
        d = layout(BlasType::i32, 8, 5, 8);
        for (int i = 0; i < 96; ++i) bytes.push_back(static_cast<std::int8_t>(37 * i % 256 - 128));
        at_a = gpu.upload(bytes);
        at_b = gpu.upload(bytes);
    }
    void describe(cuda::BlasCompute compute, BlasType scale) {
        ASSERT_EQ(blas.matmul_desc_create(&product, compute, scale), BlasStatus::success);
        transpose(cuda::BlasOperation::transposed, cuda::BlasOperation::as_stored);
    }
    void transpose(cuda::BlasOperation of_a, cuda::BlasOperation of_b) {
        blas.matmul_desc_set_attribute(product, cuda::MatmulAttribute::transpose_a, &of_a, sizeof of_a);
        blas.matmul_desc_set_attribute(product, cuda::MatmulAttribute::transpose_b, &of_b, sizeof of_b);
    }
    BlasStatus multiply_bytes(cuda::DevicePtr of_a, std::int32_t one = 1) {
        const std::int32_t nothing = 0;
        const auto pointer = [](cuda::DevicePtr address) { return reinterpret_cast<void*>(address); };
        return blas.matmul(handle, product, &one, pointer(of_a), a, pointer(at_b), b, &nothing, pointer(at_d),
                           d, pointer(at_d), d, &best.algorithm, nullptr, 0, gpu.stream());
    }

    std::vector<std::int8_t> bytes;
};

TEST_F(EmulatedCublasLtOfBytes, AddsUpExactly) {
    ASSERT_EQ(find(), BlasStatus::success);
    ASSERT_EQ(multiply_bytes(at_a), BlasStatus::success);
    std::vector<std::int32_t> sums;
    for (std::size_t column = 0; column < 5; ++column)
        for (std::size_t row = 0; row < 8; ++row) {
            sums.push_back(0);
            for (std::size_t k = 0; k < 12; ++k) sums.back() += bytes[12 * row + k] * bytes[12 * column + k];
        }
    EXPECT_EQ(gpu.download<std::int32_t>(at_d, 40), sums);
    EXPECT_EQ(multiply_bytes(at_a, 2), BlasStatus::not_supported) << "a factor is i32, and 1";
    EXPECT_EQ(multiply_bytes(at_a + 2), BlasStatus::not_supported) << "not at a multiple of 4";
}

/// The library's documentation: "To use IMMA kernels", for layouts by columns.
TEST_F(EmulatedCublasLtOfBytes, RefusesWhatTheRealOneRefuses) {
    using enum cuda::BlasOperation;
    ASSERT_EQ(find(), BlasStatus::success);
    transpose(transposed, transposed);
    b = layout(BlasType::s8, 5, 12, 8);
    EXPECT_EQ(find(), BlasStatus::not_supported) << "B is transposed";
    b = layout(BlasType::s8, 12, 5, 12);
    transpose(as_stored, as_stored);
    a = layout(BlasType::s8, 8, 12, 8);
    EXPECT_EQ(find(), BlasStatus::not_supported) << "A is not transposed";
    transpose(transposed, as_stored);
    a = layout(BlasType::s8, 12, 8, 13);
    EXPECT_EQ(find(), BlasStatus::not_supported) << "a leading dimension of no multiple of 4";
    a = layout(BlasType::s8, 10, 8, 12);
    b = layout(BlasType::s8, 10, 5, 12);
    EXPECT_EQ(find(), BlasStatus::not_supported) << "terms of no multiple of 4";
    a = layout(BlasType::s8, 12, 6, 12);
    b = layout(BlasType::s8, 12, 5, 12);
    d = layout(BlasType::i32, 6, 5, 8);
    EXPECT_EQ(find(), BlasStatus::not_supported) << "rows of no multiple of 4";
    a = layout(BlasType::s8, 12, 8, 12);
    d = layout(BlasType::f32, 8, 5, 8);
    EXPECT_EQ(find(), BlasStatus::not_supported) << "sums that are no i32";
    d = layout(BlasType::i32, 8, 5, 8);
    ASSERT_EQ(find(), BlasStatus::success);
    const auto epilogue = cuda::BlasEpilogue::bias;
    blas.matmul_desc_set_attribute(product, cuda::MatmulAttribute::epilogue, &epilogue, sizeof epilogue);
    EXPECT_EQ(find(), BlasStatus::not_supported) << "a bias";
    EXPECT_EQ(blas.matmul_desc_create(&product, cuda::BlasCompute::i32, BlasType::f32),
              BlasStatus::not_supported)
        << "factors of FP32 go with results of bytes, which are not emulated";
    describe(cuda::BlasCompute::f32, BlasType::f32);
    EXPECT_EQ(find(), BlasStatus::not_supported) << "bytes added up in FP32";
}

/// Products of FP8: 16 x 32 by 32 x 48, of which A lies transposed, with a scale for each operand.
class EmulatedCublasLtOfFp8 : public EmulatedCublasLt {
  protected:
    static constexpr std::size_t rows = 16, columns = 48, depth = 32;

    EmulatedCublasLtOfFp8() : EmulatedCublasLt({.architecture = "sm_90", .threads = 1}) {}
    void SetUp() override {
        EmulatedCublasLt::SetUp();
        transpose(cuda::BlasOperation::transposed, cuda::BlasOperation::as_stored);
        a = layout(BlasType::e4m3, depth, rows, depth);
        b = layout(BlasType::e5m2, depth, columns, depth);
        d = layout(BlasType::f32, rows, columns, rows);
        for (std::size_t i = 0; i < depth * columns; ++i) {
            of_a.push_back(static_cast<std::uint8_t>(37 * i % 0x7f | (i % 3 == 0 ? 0x80 : 0)));
            of_b.push_back(static_cast<std::uint8_t>(0x20 + 29 * i % 0x38));
        }
        at_a = gpu.upload(of_a);
        at_b = gpu.upload(of_b);
        at_d = gpu.allocate(4 * rows * columns);
    }
    template <class T>
    void set(cuda::MatmulAttribute attribute, T value) {
        ASSERT_EQ(blas.matmul_desc_set_attribute(product, attribute, &value, sizeof value),
                  BlasStatus::success);
    }
    void transpose(cuda::BlasOperation a_is, cuda::BlasOperation b_is) {
        set(cuda::MatmulAttribute::transpose_a, a_is);
        set(cuda::MatmulAttribute::transpose_b, b_is);
    }

    std::vector<std::uint8_t> of_a, of_b;
};

/// FP32's class: each of 32 products and sums is rounded once.
TEST_F(EmulatedCublasLtOfFp8, MultipliesItsNumbersAndTheirScales) {
    const float scale_a = 0.75f, scale_b = 3;
    const std::vector<float> scales{scale_a, scale_b};
    const cuda::DevicePtr at = gpu.upload(scales);
    ASSERT_EQ(find(), BlasStatus::success);
    for (const bool scaled : {false, true}) {
        if (scaled) set(cuda::MatmulAttribute::scale_of_a, at);
        if (scaled) set(cuda::MatmulAttribute::scale_of_b, at + 4);
        ASSERT_EQ(multiply(at_a, at_b, at_d), BlasStatus::success);
        const std::vector<float> got = gpu.download<float>(at_d, rows * columns);
        const double scale = scaled ? double{scale_a} * double{scale_b} : 1;
        for (std::size_t i = 0; i < rows * columns; ++i) {
            double sum = 0, magnitude = 0;
            for (std::size_t k = 0; k < depth; ++k) {
                const double term = double{value_of(ShortFormat::e4m3, of_a[i % rows * depth + k])} *
                                    double{value_of(ShortFormat::e5m2, of_b[i / rows * depth + k])} * scale;
                sum += term;
                magnitude += std::abs(term);
            }
            ASSERT_NEAR(static_cast<double>(got[i]), sum, 0x1p-23 * depth * magnitude) << i;
            ASSERT_GT(magnitude, 0);
        }
    }
}

/// The library's documentation: "To use FP8 kernels".
TEST_F(EmulatedCublasLtOfFp8, RefusesWhatTheRealOneRefuses) {
    using enum cuda::BlasOperation;
    ASSERT_EQ(find(), BlasStatus::success);
    EXPECT_EQ(multiply(at_a + 8, at_b, at_d), BlasStatus::not_supported) << "not at a multiple of 16";
    set(cuda::MatmulAttribute::epilogue, cuda::BlasEpilogue::gelu);
    EXPECT_EQ(find(), BlasStatus::not_supported) << "GELU is not offered";
    set(cuda::MatmulAttribute::epilogue, cuda::BlasEpilogue::bias);
    EXPECT_EQ(find(), BlasStatus::not_supported) << "a bias beside FP32";
    d = layout(BlasType::bf16, rows, columns, rows);
    EXPECT_EQ(find(), BlasStatus::success) << "a bias of BF16";
    d = layout(BlasType::f16, rows, columns, rows);
    EXPECT_EQ(find(), BlasStatus::not_supported) << "FP16 is not offered";
    d = layout(BlasType::bf16, rows, columns, rows);
    a = layout(BlasType::e5m2, depth, rows, depth);
    EXPECT_EQ(find(), BlasStatus::not_supported) << "both in E5M2";
    a = layout(BlasType::bf16, depth, rows, depth);
    EXPECT_EQ(find(), BlasStatus::not_supported) << "one in BF16";
    transpose(as_stored, as_stored);
    a = layout(BlasType::e4m3, rows, depth, rows);
    EXPECT_EQ(find(), BlasStatus::not_supported) << "A is not transposed";
    transpose(transposed, transposed);
    a = layout(BlasType::e4m3, depth, rows, depth);
    b = layout(BlasType::e5m2, columns, depth, columns);
    EXPECT_EQ(find(), BlasStatus::not_supported) << "B is transposed";
    transpose(transposed, as_stored);
    b = layout(BlasType::e5m2, depth, 40, depth);
    d = layout(BlasType::bf16, rows, 40, rows);
    EXPECT_EQ(find(), BlasStatus::not_supported) << "columns of no multiple of 16";
    b = layout(BlasType::e5m2, depth, columns, depth + 8);
    d = layout(BlasType::bf16, rows, columns, rows);
    EXPECT_EQ(find(), BlasStatus::not_supported) << "a leading dimension of no multiple of 16";
}

TEST_F(EmulatedCublasLt, Fp8NeedsAnArchitectureThatHasIt) {
    const auto operation = cuda::BlasOperation::transposed;
    blas.matmul_desc_set_attribute(product, cuda::MatmulAttribute::transpose_a, &operation, sizeof operation);
    a = layout(BlasType::e4m3, 32, 16, 32);
    b = layout(BlasType::e4m3, 32, 48, 32);
    d = layout(BlasType::f32, 16, 48, 16);
    EXPECT_EQ(find(), BlasStatus::not_supported);
}

TEST_F(EmulatedCublasLt, OtherNumbersHaveNoScale) {
    ASSERT_EQ(find(), BlasStatus::success);
    blas.matmul_desc_set_attribute(product, cuda::MatmulAttribute::scale_of_b, &at_a, sizeof at_a);
    EXPECT_EQ(find(), BlasStatus::invalid_value);
}

TEST_F(EmulatedCublasLt, AsksForAWorkspaceWhereSumsAreLong) {
    a = layout(BlasType::f32, 1, 10000, 1);
    b = layout(BlasType::f32, 10000, 1, 10000);
    d = layout(BlasType::f32, 1, 1, 1);
    EXPECT_EQ(find(), BlasStatus::not_supported);
    prefer(cuda::PreferenceAttribute::max_workspace, std::uint64_t{1} << 20);
    EXPECT_EQ(find(), BlasStatus::success);
    EXPECT_GT(best.workspace, 0u);
}

TEST_F(EmulatedCublasLt, NamesWhatItReadsAndWasNeverWritten) {
    ASSERT_EQ(find(), BlasStatus::success);
    ASSERT_EQ(multiply(gpu.allocate(256), at_b, at_d), BlasStatus::success);
    EXPECT_EQ(gpu.driver().stream_synchronize(gpu.stream()), cuda::Result::illegal_address);
    EXPECT_NE(gpu.report().find("cublasLtMatmul, reading A: byte 0 of allocation"), std::string::npos)
        << gpu.report();
}

TEST_F(EmulatedCublasLt, NamesWhatLiesOutside) {
    ASSERT_EQ(find(), BlasStatus::success);
    ASSERT_EQ(multiply(at_a, at_b, gpu.allocate(64)), BlasStatus::success);
    EXPECT_EQ(gpu.driver().stream_synchronize(gpu.stream()), cuda::Result::illegal_address);
    EXPECT_NE(gpu.report().find("cublasLtMatmul, writing D"), std::string::npos) << gpu.report();
}

#ifdef MANTISSA_TEST_CUBLASLT_HEADER
static_assert(same(BlasStatus::not_initialized, CUBLAS_STATUS_NOT_INITIALIZED) &&
              same(BlasStatus::allocation_failed, CUBLAS_STATUS_ALLOC_FAILED) &&
              same(BlasStatus::invalid_value, CUBLAS_STATUS_INVALID_VALUE) &&
              same(BlasStatus::architecture_mismatch, CUBLAS_STATUS_ARCH_MISMATCH) &&
              same(BlasStatus::mapping_error, CUBLAS_STATUS_MAPPING_ERROR) &&
              same(BlasStatus::execution_failed, CUBLAS_STATUS_EXECUTION_FAILED) &&
              same(BlasStatus::internal_error, CUBLAS_STATUS_INTERNAL_ERROR) &&
              same(BlasStatus::not_supported, CUBLAS_STATUS_NOT_SUPPORTED));
static_assert(same(BlasType::f32, CUDA_R_32F) && same(BlasType::f16, CUDA_R_16F) &&
              same(BlasType::bf16, CUDA_R_16BF) && same(BlasType::s8, CUDA_R_8I) &&
              same(BlasType::i32, CUDA_R_32I) && same(BlasType::e4m3, CUDA_R_8F_E4M3) &&
              same(BlasType::e5m2, CUDA_R_8F_E5M2));
static_assert(same(cuda::BlasCompute::f32, CUBLAS_COMPUTE_32F) &&
              same(cuda::BlasCompute::i32, CUBLAS_COMPUTE_32I));
// The header's next but one, by the order that it documents.
static_assert(same(cuda::BlasCompute::f32_as_tf32, 77));
static_assert(same(cuda::BlasOperation::as_stored, CUBLAS_OP_N) &&
              same(cuda::BlasOperation::transposed, CUBLAS_OP_T));
static_assert(same(cuda::MatmulAttribute::transpose_a, CUBLASLT_MATMUL_DESC_TRANSA) &&
              same(cuda::MatmulAttribute::transpose_b, CUBLASLT_MATMUL_DESC_TRANSB) &&
              same(cuda::MatmulAttribute::epilogue, CUBLASLT_MATMUL_DESC_EPILOGUE) &&
              same(cuda::MatmulAttribute::bias_pointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER) &&
              same(cuda::MatmulAttribute::scale_of_a, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER) &&
              same(cuda::MatmulAttribute::scale_of_b, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER) &&
              same(cuda::MatmulAttribute::bias_type, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE) &&
              same(cuda::MatmulAttribute::kept_pointer, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER) &&
              same(cuda::MatmulAttribute::kept_leading, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD));
static_assert(same(cuda::BlasEpilogue::none, CUBLASLT_EPILOGUE_DEFAULT) &&
              same(cuda::BlasEpilogue::bias, CUBLASLT_EPILOGUE_BIAS) &&
              same(cuda::BlasEpilogue::gelu, CUBLASLT_EPILOGUE_GELU) &&
              same(cuda::BlasEpilogue::gelu_bias, CUBLASLT_EPILOGUE_GELU_BIAS) &&
              same(cuda::BlasEpilogue::gelu_kept, CUBLASLT_EPILOGUE_GELU_AUX) &&
              same(cuda::BlasEpilogue::gelu_kept_bias, CUBLASLT_EPILOGUE_GELU_AUX_BIAS) &&
              same(cuda::BlasEpilogue::gelu_gradient, CUBLASLT_EPILOGUE_DGELU) &&
              same(cuda::BlasEpilogue::gelu_and_bias_gradient, CUBLASLT_EPILOGUE_DGELU_BGRAD));
static_assert(same(cuda::LayoutAttribute::batch_count, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) &&
              same(cuda::LayoutAttribute::batch_stride, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET));
static_assert(same(cuda::PreferenceAttribute::max_workspace, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) &&
              same(cuda::PreferenceAttribute::reduction_schemes,
                   CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) &&
              same(cuda::PreferenceAttribute::min_alignment_a, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES) &&
              same(cuda::PreferenceAttribute::min_alignment_b, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES) &&
              same(cuda::PreferenceAttribute::min_alignment_c, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES) &&
              same(cuda::PreferenceAttribute::min_alignment_d, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES));
static_assert(same(cuda::reduce_in_f32, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
static_assert(sizeof(cuda::MatmulAlgorithm) == sizeof(cublasLtMatmulAlgo_t) &&
              sizeof(cuda::MatmulHeuristic) == sizeof(cublasLtMatmulHeuristicResult_t) &&
              offsetof(cuda::MatmulHeuristic, workspace) ==
                  offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) &&
              offsetof(cuda::MatmulHeuristic, state) == offsetof(cublasLtMatmulHeuristicResult_t, state) &&
              offsetof(cuda::MatmulHeuristic, waves) ==
                  offsetof(cublasLtMatmulHeuristicResult_t, wavesCount));
#endif

}  // namespace
}  // namespace mantissa::testing
