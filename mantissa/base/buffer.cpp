#include "mantissa/base/buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdint>
#include <utility>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

namespace {
constexpr std::size_t huge_page = std::size_t{2} << 20;
}

Buffer::Buffer(std::size_t size, const char* purpose) : size_(size) {
    if (size == 0) return;
    const bool huge = size >= huge_page;
    mapped_ = huge ? size + huge_page : size;
    void* mapping = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED)
        throw UserError(fmt::format("{}: the system refused {} bytes of memory", purpose, size));
    mapping_ = static_cast<std::byte*>(mapping);
    data_ = mapping_;
    if (huge) {
        const auto address = reinterpret_cast<std::uintptr_t>(mapping_);
        data_ += (huge_page - address % huge_page) % huge_page;
        ::madvise(data_, size, MADV_HUGEPAGE);  // A wish: without huge pages everything still works.
    }
}

Buffer::~Buffer() {
    if (mapping_) ::munmap(mapping_, mapped_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapped_(std::exchange(other.mapped_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(mapping_, other.mapping_);
    std::swap(mapped_, other.mapped_);
    return *this;
}

}  // namespace mantissa
