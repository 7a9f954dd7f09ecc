// CRC-32C (Castagnoli: polynomial 0x1EDC6F41, reflected), the checksum of TFRecord files. RFC 3720, B.4.
#pragma once

#include <cstdint>
#include <string_view>

namespace mantissa::inline v0 {

std::uint32_t crc32c(std::string_view bytes);

}  // namespace mantissa
