// The functions of cuBLASLt that multiply matrices, as one table, filled from NVIDIA's library
// when the program runs. Declared here from the documented interface, as the driver's are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "mantissa/base/expected.h"
#include "mantissa/device/cuda/driver.h"

namespace mantissa::inline v0::cuda {

enum class BlasStatus : int {
    success = 0,
    not_initialized = 1,
    allocation_failed = 3,
    invalid_value = 7,
    architecture_mismatch = 8,
    mapping_error = 11,
    execution_failed = 13,
    internal_error = 14,
    not_supported = 15,
};

enum class BlasType : int { f32 = 0, f16 = 2, s8 = 3, i32 = 10, bf16 = 14, e4m3 = 28, e5m2 = 29 };

enum class BlasCompute : int {
    f32 = 68,
    i32 = 72,          ///< of bytes; factors are i32, too
    f32_as_tf32 = 77,  ///< operands of FP32 may be cut to TF32
};

enum class BlasOperation : int { as_stored = 0, transposed = 1 };

enum class MatmulAttribute : int {
    transpose_a = 3,    ///< BlasOperation
    transpose_b = 4,    ///< BlasOperation
    epilogue = 7,       ///< BlasEpilogue
    bias_pointer = 8,   ///< DevicePtr: of the bias, or of its gradient
    kept_pointer = 11,  ///< DevicePtr: GELU's input, which is written with it and read with its gradient
    kept_leading = 12,  ///< std::int64_t, elements: a multiple of 8
    // DevicePtr, of numbers of FP8: factors of the sums, f32.
    scale_of_a = 17,
    scale_of_b = 18,
    bias_type = 26,  ///< BlasType
};

enum class BlasEpilogue : std::uint32_t {
    none = 1,
    bias = 4,  ///< one number a row of D, so a column of its transpose
    gelu = 32,
    gelu_bias = gelu | bias,
    gelu_kept = gelu | 128,
    gelu_kept_bias = gelu_kept | bias,
    gelu_gradient = 64 | 128,  ///< times the product
    /// As above, and its sum over the columns of D: the gradient of a bias.
    gelu_and_bias_gradient = gelu_gradient | 16,
};

/// Whether all bits of a part of an epilogue are set.
inline bool has(BlasEpilogue epilogue, BlasEpilogue part) {
    const auto bits = static_cast<std::uint32_t>(part);
    return (static_cast<std::uint32_t>(epilogue) & bits) == bits;
}

enum class LayoutAttribute : int {
    batch_count = 5,   ///< std::int32_t
    batch_stride = 6,  ///< std::int64_t, in elements
};

enum class PreferenceAttribute : int {
    max_workspace = 1,      ///< std::uint64_t, bytes
    reduction_schemes = 3,  ///< std::uint32_t, a bit each
    min_alignment_a = 5,    ///< std::uint32_t, bytes, like the three below
    min_alignment_b = 6,
    min_alignment_c = 7,
    min_alignment_d = 8,
};

/// Sums of parts of a contraction are added up in FP32, in one order; the other schemes add in the output's
/// type, or in the order in which parts finish.
constexpr std::uint32_t reduce_in_f32 = 2;

using BlasHandle = struct BlasHandleOf*;
using MatmulDescription = struct MatmulDescriptionOf*;
using MatrixLayout = struct MatrixLayoutOf*;
using MatmulPreference = struct MatmulPreferenceOf*;

/// An algorithm for a contraction, as the library answered; only the library looks into it.
struct MatmulAlgorithm {
    std::array<std::uint64_t, 8> data = {};

    friend bool operator==(const MatmulAlgorithm&, const MatmulAlgorithm&) = default;
};

struct MatmulHeuristic {
    MatmulAlgorithm algorithm;
    std::size_t workspace = 0;  ///< bytes
    BlasStatus state = BlasStatus::success;
    float waves = 0;
    std::array<int, 4> reserved = {};
};

/// The members have the library's names, arguments and meanings: cuBLAS 12 and 13. All are set. Matrices are
/// stored column by column.
struct CublasLt {
    template <class Signature>
    using Call = std::function<Signature>;

    Call<BlasStatus(BlasHandle* handle)> create;
    Call<BlasStatus(BlasHandle handle)> destroy;
    Call<std::size_t()> get_version;  ///< 10000 times the major number, 100 times the minor one and the patch
    Call<const char*(BlasStatus status)> get_status_name;
    Call<const char*(BlasStatus status)> get_status_string;
    Call<BlasStatus(MatrixLayout* layout, BlasType type, std::uint64_t rows, std::uint64_t columns,
                    std::int64_t leading)>
        matrix_layout_create;
    Call<BlasStatus(MatrixLayout layout)> matrix_layout_destroy;
    Call<BlasStatus(MatrixLayout layout, LayoutAttribute attribute, const void* value, std::size_t bytes)>
        matrix_layout_set_attribute;
    Call<BlasStatus(MatmulDescription* description, BlasCompute compute, BlasType scale)> matmul_desc_create;
    Call<BlasStatus(MatmulDescription description)> matmul_desc_destroy;
    Call<BlasStatus(MatmulDescription description, MatmulAttribute attribute, const void* value,
                    std::size_t bytes)>
        matmul_desc_set_attribute;
    Call<BlasStatus(MatmulPreference* preference)> matmul_preference_create;
    Call<BlasStatus(MatmulPreference preference)> matmul_preference_destroy;
    Call<BlasStatus(MatmulPreference preference, PreferenceAttribute attribute, const void* value,
                    std::size_t bytes)>
        matmul_preference_set_attribute;
    Call<BlasStatus(BlasHandle handle, MatmulDescription description, MatrixLayout a, MatrixLayout b,
                    MatrixLayout c, MatrixLayout d, MatmulPreference preference, int asked,
                    MatmulHeuristic* results, int* found)>
        matmul_algo_get_heuristic;
    Call<BlasStatus(BlasHandle handle, MatmulDescription description, const void* alpha, const void* a,
                    MatrixLayout layout_of_a, const void* b, MatrixLayout layout_of_b, const void* beta,
                    const void* c, MatrixLayout layout_of_c, void* d, MatrixLayout layout_of_d,
                    const MatmulAlgorithm* algorithm, void* workspace, std::size_t workspace_bytes,
                    Stream stream)>
        matmul;

    /// How reports call it: "cuBLASLt 12.4.5".
    std::string name;
    /// Keeps the library that the functions need.
    std::shared_ptr<void> kept;
};

/// Calls `visit(member, "cublasLtName")` for each function.
template <class AnyTable, class Visit>
void for_each_blas_function(AnyTable& table, const Visit& visit) {
    visit(table.create, "cublasLtCreate");
    visit(table.destroy, "cublasLtDestroy");
    visit(table.get_version, "cublasLtGetVersion");
    visit(table.get_status_name, "cublasLtGetStatusName");
    visit(table.get_status_string, "cublasLtGetStatusString");
    visit(table.matrix_layout_create, "cublasLtMatrixLayoutCreate");
    visit(table.matrix_layout_destroy, "cublasLtMatrixLayoutDestroy");
    visit(table.matrix_layout_set_attribute, "cublasLtMatrixLayoutSetAttribute");
    visit(table.matmul_desc_create, "cublasLtMatmulDescCreate");
    visit(table.matmul_desc_destroy, "cublasLtMatmulDescDestroy");
    visit(table.matmul_desc_set_attribute, "cublasLtMatmulDescSetAttribute");
    visit(table.matmul_preference_create, "cublasLtMatmulPreferenceCreate");
    visit(table.matmul_preference_destroy, "cublasLtMatmulPreferenceDestroy");
    visit(table.matmul_preference_set_attribute, "cublasLtMatmulPreferenceSetAttribute");
    visit(table.matmul_algo_get_heuristic, "cublasLtMatmulAlgoGetHeuristic");
    visit(table.matmul, "cublasLtMatmul");
}

/// The functions of a library; or one line that names the missing library, function or version.
Expected<CublasLt> load_cublaslt(const std::string& library);

/// Throws UserError unless the status is success, with the attempt and the library's words.
void require(const CublasLt& table, BlasStatus status, const std::string& what);

}  // namespace mantissa::cuda
