// Contracts a product that one addition alone reads into that addition, which rounds once. For bodies that
// code is generated from, behind all other passes.
//
//   %3 = mul(%a, %b)  %4 = add(%3, %c)      becomes  %4 = fma(%a, %b, %c)
//   %3 = add(%y, %a)  %4 = add(%3, %a)      becomes  %4 = fma(%a, 2, %y), since a is doubled exactly
//
// Numbers of FP32 alone: others are rounded where they are stored.
#pragma once

#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

Graph contract_products(const Graph& body);

}  // namespace mantissa
