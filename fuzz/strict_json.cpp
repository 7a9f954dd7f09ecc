// Any bytes as JSON: refused with a UserError, or a document that says the same when written and read again.
#include "mantissa/formats/strict_json.h"

#include <cstdint>
#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    try {
        const nlohmann::json document = mantissa::parse_strict_json(text, "fuzz");
        const std::string written = document.dump();
        mantissa::check(mantissa::parse_strict_json(written, "again").dump() == written,
                        "JSON survives a round trip");
        mantissa::json_excerpt(document);
    } catch (const mantissa::UserError& error) {
        mantissa::check(std::string_view(error.what()).starts_with("fuzz: "),
                        "only the given text is refused");
    }
    return 0;
}
