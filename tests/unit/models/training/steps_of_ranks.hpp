#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "models/weights/weight_folder.hpp"
#include "pipeline/core/batch_plan.hpp"
#include "tests/unit/models/training/ranks_in_memory.hpp"
#include "tests/unit/models/training/small_student.hpp"

/// Several ranks, each with a student and a part of every step: the bits of one that trains on all micro-batches.
namespace distilld::test {

inline constexpr std::uint32_t kMicroBatches = 12;
inline constexpr std::uint64_t kSteps = 3;

/// The micro-batches of a step. The last step has only `of_last`. Those in `silent` have no target.
struct Steps {
    std::uint32_t of_last = kMicroBatches;
    std::set<std::uint32_t> silent{};
    bool announced = true;  ///< the student knows the last micro-batch of a step
};

inline MicroBatch numbered(std::uint64_t step, std::uint32_t index, const Steps& steps) {
    MicroBatch batch = micro_batch((step * kMicroBatches + index) * 4, 1 + index % 3, Teacher::topk);
    auto tokens = std::make_shared<TokenBatch>(*batch.tokens);
    tokens->number = step * kMicroBatches + index;
    if (steps.silent.contains(index)) {
        std::ranges::fill(tokens->labels, kIgnoredLabel);
        tokens->target_tokens = 0;
    }
    batch.tokens = std::move(tokens);
    batch.index = index;
    batch.step_target_tokens = 300;
    return batch;
}

using MakeStudent = std::function<std::unique_ptr<Student>(const models::CausalLmStudentOptions&)>;

/// What the student becomes: figures of the steps and the hash of the weights.
inline std::string trained(models::CausalLmStudentOptions options, RankExchange* ranks, const Steps& steps,
                           const MakeStudent& make_student) {
    options.ranks = ranks;
    const bool shares_state = ranks != nullptr && options.training.shard_optimizer;
    const auto student = make_student(options);
    const StepSlice slice =
        ranks != nullptr ? slice_of_rank(kMicroBatches, ranks->rank(), ranks->count()) : StepSlice{0, kMicroBatches};
    std::string bits;
    for (std::uint64_t step = 0; step < kSteps; ++step) {
        const std::uint32_t end = step + 1 == kSteps ? std::min(steps.of_last, slice.end) : slice.end;
        StepSums sums;
        for (std::uint32_t index = slice.begin; index < end; ++index) {
            MicroBatch batch = numbered(step, index, steps);
            batch.ends_step = steps.announced && index + 1 == end;
            const auto staged = student->stage(std::move(batch));
            sums.add(student->train(*staged), 10, 1);
        }
        const StepStats stats = student->finish_step(1e-2);
        RankCounters figures;
        figures.tokens = ranks == nullptr ? 0 : ranks->rank() + step;
        const StepOfAll all = student->of_all_ranks(sums, figures);
        sums = all.sums;
        EXPECT_EQ(all.ranks.size(), ranks == nullptr ? 0 : ranks->count());
        for (std::size_t rank = 0; rank < all.ranks.size(); ++rank) {
            EXPECT_EQ(all.ranks[rank].rank, rank);
            EXPECT_EQ(all.ranks[rank].tokens, rank + step);
        }
        bits += std::to_string(stats.grad_norm) + " " + std::to_string(stats.loss_sum) + " " +
                std::to_string(stats.kd_sum) + " " + std::to_string(sums.target_tokens) + " " +
                std::to_string(sums.positions) + " ";
        if (shares_state && ranks->rank() == 0 && step + 2 == kSteps) {
            static_cast<void>(student->snapshot({}));
        }
    }
    bits += std::to_string(student->evaluate(numbered(0, 0, {})).ce_sum) + " ";
    const TemporaryFolder folder;
    if (shares_state && ranks->rank() > 0) {
        student->attend_last_snapshot();
        return bits;
    }
    const auto snapshot = student->snapshot({});
    snapshot->write_checkpoint(folder / "checkpoint").value();
    snapshot->write_model(folder.path()).value();
    return bits + sha256_file(folder / "checkpoint" / "optimizer.safetensors").value() +
           sha256_file(folder / (options.student.lora ? models::kAdapterWeightsFile : "model.safetensors")).value();
}

inline void expect_same_bits(models::CausalLmStudentOptions options, std::uint32_t groups,
                             const std::vector<std::uint32_t>& counts, const Steps& steps = {},
                             const MakeStudent& make_student = make) {
    options.training.micro_batches = kMicroBatches;
    options.training.gradient_groups = groups;
    const std::string alone = trained(options, nullptr, steps, make_student);
    for (const std::uint32_t count : counts) {
        std::vector<std::string> results(count);
        on_ranks(count,
                 [&](RankExchange& ranks) { results[ranks.rank()] = trained(options, &ranks, steps, make_student); });
        for (const std::string& result : results) {
            const bool whole = !options.training.shard_optimizer || &result == &results.front();
            EXPECT_EQ(result, whole ? alone : alone.substr(0, result.size())) << count << " ranks";
        }
    }
}

}  // namespace distilld::test
