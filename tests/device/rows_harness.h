// Shared by tests of row kernels: memory between unreadable pages, runs at every level, thread count and kind
// of store, whose bits must be equal, and comparison with an oracle that is shown to notice an injected
// error.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "mantissa/device/cpu/rows/rows.h"
#include "tests/support/compare.h"

namespace mantissa::on_cpu {

/// Where an array lies between its guard pages: a read or write one byte beyond that end faults.
enum class Placement { starts_at_guard, ends_at_guard };

/// One way to run a kernel.
struct Setting {
    const RowKernels& kernels;
    ThreadPool& pool;
    Placement placement;
    Stores stores;

    std::string text() const;
};

/// An array in memory of its own between two unreadable pages, filled with NaN (all bits set).
class Guarded {
  public:
    Guarded(const Setting& setting, DType type, std::int64_t count);
    ~Guarded();
    Guarded(const Guarded&) = delete;
    Guarded& operator=(const Guarded&) = delete;

    /// Rounds the values to the type.
    void assign(std::span<const double> values);
    void assign(std::span<const std::int32_t> values);
    std::vector<double> values() const;
    std::vector<std::byte> bytes() const;

    ConstView in() const { return {data_, type_}; }
    View out() const { return {data_, type_}; }
    template <class T>
    T* as() const {
        return reinterpret_cast<T*>(data_);
    }
    float* f32() const { return as<float>(); }
    DType type() const { return type_; }
    std::int64_t count() const { return count_; }

  private:
    DType type_;
    std::int64_t count_;
    std::byte* mapping_;
    std::int64_t mapped_;
    std::byte* data_;
};

/// The levels that this CPU can run; generic is the first.
std::vector<const RowKernels*> levels();

/// Calls `run` at every level, with 1, 2 and 3 threads, both placements, plain and streaming stores. What it
/// returns (the bytes of all outputs) must be the same each time.
void check_everywhere(const std::function<std::vector<std::byte>(const Setting&)>& run);

/// Compares, and compares again with the greatest element off by 1 part in 1,000 (or 2 ULP of a 16-bit
/// format), which must fail: a tolerance that lets this through is worth nothing.
void expect_matches(const Guarded& got, std::span<const double> expected, const Tolerance& tolerance);

/// Normal values with standard deviation `scale`, rounded to the type.
std::vector<double> normal_values(std::int64_t count, DType type, double scale, std::uint32_t operation);

/// Joins the bytes of outputs.
std::vector<std::byte> joined(std::initializer_list<const Guarded*> outputs);

/// The unit roundoff of FP32, in which all kernels compute.
inline constexpr double eps32 = 0x1p-24;

}  // namespace mantissa::on_cpu
