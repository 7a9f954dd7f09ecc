// Memory for tensors: zeroed, aligned for every vector width, on huge pages where the kernel gives them.
#pragma once

#include <cstddef>
#include <span>

namespace mantissa::inline v0 {

/// Owns `size` bytes of zeroed memory. Aligned to 64 bytes; from 2 MiB on to 2 MiB, with huge pages asked
/// for. Pages are touched (and so counted by the system) only when first written.
class Buffer {
  public:
    Buffer() = default;
    /// Throws UserError, naming `purpose`, when the system refuses the memory.
    explicit Buffer(std::size_t size, const char* purpose = "buffer");
    ~Buffer();
    Buffer(Buffer&& other) noexcept;
    Buffer& operator=(Buffer&& other) noexcept;

    std::byte* data() const { return data_; }
    std::size_t size() const { return size_; }

    /// The memory as `size() / sizeof(T)` elements.
    template <class T>
    std::span<T> as() const {
        return {reinterpret_cast<T*>(data_), size_ / sizeof(T)};
    }

    static constexpr std::size_t alignment = 64;

  private:
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    std::byte* mapping_ = nullptr;
    std::size_t mapped_ = 0;
};

}  // namespace mantissa
