#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "models/training/rank_buckets.hpp"
#include "models/training/rank_step.hpp"
#include "models/training/student_network.hpp"
#include "tests/unit/models/training/ranks_in_memory.hpp"
#include "tests/unit/models/training/small_student.hpp"
#include "tests/unit/models/training/steps_of_ranks.hpp"

// Several ranks, each with a student and a part of every step: the bits of one that trains on all micro-batches.
namespace distilld::models {
namespace {

using test::expect_same_bits;
using test::kMicroBatches;
using test::make;
using test::numbered;
using test::on_ranks;
using test::random_options;

TEST(Ranks, TrainAsOneDoes) {
    for (const bool tied : {true, false}) {
        for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
            SCOPED_TRACE(testing::Message() << "tied " << tied << ", dtype " << static_cast<int>(dtype));
            CausalLmStudentOptions options = random_options(tied);
            options.student.dtype = dtype;
            expect_same_bits(options, 4, {1, 2, 4});
        }
    }
}

TEST(Ranks, NeedNoPowerOfTwo) {
    expect_same_bits(random_options(), 3, {3});
    expect_same_bits(random_options(), 6, {2, 3});
    expect_same_bits(random_options(false), 12, {2, 3, 4, 6});
}

TEST(Ranks, MayHaveNothingToTrainOn) {
    for (const std::uint32_t of_last : {1, 4, 7}) {
        SCOPED_TRACE(of_last);
        expect_same_bits(random_options(), 4, {2, 4}, {.of_last = of_last});
    }
    expect_same_bits(random_options(), 4, {2, 4}, {.silent = {0, 1, 2, 5}});
    expect_same_bits(random_options(), 4, {2, 4}, {.silent = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}});
    expect_same_bits(random_options(), 4, {2}, {.silent = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}});
}

TEST(Ranks, ExchangeAtTheEndOfAStepThatIsNotAnnounced) {
    expect_same_bits(random_options(), 4, {2, 4}, {.announced = false});
}

TEST(Ranks, ShareTheOptimizersState) {
    for (const OptimizerKind optimizer : {OptimizerKind::adamw, OptimizerKind::adamw_8bit, OptimizerKind::sgd}) {
        for (const bool tied : {true, false}) {
            SCOPED_TRACE(testing::Message() << "tied " << tied << ", optimizer " << static_cast<int>(optimizer));
            CausalLmStudentOptions options = random_options(tied);
            options.student.dtype = tied ? Dtype::fp32 : Dtype::bf16;
            options.training.optimizer = optimizer;
            options.training.sgd_momentum = optimizer == OptimizerKind::sgd ? 0.9 : 0;
            options.training.shard_optimizer = true;
            expect_same_bits(options, 12, {1, 2, 3, 6});
        }
    }
}

TEST(Ranks, ShareTheOptimizersStateInStepsWithoutWork) {
    CausalLmStudentOptions options = random_options();
    options.training.shard_optimizer = true;
    options.training.overlap_optimizer = false;
    expect_same_bits(options, 4, {2, 4}, {.of_last = 1});
    expect_same_bits(options, 4, {2, 4}, {.silent = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}});
    expect_same_bits(options, 4, {2}, {.silent = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}});
    expect_same_bits(options, 4, {4}, {.announced = false});
}

TEST(Ranks, KeepOnlyTheirPartOfTheOptimizersState) {
    CausalLmStudentOptions options = random_options();
    options.training.shard_optimizer = true;
    options.training.micro_batches = kMicroBatches;
    options.training.gradient_groups = 4;
    const auto network = make_student_network(options.student, options.training, torch::kCPU).value();
    std::vector<std::vector<bool>> owned(4);
    on_ranks(4, [&](RankExchange& ranks) {
        const RankStep step(ranks, options.training, network->groups(), torch::kFloat,
                            std::make_shared<GradientOrder>());
        for (std::size_t group = 0; group < network->groups().size(); ++group) {
            owned[ranks.rank()].push_back(step.owns(group));
        }
    });
    for (std::size_t group = 0; group < network->groups().size(); ++group) {
        EXPECT_EQ(std::ranges::count_if(owned, [&](const auto& of_rank) { return of_rank[group]; }), 1) << group;
    }
}

TEST(Ranks, LeaveMastersOfMatricesToTheirOwners) {
    CausalLmStudentOptions options = random_options(/*tied=*/false);
    options.student.dtype = Dtype::bf16;
    options.training.shard_optimizer = true;
    on_ranks(2, [&](RankExchange& ranks) {
        const auto network = make_student_network(options.student, options.training, torch::kCPU).value();
        RankStep step(ranks, options.training, network->groups(), torch::kBFloat16, std::make_shared<GradientOrder>());
        LayeredOptimizer optimizer(network->groups(), make_adamw({}), UpdateMode::lazy,
                                   [&](std::size_t group) { return step.owns(group); });
        step.set_optimizer(optimizer);
        std::size_t dropped = 0;
        for (int pass = 0; pass < 2; ++pass) {
            optimizer.finish_step(0.1, 1, /*others_have_some=*/true);
            step.share_weights();
            for (std::size_t group = 0; group < network->groups().size(); ++group) {
                step.arrive(group);
            }
        }
        const auto fresh = make_student_network(options.student, options.training, torch::kCPU).value();
        for (std::size_t group = 0; group < network->groups().size(); ++group) {
            for (std::size_t i = 0; i < network->groups()[group].parameters.size(); ++i) {
                const Parameter& parameter = network->groups()[group].parameters[i];
                const Parameter& expected = fresh->groups()[group].parameters[i];
                const bool keeps = step.owns(group) || group == 0 || parameter.master.dim() == 1;
                EXPECT_EQ(parameter.master.storage().nbytes() == parameter.master.nbytes(), keeps) << parameter.name;
                EXPECT_EQ(parameter.master.isnan().any().item<bool>(), !keeps) << parameter.name;
                EXPECT_EQ(parameter.master.sizes(), expected.master.sizes());
                EXPECT_TRUE(torch::equal(compute_weight(parameter, torch::kBFloat16),
                                         compute_weight(expected, torch::kBFloat16)))
                    << parameter.name;
                dropped += keeps ? 0 : 1;
            }
        }
        EXPECT_GT(dropped, 0U);
    });
}

TEST(Ranks, PutGradientsIntoBuckets) {
    const std::vector<BucketedMaster> masters{{2, 5, 0}, {1, 3, 0}, {0, 4, 1}, {3, 0, 1}};
    const std::vector<RankBucket> buckets = make_buckets(masters, 6);
    std::string text;
    for (const RankBucket& bucket : buckets) {
        text += std::to_string(bucket.owner) + ":";
        for (const RankBucket::Part& part : bucket.parts) {
            text += " " + std::to_string(part.master) + "[" + std::to_string(part.begin) + "+" +
                    std::to_string(part.count) + (part.last ? "." : "") + "]@" + std::to_string(part.offset);
        }
        text += " = " + std::to_string(bucket.size) + "; ";
    }
    EXPECT_EQ(text, "0: 2[0+5.]@0 1[0+1]@5 = 6; 0: 1[1+2.]@0 = 2; 1: 0[0+4.]@0 = 4; ");
}

TEST(Ranks, DrawDropoutOfTheirMicroBatches) {
    CausalLmStudentOptions options = random_options();
    options.student.config_json = R"({"model_type":"gpt2","vocab_size":61,"n_embd":32,"n_layer":2,"n_head":4,
        "n_positions":32,"initializer_range":0.1,"resid_pdrop":0.1,"embd_pdrop":0.1,"attn_pdrop":0.1})";
    expect_same_bits(options, 4, {2, 4});
}

TEST(Ranks, TellWhoWaits) {
    CausalLmStudentOptions options = random_options();
    options.training.micro_batches = kMicroBatches;
    options.training.gradient_groups = 2;
    on_ranks(2, [&](RankExchange& ranks) {
        CausalLmStudentOptions own = options;
        own.ranks = &ranks;
        const auto student = make(own);
        for (int step = 0; step < 2; ++step) {
            const auto staged = student->stage(numbered(0, ranks.rank() * kMicroBatches / 2, {}));
            static_cast<void>(student->train(*staged));
            if (ranks.rank() == 1) {
                std::this_thread::sleep_for(std::chrono::milliseconds(300));
            }
            static_cast<void>(student->finish_step(1e-2));
            RankCounters mine;
            mine.host = "host-" + std::to_string(ranks.rank());
            mine.busy_seconds = {{"student", 2}, {"optimizer", 1000}};
            const std::vector<RankCounters> all = student->of_all_ranks({}, mine).ranks;
            ASSERT_EQ(all.size(), 2U);
            EXPECT_EQ(all[1].host, "host-1");
            EXPECT_EQ(all[1].busy_seconds.at("student"), 2);
            EXPECT_GT(all[0].wait_ranks_seconds, all[1].wait_ranks_seconds);
            EXPECT_EQ(all[0].busy_seconds.at("optimizer") < 1000, step > 0) << "without the wait of earlier steps";
        }
    });
}

TEST(Ranks, ClipBySameNorm) {
    CausalLmStudentOptions options = random_options();
    options.training.max_grad_norm = 1e-3;
    expect_same_bits(options, 2, {2});
}

}  // namespace
}  // namespace distilld::models
