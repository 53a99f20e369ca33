#include "pipeline/core/lr_schedule.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace distilld {
namespace {

// What transformers 5.23 answered (get_constant_schedule_with_warmup, get_linear_schedule_with_warmup,
// get_cosine_schedule_with_warmup; learning rate 3e-4), step by step from 0.
struct Case {
    const char* name;
    LrScheduler scheduler;
    std::uint64_t warmup;
    std::uint64_t total;
    std::vector<double> rates;
};

TEST(LrSchedule, IsThatOfTransformers) {
    const Case cases[] = {
        {"constant", LrScheduler::constant, 4, 12, {0.0, 7.5e-05, 0.00015, 0.000225, 0.0003, 0.0003, 0.0003}},
        {"linear",
         LrScheduler::linear,
         4,
         12,
         {0.0, 7.5e-05, 0.00015, 0.000225, 0.0003, 0.0002625, 0.000225, 0.0001875, 0.00015, 0.0001125, 7.5e-05,
          3.75e-05, 0.0, 0.0}},
        {"cosine",
         LrScheduler::cosine,
         4,
         12,
         {0.0, 7.5e-05, 0.00015, 0.000225, 0.0003, 0.000288581929876693, 0.00025606601717798207, 0.00020740251485476345,
          0.00015, 9.259748514523653e-05, 4.3933982822017876e-05, 1.1418070123306989e-05, 0.0}},
        {"linear without warm-up", LrScheduler::linear, 0, 5, {0.0003, 0.00024, 0.00018, 0.00012, 6e-05, 0.0, 0.0}},
        {"cosine without warm-up",
         LrScheduler::cosine,
         0,
         5,
         {0.0003, 0.0002713525491562421, 0.0001963525491562421, 0.0001036474508437579, 2.8647450843757897e-05, 0.0}},
        {"all warm-up", LrScheduler::linear, 3, 3, {0.0, 1e-04, 2e-04}},
        {"warm-up beyond the end", LrScheduler::cosine, 6, 4, {0.0, 5e-05, 1e-04, 1.5e-04}},
        {"one step", LrScheduler::cosine, 0, 1, {0.0003}},
    };
    for (const Case& test : cases) {
        for (std::size_t step = 0; step < test.rates.size(); ++step) {
            EXPECT_NEAR(learning_rate_at(test.scheduler, 3e-4, test.warmup, test.total, step), test.rates[step], 1e-18)
                << test.name << ", step " << step;
        }
    }
}

TEST(LrSchedule, StaysAtTheEndPointAfterTheEnd) {
    for (const std::uint64_t step : {10, 11, 1'000'000}) {
        EXPECT_EQ(learning_rate_at(LrScheduler::linear, 1.0, 2, 10, step), 0.0);
        EXPECT_EQ(learning_rate_at(LrScheduler::cosine, 1.0, 2, 10, step), 0.0);
        EXPECT_EQ(learning_rate_at(LrScheduler::constant, 1.0, 2, 10, step), 1.0);
    }
}

TEST(LrSchedule, ZeroStaysZero) {
    for (const auto scheduler : {LrScheduler::constant, LrScheduler::linear, LrScheduler::cosine}) {
        for (std::uint64_t step = 0; step < 12; ++step) {
            EXPECT_EQ(learning_rate_at(scheduler, 0.0, 3, 10, step), 0.0);
        }
    }
}

TEST(WarmUp, IsAShareOfTheStepsWhereNoneAreGiven) {
    TrainingSpec training;
    training.warmup_ratio = 0.05;
    EXPECT_EQ(warmup_steps_of(training, 43), 3U);
    EXPECT_EQ(warmup_steps_of(training, 100), 5U);
    EXPECT_EQ(warmup_steps_of(training, 2), 1U);
    EXPECT_EQ(warmup_steps_of(training, 1), 0U) << "never all of them";
    training.warmup_ratio = 0.07;
    EXPECT_EQ(warmup_steps_of(training, 100), 7U) << "as transformers, but for the last bits of the product";
    training.warmup_steps = 2;
    EXPECT_EQ(warmup_steps_of(training, 100), 2U) << "as transformers: it goes before the share";
}

TEST(WarmUp, ARunThatWouldLearnNothingIsTold) {
    TrainingSpec training;
    EXPECT_EQ(why_nothing_is_learnt(training, 1), "");
    training.warmup_ratio = 0.999;
    EXPECT_EQ(why_nothing_is_learnt(training, 1), "");
    training.warmup_steps = 20;
    EXPECT_EQ(why_nothing_is_learnt(training, 21), "");
    EXPECT_THAT(why_nothing_is_learnt(training, 20),
                ::testing::StartsWith("/training/warmup_steps: the warm-up of 20 steps does not end before the run"));
    training.learning_rate = 0;
    EXPECT_THAT(why_nothing_is_learnt(training, 100), ::testing::StartsWith("/training/learning_rate: is 0"));
}

}  // namespace
}  // namespace distilld
