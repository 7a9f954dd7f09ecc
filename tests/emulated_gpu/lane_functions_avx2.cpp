#include "tests/emulated_gpu/lane_functions_body.h"

namespace mantissa::inline v0::cuda::ptx {

void list_lane_functions_avx2(const LaneSink& sink) { list_all(sink); }

}  // namespace mantissa::cuda::ptx
