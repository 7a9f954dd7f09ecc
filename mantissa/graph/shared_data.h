// The elements of a constant tensor: bytes that graphs share and nobody changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mantissa/numerics/dtype.h"

namespace mantissa::inline v0 {

/// Elements as they are stored, in row-major order. Copies share one memory, so that graphs and passes hand
/// it on at no cost, however large it is.
class SharedData {
  public:
    /// Throws UserError if the bytes are no whole number of elements, or a bool is neither 0 nor 1.
    SharedData(DType dtype, std::vector<std::byte> bytes);
    /// Rounds each number once to a floating type. Throws UserError if another type cannot hold a number.
    SharedData(DType dtype, std::span<const double> numbers);

    DType dtype() const { return content_->dtype; }
    std::span<const std::byte> bytes() const { return content_->bytes; }
    std::int64_t elements() const {
        return static_cast<std::int64_t>(bytes().size() / size_of(content_->dtype));
    }
    /// An element. I64 beyond 2^53 is rounded.
    double number(std::int64_t index) const;
    /// The numbers of a small tensor, as in "[1, 2.5]". Else their type, their bytes and 128 bits that follow
    /// from them, as in "[f32, 4096 bytes, 1c0f...]".
    const std::string& text() const { return content_->text; }

    friend bool operator==(const SharedData& a, const SharedData& b);

  private:
    struct Content {
        DType dtype;
        std::vector<std::byte> bytes;
        std::string text;
    };
    std::shared_ptr<const Content> content_;
};

}  // namespace mantissa
