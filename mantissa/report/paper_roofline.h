// The roofline of a step on a GPU that is not there: the least time that each kernel of a plan would take by
// a card's data sheet, and by rates that were measured on such a card.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/runtime/plan.h"

namespace mantissa::inline v0 {

/// FLOP/s of products that are summed in FP32, and bytes per second with reads and writes counted.
struct CardRates {
    double f32 = 0, tf32 = 0, sixteen_bits = 0, memory = 0;
    double fp8 = 0;  ///< 0: it multiplies none
};

struct Card {
    std::string name;          ///< of the data sheet
    std::string architecture;  ///< for which the plan is made
    CardRates sheet;
    std::optional<CardRates> measured = {};
    /// Formats below sixteen bits that it multiplies, and FLOP/s by the data sheet.
    std::vector<std::pair<std::string, double>> shorter = {};
};

/// One of accelerator_names(). Throws UserError that says which these are.
Card card_of(const std::string& accelerator);

/// A line for each operation, pass and kernel, longest first: launches, FLOPs, bytes, the least time, and
/// whether arithmetic or memory bounds it. The sums follow, what they would be if only products,
/// attention and the update ran, and what it would be if 16-bit products were multiplied in shorter formats.
/// `model_flops`: the FLOPs of a step, as MFU counts them.
std::string paper_roofline_table(const Plan& plan, double model_flops, const Card& card);

}  // namespace mantissa
