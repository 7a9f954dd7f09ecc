#include "mantissa/base/error.h"

#include <fmt/format.h>

namespace mantissa::inline v0 {

InternalError::InternalError(const std::string& message, std::source_location where)
    : std::logic_error(fmt::format("internal error: {} (at {}:{}); please report this", message,
                                   where.file_name(), where.line())) {}

}  // namespace mantissa
