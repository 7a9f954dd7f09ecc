// Typed errors: errors that the user can mend (UserError) apart from defects of mantissa itself
// (InternalError). The library throws these and nothing else of its own; it never exits or aborts.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>

namespace mantissa::inline v0 {

/// Bad input: an option, a file, a shape. The text says the expectation, the input and the remedy.
class UserError : public std::runtime_error {
  public:
    explicit UserError(const std::string& message) : std::runtime_error(message) {}
};

/// Bad input that fields of an options struct are at fault for, or can mend. The text names each between
/// backquotes, as "`batch` must be 1 or more, got 0". A program puts its own options in their place.
class UsageError : public UserError {
  public:
    using UserError::UserError;
    /// The first field that the text names.
    std::string field() const;
};

/// A broken promise inside mantissa. The text names the place in the source.
class InternalError : public std::logic_error {
  public:
    explicit InternalError(const std::string& message,
                           std::source_location where = std::source_location::current());
};

/// Throws InternalError unless `holds`.
inline void check(bool holds, const char* promise,
                  std::source_location where = std::source_location::current()) {
    if (!holds) [[unlikely]]
        throw InternalError(promise, where);
}

}  // namespace mantissa
