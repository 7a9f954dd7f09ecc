// The origin of a character in a rendered chat.
#pragma once

#include <cstdint>

namespace mantissa::inline v0 {

/// A character's origin: the template, a message, or other data, such as tools.
class ChatOrigin {
  public:
    enum class Part : std::uint8_t { other, role, content, reasoning, calls };

    constexpr ChatOrigin() = default;  ///< the template
    static constexpr ChatOrigin data() { return ChatOrigin(1 << 4); }
    static constexpr ChatOrigin of(std::uint32_t message, Part part) {
        return ChatOrigin(((message + 2) << 4) | static_cast<std::uint32_t>(part) << 1);
    }
    /// The origin, between the marks {% generation %} and {% endgeneration %}.
    constexpr ChatOrigin marked() const { return ChatOrigin(bits_ | 1); }

    constexpr bool is_template() const { return bits_ >> 4 == 0; }
    constexpr bool is_marked() const { return bits_ & 1; }
    /// The place of the message; -1 if there is none.
    constexpr std::int64_t message() const {
        return bits_ >> 4 < 2 ? -1 : static_cast<std::int64_t>(bits_ >> 4) - 2;
    }
    constexpr Part part() const { return static_cast<Part>(bits_ >> 1 & 7); }

    bool operator==(const ChatOrigin&) const = default;

  private:
    explicit constexpr ChatOrigin(std::uint32_t bits) : bits_(bits) {}
    std::uint32_t bits_ = 0;  // a mark, the part, and 0: template, 1: data, 2 + message
};

}  // namespace mantissa::inline v0
