// The roofline of a step on an absent GPU: the least time of each kernel of a plan by a card's data sheet,
// and by rates measured on such a card.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/runtime/plan.h"

namespace mantissa::inline v0 {

/// FLOP/s of products with FP32 sums; bytes per second, reads and writes counted.
struct CardRates {
    double f32 = 0, tf32 = 0, sixteen_bits = 0, memory = 0;
    double fp8 = 0;  ///< 0: unsupported
};

struct Card {
    std::string name;          ///< of the data sheet
    std::string architecture;  ///< architecture of the plan
    CardRates sheet;
    std::optional<CardRates> measured = {};
    /// Its other formats below sixteen bits, and FLOP/s by the data sheet.
    std::vector<std::pair<std::string, double>> shorter = {};
};

/// One of accelerator_names(). Throws UserError, naming these, for another name.
Card card_of(const std::string& accelerator);

/// A line for each operation, pass and kernel, longest first: launches, FLOPs, bytes, the least time, and its
/// bound, arithmetic or memory. Sums follow: of all, of products, attention and update alone, and with 16-bit
/// products in shorter formats. `model_flops`: the FLOPs of a step for MFU.
std::string paper_roofline_table(const Plan& plan, double model_flops, const Card& card);

}  // namespace mantissa
