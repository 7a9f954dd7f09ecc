// The compiler's intrinsics, for kernels of AVX-512.
#pragma once

// GCC 12 takes the undefined operand inside its own intrinsics for a mistake of ours (GCC bug 105593). The
// warnings have to be off where they are defined.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
