#include "mantissa/formats/strict_json.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <charconv>
#include <span>
#include <vector>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

namespace {

using Json = nlohmann::json;

/// Builds the document from the parser's events; an event that the format forbids ends the parse.
class StrictBuilder : public nlohmann::json_sax<Json> {
  public:
    StrictBuilder(const std::string& source, const JsonLimits& limits) : source_(source), limits_(limits) {}

    Json take() { return std::move(root_); }

    bool null() override { return place(nullptr); }
    bool boolean(bool value) override { return place(value); }
    bool number_integer(number_integer_t value) override { return place(value); }
    bool number_unsigned(number_unsigned_t value) override { return place(value); }
    bool number_float(number_float_t value, const string_t& digits) override {
        if (!limits_.rounds_integers && digits.find_first_of(".eE") == string_t::npos)
            refuse(fmt::format("the integer {} does not fit in 64 bits", digits.substr(0, 40)));
        return place(value);
    }
    bool string(string_t& value) override { return place(std::move(value)); }
    bool binary(binary_t&) override { refuse("binary value in JSON text"); }

    bool start_object(std::size_t) override { return open(Json::object()); }
    bool start_array(std::size_t) override { return open(Json::array()); }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }
    bool key(string_t& name) override {
        auto [member, fresh] = open_.back()->emplace(name, nullptr);
        if (!fresh) refuse(fmt::format("the key {} appears twice in one object", json_excerpt(Json(name))));
        member_ = &*member;
        return true;
    }
    bool parse_error(std::size_t position, const std::string&, const Json::exception& error) override {
        // The library's text begins with its own error code in brackets, useless to a reader.
        std::string_view text = error.what();
        if (const auto end = text.find("] "); end != text.npos) text.remove_prefix(end + 2);
        refuse(fmt::format("not valid JSON at byte {}: {}", position, text));
    }

  private:
    [[noreturn]] void refuse(const std::string& reason) const { throw UserError(source_ + ": " + reason); }

    Json* put(Json&& value) {
        if (open_.empty()) return &(root_ = std::move(value));
        if (open_.back()->is_array()) return &open_.back()->emplace_back(std::move(value));
        return &(*member_ = std::move(value));
    }
    bool place(Json&& value) {
        put(std::move(value));
        return true;
    }
    bool open(Json&& value) {
        if (open_.size() == limits_.depth)
            refuse(fmt::format("JSON nested deeper than {} levels", limits_.depth));
        open_.push_back(put(std::move(value)));
        return true;
    }
    bool close() {
        open_.pop_back();
        return true;
    }

    const std::string& source_;
    const JsonLimits& limits_;
    Json root_;
    Json* member_ = nullptr;  // place of the next value, after its key
    // Parents do not move while a child is open: an array grows only when its last element is complete.
    std::vector<Json*> open_;
};

}  // namespace

nlohmann::json parse_strict_json(std::string_view text, const std::string& source, const JsonLimits& limits) {
    if (text.size() > limits.bytes)
        throw UserError(fmt::format("{}: JSON text of {} bytes, more than the limit of {}", source,
                                    text.size(), limits.bytes));
    if (text.starts_with("\xEF\xBB\xBF"))
        throw UserError(source + ": begins with a byte order mark, which JSON does not allow; remove it");
    if (const auto nul = text.find('\0'); nul != text.npos)
        throw UserError(fmt::format("{}: not valid JSON at byte {}: a NUL byte", source, nul));
    StrictBuilder builder(source, limits);
    Json::sax_parse(text.begin(), text.end(), &builder);
    return builder.take();
}

std::uint64_t require_unsigned(const nlohmann::json& value, const std::string& source,
                               std::string_view what) {
    if (!value.is_number_unsigned())
        throw UserError(
            fmt::format("{}: {}: expected an unsigned integer, found {}", source, what, json_excerpt(value)));
    return value.get<std::uint64_t>();
}

const std::string& require_string(const nlohmann::json& value, const std::string& source,
                                  std::string_view what) {
    if (!value.is_string())
        throw UserError(
            fmt::format("{}: {}: expected a string, found {}", source, what, json_excerpt(value)));
    return value.get_ref<const std::string&>();
}

const nlohmann::json& require_member(const nlohmann::json& object, std::string_view key,
                                     const std::string& source, std::string_view what) {
    if (!object.is_object())
        throw UserError(
            fmt::format("{}: {}: expected an object, found {}", source, what, json_excerpt(object)));
    const auto member = object.find(key);
    if (member == object.end()) throw UserError(fmt::format("{}: {}: \"{}\" is missing", source, what, key));
    return *member;
}

std::string json_excerpt(const nlohmann::json& value) {
    if (value.is_structured()) return value.is_object() ? "an object" : "an array";
    std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
    if (text.size() > 60) text = text.substr(0, 57) + "...";
    return text;
}

namespace {

using Json = nlohmann::json;

constexpr std::string_view line_begin = "{\"xxh3\": \"", line_end = "\",\n";
constexpr std::size_t line_size = line_begin.size() + 16 + line_end.size();

std::string first_line(std::string_view rest) {
    return fmt::format("{}{}{}", line_begin, checksum_text(checksum_of(std::as_bytes(std::span(rest)))),
                       line_end);
}

}  // namespace

std::string sealed_json_text(const Json& object) {
    const std::string rest =
        object.dump(1).substr(1) + "\n";  // without the brace, which is on the first line
    return first_line(rest) + rest;
}

Json parse_sealed_json(std::string_view text, const std::string& source, std::string_view format,
                       std::uint64_t version) {
    const std::string_view rest = text.substr(std::min(line_size, text.size()));
    if (text.size() < line_size || text.substr(0, line_size) != first_line(rest))
        throw UserError(source + ": differs from the checksum in its first line");
    Json json = parse_strict_json(text, source);
    if (require_member(json, "format", source, "manifest") != format)
        throw UserError(fmt::format("{}: expected the format \"{}\"", source, format));
    const std::uint64_t found =
        require_unsigned(require_member(json, "version", source, "manifest"), source, "version");
    if (found != version)
        throw UserError(
            fmt::format("{}: {} version {}, this program reads {}", source, format, found, version));
    return json;
}

std::uint64_t require_checksum(const Json& value, const std::string& source, const std::string& what) {
    const std::string& text = require_string(value, source, what);
    std::uint64_t checksum = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), checksum, 16);
    if (error != std::errc{} || end != text.data() + text.size())
        throw UserError(
            fmt::format("{}: {}: expected a checksum, found {}", source, what, json_excerpt(value)));
    return checksum;
}

}  // namespace mantissa
