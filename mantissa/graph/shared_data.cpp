#include "mantissa/graph/shared_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "mantissa/base/error.h"
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

/// 128 bits: two sums of all words, each mixed as MurmurHash3 does. Appleby 2011.
std::array<std::uint64_t, 2> hash_of(std::span<const std::byte> bytes) {
    std::array<std::uint64_t, 2> sums = {0x9e3779b97f4a7c15u, 0xc2b2ae3d27d4eb4fu};
    constexpr std::array<std::uint64_t, 2> factors = {0x87c37b91114253d5u, 0x4cf5ad432745937fu};
    const auto mixed = [](std::uint64_t x) {
        x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
        x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53u;
        return x ^ (x >> 33);
    };
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
        for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = mixed(sums[i] ^ (word * factors[i] + i));
    }
    for (std::uint64_t& sum : sums) sum = mixed(sum ^ bytes.size());
    return sums;
}

std::string text_of(DType dtype, std::span<const std::byte> bytes) {
    if (!is_told_by_numbers(dtype, bytes)) {
        const std::array<std::uint64_t, 2> hash = hash_of(bytes);
        return fmt::format("[{}, {} bytes, {:016x}{:016x}]", name_of(dtype), bytes.size(), hash[0], hash[1]);
    }
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

}  // namespace mantissa
