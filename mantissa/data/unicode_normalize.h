// The normal forms of Unicode (UAX #15), by the tables of scripts/make_unicode_tables.py: of Unicode 9.0, as
// Hugging Face's tokenizers normalises. What is not UTF-8 stays as it is.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace mantissa::inline v0 {

enum class NormalForm : std::uint8_t { nfc, nfd, nfkc, nfkd };

/// The text in that form, written to `normal`. False, and `normal` is not touched, if it is in that form
/// already. Time is O(n) in the text but for long rows of combining marks.
bool normalize_unicode(std::string_view text, NormalForm form, std::string& normal);

/// Tables, as unicode_decompositions.cpp tells.
std::span<const std::uint32_t> unicode_decompositions();
std::span<const std::uint32_t> unicode_combining_classes();

}  // namespace mantissa
