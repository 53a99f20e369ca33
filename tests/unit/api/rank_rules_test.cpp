#include <gtest/gtest.h>

#include <string>

#include "api/job_spec_json.hpp"

namespace distilld::api {
namespace {

/// The pointers of what is wrong with these fields of a training section.
std::string refused(const std::string& training, const std::string& student = R"("model": "m")") {
    const ParsedSpec spec = parse_job_spec(R"({"student": {)" + student +
                                           R"(}, "dataset": {"train": "t.jsonl", "sequence_length": 8}, "output": "o",
                                             "training": {"max_steps": 2, )" +
                                           training + "}}");
    std::string pointers;
    if (!spec) {
        for (const Violation& violation : spec.error().violations) {
            pointers += violation.pointer + " ";
        }
    }
    return pointers;
}

TEST(RankRules, EachRankHasGroupsAndMicroBatches) {
    EXPECT_EQ(refused(R"("micro_batches": 8, "gradient_groups": 4, "ranks": 2)"), "");
    EXPECT_EQ(refused(R"("micro_batches": "auto", "gradient_groups": 4, "ranks": 4)"), "");
    EXPECT_EQ(refused(R"("micro_batches": 8, "ranks": 2)"), "/training/gradient_groups ");
    EXPECT_EQ(refused(R"("micro_batches": 8, "gradient_groups": 4, "ranks": 3)"), "/training/gradient_groups ");
    EXPECT_EQ(refused(R"("micro_batches": 3, "gradient_groups": 4, "ranks": 4)"), "/training/micro_batches ");
    EXPECT_EQ(refused(R"("micro_batches": 8, "gradient_groups": 65, "ranks": 65)"), "/training/ranks ");
}

TEST(RankRules, RanksTrainOnGpus) {
    EXPECT_EQ(refused(R"("micro_batches": 8, "gradient_groups": 2, "ranks": 2)", R"("model": "m", "device": "cuda")"),
              "");
}

}  // namespace
}  // namespace distilld::api
