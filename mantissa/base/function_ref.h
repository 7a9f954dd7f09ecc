// A reference to something callable, for parameters that are called before the call returns.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace mantissa::inline v0 {

template <class Signature>
class FunctionRef;

/// Two pointers, no allocation. The callable must outlive every call; never store one beyond the call it came
/// with.
template <class R, class... Args>
class FunctionRef<R(Args...)> {
  public:
    template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> && std::is_invocable_r_v<R, F&, Args...>)
        FunctionRef(F&& callable)  // NOLINT: implicit on purpose, so that lambdas can be passed as they are
        : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
          call_([](void* object, Args... args) -> R {
              return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
          }) {}

    R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

  private:
    void* object_;
    R (*call_)(void*, Args...);
};

}  // namespace mantissa
