#include <gtest/gtest.h>

#include <cstdint>

#include "mantissa/base/buffer.h"
#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/base/system_memory.h"

namespace mantissa {
namespace {

TEST(Buffer, IsZeroedAlignedAndMovable) {
    for (std::size_t size : {1ul, 64ul, 4097ul, (2ul << 20) + 3}) {
        Buffer buffer(size);
        ASSERT_EQ(buffer.size(), size);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % Buffer::alignment, 0u);
        for (std::byte b : buffer.as<std::byte>()) ASSERT_EQ(b, std::byte{0});
        std::byte* data = buffer.data();
        const Buffer moved = std::move(buffer);
        EXPECT_EQ(moved.data(), data);
    }
    EXPECT_EQ(Buffer(0).size(), 0u);
}

TEST(Buffer, RefusalNamesThePurpose) {
    try {
        const Buffer buffer(std::size_t{1} << 60, "arena");
        FAIL() << "2^60 bytes were granted";
    } catch (const UserError& error) {
        EXPECT_NE(std::string(error.what()).find("arena"), std::string::npos);
    }
}

TEST(SystemMemory, FiguresAreConsistent) {
    EXPECT_GT(available_memory(), 0);
    EXPECT_GT(resident_memory(), 0);
    EXPECT_GE(peak_resident_memory(), resident_memory() / 2);
}

TEST(File, AMissingFileAndADirectoryAreNamed) {
    for (const char* path : {"/no/such/file", "/"}) {
        try {
            read_file(path);
            FAIL() << path;
        } catch (const UserError& error) {
            EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
        }
    }
}

}  // namespace
}  // namespace mantissa
