// Words for people on standard error: where nobody reads it, or it is on a full disk, the work goes on.
#pragma once

#include <cstdio>
#include <string>

namespace mantissa::cli {

inline void print_error(const std::string& text) {
    static_cast<void>(std::fwrite(text.data(), 1, text.size(), stderr));
}

}  // namespace mantissa::cli
