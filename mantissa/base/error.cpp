#include "mantissa/base/error.h"

#include <fmt/format.h>

namespace mantissa::inline v0 {

std::string UsageError::field() const {
    const std::string text = what();
    const std::size_t begin = text.find('`') + 1;
    if (begin == 0) return "";
    return text.substr(begin, text.find('`', begin) - begin);
}

InternalError::InternalError(const std::string& message, std::source_location where)
    : std::logic_error(fmt::format("internal error: {} (at {}:{}); please report this", message,
                                   where.file_name(), where.line())) {}

}  // namespace mantissa
