// A chat template cut into words, with white space removed by trim_blocks and lstrip_blocks. Internal to
// data/chat.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mantissa::inline v0::jinja {

enum class Word : std::uint8_t {
    data,
    output_begin,
    output_end,
    block_begin,
    block_end,
    name,
    text,
    integer,
    real,
    sign,
    end
};

struct Token {
    Word word;
    std::u32string text;  ///< of data and texts: the content
    int line;

    bool is(std::u32string_view sign) const { return word == Word::sign && text == sign; }
    bool is_name(std::u32string_view name) const { return word == Word::name && text == name; }
};

/// Throws TemplateError.
std::vector<Token> cut_template(std::string_view source);

/// UTF-8, for names and errors.
std::string utf8(std::u32string_view text);

}  // namespace mantissa::inline v0::jinja
