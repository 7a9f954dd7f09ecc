#include "mantissa/formats/strict_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "tests/support/error_of.h"

namespace mantissa {
namespace {

std::string syntax_error(const std::string& text, const JsonLimits& limits = {}) {
    return testing::error_of([&] { parse_strict_json(text, "model.json", limits); });
}

TEST(StrictJson, ParsesWhatTheLibraryParses) {
    const std::string text =
        R"({"a":[1,-2,3.5,true,false,null,"x\u00e9",[[]],{}],"b":{"c":{"d":18446744073709551615}},"e":-0.0})";
    EXPECT_EQ(parse_strict_json(text, "model.json"), nlohmann::json::parse(text));
    EXPECT_EQ(parse_strict_json(" 7 ", "model.json"), nlohmann::json(7));
    // The same key in different objects is no duplicate.
    EXPECT_EQ(syntax_error(R"({"a":{"a":{"a":1}},"b":[{"a":1},{"a":2}]})"), "no error");
}

TEST(StrictJson, RefusesWithFileAndReason) {
    EXPECT_EQ(syntax_error(R"({"w":1,"w":2})"), R"(model.json: the key "w" appears twice in one object)");
    EXPECT_EQ(syntax_error(R"([{"a":{"w":[1],"v":0,"w":[1]}}])"),
              R"(model.json: the key "w" appears twice in one object)");
    // The same key, spelled with an escape.
    EXPECT_EQ(syntax_error(R"({"w":1,"\u0077":2})"),
              R"(model.json: the key "w" appears twice in one object)");
    EXPECT_EQ(syntax_error("[18446744073709551616]"),
              "model.json: the integer 18446744073709551616 does not fit in 64 bits");
    EXPECT_EQ(parse_strict_json("[1000000000000000019884624838656]", "x", {.rounds_integers = true})[0],
              1e30);
    EXPECT_EQ(syntax_error("[-9223372036854775809]"),
              "model.json: the integer -9223372036854775809 does not fit in 64 bits");
    EXPECT_EQ(syntax_error(std::string("{}\0x", 4)), "model.json: not valid JSON at byte 2: a NUL byte");
    EXPECT_EQ(syntax_error("\xEF\xBB\xBF{}"),
              "model.json: begins with a byte order mark, which JSON does not allow; remove it");
    EXPECT_EQ(syntax_error("{}  ", {.bytes = 3}),
              "model.json: JSON text of 4 bytes, more than the limit of 3");
}

TEST(StrictJson, RefusesSyntaxErrorsNamingTheByte) {
    for (const char* text : {"", "{", "{} x", "[1,]", "{\"a\":}", "{'a':1}", "[NaN]", "[1e999]", "[01]",
                             "\"\xFF\"", "\"\\ud800\"", "[1] // note", "nul"})
        EXPECT_EQ(syntax_error(text).rfind("model.json: not valid JSON at byte ", 0), 0u)
            << text << ": " << syntax_error(text);
}

TEST(StrictJson, BoundsDepth) {
    const auto nested = [](std::size_t n) { return std::string(n, '[') + std::string(n, ']'); };
    EXPECT_EQ(syntax_error(nested(128)), "no error");
    EXPECT_EQ(syntax_error(nested(129)), "model.json: JSON nested deeper than 128 levels");
    EXPECT_EQ(syntax_error(std::string(300'000, '[')), "model.json: JSON nested deeper than 128 levels");
}

TEST(StrictJson, RequiresTypes) {
    const auto found = [](const char* text) -> std::string {
        try {
            return std::to_string(require_unsigned(parse_strict_json(text, "f"), "f", "rows"));
        } catch (const UserError& error) {
            return error.what();
        }
    };
    EXPECT_EQ(found("18446744073709551615"), "18446744073709551615");
    EXPECT_EQ(found("16.0"), "f: rows: expected an unsigned integer, found 16.0");
    EXPECT_EQ(found("1e3"), "f: rows: expected an unsigned integer, found 1000.0");
    EXPECT_EQ(found("-1"), "f: rows: expected an unsigned integer, found -1");
    EXPECT_EQ(found("-0"), "f: rows: expected an unsigned integer, found 0");
    EXPECT_EQ(found("true"), "f: rows: expected an unsigned integer, found true");
    EXPECT_EQ(found("[1]"), "f: rows: expected an unsigned integer, found an array");
}

}  // namespace
}  // namespace mantissa
