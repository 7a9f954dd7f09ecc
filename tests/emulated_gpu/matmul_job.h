// A matrix product as cuBLASLt is asked for it: sums in FP32, then what the epilogue makes of them; or sums
// of products of bytes.
#pragma once

#include <cstdint>
#include <optional>

#include "mantissa/device/cuda/cublaslt.h"
#include "mantissa/numerics/dtype.h"

namespace mantissa::inline v0::cuda {

struct MatmulDescriptionOf {
    BlasCompute compute = BlasCompute::f32;
    BlasOperation a = BlasOperation::as_stored, b = BlasOperation::as_stored;
    BlasEpilogue epilogue = BlasEpilogue::none;
    DevicePtr bias = 0, kept = 0;
    DevicePtr scale_of_a = 0, scale_of_b = 0;  ///< of FP8; 0: 1
    std::int64_t kept_leading = 0;
    std::optional<BlasType> bias_type = {};

    bool adds_bias() const { return has(epilogue, BlasEpilogue::bias); }
    bool is_gelu() const { return has(epilogue, BlasEpilogue::gelu); }
    bool is_gradient() const { return has(epilogue, BlasEpilogue::gelu_gradient); }
    bool sums_gradient() const { return has(epilogue, BlasEpilogue::gelu_and_bias_gradient); }
    /// GELU's input, which is written or read.
    bool has_kept() const { return has(epilogue, BlasEpilogue::gelu_kept) || is_gradient(); }
    bool is_of_bytes() const { return compute == BlasCompute::i32; }
};

struct MatrixLayoutOf {
    BlasType type = BlasType::f32;
    std::int64_t rows = 0, columns = 0, leading = 0;
    std::int32_t batch = 1;
    std::int64_t batch_stride = 0;
};

inline bool is_fp8(BlasType type) { return type == BlasType::e4m3 || type == BlasType::e5m2; }
/// FP8 as it is stored: bytes.
DType dtype_of(BlasType type);

struct MatmulJob {
    std::int64_t terms() const { return description.a == BlasOperation::transposed ? a.rows : a.columns; }

    MatmulDescriptionOf description;
    MatrixLayoutOf a, b, d;
    DevicePtr at_a = 0, at_b = 0, at_d = 0, workspace = 0;
    std::uint64_t workspace_bytes = 0;
    bool adds = false;       ///< to what lies in D
    std::int64_t parts = 1;  ///< of each sum, added up in order
    bool in_place = false;   ///< by the way to add them up that nobody may take: it is wrong by a sixteenth
};

}  // namespace mantissa::cuda
