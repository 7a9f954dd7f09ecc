// The normal forms of Unicode (UAX #15), with tables of Unicode 9.0 by scripts/make_unicode_tables.py, as in
// Hugging Face's tokenizers. Invalid UTF-8 stays unchanged.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace mantissa::inline v0 {

enum class NormalForm : std::uint8_t { nfc, nfd, nfkc, nfkd };

/// Writes the normalized text to `normal`. Returns false, and leaves `normal` untouched, if the text is
/// already in that form. Time is O(n) in the text, except for long rows of combining marks.
bool normalize_unicode(std::string_view text, NormalForm form, std::string& normal);

/// Tables; see unicode_decompositions.cpp.
std::span<const std::uint32_t> unicode_decompositions();
std::span<const std::uint32_t> unicode_combining_classes();

}  // namespace mantissa
