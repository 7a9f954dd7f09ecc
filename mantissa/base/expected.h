// A value, or the reason why there is none: the answer of a search that may rightly find nothing. A search
// that must find something throws an error (error.h).
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

struct Unexpected {
    std::string reason;
};

template <class Value>
class Expected {
  public:
    Expected(Value value) : answer_(std::move(value)) {}
    /// Throws InternalError if the reason is empty.
    Expected(Unexpected none) : answer_(std::move(none)) {
        check(!std::get<Unexpected>(answer_).reason.empty(), "where there is no value there is a reason");
    }

    explicit operator bool() const { return std::holds_alternative<Value>(answer_); }
    /// Empty where there is a value.
    std::string reason() const { return *this ? "" : std::get<Unexpected>(answer_).reason; }

    /// Throws InternalError if there is none.
    Value& operator*() {
        check_value();
        return std::get<Value>(answer_);
    }
    const Value& operator*() const {
        check_value();
        return std::get<Value>(answer_);
    }
    Value* operator->() { return &**this; }
    const Value* operator->() const { return &**this; }

  private:
    void check_value() const {
        if (!*this) throw InternalError("there is no value: " + reason());
    }

    std::variant<Value, Unexpected> answer_;
};

/// Why a search found nothing: the first reason counts.
class FirstReason {
  public:
    /// Notes a reason; returns false, for the search to end with.
    bool refuse(std::string reason) {
        if (reason_.empty()) reason_ = std::move(reason);
        return false;
    }
    /// The answer of the search then.
    Unexpected none() const { return {reason_}; }

  private:
    std::string reason_;
};

}  // namespace mantissa
