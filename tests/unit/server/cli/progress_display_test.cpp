#include "server/cli/progress_display.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace distilld::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

ProgressEvent progress(std::uint64_t step) {
    ProgressEvent event;
    event.step = step;
    event.total_steps = 100;
    event.loss = 2.34561;
    event.learning_rate = 1e-4;
    event.tokens_per_second = 12345;
    event.seconds_remaining = 65;
    event.stall_fraction = 0.004;
    return event;
}

TEST(ProgressText, Durations) {
    EXPECT_EQ(duration_text(0), "0s");
    EXPECT_EQ(duration_text(59.6), "1m00s");
    EXPECT_EQ(duration_text(187), "3m07s");
    EXPECT_EQ(duration_text(7505), "2h05m");
    EXPECT_EQ(duration_text(kNaN), "?");
    EXPECT_EQ(duration_text(-1), "?");
}

TEST(ProgressText, Counts) {
    EXPECT_EQ(count_text(950), "950");
    EXPECT_EQ(count_text(12345), "12.3k");
    EXPECT_EQ(count_text(4560000), "4.56M");
    EXPECT_EQ(count_text(7e9), "7.00G");
    EXPECT_EQ(count_text(kNaN), "?");
}

TEST(ProgressText, LineAndBar) {
    EXPECT_EQ(progress_line(progress(40)),
              "step 40/100 loss 2.3456 nats/token lr 1.0e-04 | 12.3k tok/s | ETA 1m05s | stall 0.4%");
    EXPECT_EQ(progress_bar(progress(40), 200), "[########............] " + progress_line(progress(40)));
    EXPECT_EQ(progress_bar(progress(100), 30).size(), 30U);
    auto odd = progress(1);
    odd.total_steps = 0;
    odd.loss = kNaN;
    odd.nonfinite_steps = 1;
    EXPECT_THAT(progress_bar(odd, 200), HasSubstr("[....................] step 1/0 loss nan nats/token"));
    EXPECT_THAT(progress_line(odd), HasSubstr("1 step skipped"));
}

TEST(ProgressText, SaysWhatTheLossIsMadeOf) {
    auto event = progress(40);
    event.kd_loss = event.loss;
    event.ce_loss = 4;  // measured, but of no weight
    EXPECT_THAT(progress_line(event), HasSubstr("step 40/100 KD loss 2.3456 nats/token lr"));
    event.kd_loss = 2;
    EXPECT_THAT(progress_line(event), HasSubstr("step 40/100 KD + cross entropy loss 2.3456 nats/token lr"));
    event.kd_loss = 0;
    event.ce_loss = event.loss;
    EXPECT_THAT(progress_line(event), HasSubstr("step 40/100 cross entropy loss 2.3456 nats/token lr"));
}

TEST(ProgressText, AGenerateJobCountsRows) {
    ProgressEvent event;
    event.generates = true;
    event.step = 1200;
    event.total_steps = 10000;
    event.tokens_per_second = 12345;
    event.seconds_remaining = 65;
    event.fetch.store = StoreCounters{10000, 1200, 1024, 5000};
    EXPECT_EQ(progress_line(event), "rows 1200/10000 (1024 sealed) | 12.3k tok/s | ETA 1m05s");
    event.fetch.endpoints.resize(2);
    event.fetch.endpoints[0].tokens_per_second = 9000;
    event.fetch.endpoints[1].tokens_per_second = 3345;
    EXPECT_THAT(progress_line(event), HasSubstr(" | 12.3k tok/s (9.0k + 3.3k) | "));
    const auto text = summary(FinishedEvent{event, "/answers", {}, ""});
    EXPECT_THAT(text, HasSubstr("1200 rows in the store"));
    EXPECT_THAT(text, HasSubstr("store           /answers"));
    EXPECT_THAT(text, Not(HasSubstr("loss")));
}

TEST(ProgressText, SummaryHasTheFigures) {
    FinishedEvent finished;
    finished.last = progress(100);
    finished.last.teacher_hidden_fraction = 0.98;
    finished.last.bottleneck = "student";
    finished.last.stages = {{"teacher", 1.5, 2.5, 3.5}, {"evaluation", 4.5, 0, 0}};
    finished.output = "/out";
    finished.weights_sha256 = "abc";
    EXPECT_THAT(summary(finished), Not(HasSubstr("teacher hidden")));  // no request was made: plain training
    finished.last.fetch.requests = 4;
    finished.eval_loss = 1.25;
    EXPECT_THAT(summary(finished), Not(HasSubstr("as exported")));
    finished.exported_eval_loss = 1.375;
    const auto text = summary(finished);
    for (const char* part : {"2.3456", "1.2500", "loss            2.3456 nats/token\n",
                             "held-out        1.2500 nats/token (cross entropy)", "as exported   1.3750", "12345",
                             "0.4%", "98.0%", "student", "stage teacher    busy 1.50 s", "stage evaluation busy 4.50 s",
                             "input 2.50 s", "output 3.50 s", "/out", "abc"}) {
        EXPECT_THAT(text, HasSubstr(part));
    }
}

TEST(ProgressText, AnswersOfAStoreAreNoRequestsToATeacher) {
    FinishedEvent finished;
    finished.last = progress(100);
    finished.last.fetch.requests = 317;
    finished.last.fetch.store = StoreCounters{2542, 320, 0, 0};
    EXPECT_THAT(summary(finished), HasSubstr("answers         317 through the store, which has 320 of 2542 rows\n"));
    EXPECT_THAT(summary(finished), Not(HasSubstr("p50")));
    finished.last.fetch.latency_p95_seconds = 0.25;
    EXPECT_THAT(summary(finished), HasSubstr("rows, p50 0.000 s, p95 0.250 s\n"));
}

class Display : public ::testing::Test {
  protected:
    ProgressDisplay make(bool terminal) {
        const auto width = [this] { return width_; };
        return ProgressDisplay([this](const std::string& text) { written_.push_back(text); },
                               terminal ? TerminalWidth(width) : TerminalWidth());
    }
    static std::chrono::steady_clock::time_point at(int milliseconds) {
        return std::chrono::steady_clock::time_point(std::chrono::hours(1) + std::chrono::milliseconds(milliseconds));
    }
    std::vector<std::string> written_;
    unsigned width_ = 200;
};

TEST_F(Display, PlainLinesAtMostOnceASecondAndTheLast) {
    auto display = make(false);
    display.show(progress(1), at(0));
    display.show(progress(2), at(500));
    display.show(progress(3), at(1000));
    display.show(LogEvent{"warn", "slow teacher"}, at(1001));
    display.show(progress(100), at(1002));
    EXPECT_THAT(written_, ElementsAre(progress_line(progress(1)) + "\n", progress_line(progress(3)) + "\n",
                                      "warn: slow teacher\n", progress_line(progress(100)) + "\n"));
}

TEST_F(Display, TerminalRedrawsOneLineAndKeepsItBelowOthers) {
    auto display = make(true);
    const std::string bar = progress_bar(progress(1), 199);
    display.show(progress(1), at(0));
    display.line("a word");
    display.show(CancelledEvent{1, "cp"}, at(1));
    EXPECT_THAT(written_, ElementsAre("\r\x1b[K" + bar, "\r\x1b[Ka word\n" + bar, "\n",
                                      "interrupted after step 1; checkpoint: cp\n"));
}

TEST_F(Display, TheBarFollowsTheWindow) {
    auto display = make(true);
    std::vector<std::string> bars;
    int moment = 0;
    for (const unsigned width : {200U, 40U, 3U, 120U}) {
        width_ = width;
        display.show(progress(1), at(moment += 1000));
        bars.push_back("\r\x1b[K" + progress_bar(progress(1), std::max(width, 20U) - 1));
    }
    EXPECT_THAT(written_, testing::ElementsAreArray(bars));
    EXPECT_EQ(written_[1].size(), written_[2].size() + 20);
}

TEST_F(Display, SaysWhatIsTrained) {
    auto display = make(false);
    display.show(StartedEvent{100, 40, 4560000, 1, 12345, 13000, "bf16", "teacher X", 2, 8, "bytes"}, at(0));
    display.show(EvaluationEvent{50, 1.5, 10}, at(0));
    display.show(EvaluationEvent{60, 1.25, 10, 0.5, 0.75, 0.8, {{"Once\nupon", " a \"time\"\x01"}}}, at(0));
    display.show(FiguresEvent{60, {{"acc", 0.5}, {"b", 3}}, 2}, at(0));
    display.show(FiguresEvent{70, {}, 2, "it failed"}, at(0));
    display.show(RolloutEvent{71, 70, {{"Once\nupon", " a time", 3, true}, {"The", " end", 2, false}}}, at(0));
    display.show(CheckpointEvent{50, "cp", 1}, at(0));
    EXPECT_THAT(
        written_,
        ElementsAre(
            "training 4.56M parameters (bf16) on 12.3k of 13.0k tokens in 1 row: 100 steps of up to 2 x 8 "
            "sequences, from step 40\n",
            "tokenizer: bytes\n", "teacher: teacher X\n", "step 50 held-out cross entropy 1.5000 nats/token\n",
            "step 60 held-out cross entropy 1.2500 nats/token, KL to the teacher 0.5000, top-1 agreement 75.0%, "
            "acceptance as a draft 80.0% (3.4 tokens per teacher pass with 4 drafted)\n",
            "  \"Once\\nupon\" → \" a \\\"time\\\" \"\n", "step 60 eval.command acc 0.5, b 3\n",
            "step 70 eval.command: it failed\n", "step 71 rollout \"Once\\nupon\" → \" a time\", cut\n",
            "step 71 rollout \"The\" → \" end\"\n", "step 50 checkpoint cp\n"));
}

TEST(ProgressText, SummarySaysWhatTheStudentHasWritten) {
    FinishedEvent finished;
    finished.last = progress(100);
    EXPECT_THAT(summary(finished), Not(HasSubstr("  rollout  ")));
    finished.last.tokens = 9000;
    finished.last.seconds_elapsed = 2;
    finished.last.fetch.endpoints.resize(2);
    finished.last.fetch.endpoints[0].tokens = 50;
    finished.last.fetch.endpoints[1].tokens = 30;
    finished.last.rollout = RolloutCounters{8, 40, 2, 5, 1.5};
    EXPECT_THAT(summary(finished), HasSubstr("  rollout         8 answers of 5.0 tokens, 2 cut at max_tokens, entropy "
                                             "1.50 nats\n    tokens/s      20 written, 40 graded, 4.5k trained on\n"));
    finished.last.rollout->reverse_kl = 0.25;
    EXPECT_THAT(summary(finished), HasSubstr("entropy 1.50 nats, reverse KL 0.2500 nats\n"));
}

TEST(RankLines, SayWhoWaits) {
    ProgressEvent progress;
    EXPECT_THAT(rank_lines(progress), IsEmpty());
    progress.ranks = {{0, "a", 10, 1500, 0.5, 2, {}}, {1, "b", 10, 900, 0, 0.25, {}}};
    EXPECT_THAT(rank_lines(progress), ElementsAre("a: 1.5k tok/s, waited for input 0.50 s, for other ranks 2.00 s",
                                                  "b: 900 tok/s, waited for input 0.00 s, for other ranks 0.25 s"));
}

TEST_F(Display, SaysHowManyMicroBatchesTrainAtOnce) {
    auto display = make(false);
    StartedEvent started{6, 0, 1000, 1, 10, 10, "fp32", "", 2, 8};
    for (const std::uint32_t replicas : {1, 3}) {
        started.replicas = replicas;
        display.show(started, at(0));
    }
    const std::string line =
        "training 1.0k parameters (fp32) on 10 of 10 tokens in 1 row: 6 steps of up to 2 x 8 sequences";
    started.replicas = 1;
    started.ranks = 2;
    display.show(started, at(0));
    EXPECT_THAT(written_, ElementsAre(line + "\n", line + ", 3 micro-batches at once\n", line + ", on 2 ranks\n"));
}

}  // namespace
}  // namespace distilld::cli
