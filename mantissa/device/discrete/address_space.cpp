#include "mantissa/device/discrete/address_space.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0 {

namespace {

/// What a handler of signals may read: where spaces begin; null where there is none.
std::array<std::atomic<std::byte*>, 256> spaces;
struct sigaction handler_before;

bool lies_in_a_space(const void* address) {
    for (const std::atomic<std::byte*>& space : spaces) {
        const std::byte* const begin = space.load();
        if (begin && address >= begin && address < begin + AddressSpace::bytes) return true;
    }
    return false;
}

void on_fault(int signal, siginfo_t* info, void*) {
    // The instruction runs again, and the signal finds who handled it before, or ends the program.
    if (!lies_in_a_space(info->si_addr)) {
        ::sigaction(signal, &handler_before, nullptr);
        return;
    }
    constexpr const char* text =
        "mantissa: the host touched memory of the device, which only launches and copies may do\n";
    if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
    ::signal(signal, SIG_DFL);
}

void handle_faults() {
    static const bool handled = [] {
        struct sigaction action {};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO;
        return ::sigaction(SIGSEGV, &action, &handler_before) == 0;
    }();
    check(handled, "the system takes a handler of SIGSEGV");
}

void tell_the_handler(std::byte* before, std::byte* now) {
    for (std::atomic<std::byte*>& space : spaces) {
        std::byte* expected = before;
        if (space.compare_exchange_strong(expected, now)) return;
    }
    throw InternalError(fmt::format("there are more than {} address spaces", spaces.size()));
}

}  // namespace

AddressSpace::AddressSpace() {
    handle_faults();
    void* const reserved =
        ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    check(reserved != MAP_FAILED, "the system reserves addresses for a device");
    begin_ = static_cast<std::byte*>(reserved);
    tell_the_handler(nullptr, begin_);
}

AddressSpace::~AddressSpace() {
    tell_the_handler(begin_, nullptr);
    ::munmap(begin_, bytes);
}

std::byte* AddressSpace::add(std::span<std::byte> memory, const char* purpose) {
    // With addresses between that belong to nobody.
    const auto taken =
        static_cast<std::size_t>(rounded_up(static_cast<std::int64_t>(memory.size()), alignment) + alignment);
    if (taken > bytes - given_)
        throw InternalError(fmt::format("{}: no addresses are left for {} bytes", purpose, memory.size()));
    std::byte* const address = begin_ + given_;
    given_ += taken;
    regions_[address] = {memory, purpose};
    return address;
}

void AddressSpace::remove(const std::byte* address) { regions_.erase(address); }

std::byte* AddressSpace::memory_at(const std::byte* address, std::size_t size, std::string_view who) const {
    if (size == 0) return nullptr;
    const auto fail = [&](const std::string& what) {
        throw InternalError(
            fmt::format("{}: {} bytes at {} {}", who, size, static_cast<const void*>(address), what));
    };
    if (address < begin_ || address >= begin_ + bytes) fail("are no memory of the device");
    auto region = regions_.upper_bound(address);
    if (region == regions_.begin()) fail("were freed, or never allocated");
    --region;
    const auto& [first, held] = *region;
    const auto offset = static_cast<std::size_t>(address - first);
    if (offset >= held.memory.size()) fail("were freed, or never allocated");
    if (size > held.memory.size() - offset)
        fail(fmt::format("reach beyond the {} bytes of '{}'", held.memory.size(), held.purpose));
    return held.memory.data() + offset;
}

}  // namespace mantissa
