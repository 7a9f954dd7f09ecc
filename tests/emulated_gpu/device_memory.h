// The memory of the emulated GPU: elsewhere. Its addresses lie in a range that the host has reserved and may
// not touch; what is stored there lies behind them, with a mark for each byte that was ever written.
// Addresses of what was freed are not given out again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace mantissa::inline v0::cuda {

/// Pages of the host that begin as zeros and cost nothing until they are touched.
class Pages {
  public:
    Pages() = default;
    /// Throws UserError where the host refuses. `reachable`: false only reserves the addresses.
    explicit Pages(std::int64_t bytes, bool reachable = true);
    ~Pages();
    Pages(Pages&& other) noexcept;
    Pages& operator=(Pages&& other) noexcept;
    std::byte* data() const { return data_; }

  private:
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

/// Who touched four bytes of global memory last in a launch, by halves, which neighbouring numbers of 16 bits
/// are; packed: see races.h.
struct AccessCells {
    std::uint64_t write[2] = {};
    std::uint64_t read[2] = {};
};

struct Allocation {
    std::uint64_t address = 0;
    std::int64_t size = 0;
    int number = 0;  ///< in the order of allocation, from 1
    bool live = true;
    std::string purpose;
    Pages stored, marks, accesses;

    std::byte* data() const { return stored.data(); }
    /// One byte for each: 0 never written, else `written`.
    std::uint8_t* written() const { return reinterpret_cast<std::uint8_t*>(marks.data()); }
    AccessCells* cells() const { return reinterpret_cast<AccessCells*>(accesses.data()); }
};

constexpr std::uint8_t byte_written = 0xff;

class DeviceMemory {
  public:
    explicit DeviceMemory(std::int64_t bytes);

    /// Aligned to 256 bytes, with a gap behind. 0 where there is not so much.
    std::uint64_t allocate(std::int64_t bytes, const std::string& purpose);
    /// False if nothing that lives begins there.
    bool free(std::uint64_t address);

    /// The allocation that holds the address, or the last one before it; null if there is none before.
    const Allocation* at_or_before(std::uint64_t address) const;
    /// The fault of bytes at an address; empty if they lie in one that lives.
    std::string fault(std::uint64_t address, std::int64_t bytes) const;

    std::int64_t total() const { return total_; }
    std::int64_t used() const { return used_; }

  private:
    void reserve(std::int64_t bytes);

    std::int64_t total_ = 0, used_ = 0;
    int made_ = 0;
    std::vector<Pages> ranges_;  ///< of addresses; a new one when the last is used up
    std::uint64_t next_ = 0, end_ = 0;
    std::vector<std::unique_ptr<Allocation>> allocations_;  // by address
};

/// "allocation 3 (1024 bytes at 0x7f...)".
std::string name_of(const Allocation& allocation);

}  // namespace mantissa::cuda
