// The comparator: does a computed tensor match the oracle within a tolerance that has an origin? It tests
// `!(difference <= tolerance)`, so that a NaN on any side fails.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mantissa/numerics/dtype.h"

namespace mantissa::inline v0 {

/// The four classes of tolerance. docs/numerics.md has the table with their origins.
struct Tolerance {
    enum class Class { exact, ulp, bound, low_precision };

    Class kind = Class::exact;
    double ulps = 0;  ///< ulp: units in the last place of the tensor's own format
    double factor =
        0;  ///< bound: c * n * eps, times `magnitudes`; low_precision: multiple of the plain error
    std::span<const double> magnitudes;  ///< bound: sum |a||b| per element, or one for all
    std::span<const double> plain;       ///< low_precision: results of the plain low-precision version

    /// Equal values: for movement, and for contractions of integers.
    static Tolerance exact();

    /// At most `ulps` units in the last place from the expected value: for element-wise operations.
    static Tolerance ulp(double ulps);

    /// At most c * n * eps * magnitude, plus half an ULP of the tensor's format for its own rounding: for
    /// reductions, which sum n terms with rounding errors of at most eps each. `magnitudes` has the sum of
    /// the terms' absolute values, one per element or a single one for all.
    static Tolerance bound(double c, double n, double eps, std::span<const double> magnitudes);

    /// Largest and root-mean-square error are at most `factor` times the errors of `plain`, the
    /// straightforward version in the same low precision. For attention and fused kernels (2), and their
    /// gradients (3).
    static Tolerance low_precision(double factor, std::span<const double> plain);
};

/// A tensor in row-major order.
struct ComparedTensor {
    DType type = DType::f32;
    const void* data = nullptr;
    std::vector<std::int64_t> shape;
};

struct Comparison {
    bool ok = false;
    std::int64_t failures = 0;
    std::int64_t first = -1;  ///< first failing element; -1 if none or if shapes differ
    std::int64_t worst = -1;  ///< element with the largest ratio of difference to tolerance
    double worst_ratio = 0;   ///< that ratio: above 1 fails; infinite for NaN and for a wrong infinity
    std::string message;      ///< empty when ok: which elements, expected, got, difference, tolerance

    explicit operator bool() const { return ok; }
};

/// Compares with expected values in FP64 of the given shape. Fails on NaN on either side, on unequal
/// infinities, and on any difference of shape. Throws InternalError if a tolerance's own array has a wrong
/// size.
Comparison compare(const ComparedTensor& got, std::span<const double> expected,
                   std::span<const std::int64_t> expected_shape, const Tolerance& tolerance);

/// Compares one-dimensional data.
Comparison compare(std::span<const float> got, std::span<const double> expected, const Tolerance& tolerance);

}  // namespace mantissa
