#include "mantissa/data/own_data.h"

#include <fmt/format.h>

#include <cmath>
#include <concepts>
#include <cstring>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/formats/npy.h"
#include "mantissa/numerics/scalar.h"

namespace mantissa::inline v0 {

namespace {

DType dtype_in(const NpyArray& array, const std::string& source) {
    if (array.kind == 'f' && array.item_size == 4) return DType::f32;
    if (array.kind == 'f' && array.item_size == 8) return DType::f64;
    if (array.kind == 'i' && array.item_size == 4) return DType::i32;
    if (array.kind == 'i' && array.item_size == 8) return DType::i64;
    if (array.kind == 'u' && array.item_size == 1) return DType::u8;
    throw UserError(
        fmt::format("{}: holds numbers of type {}{}; expected f4, f8, i4, i8 or u1: save it with another, as "
                    "x.astype(numpy.float32)",
                    source, array.kind, array.item_size));
}

/// Whether the value is in `converted`, rounded if that is floating.
template <class Number, class Stored>
bool convert(Stored value, Number& converted) {
    if constexpr (std::floating_point<Number>) {
        converted = static_cast<Number>(value);
        return std::isfinite(converted) || !std::isfinite(static_cast<double>(value));
    } else if constexpr (std::floating_point<Stored>) {
        if (!(value == std::trunc(value) && std::abs(value) < Stored{0x1p63})) return false;
        return convert(static_cast<std::int64_t>(value), converted);
    } else {
        converted = static_cast<Number>(value);
        return std::in_range<Number>(value);
    }
}

}  // namespace

NpyFile::NpyFile(const std::filesystem::path& file) : path_(file) {
    const MappedFile mapped(file);
    const NpyArray array = parse_npy(mapped.bytes(), file.string());
    dtype_ = dtype_in(array, file.string());
    if (array.fortran_order && array.shape.size() > 1)
        throw UserError(fmt::format(
            "{}: is in Fortran's order, the first axis innermost; save it as numpy.ascontiguousarray(x)",
            file.string()));
    shape_.assign(array.shape.begin(), array.shape.end());
    bytes_.assign(array.data.begin(), array.data.end());
}

nn::InputSpec NpyFile::input(std::string name) const {
    if (shape_.empty()) throw UserError(path_.string() + ": holds one number; expected an array of examples");
    return {std::move(name), dtype_, Shape(std::vector(shape_.begin() + 1, shape_.end()))};
}

template <class Number>
std::vector<Number> NpyFile::numbers() const {
    std::vector<Number> converted(bytes_.size() / size_of(dtype_));
    with_type(dtype_, [&](auto stored) {
        for (std::size_t i = 0; i < converted.size(); ++i) {
            std::memcpy(&stored, bytes_.data() + i * sizeof stored, sizeof stored);
            const auto value = +number(stored);
            if (!convert(value, converted[i]))
                throw UserError(fmt::format("{}: element {} is {}, which {} cannot hold", path_.string(), i,
                                            value, name_of(dtype_of<Number>())));
        }
    });
    return converted;
}

template std::vector<float> NpyFile::numbers() const;
template std::vector<double> NpyFile::numbers() const;
template std::vector<std::int32_t> NpyFile::numbers() const;
template std::vector<std::int64_t> NpyFile::numbers() const;
template std::vector<std::uint8_t> NpyFile::numbers() const;

}  // namespace mantissa
