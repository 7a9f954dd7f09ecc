#include "mantissa/base/float_environment.h"

#include <immintrin.h>

namespace mantissa::inline v0 {

namespace {
constexpr unsigned flush_to_zero = 0x8000;
constexpr unsigned denormals_are_zero = 0x0040;
}  // namespace

FlushSubnormals::FlushSubnormals() : saved_(_mm_getcsr()) {
    _mm_setcsr(saved_ | flush_to_zero | denormals_are_zero);
}

FlushSubnormals::~FlushSubnormals() { _mm_setcsr(saved_); }

}  // namespace mantissa
