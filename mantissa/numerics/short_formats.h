// The formats below sixteen bits as values: eight bits and fewer, and the scales that blocks of them share.
// One number at a time. No tensor is stored in them: their values, times a scale that is a power of two or
// E4M3, are BF16 numbers, and so are multiplied as BF16.
//
// Sources: OCP 8-bit Floating Point Specification (OFP8) 1.0, OCP Microscaling Formats (MX) 1.0, and NVIDIA's
// documents for NVFP4.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "mantissa/base/random.h"

namespace mantissa::inline v0 {

/// Formats of OCP. e2m1 is FP4; e3m2 and e2m3 are FP6; int8 is MXINT8, whole numbers of 1/64.
enum class ShortFormat : std::uint8_t { e4m3, e5m2, e3m2, e2m3, e2m1, int8 };

struct ShortLimits {
    std::string_view name;  ///< "e4m3"
    int bits;
    int exponent_bits;  ///< 0: whole numbers
    int fraction_bits;
    int min_exponent;  ///< of the smallest normal number
    int max_exponent;  ///< of the largest number
    float max;         ///< largest finite value; int8 keeps to the symmetric range and leaves -2 unused
    bool has_nan;

    float min_normal() const;
    float min_subnormal() const;
};

const ShortLimits& limits_of(ShortFormat format);
std::span<const ShortFormat> short_formats();

/// The format of that name. Throws UserError for any other, and names AMD's FNUZ forms, whose numbers and NaN
/// differ.
ShortFormat find_short_format(std::string_view name);

/// The value of a code. Bits above the format's are ignored.
float value_of(ShortFormat format, std::uint8_t code);

/// To the nearest value, ties to even. Numbers beyond the largest, infinities too, become it; NaN stays NaN.
float rounded_to(ShortFormat format, float value);

/// Stochastic: to one of the two neighbours of `value`, up with the probability of its distance from the
/// lower one, by the upper 24 of 32 random bits. Beyond the largest value as above.
float rounded_to(ShortFormat format, float value, std::uint32_t random);

/// The code of the nearest value. NaN becomes the format's NaN; where it has none, the largest value.
std::uint8_t code_of(ShortFormat format, float value);

/// The scale that numbers share. The first two are a power of two a block (E8M0), by its exponent.
enum class ScaleRule : std::uint8_t {
    up,        ///< such that the largest number does not saturate: NVIDIA's rule for MXFP8
    floor,     ///< exponent of the largest number less the element's: OCP's rule, where some numbers saturate
    tensor,    ///< one FP32 scale for the whole tensor: its largest number becomes the format's
    two_level  ///< one E4M3 scale a block, times one FP32 scale for the tensor: NVFP4's
};
/// Whether an FP32 scale is left over, as a factor of the sums.
inline bool has_tensor_scale(ScaleRule rule) {
    return rule == ScaleRule::tensor || rule == ScaleRule::two_level;
}
std::string_view name_of(ScaleRule rule);
/// The rule of that name. Throws UserError for any other.
ScaleRule find_scale_rule(std::string_view name);

/// E8M0: 2^(code - 127), NaN for 255. Code 0 is 2^-127, a subnormal FP32 number.
double value_of_e8m0(std::uint8_t code);

/// The code of the scale for a block whose largest magnitude is `largest`; 0 for a subnormal number or zero,
/// 255 for a NaN or an infinity.
std::uint8_t e8m0_of(ShortFormat element, float largest, ScaleRule rule);

/// Numbers in a block of a tensor at most.
constexpr std::int64_t max_rounded_block = 128;

/// Factor of a tensor such that its largest magnitude becomes the format's; 1 for zero, infinities
/// and NaN, and FP32's largest number at most.
float tensor_scale(ShortFormat element, float largest);

/// Two levels of scales, as NVFP4 has them: numbers of E2M1 times an E4M3 scale a block times an FP32 scale a
/// tensor.
struct TwoLevelScale {
    float decode;  ///< of the block, an E4M3 number: the factor of E2M1 values
    float encode;  ///< the factor that makes E2M1 of the tensor's numbers
};
/// Factor of the tensor's numbers, 448 x 6 / largest, with tensor_scale's exceptions.
float two_level_tensor_scale(float largest);
/// `tensor`: two_level_tensor_scale of the whole tensor.
TwoLevelScale two_level_scale(float largest_of_block, float tensor);

/// 32 random bits of a matrix' element: a word of the stream, 16 neighbours apart, so that lanes draw alike.
std::uint32_t rounding_bits(const RandomStream& stream, std::int64_t row, std::int64_t column,
                            std::int64_t columns);

/// Numbers of a random Hadamard transform, which NVFP4's filter gradient applies before rounding.
constexpr int hadamard_size = 16;
/// Signs first, then Sylvester's matrix / 4, summed in FP32 by halves; results are BF16 numbers. Both factors
/// of a product turned along its depth, the product stays. NVIDIA's signs.
void hadamard(std::span<float, hadamard_size> numbers);

}  // namespace mantissa
