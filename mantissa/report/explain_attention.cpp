// The report of `explain` on each attention.
#include "mantissa/graph/graph.h"
#include "mantissa/graph/score_formula.h"
#include "mantissa/graph/visible_pairs.h"
#include "mantissa/report/explain.h"

namespace mantissa::inline v0 {

namespace {

/// The CPU's kernels meet so many queries and keys at once.
constexpr std::int64_t queries_of_block = 32, keys_of_block = 128;

std::string form_of(const AttentionScore& score, const ScoreFormula& formula, bool causal, bool by_data) {
    std::string form = formula.score == "s" ? "the scaled product" : "a function of the score";
    bool masked = false;
    if (score.body)
        for (const Result& result : score.body->graph().results())
            masked = masked || result.name == "visible";
    if (masked)
        form += by_data ? ", masked by data" : ", masked by positions";
    else if (causal)
        form += ", causal";
    if (!formula.multiplier.empty()) form += ", weights multiplied";
    return form;
}

std::string why_of(const VisibleBlocks& blocks) {
    if (blocks.by_data)
        return "at most these: what is visible depends on data, and each step leaves out blocks that nothing "
               "sees";
    if (blocks.computed == blocks.all) return "some pair of every block is visible";
    return "nothing sees the others, which follows from positions alone";
}

}  // namespace

ExplainedAttention explain_attention(const Graph& graph, const Node& node) {
    const AttentionExtents e = attention_extents(attention_layout(node.attributes), graph.input_types(node));
    const AttentionScore score = attention_score(node.attributes);
    const bool causal = node.attributes.flag("causal");
    const ScoreFormula formula = score_formula(score, causal, e);
    const VisibleBlocks blocks = visible_blocks(score, causal, e, queries_of_block, keys_of_block);
    return {.name = node.origin.scope,
            .form = form_of(score, formula, causal, blocks.by_data),
            .formula = formula.text(),
            .blocks = blocks.computed,
            .all_blocks = blocks.all,
            .queries = queries_of_block,
            .keys = keys_of_block,
            .why = why_of(blocks)};
}

}  // namespace mantissa
