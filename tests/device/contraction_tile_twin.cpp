// The tile unit in plain C++: the same tiles as AMX, every access checked by the array that it goes to. Runs
// the tile kernels on any CPU, under the sanitizers too.
#include <array>
#include <bit>
#include <type_traits>

#include "mantissa/device/cpu/contraction/tile_kernels.h"
#include "mantissa/numerics/formats.h"
#include "tests/device/contraction_twins.h"

namespace mantissa::inline v0::on_cpu {

namespace {

class TwinUnit {
  public:
    template <int T>
    void zero() {
        tiles_.at(T) = {};
    }
    template <int T>
    void load(const void* from, std::int64_t stride) {
        for (std::size_t row = 0; row < 16; ++row)
            std::memcpy(&tiles_.at(T).at(16 * row),
                        static_cast<const std::byte*>(from) + static_cast<std::int64_t>(row) * stride, 64);
    }
    template <int T>
    void load_past_l1(const void* from, std::int64_t stride) {
        load<T>(from, stride);
    }
    template <int T>
    void store(void* to, std::int64_t stride) const {
        for (std::size_t row = 0; row < 16; ++row)
            std::memcpy(static_cast<std::byte*>(to) + static_cast<std::int64_t>(row) * stride,
                        &tiles_.at(T).at(16 * row), 64);
    }
    /// As AMX: for each pair of the depth in turn, first one product is added, then the other.
    template <int Sums, int A, int B>
    void multiply() {
        for (std::size_t row = 0; row < 16; ++row)
            for (std::size_t pair = 0; pair < 16; ++pair)
                for (std::size_t column = 0; column < 16; ++column) {
                    float sum = std::bit_cast<float>(tiles_.at(Sums).at(row * 16 + column));
                    const std::uint32_t a = tiles_.at(A).at(row * 16 + pair);
                    const std::uint32_t b = tiles_.at(B).at(pair * 16 + column);
                    sum += low(a) * low(b);
                    sum += high(a) * high(b);
                    tiles_.at(Sums).at(row * 16 + column) = std::bit_cast<std::uint32_t>(sum);
                }
    }

    static void prefetch(const void*) {}

    template <int Addends, class Out>
    static void finish_row(const float* sums, const float* first, const float* second, Out* out, bool) {
        for (std::int64_t c = 0; c < 32; ++c) {
            float sum = sums[c];
            if constexpr (Addends > 0) sum += first[c];
            if constexpr (Addends > 1) sum += second[c];
            if constexpr (std::is_same_v<Out, BF16>)
                out[c] = to_bf16(sum);
            else
                out[c] = sum;
        }
    }

  private:
    static float low(std::uint32_t pair) { return std::bit_cast<float>(pair << 16); }
    static float high(std::uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000U); }

    /// Eight tiles of 16 x 16 words of 32 bits.
    std::array<std::array<std::uint32_t, 256>, 8> tiles_;
};

}  // namespace

ContractionKernels contraction_kernels_tile_twin(const CacheSizes& caches) {
    return tile_kernels<TwinUnit>(caches);
}

}  // namespace mantissa::on_cpu
