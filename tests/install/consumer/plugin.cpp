// A part of somebody else's shared library.
#include "mantissa/mantissa.h"

extern "C" long long parameters_of_gpt2() { return mantissa::nn::language_model("gpt2").parameters; }
