#include "mantissa/formats/hf_token_ids.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/formats/strict_json.h"

namespace mantissa::inline v0 {

namespace {

using OrderedJson = nlohmann::ordered_json;

std::int64_t token_id(const nlohmann::json& value, const std::string& source, const char* name) {
    const std::uint64_t id = require_unsigned(value, source, name);
    if (id > static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max()))
        throw UserError(fmt::format("{}: {} is {}, which is no token", source, name, id));
    return static_cast<std::int64_t>(id);
}

/// Fills in ids that are still missing.
void read_token_ids(const std::filesystem::path& file, HfTokenIds& ids) {
    const std::string source = file.string();
    const nlohmann::json root = parse_strict_json(MappedFile(file).text(), source);
    if (!root.is_object()) return;
    const auto given = [&](const char* name) { return root.contains(name) && !root[name].is_null(); };
    if (!ids.begin && given("bos_token_id"))
        ids.begin = token_id(root["bos_token_id"], source, "bos_token_id");
    if (!ids.ends.empty() || !given("eos_token_id")) return;
    const nlohmann::json& end = root["eos_token_id"];
    if (!end.is_array()) ids.ends.push_back(token_id(end, source, "eos_token_id"));
    for (std::size_t i = 0; end.is_array() && i < end.size(); ++i)
        ids.ends.push_back(token_id(end[i], source, "eos_token_id"));
}

void put_token_ids(OrderedJson& object, const HfTokenIds& ids) {
    object["bos_token_id"] = ids.begin ? OrderedJson(*ids.begin) : OrderedJson();
    object["eos_token_id"] = ids.ends.empty()       ? OrderedJson()
                             : ids.ends.size() == 1 ? OrderedJson(ids.ends[0])
                                                    : OrderedJson(ids.ends);
}

}  // namespace

HfTokenIds read_hf_token_ids(const std::filesystem::path& folder) {
    HfTokenIds ids;
    const auto holds = [&](const char* name) { return std::filesystem::exists(folder / name); };
    if (holds("generation_config.json")) read_token_ids(folder / "generation_config.json", ids);
    if (holds("config.json") && !holds("state.json")) read_token_ids(folder / "config.json", ids);
    return ids;
}

std::string with_token_ids(const std::string& config, const HfTokenIds& ids) {
    OrderedJson root = OrderedJson::parse(config);
    put_token_ids(root, ids);
    return root.dump(2) + "\n";
}

std::string hf_generation_config(const HfTokenIds& ids) {
    OrderedJson root = OrderedJson::object();
    put_token_ids(root, ids);
    return root.dump(2) + "\n";
}

}  // namespace mantissa
