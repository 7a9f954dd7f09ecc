// Links the installed library and prints one number that only the library can know.
#include <cstdio>

#include "all_headers.h"
#include "mantissa/base/random.h"
#include "mantissa/base/thread_pool.h"

int main() {
    mantissa::ThreadPool pool(2);  // needs the threads that the package must bring along
    float first = 0;
    pool.for_each_block(1, [&](std::int64_t, int) { first = mantissa::RandomStream{.seed = 1}.uniform(0); });
    std::printf("first=%a\n", static_cast<double>(first));
}
