// Copies to the CPU as a device: whole at any size, and by several threads where they are large.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "mantissa/device/cpu/cpu_device.h"

namespace mantissa {
namespace {

std::vector<std::byte> telling_bytes(std::size_t count) {
    std::vector<std::byte> bytes(count);
    for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 31 + (i >> 8) + (i >> 20));
    return bytes;
}

TEST(CpuCopy, IsWholeAtAnySize) {
    const auto device = make_cpu_device({.threads = 2});
    constexpr std::size_t block = std::size_t{2} << 20;
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, block - 1, block, block + 1, 3 * block, 3 * block + 77}) {
        const std::vector<std::byte> from = telling_bytes(count);
        const auto memory = device->allocate(count + 64, "a copy");
        device->copy_to_device(memory->data() + 5, from);
        std::vector<std::byte> there(count + 6);
        device->copy_to_host(there, memory->data());
        EXPECT_TRUE(std::equal(from.begin(), from.end(), there.begin() + 5)) << count;
        EXPECT_EQ(there[4], std::byte{0});
        EXPECT_EQ(there.back(), std::byte{0});
    }
}

TEST(CpuCopy, IsMadeByTheThreadsThatPutItsPagesNearThem) {
    const auto device = make_cpu_device({.threads = 2});
    const std::vector<std::byte> from = telling_bytes(std::size_t{64} << 20);
    const auto memory = device->allocate(from.size(), "a copy");
    const auto begin = device->record();
    device->record_threads(true);
    device->copy_to_device(memory->data(), from);
    std::int64_t blocks = 0;
    for (const ThreadWork& work : device->thread_work(*begin)) blocks += work.blocks;
    EXPECT_EQ(blocks, 32) << "blocks of 2 MB are handed out to the pool";
}

}  // namespace
}  // namespace mantissa
