#include "pipeline/teacher/rollout/kept_rollouts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/files/files.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

KeptAnswers answers(std::uint64_t micro_batch) {
    const auto id = static_cast<std::int32_t>(micro_batch);
    return {micro_batch, micro_batch / 2, {7, 3}, {{{id, 5}, {-0.5F, -1.25F}}, {{9}, {-0.1F}}}};
}

TokenBatch prompts(std::uint64_t micro_batch) {
    TokenBatch batch;
    batch.number = micro_batch;
    batch.rows = 2;
    batch.columns = 6;
    batch.input_ids = {1, 2, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0};
    batch.labels = {-100, -100, 0, -100, -100, -100, 0, -100, -100, -100, -100, -100};
    batch.lengths = {3, 1};
    batch.row_ids = {7, 3};
    return batch;
}

class KeptRolloutsTest : public ::testing::Test {
  protected:
    Result<std::unique_ptr<KeptRollouts>> open(const std::string& run = "run") {
        const auto is_ours = [run](const std::string& of) { return of == run; };
        return KeptRollouts::open(file_, run, is_ours, [this](const std::function<Result<void>()>& change) {
            return refuses_ ? Result<void>(io_error("replaced")) : change();
        });
    }
    std::string content() const { return read_text_file(file_, 1 << 20).value(); }

    test::TemporaryFolder folder_;
    std::filesystem::path file_ = folder_ / "rollouts.jsonl";
    bool refuses_ = false;
};

TEST_F(KeptRolloutsTest, ComeBackAsTheyWere) {
    {
        const auto kept = open();
        ASSERT_TRUE(kept) << kept.error().message;
        ASSERT_TRUE((*kept)->append({answers(0), answers(1)}));
        ASSERT_TRUE((*kept)->append({answers(1), answers(2)})) << "it has one of them";
    }
    std::ofstream(file_, std::ios::app) << R"({"micro_batch":3,"version":1,"ro)";  // a write that was cut off
    const auto kept = open();
    ASSERT_TRUE(kept) << kept.error().message;
    EXPECT_EQ((*kept)->count(), 3U);
    EXPECT_FALSE((*kept)->has(3));
    const auto one = (*kept)->read(1);
    ASSERT_TRUE(one) << one.error().message;
    EXPECT_EQ(one->version, 0U);
    EXPECT_THAT(one->rows, ElementsAre(7, 3));
    EXPECT_THAT(one->answers[0].ids, ElementsAre(1, 5));
    EXPECT_THAT(one->answers[0].log_probabilities, ElementsAre(-0.5F, -1.25F));
    EXPECT_THAT(one->answers[1].log_probabilities, ElementsAre(-0.1F));
    ASSERT_TRUE((*kept)->append({answers(3)}));
    EXPECT_EQ((*kept)->read(3).value().answers[0].ids.front(), 3);
    EXPECT_EQ(std::ranges::count(content(), '\n'), 5);
}

TEST_F(KeptRolloutsTest, AnotherRunBeginsAnew) {
    ASSERT_TRUE(open().value()->append({answers(0)}));
    EXPECT_EQ(open("another").value()->count(), 0U);
    EXPECT_EQ(open().value()->count(), 0U);
}

TEST_F(KeptRolloutsTest, ADamagedLineIsNamed) {
    ASSERT_TRUE(open().value()->append({answers(0), answers(1)}));
    std::string text = content();
    const auto second = text.find("{\"micro_batch\":1");
    text.replace(second, 5, "xxxxx");
    std::ofstream(file_, std::ios::trunc) << text;
    EXPECT_THAT(open().error().message, HasSubstr("rollouts.jsonl: the line at byte " + std::to_string(second)));
    text.replace(second, 5, "{\"mic");
    text.replace(text.find("[7,3]", second), 5, "[7,'x");
    std::ofstream(file_, std::ios::trunc) << text;
    EXPECT_THAT(open().value()->read(1).error().message, HasSubstr("is not one of kept answers: remove the file"));
}

TEST_F(KeptRolloutsTest, WhoHasLostTheFolderChangesNothing) {
    const auto kept = open();
    ASSERT_TRUE((*kept)->append({answers(0)}));
    const std::string before = content();
    refuses_ = true;
    EXPECT_EQ((*kept)->append({answers(1)}).error().message, "replaced");
    EXPECT_FALSE((*kept)->has(1));
    EXPECT_EQ(content(), before);
}

TEST_F(KeptRolloutsTest, AnswersToOtherPromptsAreRefused) {
    std::shared_ptr<KeptRollouts> kept = open().value();
    ASSERT_TRUE(kept->append({answers(4)}));
    auto good = kept_answer(kept, std::make_shared<const TokenBatch>(prompts(4)), 10).decode();
    ASSERT_TRUE(good) << good.error().message;
    const TokenBatch asked = prompts(4);
    const TokenBatch batch = answered_batch(asked, rollouts_of(*good, asked.lengths), TokenBatch());
    EXPECT_EQ(batch.target_tokens, 3U);
    EXPECT_EQ(batch.columns, 4U);
    EXPECT_THAT(batch.lengths, ElementsAre(4, 1));
    EXPECT_THAT(batch.input_ids, ElementsAre(1, 2, 3, 4, 4, 0, 0, 0));
    EXPECT_THAT(batch.labels, ElementsAre(-100, -100, 4, 5, 9, -100, -100, -100));
    TokenBatch others = prompts(4);
    others.row_ids = {7, 4};
    EXPECT_THAT(kept_answer(kept, std::make_shared<const TokenBatch>(others), 10).decode().error().message,
                HasSubstr("the kept answers to micro-batch 4 are not to its prompts"));
    TokenBatch narrow = prompts(4);
    narrow.columns = 3;
    EXPECT_FALSE(kept_answer(kept, std::make_shared<const TokenBatch>(narrow), 10).decode());
    TokenBatch without = prompts(4);
    without.labels[6] = -100;
    EXPECT_FALSE(kept_answer(kept, std::make_shared<const TokenBatch>(without), 10).decode())
        << "one is of the dataset";
    EXPECT_FALSE(kept_answer(kept, std::make_shared<const TokenBatch>(prompts(4)), 9).decode()) << "no token 9";
}

TEST_F(KeptRolloutsTest, RowsOfTheDatasetTakeThePlacesOfPromptsWithoutAnswers) {
    TokenBatch asked = prompts(4);
    asked.labels[2] = -100;
    EXPECT_FALSE(wants_answer(asked, 0));
    EXPECT_TRUE(wants_answer(asked, 1));
    EXPECT_FALSE(wants_no_answer(asked));
    KeptAnswers half = answers(4);
    half.answers[0] = {};
    std::shared_ptr<KeptRollouts> kept = open().value();
    ASSERT_TRUE(kept->append({half}));
    auto targets = kept_answer(kept, std::make_shared<const TokenBatch>(asked), 10).decode();
    ASSERT_TRUE(targets) << targets.error().message;
    TokenBatch others;
    others.rows = 1;
    others.columns = 5;
    others.input_ids = {21, 22, 23, 0, 0};
    others.labels = {-100, 23, 24, -100, -100};
    others.lengths = {3};
    others.target_tokens = 2;
    const TokenBatch batch = answered_batch(asked, rollouts_of(*targets, asked.lengths), others);
    EXPECT_EQ(batch.target_tokens, 3U);
    EXPECT_THAT(batch.lengths, ElementsAre(3, 1));
    EXPECT_THAT(batch.input_ids, ElementsAre(21, 22, 23, 4, 0, 0));
    EXPECT_THAT(batch.labels, ElementsAre(-100, 23, 24, 9, -100, -100));
}

TEST_F(KeptRolloutsTest, AnotherRunsAnswersAreReadIfTheyFit) {
    ASSERT_TRUE(open("first").value()->append({answers(0)}));
    const std::string before = content();
    const auto check = [](const std::string& run) -> Result<void> {
        return run == "first" ? Result<void>() : invalid_input("of another seed");
    };
    EXPECT_EQ(KeptRollouts::open_other(file_, check).value()->read(0).value().answers[1].ids.front(), 9);
    EXPECT_EQ(content(), before);
    ASSERT_TRUE(open("second"));
    EXPECT_THAT(KeptRollouts::open_other(file_, check).error().message, HasSubstr("rollouts.jsonl: of another seed"));
    EXPECT_THAT(KeptRollouts::open_other(folder_ / "absent", check).error().message, HasSubstr("it has no answers"));
}

}  // namespace
}  // namespace distilld
