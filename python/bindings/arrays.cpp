// Arrays of Python as a batch.
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "mantissa/numerics/formats.h"
#include "python/bindings/bindings.h"

namespace mantissa::python {

namespace {

using Array = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

std::string shape_of(const Array& array) {
    std::string text = "[";
    for (std::size_t i = 0; i < array.ndim(); ++i) text += (i ? ", " : "") + std::to_string(array.shape(i));
    return text + "]";
}

Shape shape_in(const Array& array) {
    std::vector<std::int64_t> extents;
    for (std::size_t i = 0; i < array.ndim(); ++i)
        extents.push_back(static_cast<std::int64_t>(array.shape(i)));
    return Shape(std::move(extents));
}

/// The array's axes, behind that of the batch if there is one, must be the input's, or as many as these.
void require_shape(const nn::InputSpec& input, const Array& array, bool may_vary) {
    const std::vector<std::int64_t>& extents = input.shape.extents();
    const std::size_t before = input.batch_axis == nn::BatchAxis::leading ? 1 : 0;
    bool fits = array.ndim() == extents.size() + before;
    for (std::size_t i = 0; fits && !may_vary && i < extents.size(); ++i)
        fits = static_cast<std::int64_t>(array.shape(i + before)) == extents[i];
    if (fits && before == 1 && array.shape(0) == 0)
        throw UserError("input '" + input.name + "' has no examples: give one or more");
    if (fits) return;
    const std::string takes =
        before == 1 ? "[n, ...] with " + input.shape.text() + " of each example" : input.shape.text();
    throw UserError("input '" + input.name + "' takes " + takes + ", got " + shape_of(array));
}

/// As numpy writes it.
std::string dtype_of(const Array& array) {
    const auto code = static_cast<nb::dlpack::dtype_code>(array.dtype().code);
    const char* const kind = code == nb::dlpack::dtype_code::Int       ? "int"
                             : code == nb::dlpack::dtype_code::UInt    ? "uint"
                             : code == nb::dlpack::dtype_code::Float   ? "float"
                             : code == nb::dlpack::dtype_code::Bfloat  ? "bfloat"
                             : code == nb::dlpack::dtype_code::Complex ? "complex"
                             : code == nb::dlpack::dtype_code::Bool    ? "bool"
                                                                       : "another type of ";
    return code == nb::dlpack::dtype_code::Bool ? kind : kind + std::to_string(array.dtype().bits);
}

/// The types of arrays that the input takes.
const char* dtypes_for(const nn::InputSpec& input) {
    if (input.dtype == DType::f32) return "float32, float64, float16 or bfloat16";
    return input.dtype == DType::i32 ? "int32 or int64" : "uint8";
}

template <class From, class Function>
std::vector<std::byte> converted(const Array& array, Function to) {
    const auto* const from = static_cast<const From*>(array.data());
    using To = decltype(to(*from));
    std::vector<std::byte> bytes(array.size() * sizeof(To));
    std::transform(from, from + array.size(), reinterpret_cast<To*>(bytes.data()), to);
    return bytes;
}

/// An id beyond 32 bits would become another one.
std::vector<std::byte> shortened(const Array& array, const nn::InputSpec& input) {
    const auto* const from = static_cast<const std::int64_t*>(array.data());
    const auto is_lost = [](std::int64_t id) { return id != static_cast<std::int32_t>(id); };
    std::int64_t lost = 0;  // counted without a branch, which is quicker
    for (std::size_t i = 0; i < array.size(); ++i) lost += is_lost(from[i]) ? 1 : 0;
    if (lost == 0)
        return converted<std::int64_t>(array, [](std::int64_t id) { return static_cast<std::int32_t>(id); });
    const auto i = std::find_if(from, from + array.size(), is_lost) - from;
    throw UserError("input '" + input.name + "' is i32, and element " + std::to_string(i) + " is " +
                    std::to_string(from[i]));
}

}  // namespace

Arrays::Arrays(const nn::Model& model, const nb::tuple& arrays, std::size_t count) {
    if (arrays.size() != count)
        throw UserError("model " + model.name + " takes " + std::to_string(count) + " arrays here, got " +
                        std::to_string(arrays.size()));
    std::vector<HostValues> values;
    for (std::size_t i = 0; i < count; ++i) {
        const nn::InputSpec& input = model.inputs[i];
        Array array;
        if (!nb::try_cast(nb::object(arrays[i]), array))
            throw UserError(
                "input '" + input.name + "' takes an array in the CPU's memory, in its byte order, got " +
                nb::type_name(nb::object(arrays[i]).type()).c_str() + "; numpy.asarray makes one of a list");
        require_shape(input, array, model.shapes_vary);
        const bool is_f32 = array.dtype() == nb::dtype<float>(),
                   is_i32 = array.dtype() == nb::dtype<std::int32_t>();
        const bool is_u8 = array.dtype() == nb::dtype<std::uint8_t>();
        if ((input.dtype == DType::f32 && is_f32) || (input.dtype == DType::i32 && is_i32) ||
            (input.dtype == DType::u8 && is_u8)) {
            values.emplace_back(input.dtype,
                                std::span(static_cast<const std::byte*>(array.data()), array.nbytes()),
                                shape_in(array));
            kept_.push_back(nb::cast(array));
            continue;
        }
        const std::string given = dtype_of(array);
        if (input.dtype == DType::f32 && given == "float64")
            copied_.push_back(converted<double>(array, [](double x) { return static_cast<float>(x); }));
        else if (input.dtype == DType::f32 && given == "float16")
            copied_.push_back(converted<FP16>(array, [](FP16 x) { return to_f32(x); }));
        else if (input.dtype == DType::f32 && given == "bfloat16")
            copied_.push_back(converted<BF16>(array, [](BF16 x) { return to_f32(x); }));
        else if (input.dtype == DType::i32 && array.dtype() == nb::dtype<std::int64_t>())
            copied_.push_back(shortened(array, input));
        else
            throw UserError("input '" + input.name + "' takes " + dtypes_for(input) +
                            ", and the array is of " + given + "; convert it first");
        values.emplace_back(input.dtype, std::span<const std::byte>(copied_.back()), shape_in(array));
    }
    batch_ = Batch(std::move(values));
}

}  // namespace mantissa::python
