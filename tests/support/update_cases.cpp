#include "tests/support/update_cases.h"

#include <algorithm>
#include <iterator>

#include "mantissa/graph/call.h"

namespace mantissa::testing {
namespace {

/// Exchanges of a single rank.
const Attributes one_rank{{"ranks", std::int64_t{1}}, {"sum", std::int64_t{0}}};
OpCase exchange_case(const std::string& op) {
    return {op, op + " of one rank", {f32({7, 300}), f32({5})}, [op](Graph& g, In x) {
                return call(g, op, x, one_rank);
            }};
}

/// AdamW of `parts` parameters of different shapes, with copies, as the pass `join_updates` makes it.
OpCase joined_case(int parts, const Attributes& adamw) {
    std::vector<Operand> operands;
    for (int part = 0; part < parts; ++part) {
        const Shape shape = part % 3 == 0 ? Shape{5, 7} : part % 3 == 1 ? Shape{61 * part} : Shape{2, 3, 19};
        for (int i = 0; i < 3; ++i) operands.push_back(f32(shape));
        operands.push_back(f32(shape, Values::positive));
        operands.push_back(f32({}, Values::positive));
        operands.push_back({{DType::f64, {}}, Values::scalar_step});
        operands.push_back(f32({}, Values::positive));
        operands.push_back({{DType::boolean, {}}, Values::one});
        operands.push_back(f32(shape));
    }
    const Attributes joined = adamw.with("update", std::string("adamw")).with("parts", std::int64_t{parts});
    return {"joined_updates",
            fmt::format("{} joined updates", parts),
            std::move(operands),
            [joined](Graph& g, In x) { return call(g, "joined_updates", x, joined); },
            {8, 16}};
}

/// More gradients than one GPU launch takes, one of them with several blocks.
std::vector<Operand> many_gradients() {
    std::vector<Operand> operands = {f32({37, 1103})};
    for (int i = 1; i < 180; ++i) operands.push_back(f32({i}));
    return operands;
}

std::vector<OpCase> norm_exchange_and_adamw_cases() {
    const Attributes adamw{{"beta1", 0.9}, {"beta2", 0.95}, {"epsilon", 1e-8}, {"weight_decay", 0.1}};
    return {
        {"global_norm",
         "global_norm",
         {f32({7, 3}), f32({5})},
         [](Graph& g, In x) { return call(g, "global_norm", x); },
         {4, 26}},
        {"global_norm",
         "global_norm of many gradients",
         many_gradients(),
         [](Graph& g, In x) { return call(g, "global_norm", x); },
         {4, 26}},
        {"global_norm",
         "global_norm of a bad gradient",
         {f32({7, 3}, Values::finite_or_not)},
         [](Graph& g, In x) { return std::vector{call(g, "global_norm", x)[1]}; }},
        {"tree_add",
         "tree_add",
         {f32({7, 3}), f32({7, 3})},
         [](Graph& g, In x) { return call(g, "tree_add", x); },
         {1}},
        exchange_case("all_reduce_start"),
        exchange_case("all_reduce_wait"),
        exchange_case("reduce_scatter_start"),
        exchange_case("reduce_scatter_wait"),
        exchange_case("all_gather_rows_start"),
        exchange_case("all_gather_wait"),
        {"own_shard",
         "own_shard of one rank",
         {f32({7, 300})},
         [](Graph& g, In x) { return call(g, "own_shard", x, one_rank); }},
        {"all_gather_start",
         "all_gather_start of one rank",
         {f32({3072}), f32({1024})},
         [](Graph& g, In x) {
             return call(g, "all_gather_start", x,
                         one_rank.with("shapes", std::vector<std::int64_t>{2, 7, 300, 1, 1024}));
         }},
        {"norm_of_parts",
         "norm_of_parts of one rank",
         {f32({3072}), f32({7, 3})},
         [](Graph& g, In x) {
             return call(g, "norm_of_parts", x,
                         one_rank.with("elements", std::vector<std::int64_t>{3072, 0}));
         },
         {4}},
        {"adamw",
         "adamw",
         {f32({5, 7}),
          f32({5, 7}),
          f32({5, 7}),
          f32({5, 7}, Values::positive),
          f32({}, Values::positive),
          {{DType::f64, {}}, Values::scalar_step},
          f32({}, Values::positive),
          {{DType::boolean, {}}, Values::one}},
         [=](Graph& g, In x) { return call(g, "adamw", x, adamw); },
         {8, 16}},
        {"adamw",
         "adamw with a copy",
         {f32({5, 7}),
          f32({5, 7}),
          f32({5, 7}),
          f32({5, 7}, Values::positive),
          f32({}, Values::positive),
          {{DType::f64, {}}, Values::scalar_step},
          f32({}, Values::positive),
          {{DType::boolean, {}}, Values::one},
          f32({5, 7})},
         [=](Graph& g, In x) { return call(g, "adamw", x, adamw); },
         {8, 16}},
        joined_case(2, adamw),
        joined_case(75, adamw),
    };
}

/// parameter, gradient, buffer, learning rate, gradient scale, apply; in some cases a copy. Five iterations
/// amplify small singular values, and their roundings, some hundredfold: few enough here that a rounding
/// stays below a thousandth of a unit.
std::vector<OpCase> muon_cases() {
    std::vector<OpCase> all;
    for (const Shape& p : {Shape{3, 7}, Shape{6, 4}, Shape{5, 5}})
        for (const bool copies : {false, true}) {
            std::vector<Operand> operands = {f32(p),
                                             f32(p),
                                             f32(p),
                                             f32({}, Values::positive),
                                             f32({}, Values::positive),
                                             {{DType::boolean, {}}, Values::one}};
            if (copies) operands.push_back(f32(p));
            const Attributes attributes{
                {"epsilon", 1e-7},    {"format", std::string("f32")}, {"iterations", std::int64_t{5}},
                {"momentum", 0.9},    {"nesterov", copies},           {"rate_factor", 1.5},
                {"weight_decay", 0.1}};
            all.push_back({"muon",
                           fmt::format("muon of {}{}", p.text(), copies ? " with a copy" : ""),
                           std::move(operands),
                           [=](Graph& g, In x) { return call(g, "muon", x, attributes); },
                           {8, 16}});
        }
    return all;
}

/// parameter, gradient, learning rate, gradient scale, apply, and with momentum buffer and step; in some
/// cases a copy.
std::vector<OpCase> sgd_cases() {
    struct Setting {
        const char* name;
        Attributes attributes;
        bool copies = false;
        Values step = Values::scalar_step;  ///< the third
    };
    const auto attributes = [](double momentum, double dampening, bool nesterov, double weight_decay) {
        return Attributes{{"momentum", momentum},
                          {"dampening", dampening},
                          {"nesterov", nesterov},
                          {"weight_decay", weight_decay}};
    };
    std::vector<OpCase> all;
    for (const Setting& setting : std::initializer_list<Setting>{
             {"sgd", attributes(0, 0, false, 0)},
             {"sgd with decay and a copy", attributes(0, 0, false, 0.1), true},
             {"sgd with momentum", attributes(0.9, 0, false, 0)},
             {"sgd dampened", attributes(0.9, 0.4, false, 0.1), true},
             {"sgd dampened, first step", attributes(0.9, 0.4, false, 0.1), false, Values::one},
             {"sgd with Nesterov's momentum", attributes(0.9, 0, true, 0.1), true}}) {
        std::vector<Operand> operands = {f32({5, 7}),
                                         f32({5, 7}),
                                         f32({}, Values::positive),
                                         f32({}, Values::positive),
                                         {{DType::boolean, {}}, Values::one}};
        if (setting.attributes.number("momentum") > 0) {
            operands.push_back(f32({5, 7}));
            operands.push_back({{DType::f64, {}}, setting.step});
        }
        if (setting.copies) operands.push_back(f32({5, 7}));
        // At most nine roundings in sequence, of sums of up to four terms.
        all.push_back({"sgd",
                       setting.name,
                       operands,
                       [a = setting.attributes](Graph& g, In x) { return call(g, "sgd", x, a); },
                       {8, 16}});
    }
    return all;
}

}  // namespace

std::vector<OpCase> update_cases() {
    std::vector<OpCase> all = norm_exchange_and_adamw_cases();
    for (auto cases : {sgd_cases(), muon_cases()}) std::ranges::move(cases, std::back_inserter(all));
    return all;
}

}  // namespace mantissa::testing
