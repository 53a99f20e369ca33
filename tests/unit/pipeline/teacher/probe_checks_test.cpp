#include "pipeline/teacher/probe/probe_checks.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <span>

#include "base/half_float.hpp"
#include "tests/unit/pipeline/teacher/protocols/prompt_scoring.hpp"

namespace distilld {
namespace {

/// Rows of log-probabilities in fp32 from logits that were rounded by `round`.
template <class Round>
TeacherTargets rows_of(Round round) {
    auto values = std::make_shared<std::vector<float>>();
    for (int row = 0; row < 2; ++row) {
        std::vector<float> logits;
        double sum = 0;
        for (int i = 0; i < 5; ++i) {
            logits.push_back(round(7.3173F - 1.1391F * static_cast<float>(i) + 0.0417F * static_cast<float>(row * i)));
            sum += std::exp(static_cast<double>(logits.back()));
        }
        for (const float logit : logits) {
            values->push_back(static_cast<float>(logit - std::log(sum + 1)));
        }
    }
    TeacherTargets targets;
    targets.rows = 1;
    targets.columns = 2;
    targets.width = 5;
    targets.values = {ElementType::f32, std::as_bytes(std::span(*values))};
    targets.owner = values;
    return targets;
}

TEST(ProbeChecks, HalfPrecisionIsSeenInTheRows) {
    EXPECT_FALSE(looks_like_half_precision(rows_of([](float logit) { return logit; })));
    EXPECT_TRUE(looks_like_half_precision(rows_of([](float logit) { return half_to_float(float_to_half(logit)); })));
    // bf16 is fp32 without its lower half.
    EXPECT_TRUE(looks_like_half_precision(
        rows_of([](float logit) { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(logit) & 0xFFFF0000U); })));
    // Too little to tell.
    EXPECT_FALSE(looks_like_half_precision(rows_of([](float) { return 1.0F; })));
}

TEST(ProbeChecks, RecordedRowsOfAnFp32ServerDoNotLookLikeIt) {
    test::ScriptedHttpServer server([](const test::SeenRequest&) {
        test::ScriptedReply reply;
        reply.body = test::read_fixture("vllm-completions-k5.json");
        return reply;
    });
    test::Loop loop;
    const auto teacher = loop.teacher(test::scoring_spec(TeacherProtocol::vllm, server.url(), 5)).value();
    const auto batch = test::batch_of_prompts(test::recorded_prompts(1));
    EXPECT_FALSE(looks_like_half_precision(loop.fetch(*teacher, 0, batch, std::chrono::seconds(20)).value()));
}

}  // namespace
}  // namespace distilld
