#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "api/job_spec_json.hpp"

namespace distilld::api {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal(const std::string& teacher, const std::string& packing) {
    const auto spec =
        parse_job_spec(R"({"student": {"model": "m"}, "dataset": {"train": "d", "sequence_length": 8, "packing": )" +
                       packing + R"(}, "teacher": {"endpoints": ["http://h:1"], "tokenizer": "t", )" + teacher +
                       R"(}, "training": {"max_steps": 1}, "output": "o"})");
    return spec ? std::string() : describe(spec.error());
}

TEST(TeacherTokenizerRules, TakeTopkRowsOfDocuments) {
    EXPECT_EQ(refusal(R"("top_k": 8)", "\"documents\""), "");
    EXPECT_EQ(refusal(R"("top_k": 8, "targets": "topk")", "false"), "");
    EXPECT_THAT(refusal(R"("top_k": 8)", "true"), HasSubstr("/dataset/packing: with /teacher/tokenizer, documents"));
    EXPECT_THAT(refusal(R"("window": 3)", "false"), HasSubstr("/teacher/top_k: top_k is required: with /teacher/tok"));
    for (const std::string targets : {"hidden", "logits"}) {
        const std::string said = refusal(R"("targets": ")" + targets + "\"", "false");
        EXPECT_THAT(said, HasSubstr("/teacher/targets: is " + targets + ", but with /teacher/tokenizer")) << targets;
    }
}

}  // namespace
}  // namespace distilld::api
