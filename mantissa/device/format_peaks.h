// The rates of a device in each number format, as plain data: computed from facts about it, or measured, or
// both. Rates are operations a second, a multiply-add counted as two; bandwidths bytes a second.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace mantissa::inline v0 {

/// One mode of multiplying matrices, D = A * B + C. Formats are written f64 f32 tf32 f16 bf16 s32 s8 s4 b1.
struct MatrixPeak {
    std::string inputs;
    std::string accumulator;
    std::optional<double> dense = {};   ///< theoretical
    std::optional<double> sparse = {};  ///< theoretical, of A with at most two of every four values in a row
    std::optional<double> measured = {};  ///< operands in registers
    /// Measured on whole matrices in memory; and with an A that is 2:4 sparse, whose zeros count as if they
    /// were multiplied.
    std::optional<double> whole = {}, whole_sparse = {};
    std::string by = {};  ///< the instruction, and how many a cycle
};

/// Arithmetic of vectors, outside of matrix units.
struct VectorPeak {
    std::string format;
    std::optional<double> rate = {};  ///< theoretical
    std::optional<double> measured = {};
    std::string by = {};
};

struct FormatPeaks {
    std::string device;
    std::vector<MatrixPeak> matrix = {};
    std::vector<VectorPeak> vector = {};
    std::optional<double> memory = {};  ///< theoretical
    std::optional<double> memory_measured = {};
    std::optional<double> l2_measured = {};
    std::optional<double> l1_measured = {};
    std::vector<std::string> notes = {};  ///< assumptions, and peaks left out: a line each
};

}  // namespace mantissa
