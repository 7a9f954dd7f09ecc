// Operands, a plain FP64 reference and the comparison for the tests of the contraction.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "mantissa/base/buffer.h"
#include "mantissa/base/random.h"
#include "mantissa/base/thread_pool.h"
#include "mantissa/device/cpu/contraction/contraction.h"

namespace mantissa::on_cpu {

/// Whole numbers from -4 to 4: every product and sum is exact in FP32 and in FP64.
enum class Values { whole, normal };

/// BF16, round to nearest even, by arithmetic rather than by bits.
inline double rounded_to_bf16(double value) {
    if (value == 0 || !std::isfinite(value)) return value;
    const int exponent = std::ilogb(value);
    return std::ldexp(std::nearbyint(std::ldexp(value, 7 - exponent)), exponent - 7);
}

inline std::uint16_t bf16_bits(float exactly_bf16) {
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(exactly_bf16) >> 16);
}

inline float bf16_value(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

/// The first normal numbers of a stream, drawn once for all operands of it: that took most of the tests'
/// time.
inline std::span<const float> normals(std::uint32_t operation, std::size_t count) {
    static std::map<std::uint32_t, std::vector<float>> drawn;
    std::vector<float>& numbers = drawn[operation];
    const RandomStream random{.seed = 7, .operation = operation};
    while (numbers.size() < count) numbers.push_back(random.normal(numbers.size()));
    return std::span(numbers).first(count);
}

/// The matrices of one operand in memory. What lies between rows and matrices is NaN; the first element is
/// not aligned to a vector, the last is the last of its allocation, so that the address sanitizer sees
/// overreading.
class Operand {
  public:
    /// [rows, cols] per entry, as the operand is used; `gap` elements between stored rows.
    Operand(DType dtype, Transpose transpose, std::int64_t rows, std::int64_t cols,
            std::array<std::int64_t, 2> batch, std::int64_t gap)
        : rows_(rows), cols_(cols), batch_(batch) {
        const bool swapped = transpose == Transpose::yes;
        layout_.dtype = dtype;
        layout_.transpose = transpose;
        const std::int64_t stored_rows = swapped ? cols : rows, stored_cols = swapped ? rows : cols;
        layout_.leading = stored_cols + gap;
        layout_.batch_stride[1] = stored_rows * layout_.leading + gap;
        layout_.batch_stride[0] = batch[1] * layout_.batch_stride[1] + gap;
        const std::int64_t entries = batch[0] * batch[1];
        const std::int64_t count = entries * rows * cols == 0
                                       ? 0
                                       : (batch[0] - 1) * layout_.batch_stride[0] +
                                             (batch[1] - 1) * layout_.batch_stride[1] +
                                             (stored_rows - 1) * layout_.leading + stored_cols;
        values_.assign(static_cast<std::size_t>(count + 1), std::numeric_limits<float>::quiet_NaN());
        halves_.assign(dtype == DType::bf16 ? values_.size() : 0, 0x7fc0);
    }

    const MatrixLayout& layout() const { return layout_; }
    void* data() {
        return layout_.dtype == DType::bf16 ? static_cast<void*>(halves_.data() + 1) : values_.data() + 1;
    }

    double get(std::int64_t entry, std::int64_t row, std::int64_t col) const {
        const std::size_t at = index(entry, row, col);
        return layout_.dtype == DType::bf16 ? bf16_value(halves_[at]) : values_[at];
    }
    void set(std::int64_t entry, std::int64_t row, std::int64_t col, float value) {
        const std::size_t at = index(entry, row, col);
        if (layout_.dtype == DType::bf16)
            halves_[at] = bf16_bits(static_cast<float>(rounded_to_bf16(value)));
        else
            values_[at] = value;
    }

    void fill(Values values, std::uint32_t operation) {
        const RandomStream random{.seed = 7, .operation = operation};
        const auto count = static_cast<std::size_t>(batch_[0] * batch_[1] * rows_ * cols_);
        const auto drawn = normals(operation, values == Values::normal ? count : 0);
        std::size_t element = 0;
        for (std::int64_t entry = 0; entry < batch_[0] * batch_[1]; ++entry)
            for (std::int64_t row = 0; row < rows_; ++row)
                for (std::int64_t col = 0; col < cols_; ++col, ++element)
                    set(entry, row, col,
                        values == Values::whole ? static_cast<float>(random.bits(element) % 9) - 4
                                                : drawn[element]);
    }

    /// Elements that are NaN: all that was never written.
    std::int64_t unwritten() const {
        std::int64_t count = 0;
        if (layout_.dtype == DType::bf16)
            for (const std::uint16_t half : halves_) count += half == 0x7fc0;
        else
            for (const float value : values_) count += std::isnan(value);
        return count;
    }
    /// How many elements belong to no matrix.
    std::int64_t outside() const {
        return static_cast<std::int64_t>(values_.size()) - batch_[0] * batch_[1] * rows_ * cols_;
    }

  private:
    std::size_t index(std::int64_t entry, std::int64_t row, std::int64_t col) const {
        if (layout_.transpose == Transpose::yes) std::swap(row, col);
        return static_cast<std::size_t>(1 + entry / batch_[1] * layout_.batch_stride[0] +
                                        entry % batch_[1] * layout_.batch_stride[1] + row * layout_.leading +
                                        col);
    }

    std::int64_t rows_, cols_;
    std::array<std::int64_t, 2> batch_;
    MatrixLayout layout_;
    std::vector<float> values_;
    std::vector<std::uint16_t> halves_;
};

/// The sum over k of a * b in FP64, and of |a| |b| for the bound of the error.
struct ReferenceSum {
    double sum = 0;
    double magnitude = 0;
};

inline ReferenceSum reference_sum(const ContractionProblem& problem, const Operand& a, const Operand& b,
                                  std::int64_t entry, std::int64_t row, std::int64_t col) {
    ReferenceSum out;
    for (std::int64_t k = 0; k < problem.k; ++k) {
        const double term = a.get(entry, row, k) * b.get(entry, k, col);
        out.sum += term;
        out.magnitude += std::abs(term);
    }
    return out;
}

/// Sums as a custom epilogue that only copies them gives them, and its arguments.
struct CopiedSums {
    float* out;
    std::int64_t n;
};

inline void copy_sums(float* sums, std::int64_t ld, std::int64_t row0, std::int64_t col0, std::int64_t rows,
                      std::int64_t cols, const void* args) {
    const auto& to = *static_cast<const CopiedSums*>(args);
    for (std::int64_t i = 0; i < rows; ++i)
        std::copy_n(sums + i * ld, cols, to.out + (row0 + i) * to.n + col0);
}

/// contract() with a workspace of exactly the size asked for, filled with NaN.
inline void contract_in_new_workspace(const PreparedContraction& prepared,
                                      const ContractionArguments& arguments, ThreadPool& pool) {
    const std::size_t bytes = prepared.workspace_bytes(pool.threads());
    Buffer workspace(bytes + 64);
    for (float& value : workspace.as<float>()) value = std::numeric_limits<float>::quiet_NaN();
    contract(prepared, arguments, workspace.as<std::byte>().subspan(0, bytes), pool);
}

/// The same, prepared for the call; `how` is an Isa or the kernels.
template <class How>
void contract_in_new_workspace(const ContractionProblem& problem, const ContractionArguments& arguments,
                               ThreadPool& pool, const How& how) {
    contract_in_new_workspace(prepare_contraction(problem, how), arguments, pool);
}

}  // namespace mantissa::on_cpu
