#include "tests/emulated_gpu/device_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0::cuda {

namespace {

constexpr std::int64_t granule = 256;
/// The addresses that are reserved at a time. They are not used twice, so that what was freed is known.
constexpr std::int64_t range_bytes = std::int64_t{1} << 36;

std::int64_t in_granules(std::int64_t bytes) { return align_up(bytes, granule); }

}  // namespace

Pages::Pages(std::int64_t bytes, bool reachable) : bytes_(static_cast<std::size_t>(bytes)) {
    if (bytes_ == 0) return;
    void* const at = mmap(nullptr, bytes_, reachable ? PROT_READ | PROT_WRITE : PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        throw UserError(
            fmt::format("the emulated GPU gets no {} bytes of addresses: {}", bytes, strerror(errno)));
    data_ = static_cast<std::byte*>(at);
}

Pages::~Pages() {
    if (data_) munmap(data_, bytes_);
}

Pages::Pages(Pages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Pages& Pages::operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

DeviceMemory::DeviceMemory(std::int64_t bytes) : total_(bytes) { reserve(0); }

void DeviceMemory::reserve(std::int64_t bytes) {
    const std::int64_t size = std::max(range_bytes, bytes);
    ranges_.emplace_back(size, false);
    next_ = reinterpret_cast<std::uint64_t>(ranges_.back().data());
    end_ = next_ + static_cast<std::uint64_t>(size);
}

std::uint64_t DeviceMemory::allocate(std::int64_t bytes, const std::string& purpose) {
    const std::int64_t taken = in_granules(bytes);
    if (taken > total_ - used_) return 0;
    if (next_ + static_cast<std::uint64_t>(taken + granule) > end_) reserve(taken + granule);
    auto made = std::make_unique<Allocation>();
    made->address = next_;
    made->size = bytes;
    made->number = ++made_;
    made->purpose = purpose;
    made->stored = Pages(taken);
    made->marks = Pages(taken);
    made->accesses = Pages(taken / 4 * static_cast<std::int64_t>(sizeof(AccessCells)));
    next_ += static_cast<std::uint64_t>(taken + granule);
    used_ += taken;
    const std::uint64_t address = made->address;
    const auto after = std::upper_bound(
        allocations_.begin(), allocations_.end(), address,
        [](std::uint64_t wanted, const std::unique_ptr<Allocation>& one) { return wanted < one->address; });
    allocations_.insert(after, std::move(made));
    return address;
}

bool DeviceMemory::free(std::uint64_t address) {
    auto* const found = const_cast<Allocation*>(at_or_before(address));
    if (!found || found->address != address || !found->live) return false;
    found->live = false;
    used_ -= in_granules(found->size);
    for (Pages* pages : {&found->stored, &found->marks, &found->accesses}) *pages = Pages();
    return true;
}

const Allocation* DeviceMemory::at_or_before(std::uint64_t address) const {
    const auto after = std::upper_bound(
        allocations_.begin(), allocations_.end(), address,
        [](std::uint64_t wanted, const std::unique_ptr<Allocation>& one) { return wanted < one->address; });
    return after == allocations_.begin() ? nullptr : std::prev(after)->get();
}

std::string DeviceMemory::fault(std::uint64_t address, std::int64_t bytes) const {
    const Allocation* const near = at_or_before(address);
    if (!near || address - near->address >= static_cast<std::uint64_t>(in_granules(near->size) + granule))
        return "in no allocation";
    const auto offset = static_cast<std::int64_t>(address - near->address);
    if (!near->live) return fmt::format("at byte {} of {}, which was freed", offset, name_of(*near));
    if (offset + bytes > near->size)
        return fmt::format("{} {}",
                           offset >= near->size ? fmt::format("{} bytes behind", offset - near->size)
                                                : std::string("across the end of"),
                           name_of(*near));
    return "";
}

std::string name_of(const Allocation& allocation) {
    return fmt::format("{} {} ({} bytes at {:#x})", allocation.purpose, allocation.number, allocation.size,
                       allocation.address);
}

}  // namespace mantissa::cuda
