// Addresses that the host cannot touch, and the memory of the host that stands for what lies there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace mantissa::inline v0 {

/// Reserves addresses under which nothing lies: where the host reads or writes one, the program says so and
/// ends with SIGSEGV. None is given twice, so that memory that was freed is known by its address.
class AddressSpace {
  public:
    /// Throws InternalError if the system reserves none.
    AddressSpace();
    ~AddressSpace();
    AddressSpace(const AddressSpace&) = delete;
    AddressSpace& operator=(const AddressSpace&) = delete;

    /// An address for memory, which must be removed before it is gone.
    std::byte* add(std::span<std::byte> memory, const char* purpose);
    void remove(const std::byte* address);

    /// The memory that lies at an address, all of it in one piece. Throws InternalError if not so; `who`
    /// names what uses it.
    std::byte* memory_at(const std::byte* address, std::size_t bytes, std::string_view who) const;

    /// Addresses that it may give while it lives.
    static constexpr std::size_t bytes = std::size_t{1} << 36;
    /// Of what it gives: that of memory from CUDA's driver.
    static constexpr std::int64_t alignment = 256;

  private:
    struct Region {
        std::span<std::byte> memory;
        std::string purpose;
    };
    std::byte* begin_ = nullptr;
    std::size_t given_ = 0;
    std::map<const std::byte*, Region> regions_;  // by first address
};

}  // namespace mantissa
