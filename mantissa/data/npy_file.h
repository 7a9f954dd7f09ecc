// The numbers of a file that numpy.save() wrote, as values of a network's input.
//
//   const NpyFile x("x.npy");  // x.shape() {800, 4}
//   const Examples rows(model, {x.numbers<float>(), y.numbers<std::int32_t>()}, ...);
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "mantissa/data/batch.h"
#include "mantissa/numerics/dtype.h"

namespace mantissa::inline v0 {

class NpyFile {
  public:
    /// Reads the whole file: f32, f64, i32, i64 or u8, in C order, of format 1.0 to 3.0. Throws UserError,
    /// naming the file, for anything else.
    explicit NpyFile(const std::filesystem::path& file);

    DType dtype() const { return dtype_; }
    const std::vector<std::int64_t>& shape() const { return shape_; }
    /// The numbers as they are, for an input of their type.
    operator HostValues() const { return {dtype_, bytes_}; }  // NOLINT: implicit, as HostValues of a vector

    /// The numbers in another type: float, double, std::int32_t, std::int64_t or std::uint8_t. Floating ones
    /// are rounded; throws UserError, naming the element, where whole ones cannot be had.
    template <class Number>
    std::vector<Number> numbers() const;

  private:
    std::filesystem::path path_;
    DType dtype_ = DType::f32;
    std::vector<std::int64_t> shape_;
    std::vector<std::byte> bytes_;
};

}  // namespace mantissa
