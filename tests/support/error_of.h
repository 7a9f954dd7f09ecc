// The text of a call's error.
#pragma once

#include <source_location>
#include <string>
#include <string_view>

#include "mantissa/base/error.h"

namespace mantissa::testing {

/// The text of the error that `body` throws; "no error" if it throws none. Errors of other types pass
/// through.
template <class Error = UserError, class Body>
std::string error_of(Body&& body) {
    try {
        body();
    } catch (const Error& error) {
        return error.what();
    }
    return "no error";
}

/// The text, with HERE in place of the calling line.
template <class Body>
std::string error_here(Body&& body, const std::source_location& caller = std::source_location::current()) {
    std::string text = error_of(body);
    const std::string_view file = caller.file_name();
    const std::string here =
        std::string(file.substr(file.rfind('/') + 1)) + ":" + std::to_string(caller.line());
    for (auto at = text.find(here); at != text.npos; at = text.find(here))
        text.replace(at, here.size(), "HERE");
    return text;
}

}  // namespace mantissa::testing
