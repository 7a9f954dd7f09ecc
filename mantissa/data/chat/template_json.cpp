// JSON read as Python does, into a template's values: ordered keys, the last of equal keys, long integers.
#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "mantissa/data/chat/template_value.h"

namespace mantissa::inline v0::jinja {

namespace {

class ValueReader : public nlohmann::json_sax<nlohmann::json> {
  public:
    ValueReader(Store& store, const std::string& source, ChatOrigin origin)
        : store_(store), source_(source), origin_(origin) {}

    Value result() const { return result_; }

    bool null() override {
        Value value = none_value();
        value.origin = origin_;
        return add(value);
    }
    bool boolean(bool value) override { return add(jinja::boolean(value, origin_)); }
    bool number_integer(std::int64_t value) override { return add(integer(value, origin_)); }
    bool number_unsigned(std::uint64_t value) override {
        if (value > INT64_MAX) return add(store_.long_integer(fmt::format("{}", value), origin_));
        return add(integer(static_cast<std::int64_t>(value), origin_));
    }
    bool number_float(double value, const std::string& digits) override {
        if (digits.find_first_of(".eE") == std::string::npos)
            return add(store_.long_integer(digits, origin_));
        return add(real(value, origin_));
    }
    bool string(std::string& value) override { return add(store_.text(value, origin_)); }
    bool binary(binary_t&) override { return false; }
    bool start_object(std::size_t) override { return open(true); }
    bool start_array(std::size_t) override { return open(false); }
    bool key(std::string& value) override {
        open_.back().key = store_.text(value, origin_);
        return true;
    }
    bool end_object() override {
        Open done = std::move(open_.back());
        open_.pop_back();
        return add(store_.dict(std::move(done.members), origin_));
    }
    bool end_array() override {
        Open done = std::move(open_.back());
        open_.pop_back();
        return add(store_.list(std::move(done.items), Form::list, origin_));
    }
    bool parse_error(std::size_t byte, const std::string&, const nlohmann::json::exception& error) override {
        const std::string what = error.what();
        const std::size_t reason = what.find(": ");
        throw UserError(fmt::format("{}: not JSON, at byte {}: {}", source_, byte,
                                    reason == std::string::npos ? what : what.substr(reason + 2)));
    }

  private:
    struct Open {
        bool is_object;
        Value key = {};
        std::vector<Value> items = {};
        std::vector<std::pair<Value, Value>> members = {};
    };

    bool open(bool is_object) {
        if (open_.size() == 128) throw UserError(fmt::format("{}: JSON nested more than 128 deep", source_));
        open_.push_back({.is_object = is_object});
        return true;
    }
    bool add(const Value& value) {
        if (open_.empty()) {
            result_ = value;
            return true;
        }
        Open& into = open_.back();
        if (!into.is_object) {
            into.items.push_back(value);
            return true;
        }
        for (auto& [key, old] : into.members)
            if (equal(key, into.key)) {
                old = value;
                return true;
            }
        into.members.emplace_back(into.key, value);
        return true;
    }

    Store& store_;
    const std::string& source_;
    ChatOrigin origin_;
    Value result_;
    std::vector<Open> open_;
};

}  // namespace

Value parse_json(Store& store, std::string_view text, const std::string& source, ChatOrigin origin) {
    if (text.starts_with("\xEF\xBB\xBF"))
        throw UserError(fmt::format("{}: begins with a byte order mark", source));
    ValueReader reader(store, source, origin);
    nlohmann::json::sax_parse(text, &reader);
    return reader.result();
}

}  // namespace mantissa::inline v0::jinja
