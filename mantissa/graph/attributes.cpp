#include "mantissa/graph/attributes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/graph/graph.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0 {

namespace {

/// Whether two NaNs could have one text, so that numbers do not tell the bytes.
bool is_told_by_numbers(DType dtype, std::span<const std::byte> bytes) {
    constexpr std::size_t most = 16;
    const std::size_t count = bytes.size() / size_of(dtype);
    if (count > most) return false;
    if (!is_floating(dtype)) return true;
    for (std::size_t i = 0; i < count; ++i)
        if (std::isnan(load_as_f64(bytes.data(), dtype, static_cast<std::int64_t>(i)))) return false;
    return true;
}

std::string text_of(DType dtype, std::span<const std::byte> bytes) {
    if (!is_told_by_numbers(dtype, bytes))
        return fmt::format("[{}, {} bytes, {}]", name_of(dtype), bytes.size(), long_checksum_text(bytes));
    std::vector<std::string> numbers;
    for (std::size_t at = 0; at < bytes.size(); at += size_of(dtype)) {
        const double number = load_as_f64(bytes.data() + at, dtype, 0);
        // A number has the fewest digits that tell it from others of its type. A long integer has all of
        // them.
        if (dtype == DType::i64) {
            std::int64_t whole = 0;
            std::memcpy(&whole, bytes.data() + at, sizeof whole);
            numbers.push_back(fmt::format("{}", whole));
        } else if (is_floating(dtype) && dtype != DType::f64) {
            numbers.push_back(fmt::format("{}", static_cast<float>(number)));
        } else {
            numbers.push_back(fmt::format("{}", number));
        }
    }
    return fmt::format("[{}]", fmt::join(numbers, ", "));
}

/// Throws UserError if the type, which is not floating, has no such number.
void require_whole(DType dtype, double number) {
    const int bits = dtype == DType::boolean ? 1 : static_cast<int>(8 * size_of(dtype));
    const bool is_signed = dtype == DType::i64 || dtype == DType::i32 || dtype == DType::s8;
    const double beyond = std::ldexp(1.0, is_signed ? bits - 1 : bits);
    if (!(std::trunc(number) == number && number < beyond && number >= (is_signed ? -beyond : 0)))
        throw UserError(fmt::format("{} has no number {}", name_of(dtype), number));
}

void store(std::byte* to, DType dtype, double number) {
    if (is_floating(dtype)) return store_from_f64(to, dtype, 0, number);
    require_whole(dtype, number);
    const auto whole = static_cast<std::int64_t>(number);
    std::memcpy(to, &whole, size_of(dtype));  // little-endian: the low bytes come first
}

std::vector<std::byte> stored(DType dtype, std::span<const double> numbers) {
    std::vector<std::byte> bytes(numbers.size() * size_of(dtype));
    for (std::size_t i = 0; i < numbers.size(); ++i)
        store(bytes.data() + i * size_of(dtype), dtype, numbers[i]);
    return bytes;
}

}  // namespace

SharedData::SharedData(DType dtype, std::vector<std::byte> bytes) {
    if (bytes.size() % size_of(dtype) != 0)
        throw UserError(fmt::format("{} bytes are no whole number of {}", bytes.size(), name_of(dtype)));
    const auto is_bool = [](std::byte byte) { return byte <= std::byte{1}; };
    if (dtype == DType::boolean && !std::ranges::all_of(bytes, is_bool))
        throw UserError("a bool is stored as 0 or 1, and another byte is among those given");
    std::string text = text_of(dtype, bytes);
    content_ = std::make_shared<const Content>(Content{dtype, std::move(bytes), std::move(text)});
}

SharedData::SharedData(DType dtype, std::span<const double> numbers)
    : SharedData(dtype, stored(dtype, numbers)) {}

double SharedData::number(std::int64_t index) const {
    check(index >= 0 && index < elements(), "a constant has an element of this index");
    return load_as_f64(bytes().data(), dtype(), index);
}

bool operator==(const SharedData& a, const SharedData& b) {
    return a.content_ == b.content_ || (a.dtype() == b.dtype() && std::ranges::equal(a.bytes(), b.bytes()));
}

Body::Body(Graph graph) : graph_(std::make_shared<const Graph>(std::move(graph))), text_(print(*graph_)) {}

template <class T>
const T& Attributes::get(const std::string& name) const {
    const auto entry = entries_.find(name);
    if (entry == entries_.end() || !std::holds_alternative<T>(entry->second))
        throw InternalError(fmt::format("attribute '{}' is missing or of another kind in {}", name, text()));
    return std::get<T>(entry->second);
}

bool Attributes::flag(const std::string& name) const { return get<bool>(name); }
std::int64_t Attributes::integer(const std::string& name) const { return get<std::int64_t>(name); }
double Attributes::number(const std::string& name) const { return get<double>(name); }
const std::vector<std::int64_t>& Attributes::list(const std::string& name) const {
    return get<std::vector<std::int64_t>>(name);
}
const SharedData& Attributes::data(const std::string& name) const { return get<SharedData>(name); }
DType Attributes::dtype(const std::string& name) const { return get<DType>(name); }
const std::string& Attributes::word(const std::string& name) const { return get<std::string>(name); }
const Body& Attributes::body(const std::string& name) const { return get<Body>(name); }

namespace {
struct PrintValue {
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(std::int64_t value) const { return fmt::format("{}", value); }
    /// The number with enough digits to tell it from every other number.
    std::string operator()(double value) const { return fmt::format("{}", value); }
    std::string operator()(const std::vector<std::int64_t>& value) const {
        return fmt::format("[{}]", fmt::join(value, ", "));
    }
    std::string operator()(const SharedData& value) const { return value.text(); }
    std::string operator()(DType value) const { return std::string(name_of(value)); }
    std::string operator()(const std::string& value) const { return value; }
    std::string operator()(const Body& value) const { return "{\n" + value.text() + "}"; }
};
}  // namespace

std::string Attributes::text() const {
    if (entries_.empty()) return "";
    std::vector<std::string> parts;
    for (const auto& [name, value] : entries_)
        parts.push_back(fmt::format("{}={}", name, std::visit(PrintValue{}, value)));
    return fmt::format("{{{}}}", fmt::join(parts, ", "));
}

}  // namespace mantissa
