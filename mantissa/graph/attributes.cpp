#include "mantissa/graph/attributes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mantissa/base/error.h"
#include "mantissa/graph/graph.h"
#include "mantissa/graph/printer.h"

namespace mantissa::inline v0 {

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
