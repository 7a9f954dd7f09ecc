// The functions that other sources take of fmt's library, for programs that link none: Debian has it as a
// shared one alone.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {
template dragonbox::decimal_fp<float> dragonbox::to_decimal(float x) noexcept;
template dragonbox::decimal_fp<double> dragonbox::to_decimal(double x) noexcept;
template auto thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
template std::locale locale_ref::get<std::locale>() const;
}  // namespace detail
FMT_END_NAMESPACE
