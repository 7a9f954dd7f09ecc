#include "mantissa/base/checksum.h"

#include <gtest/gtest.h>

#include <string>

namespace mantissa {
namespace {

TEST(Crc32c, AgreesWithItsStandard) {
    EXPECT_EQ(crc32c(""), 0u);
    EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
    // RFC 3720, B.4.
    EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
    EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
    std::string rising, falling;
    for (char byte = 0; byte < 32; ++byte) {
        rising += byte;
        falling.insert(falling.begin(), byte);
    }
    EXPECT_EQ(crc32c(rising), 0x46DD794Eu);
    EXPECT_EQ(crc32c(falling), 0x113FDB5Cu);
}

}  // namespace
}  // namespace mantissa
