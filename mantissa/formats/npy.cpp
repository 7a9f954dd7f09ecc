#include "mantissa/formats/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

namespace {

using namespace std::string_view_literals;

constexpr std::size_t max_header = 10'000;  // the limit of NumPy's own readers

[[noreturn]] void refuse_array(const std::string& source, const std::string& reason) {
    throw UserError(source + ": " + reason);
}

/// Reads the header's text, one Python dictionary with the keys 'descr', 'fortran_order' and 'shape'.
class HeaderParser {
  public:
    HeaderParser(std::string_view text, const std::string& source) : text_(text), source_(source) {}

    NpyArray parse() {
        expect('{');
        for (skip_spaces(); peek() != '}'; skip_spaces()) {
            read_member();
            skip_spaces();
            if (peek() != '}') expect(',');
        }
        expect('}');
        skip_spaces();
        if (at_ != text_.size()) fail("text after the dictionary");
        for (std::size_t i = 0; i < keys.size(); ++i)
            if (!seen_[i]) fail(fmt::format("'{}' is missing", keys[i]));
        return array_;
    }

  private:
    static constexpr std::array keys = {"descr"sv, "fortran_order"sv, "shape"sv};

    [[noreturn]] void fail(const std::string& reason) const {
        refuse_array(source_, fmt::format(".npy header, character {}: {}", at_, reason));
    }
    char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
    void skip_spaces() {
        while (peek() == ' ' || peek() == '\n') ++at_;
    }
    void expect(char c) {
        skip_spaces();
        if (at_ == text_.size() || peek() != c) fail(fmt::format("expected '{}'", c));
        ++at_;
    }
    bool accept(std::string_view word) {
        if (!text_.substr(at_).starts_with(word)) return false;
        at_ += word.size();
        return true;
    }

    std::string_view read_string() {
        skip_spaces();
        const char quote = peek();
        if (quote != '\'' && quote != '"')
            fail("expected a string; only plain arrays of numbers can be read");
        const std::size_t end = text_.find(quote, at_ + 1);
        const std::string_view value = text_.substr(at_ + 1, end == text_.npos ? end : end - at_ - 1);
        if (end == text_.npos || value.find('\\') != value.npos) fail("expected a plain string");
        at_ = end + 1;
        return value;
    }

    void read_member() {
        const std::string_view key = read_string();
        const auto index = static_cast<std::size_t>(std::find(keys.begin(), keys.end(), key) - keys.begin());
        if (index == keys.size()) fail("unknown key");
        if (seen_[index]) fail(fmt::format("'{}' appears twice", key));
        seen_[index] = true;
        expect(':');
        skip_spaces();
        if (key == "descr")
            read_descr();
        else if (key == "shape")
            read_shape();
        else if (accept("True"))
            array_.fortran_order = true;
        else if (!accept("False"))
            fail("'fortran_order': expected True or False");
    }

    void read_descr() {
        const std::string_view descr = read_string();
        const std::string_view number = descr.substr(std::min<std::size_t>(descr.size(), 2));
        const auto [end, error] =
            std::from_chars(number.data(), number.data() + number.size(), array_.item_size);
        if (number.empty() || error != std::errc{} || end != number.data() + number.size() ||
            "biufc"sv.find(descr[1]) == std::string_view::npos || array_.item_size == 0 ||
            array_.item_size > 32)
            fail("'descr': expected a number type like '<u2'");
        if (descr[0] != '<' && !(descr[0] == '|' && array_.item_size == 1))
            fail("'descr': expected little-endian numbers ('<')");
        array_.kind = descr[1];
    }

    void read_shape() {
        expect('(');
        bool comma = false;
        for (skip_spaces(); peek() != ')'; skip_spaces()) {
            if (!array_.shape.empty() && !comma) fail("'shape': expected ','");
            std::uint64_t size = 0;
            const char* last = text_.data() + text_.size();
            const auto [end, error] = std::from_chars(text_.data() + at_, last, size);
            if (error != std::errc{}) fail("'shape': expected unsigned integers");
            at_ = static_cast<std::size_t>(end - text_.data());
            array_.shape.push_back(size);
            skip_spaces();
            comma = accept(",");
        }
        if (array_.shape.size() == 1 && !comma) fail("'shape': expected a tuple, (N,)");
        expect(')');
    }

    std::string_view text_;
    const std::string& source_;
    std::size_t at_ = 0;
    std::array<bool, 3> seen_{};
    NpyArray array_;
};

}  // namespace

bool is_npy(std::span<const std::byte> file) {
    return std::string_view(reinterpret_cast<const char*>(file.data()), file.size()).starts_with("\x93NUMPY");
}

NpyArray parse_npy(std::span<const std::byte> file, const std::string& source) {
    const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
    if (!is_npy(file)) refuse_array(source, "not a .npy file: does not begin with \\x93NUMPY");
    if (text.size() < 12) refuse_array(source, ".npy header cut short");
    const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(file[i]); };
    if (byte(6) < 1 || byte(6) > 3 || byte(7) != 0)
        refuse_array(
            source, fmt::format(".npy format version {}.{}; 1.0, 2.0 and 3.0 can be read", byte(6), byte(7)));
    const std::size_t begin = byte(6) == 1 ? 10 : 12;
    std::size_t length = byte(8) | byte(9) << 8;
    if (begin == 12) length |= byte(10) << 16 | byte(11) << 24;
    if (length > max_header)
        refuse_array(source, fmt::format(".npy header of {} bytes, the limit is {}", length, max_header));
    if (length > text.size() - begin) refuse_array(source, ".npy header cut short");
    NpyArray array = HeaderParser(text.substr(begin, length), source).parse();
    array.count = 1;
    std::uint64_t bytes = 0;
    bool fits = true;
    for (const std::uint64_t size : array.shape)
        fits = fits && !__builtin_mul_overflow(array.count, size, &array.count);
    fits = fits && !__builtin_mul_overflow(array.count, array.item_size, &bytes);
    array.data = file.subspan(begin + length);
    if (!fits || bytes != array.data.size())
        refuse_array(
            source,
            fmt::format("shape ({}) of {}-byte elements needs {} bytes, the file has {} after its header",
                        fmt::join(array.shape, ", "), array.item_size,
                        fits ? std::to_string(bytes) : "more than 2^64", array.data.size()));
    return array;
}

}  // namespace mantissa
